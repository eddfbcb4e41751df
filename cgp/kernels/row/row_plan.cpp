// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/row/row_plan.h"

#include <algorithm>
#include <numeric>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/row/row_fit.h"

namespace cgp::kernels::row {

namespace {

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }
std::uint64_t round_up(std::uint64_t n, std::uint64_t to) { return ceil_div(n, to) * to; }

constexpr std::uint64_t kRowThreads = 128;       // of a block whose rows need fewer
constexpr std::uint64_t kMostGrid = 0x7fffffff;  // blocks of a launch

// 32-bit words that a thread holds for one access of every input.
std::uint64_t words_per_access(const RowNeeds& n, int elements) {
  std::uint64_t words = 0;
  for (DType t : n.inputs) words += std::uint64_t(Format{t, elements}.words());
  return std::max<std::uint64_t>(words, 1);
}
std::uint64_t bytes_per_access(const RowNeeds& n, int elements) {
  std::uint64_t bytes = 0;
  for (DType t : n.inputs) bytes += std::uint64_t(Format{t, elements}.bytes());
  return bytes;
}

// Registers of a thread, as far as they can be foreseen: sums, words of inputs and held columns, and the
// rest.
std::uint64_t registers(const RowNeeds& n, const RowConfig& t) {
  const auto loads = std::uint64_t(t.loads), e = std::uint64_t(t.elements);
  const std::uint64_t held =
      (t.persistent ? 2 : 1) * words_per_access(n, t.elements);  // persistent: the next row's too
  std::uint64_t count = loads * (e * std::uint64_t(n.accumulators) + held);
  if (t.hold_columns || (!n.accumulators && t.loads <= 2))
    for (DType c : n.columns) count += loads * std::uint64_t(Format{c, t.elements}.words());
  count += std::uint64_t(n.registers);
  if (t.shift) count += 16;
  if (t.edges) count += count >= 64 ? 24 : 8;  // addresses, which sm_120 else spills
  return round_up(std::max<std::uint64_t>(count + (t.persistent ? 56 : n.accumulators ? 48 : 32), 40), 8);
}

// A ring for rows of `accesses`, or stages = 0 when it does not fit.
RowConfig ring(const RowNeeds& n, RowConfig t, std::uint64_t accesses, std::uint64_t lanes,
               std::uint64_t most_loads, const runtime::DeviceInfo& device) {
  t.rows = 1, t.cluster = 1, t.threads = int(lanes);
  while (accesses > lanes * most_loads * std::uint64_t(t.cluster)) t.cluster *= 2;
  if (t.cluster > device.max_cluster || t.cluster > 8) return t;
  t.loads = int(ceil_div(ceil_div(accesses, std::uint64_t(t.cluster)), lanes));
  const std::uint64_t stage = lanes * std::uint64_t(t.loads) * bytes_per_access(n, t.elements);
  const std::uint64_t room = device.smem_per_sm, other = 2048;
  for (int min_blocks : {4, 3, 2, 1}) {
    if (std::uint64_t(min_blocks) * lanes * registers(n, t) > device.registers_per_sm && min_blocks > 1)
      continue;
    const std::uint64_t share =
        std::min<std::uint64_t>(room / std::uint64_t(min_blocks) - 1024, device.smem_per_block_optin);
    const std::uint64_t stages = share > other ? std::min<std::uint64_t>((share - other) / stage, 3) : 0;
    if (stages < (min_blocks > 1 && t.cluster < 8 ? 3u : 2u)) continue;
    // Clusters of eight on the same SM hide each other's waits: two stages did better than three.
    t.min_blocks = min_blocks, t.stages = min_blocks > 1 && t.cluster == 8 ? 2 : int(stages);
    return t;
  }
  return t;
}

// 32-bit words of a thread for one access of every column vector.
std::uint64_t column_words(const RowNeeds& n, int elements) {
  std::uint64_t words = 0;
  for (DType c : n.columns) words += std::uint64_t(Format{c, elements}.words());
  return words;
}
// Rings whose threads hold the column vectors, which would otherwise come from L2 with every row and cost as
// much of its bandwidth as the rows. 512 threads an SM, so that there are 128 registers for each. All of this
// is what was best in sweeps; stages = 0 where nothing fits.
RowConfig held_ring(const RowNeeds& n, RowConfig t, std::uint64_t accesses,
                    const runtime::DeviceInfo& device) {
  const auto most_loads = [&](std::uint64_t loads, std::uint64_t words) {
    while (loads > 1 && loads * column_words(n, t.elements) > words) loads /= 2;
    while (loads > 1 &&
           3 * 512 * loads * bytes_per_access(n, t.elements) + 2048 > device.smem_per_block_optin)
      loads /= 2;
    return loads;
  };
  const auto ring = [&](std::uint64_t loads, int min_blocks, std::initializer_list<int> clusters,
                        int lanes = 0) {
    RowConfig r = t;
    r.rows = 1, r.threads = lanes ? lanes : 512 / min_blocks, r.min_blocks = min_blocks;
    for (int c : clusters) {
      r.loads = int(ceil_div(ceil_div(accesses, std::uint64_t(c)), std::uint64_t(r.threads)));
      if (std::uint64_t(r.loads) > loads || c > device.max_cluster) continue;
      const std::uint64_t share = std::min<std::uint64_t>(
          device.smem_per_sm / std::uint64_t(min_blocks) - 1024, device.smem_per_block_optin);
      const std::uint64_t stage = std::uint64_t(r.threads * r.loads) * bytes_per_access(n, t.elements);
      // Overlapping the exchange of short rows is worth more stages, and so are rows of eight blocks.
      const std::uint64_t most = min_blocks == 1  ? (n.accumulators && r.loads <= 2 && c > 2 ? 6 : 3)
                                 : c > 1          ? 6
                                 : min_blocks > 2 ? 3
                                                  : 4;
      r.cluster = c, r.stages = int(std::min(most, (share - 2048) / stage));
      if (r.stages < 3) continue;
      r.persistent = false, r.hold_columns = !n.columns.empty();
      return r;
    }
    return RowConfig();
  };
  const auto overlapped = [](RowConfig r) {
    r.overlap_exchange = r.stages > 0;
    return r;
  };
  const auto prefetched = [](RowConfig r) {
    r.prefetch = r.stages > 0;
    return r;
  };
  // The first that fits.
  const auto first = [&](std::initializer_list<RowConfig> rings) {
    for (const auto& r : rings)
      if (r.stages) return r;
    return RowConfig();
  };
  if (n.accumulators) {
    const auto loads = most_loads(4, 16);
    const bool two = n.accumulators * t.elements > 8;  // sums of 16-bit elements
    // With edges teams come in sixteens, and an SM count leaves fewer clusters of eight than that.
    if (t.edges) {  // with two sums four accesses take more registers than 512 threads have
      const auto with_edges = std::min<std::uint64_t>(loads, two ? 2 : 4);
      if (accesses <= 1024)
        return first(
            {t.elements == 8 ? ring(loads, 1, {1}, 256) : t, two ? ring(2, 1, {1}) : ring(4, 2, {1})});
      if (two)
        if (const auto r = prefetched(ring(loads, 1, {2, 4}, 256)); r.stages) return r;
      if (t.elements == 8 && accesses > 2048 && !two)
        if (const auto r = overlapped(ring(loads, 1, {2, 4})); r.stages) return r;
      return overlapped(first({ring(with_edges, 2, {2, 4}), ring(with_edges, 1, {4})}));
    }
    if (two && accesses <= 2048) return prefetched(ring(2, 1, {1, 2}));
    if (t.elements == 8 && !two) {
      if (accesses <= 2048) return overlapped(ring(2, 2, {2, 4}));
      if (const auto r = prefetched(ring(2, 1, {4, 8})); r.stages) return r;
      return prefetched(ring(loads, 1, {8}));
    }
    return overlapped(first({ring(loads, 2, {2, 4, 8}), ring(loads, 1, {8})}));
  }
  if (t.edges) {
    const bool cheap = n.fold_size == 1 && n.inputs.size() == 1 && t.elements == 8;
    if (cheap || (n.inputs.size() == 1 && t.elements == 8 && column_words(n, 8) <= 8 && accesses > 512 &&
                  accesses <= 1024)) {
      // Loads that may allocate in L1 are faster than bulk copies, where a thread has registers for the next
      // row.
      RowConfig r = t;
      r.rows = 1, r.persistent = r.hold_columns = true;
      r.threads = accesses <= 512 ? 128 : accesses <= 1024 ? 256 : 512;
      r.min_blocks = accesses <= 512 ? 3 : accesses <= 1024 ? 2 : 1;
      r.cluster = accesses <= 2048 ? 1 : 2;
      r.loads = int(ceil_div(accesses, std::uint64_t(r.threads * r.cluster)));
      if (r.loads <= 4) return r;
      if (cheap) return first({ring(most_loads(8, 64), 1, {2, 4})});
    }
    if (accesses <= 512) return ring(most_loads(4, 32), 4, {1});
    if (accesses <= 1024)
      return n.fold_size == 1 ? first({ring(most_loads(8, 32), 4, {1}), ring(most_loads(4, 32), 2, {1})})
                              : ring(most_loads(4, 32), 2, {1});
    if (accesses <= 2048)
      return first(
          {t.elements == 8 ? ring(most_loads(8, 64), 1, {1}, 256) : t, ring(most_loads(4, 32), 1, {1})});
    const auto half = overlapped(ring(most_loads(8, n.fold_size == 1 ? 32 : 64), 2, {2, 4}));
    const auto whole = overlapped(ring(most_loads(8, 64), 1, {2, 4}));
    return n.fold_size == 1 || accesses <= 4096 ? first({half, whole}) : first({whole, half});
  }
  // Two blocks an SM for rows of four blocks and more, of 16-bit elements.
  const auto half = t.elements == 8 ? ring(most_loads(8, 64), 2, {4, 8}) : t;
  // Cheap statistics: two blocks a row at most, or eight; the exchange is short then.
  if (n.fold_size == 1 && n.inputs.size() == 1 && accesses > 4096 && accesses <= 8192 && half.stages)
    return overlapped(half);
  if (n.fold_size == 1) return ring(most_loads(8, 32), 1, {1, 2, 8});
  if (accesses <= 4096) return ring(most_loads(4, 32), 1, {1, 2});
  return overlapped(first({half, ring(most_loads(8, 64), 1, {2, 4, 8})}));
}
// From how many accesses on.
bool held_ring_pays(const RowNeeds& n, std::uint64_t accesses, std::uint64_t most) {
  if (n.columns.empty()) return false;
  if (n.fold_size == 1) return accesses > 512 * (n.inputs.size() == 1 && most > 8 ? most / 2 : most);
  return n.inputs.size() == 1 && accesses > 3584;
}
// A block a row, for rows with sums of up to 512 accesses: about 512 threads an SM, most with two accesses.
RowConfig short_ring(const RowNeeds& n, RowConfig t, std::uint64_t accesses,
                     const runtime::DeviceInfo& device) {
  t.rows = 1, t.cluster = 1, t.persistent = false, t.hold_columns = !n.columns.empty();
  const auto shape = [&](int lanes, int loads, int stages, int min_blocks) {
    t.threads = lanes, t.loads = loads, t.stages = stages, t.min_blocks = min_blocks;
  };
  const bool one = n.accumulators == 1;
  const bool halves = t.elements == 8;
  if (accesses <= 128)
    !halves   ? shape(64, 2, 4, 8)
    : t.edges ? shape(32, 4, 3, 12)
    : one     ? shape(128, 1, 6, 6)
              : shape(64, 2, 3, 7);
  else if (accesses <= 256)
    one&& halves && !t.edges    ? shape(256, 1, 3, 3)
    : one || !halves || t.edges ? shape(128, 2, 3, 4)
                                : shape(128, 2, 4, 5);
  else
    t.edges ? shape(128, 4, 3, 3) : shape(256, 2, 3, 2);
  if (n.inputs.size() > 2 || n.accumulators > 2 || bytes_per_access(n, t.elements) > 32 ||
      column_words(n, t.elements) > 4)
    t.min_blocks = std::clamp(int(device.registers_per_sm / (std::uint64_t(t.threads) * registers(n, t))), 1,
                              t.min_blocks);
  const auto stage = std::uint64_t(t.threads * t.loads) * bytes_per_access(n, t.elements);
  const auto room = std::min<std::uint64_t>(device.smem_per_sm / std::uint64_t(t.min_blocks) - 1024,
                                            device.smem_per_block_optin);
  t.stages = int(std::min<std::uint64_t>(std::uint64_t(t.stages), (room - 2048) / stage));
  if (t.stages < 2) t.stages = 0;
  t.prefetch = halves && !t.edges && (accesses <= 128 || (one && accesses <= 256));
  return t;
}
std::string held_reason(const RowConfig& t) {
  return text::cat(t.stages ? text::cat("a ring of ", t.stages, " rows") : std::string("persistent blocks"),
                   t.cluster > 1 ? " in a cluster" : "",
                   t.hold_columns ? ", column vectors in registers" : "",
                   t.overlap_exchange ? "; a row's statistics travel while the next's are computed" : "");
}

RowPlan plan_accumulators(const RowNeeds& n, RowConfig t, std::uint64_t accesses,
                          const runtime::DeviceInfo& device) {
  // Four accesses of 16-bit elements a thread: the sums, the elements and the column vectors of more would
  // not fit its registers.
  std::uint64_t most = t.elements == 1 ? 8 : std::uint64_t(std::max(1, 32 / t.elements));
  while (most > 1 &&
         most * (std::uint64_t(t.elements * n.accumulators) + 2 * words_per_access(n, t.elements)) > 128)
    most /= 2;
  const bool bulk = t.elements > 1 && device.max_cluster >= 8 && device.smem_per_block_optin > 200 * 1024;
  if (bulk && accesses > 64) {
    const auto r = accesses > 512 ? held_ring(n, t, accesses, device) : short_ring(n, t, accesses, device);
    if (r.stages) return {r, text::cat(held_reason(r), "; sums in registers")};
  }
  t.persistent = true;
  if (accesses <= 32 * most) {
    t.threads = accesses <= 8 ? 8 : accesses <= 16 ? 16 : 32;
    t.loads = int(ceil_div(accesses, std::uint64_t(t.threads)));
    t.rows = int(kRowThreads) / t.threads;
    t.min_blocks = std::clamp(int(device.registers_per_sm / (kRowThreads * registers(n, t))), 1, 4);
    return {t, "a warp or less keeps a row and its sums"};
  }
  // Beyond 128 registers a thread a block cannot have 512 threads.
  const std::uint64_t full = n.accumulators > 1 ? most / 2 : most;
  std::uint64_t lanes = std::max<std::uint64_t>(128, round_up(ceil_div(accesses, most), 32)), loads = most;
  if (lanes > 256) lanes = 512, loads = std::max<std::uint64_t>(full, 1);
  if (bulk) {
    if (accesses > lanes * loads && accesses <= 256 * loads * 8) lanes = 256;  // in a cluster
    RowConfig r = t;
    r.persistent = false;
    r = ring(n, r, accesses, lanes, loads, device);
    if (r.stages) return {r, text::cat("a ring of ", r.stages, " rows; sums in registers")};
  }
  t.rows = 1;
  const int most_cluster = device.max_cluster >= 8 ? 8 : 1;
  t.threads = int(lanes);
  while (t.cluster < most_cluster && accesses > lanes * loads * std::uint64_t(t.cluster)) t.cluster *= 2;
  t.loads = int(ceil_div(accesses, lanes * std::uint64_t(t.cluster)));
  t.min_blocks = std::clamp(int(device.registers_per_sm / (lanes * registers(n, t))), 1, 4);
  if (std::uint64_t(t.loads) > loads || (t.loads > 2 && t.elements > 1 && lanes > 256))
    throw Unsupported(text::cat("sums over rows of ", accesses * std::uint64_t(t.elements),
                                " elements do not fit the registers of the ", t.cluster,
                                " blocks that may share a row on this device with this alignment"));
  return {t, "persistent blocks; sums in registers"};
}

// Rows with edges that have column vectors or sums: each team's rows begin equally far from where memory is
// aligned, so that its threads can keep both in registers. loads = 0 where they do not fit.
RowPlan plan_edges(const RowNeeds& n, RowConfig t, std::uint64_t accesses, std::uint64_t rows,
                   const runtime::DeviceInfo& device) {
  const bool bulk = device.max_cluster >= 8 && device.smem_per_block_optin > 200 * 1024;
  if (bulk && accesses > (n.accumulators ? 64 : 256) && rows >= 2 * std::uint64_t(device.sm_count)) {
    const auto r = n.accumulators && accesses <= 512 ? short_ring(n, t, accesses, device)
                                                     : held_ring(n, t, accesses, device);
    if (r.visits_many()) return {r, held_reason(r)};
  }
  t.persistent = true, t.hold_columns = !n.columns.empty();
  const auto e = std::uint64_t(t.elements);
  const std::uint64_t each =
      2 * words_per_access(n, t.elements) + column_words(n, t.elements) + e * std::uint64_t(n.accumulators);
  std::uint64_t most = 4;
  while (most > 1 && most * each > 72) most /= 2;
  if (accesses <= 32 * most) {
    t.threads = std::max(accesses <= 16 ? 16 : 32, 4 * t.elements);
    t.rows = int(kRowThreads) / t.threads;
  } else {
    t.rows = 1;
    t.threads = int(std::min<std::uint64_t>(round_up(ceil_div(accesses, most), 32), 512));
    while (t.cluster < std::min(device.max_cluster, 4) &&
           accesses > std::uint64_t(t.threads) * most * std::uint64_t(t.cluster))
      t.cluster *= 2;
  }
  t.loads = int(ceil_div(accesses, std::uint64_t(t.threads) * std::uint64_t(t.cluster)));
  const auto threads = std::uint64_t(t.threads * t.rows);
  t.min_blocks = std::clamp(int(device.registers_per_sm / (threads * registers(n, t))), 1,
                            n.accumulators == 1 && t.rows > 1 ? 6 : 4);
  if (std::uint64_t(t.loads) > most) t.loads = 0;
  return {t, "persistent blocks; column vectors and sums in registers"};
}

// Teams of a launch that keep such registers are a multiple of this, unless each has rows but once.
std::uint64_t team_step(const RowConfig& t, const RowNeeds& n) {
  const int period = 2 * t.elements;
  return t.edges && (t.hold_columns || n.accumulators) ? std::uint64_t(period / std::gcd(period, t.rows)) : 1;
}

}  // namespace

int widest_access(const RowNeeds& n) {
  int narrowest = 4;
  for (const auto* list : {&n.inputs, &n.outputs, &n.columns})
    for (DType t : *list) narrowest = std::min(narrowest, cgp::bytes(t));
  return 16 / narrowest;
}

RowPlan plan_rows(const RowNeeds& n, std::uint64_t rows, std::uint64_t cols, Fit fit,
                  const runtime::DeviceInfo& device) {
  const bool wide = fit != Fit::element;
  RowConfig t;
  t.elements = wide ? widest_access(n) : 1, t.edges = fit == Fit::edges;
  const std::uint64_t accesses = cols / std::uint64_t(t.elements);
  const std::string why =
      t.edges ? text::cat("aligned between the edges of each row, ", accesses, " wide accesses")
      : wide  ? text::cat("aligned rows, ", accesses, " wide accesses each")
              : text::cat("rows are not 16-byte aligned: ", accesses, " single accesses each");
  if (wide && n.accumulators)
    if (auto fitted = fitted_gradient(n, t, accesses, rows, device))
      return {fitted->config, text::cat(why, "; ", fitted->why)};
  if (wide) {
    if (auto fitted = fitted_row(n, t, accesses, rows, device)) {
      const auto teams = ceil_div(rows, std::uint64_t(fitted->config.rows));
      if (teams * std::uint64_t(fitted->config.cluster) > kMostGrid) fitted->config.persistent = true;
      return {fitted->config, text::cat(why, "; ", fitted->why)};
    }
  }
  if (t.edges && (n.accumulators || !n.columns.empty())) {
    auto plan = plan_edges(n, t, accesses, rows, device);
    if (!plan.config.loads) return plan_rows(n, rows, cols, Fit::element, device);
    return {plan.config, text::cat(why, "; ", plan.why)};
  }
  if (n.accumulators) return plan_accumulators(n, t, accesses, device);
  const std::uint64_t inputs = n.inputs.size(), clusters = device.max_cluster >= 8 ? 8 : 1;
  std::uint64_t most = 16;
  while (most > 1 && wide &&
         (most * std::uint64_t(t.elements) > 64 || most * words_per_access(n, t.elements) > 64))
    most /= 2;
  if (!wide) most = std::max<std::uint64_t>(4, 16 / inputs);
  const bool moments = n.fold_size > 2 && !n.columns.empty();  // LayerNorm
  const auto done = [&](std::string more) { return RowPlan{t, text::cat(why, "; ", more)}; };
  const auto lanes_for = [&](std::uint64_t loads) { return int(round_up(ceil_div(accesses, loads), 32)); };
  // Beyond 512 threads there are 64 registers for each.
  const bool narrow = most * words_per_access(n, t.elements) > 32 || n.fold_size > 2;
  const bool roomy = accesses <= 1024 * most && !narrow;
  t.rows = 1;
  if (n.once && accesses > 512 * most) {
    // Nothing keeps the row: a block walks along it, with as many blocks a row as the device has to spare.
    t.one_pass = true, t.threads = 512, t.loads = int(std::min<std::uint64_t>(most, 4));
    const auto idle = std::uint64_t(std::max(1, device.sm_count)) / std::max<std::uint64_t>(rows, 1);
    while (t.cluster < int(clusters) && std::uint64_t(t.cluster) < idle) t.cluster *= 2;
    if (device.cc_major >= 9) t.min_blocks = std::clamp(int(device.registers_per_sm / (512 * 64)), 1, 2);
    return done("read once, statistics alone");
  }
  const bool many = wide && clusters == 8 && rows >= 2 * std::uint64_t(device.sm_count);
  if (many && held_ring_pays(n, accesses, most)) {
    const auto r = held_ring(n, t, accesses, device);
    if (r.stages) {
      t = r;
      return done(held_reason(t));
    }
  }
  if (accesses <= 32) {
    t.threads = accesses <= 8 ? 8 : accesses <= 16 ? 16 : 32, t.loads = 1;
    if (t.edges) t.threads = std::max(t.threads, 4 * t.elements);
    t.rows = int(kRowThreads) / t.threads;
  } else if (accesses <= 64) {
    t.loads = 2, t.rows = int(kRowThreads) / t.threads;
  } else if (wide && accesses <= 128 && n.fold_size > 2) {
    t.loads = int(std::min<std::uint64_t>(most, 4)),
    t.threads = accesses <= 32u * unsigned(t.loads) ? 32 : 64;
    t.rows = t.threads == 32 && (!moments || device.cc_major < 9) ? int(kRowThreads) / 32 : 1;
  } else if (wide && accesses <= 512) {
    t.loads = int(std::min<std::uint64_t>(most, accesses <= 128              ? 2
                                                : accesses <= 256            ? 4
                                                : moments && t.elements == 8 ? 4
                                                                             : 8));
    t.threads = lanes_for(std::uint64_t(t.loads));
  } else if (accesses <= 512 * most || (roomy && !(many && (t.edges || (n.expensive && wide))))) {
    t.loads = wide && t.elements < 8 && accesses <= 2048 ? std::min(int(most), 8) : int(most);
    t.threads = std::max(64, lanes_for(std::uint64_t(t.loads)));
    if (wide && t.threads == 256 && n.fold_size <= 1) t.threads *= 2, t.loads /= 2;
  } else {
    if (many && n.fold_size <= 2) {
      RowConfig r;
      if (inputs == 1 && n.fold_size == 2) {  // many accesses a thread, few blocks that wait for each other
        if (accesses <= 448 * 15 && (n.expensive || t.edges)) r = ring(n, t, accesses, 448, 15, device);
        if (!r.stages) {
          // Loads that may allocate in L1 are faster than bulk copies, where a thread has registers for the
          // next row.
          const std::uint64_t most_loads = n.expensive ? 10 : 8;
          const bool half = !n.expensive && !t.edges && accesses <= 256 * 8 * 8;
          r = t, r.persistent = true, r.threads = half ? 256 : 512, r.min_blocks = half ? 2 : 1,
          r.cluster = half ? 8 : 2;
          while (r.cluster < 8 && accesses > most_loads * std::uint64_t(r.threads * r.cluster))
            r.cluster *= 2;
          r.loads = int(ceil_div(accesses, std::uint64_t(r.threads * r.cluster)));
          if (std::uint64_t(r.loads) <= most_loads) {
            t = r;
            return done(
                text::cat("persistent clusters of ", t.cluster, " blocks, the next row in registers"));
          }
          r.stages = 0;
        }
      }
      if (!r.stages && !roomy)  // of 1024 threads where it is instead of registers
        r = ring(n, t, accesses, 512, std::max<std::uint64_t>(most / 2, 1), device);
      if (!r.stages) r = ring(n, t, accesses, 1024, std::max<std::uint64_t>(3 * most / 4, 1), device);
      if (r.stages) {
        t = r;
        return done(text::cat("a ring of ", t.stages, " rows in a cluster"));
      }
    }
    // Dear statistics: few exchanges, and two blocks of 512 threads an SM, which leaves 64 registers for
    // each.
    t.threads = 512;
    std::uint64_t few = most;
    while (wide && few > 1 && few * words_per_access(n, t.elements) > 32) few /= 2;
    while (t.cluster < int(clusters) && accesses > 512 * few * std::uint64_t(t.cluster)) t.cluster *= 2;
    t.loads = int(ceil_div(accesses, 512 * std::uint64_t(t.cluster)));
    if (std::uint64_t(t.loads) > most) t.threads = 1024, t.loads = 0;
  }
  if (!t.loads) {
    t.cluster = int(clusters);
    return done("too long for registers: rows are read twice");
  }
  // What else is resident hides a block's waits: as many blocks as registers allow.
  const int threads = t.threads * t.rows;
  if (device.cc_major >= 9)
    t.min_blocks = std::clamp(int(device.registers_per_sm / (std::uint64_t(threads) * registers(n, t))), 1,
                              1024 / threads);
  if (wide && threads == 64 && accesses > 256 && (n.fold_size <= 1 || (moments && t.elements == 8)))
    t.min_blocks = std::min(t.min_blocks, 12);  // more registers for each were better
  if (moments && t.elements == 8 && t.loads == 8 && threads == 256) t.min_blocks = std::min(t.min_blocks, 3);
  if (ceil_div(rows, std::uint64_t(t.rows)) * std::uint64_t(t.cluster) > kMostGrid) t.persistent = true;
  return done("kept in registers");
}

RowPlan plan_shifted_rows(const RowNeeds& n, std::uint64_t rows, std::uint64_t cols,
                          const runtime::DeviceInfo& device) {
  RowConfig t;
  t.elements = widest_access(n), t.edges = t.shift = true, t.rows = 1;
  const std::uint64_t accesses = cols / std::uint64_t(t.elements);
  const auto least = std::uint64_t(4 * t.elements);
  const std::string why =
      text::cat("rows of inputs and outputs are aligned differently: ", accesses, " accesses, shifted");
  if (accesses < least) return plan_rows(n, rows, cols, Fit::element, device);
  const int clusters = device.max_cluster >= 8 ? 8 : 1;
  const std::uint64_t most = 8;
  t.threads = int(std::clamp<std::uint64_t>(round_up(ceil_div(accesses, 4), 32),
                                            std::max<std::uint64_t>(64, least), 512));
  while (t.cluster < clusters && accesses > most * std::uint64_t(t.threads * t.cluster)) t.cluster *= 2;
  t.loads = int(ceil_div(accesses, std::uint64_t(t.threads * t.cluster)));
  const bool twice = std::uint64_t(t.loads) > most;
  if (twice) t.loads = 0, t.threads = 512;
  const auto of_384 = int(ceil_div(accesses, std::uint64_t(384 * t.cluster)));
  if (t.threads == 512 && of_384 < 8 && of_384 * 384 < t.loads * 512) t.threads = 384, t.loads = of_384;
  // 64 registers are enough where registers() foresees more; with seven accesses only if nothing is stored beside the row.
  const bool full = t.threads >= 256 && n.registers <= (t.loads < 7 ? 8 : t.loads == 7 ? 0 : -1);
  if (device.cc_major >= 9 && !twice && full)
    t.min_blocks = 1024 / t.threads;
  else if (device.cc_major >= 9 && !twice)
    t.min_blocks = std::clamp(int(device.registers_per_sm / (std::uint64_t(t.threads) * registers(n, t))), 1,
                              1024 / t.threads);
  if (rows * std::uint64_t(t.cluster) > kMostGrid) t.persistent = !twice;
  return {t, text::cat(why, twice ? "; too long for registers: rows are read twice" : "; kept in registers")};
}

std::uint64_t most_teams(const RowConfig& t, std::uint64_t rows, const runtime::DeviceInfo& device) {
  const auto per_block = std::uint64_t(t.rows);
  const auto fit = std::uint64_t(std::max(1, device.sm_count) * std::max(1, t.min_blocks) / t.cluster);
  // With edges a launch has this many where it has fewer than rows.
  const auto least = std::uint64_t(t.edges ? 2 * t.elements : 1);
  return std::max(std::min(fit, ceil_div(rows, per_block)), least) * per_block;
}

runtime::Dim3 grid(const runtime::LoadedKernel& fn, const RowConfig& t, const RowNeeds& n,
                   std::uint64_t rows) {
  const auto info = fn.device().info();
  std::uint64_t groups = ceil_div(rows, std::uint64_t(t.rows));
  if (n.accumulators || t.visits_many()) {
    const std::uint64_t fit =
        t.cluster > 1 ? std::uint64_t(fn.max_active_clusters({.grid = {std::uint32_t(t.cluster)}}))
                      : std::uint64_t(fn.blocks_per_sm()) * std::uint64_t(info.sm_count);
    groups = std::min(groups, std::max<std::uint64_t>(fit, 1));
  }
  if (n.accumulators) groups = std::min(groups, most_teams(t, rows, info) / std::uint64_t(t.rows));
  const auto step = team_step(t, n);
  if (groups * std::uint64_t(t.rows) < rows) groups = std::max(groups / step * step, step);
  return {std::uint32_t(std::min(groups * std::uint64_t(t.cluster), kMostGrid))};
}

int min_sm(const RowNeeds& n, const RowConfig& t) {
  int sm = t.cluster > 1 || t.stages ? 90 : 75;
  for (const auto* list : {&n.inputs, &n.outputs, &n.columns})
    for (DType d : *list)
      if (d == DType::bf16) sm = std::max(sm, 80);
  return sm;
}

std::string type_names(const RowNeeds& n) {
  std::string s;
  std::vector<DType> seen;
  for (const auto* list : {&n.inputs, &n.columns, &n.outputs})
    for (DType d : *list)
      if (std::find(seen.begin(), seen.end(), d) == seen.end()) {
        seen.push_back(d);
        text::append(s, text::cat(s.empty() ? "" : "_", cgp::name(d)));
      }
  return s;
}

std::size_t image_step(std::string_view arch, DType t, bool special_form) {
  const bool main_target = arch == "sm_90a" || arch == "sm_100a";
  const bool plain = !special_form && (t == DType::bf16 || (arch == "sm_75" && t == DType::f16));
  return main_target ? (plain ? 1 : special_form ? 5 : 4) : (plain ? 4 : 9);
}

namespace {
// A device of the architecture, as far as plans look at it.
runtime::DeviceInfo device_of(std::string_view arch) {
  runtime::DeviceInfo device;
  const bool small = arch.substr(0, 5) == "sm_12", clusters = arch >= "sm_90" || arch.substr(0, 4) == "sm_1";
  device.sm_count = 132, device.cc_major = clusters ? 9 : 8;
  device.max_cluster = clusters ? 8 : 1;
  device.smem_per_sm = device.smem_per_block_optin = (small || !clusters ? 99 : 227) * 1024;
  return device;
}
}  // namespace

std::vector<RowConfig> shipped_shifted_configs(const RowNeeds& n, std::string_view arch) {
  std::vector<RowConfig> all;
  for (std::uint64_t cols : {1024, 17717, 50257, 1 << 20})
    all.push_back(plan_shifted_rows(n, 1 << 20, cols, device_of(arch)).config);
  return all;
}

std::vector<RowConfig> shipped_configs(const RowNeeds& n, std::string_view arch) {
  const auto device = device_of(arch);
  std::vector<RowConfig> all;
  const auto add = [&](std::uint64_t cols, Fit fit) {
    try {
      all.push_back(plan_rows(n, 1 << 20, cols, fit, device).config);
    } catch (const Unsupported&) {  // no sums over rows of this length: nothing ships for it
    }
  };
  for (std::uint64_t cols : {1024, 32, 16384, 256, 65536, 4096, 1 << 20}) {
    add(cols, Fit::wide);
    if (cols == 256 || cols == 4096) add(cols, Fit::element);
  }
  for (std::uint64_t cols : {4096, 65536}) add(cols, Fit::edges);
  return all;
}

}  // namespace cgp::kernels::row

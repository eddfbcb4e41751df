// SPDX-License-Identifier: Apache-2.0
// Exact counts: bank conflicts and sectors of one access, and the sums of a launch.
#include <algorithm>

#include "cgp/emu/core/access_map_impl.h"
#include "cgp/emu/core/machine_impl.h"
#include "cgp/emu/core/memory_elements.h"
#include "cgp/emu/pc_counters.h"

namespace cgp::emu {

namespace {
constexpr int kBanks = 32;

// group_passes() of aligned elements, each of which lies in one row of the banks: the most distinct ones at
// one place in the row.
std::uint32_t aligned_passes(const std::uint32_t* offset, Mask lanes, std::uint32_t unit) {
  const std::uint32_t shift = std::uint32_t(std::countr_zero(unit)), places = kBanks * 4 / unit;
  std::array<std::uint8_t, kBanks> last{}, load{};  // by place: its last element + 1, how many
  std::array<std::uint32_t, kLanes> element;
  std::array<std::uint8_t, kLanes> before;
  std::uint8_t n = 0, most = 0;
  for_lanes(lanes, [&](int l) {
    const std::uint32_t e = offset[l] >> shift, place = e & (places - 1);
    std::uint8_t i = last[place];
    while (i && element[i - 1u] != e) i = before[i - 1u];
    if (i) return;
    element[n] = e;
    before[n] = last[place];
    last[place] = ++n;
    most = std::max(most, ++load[place]);
  });
  return most;
}

// Passes of one group of lanes: the most distinct words that any bank must deliver. Atomics cannot share a
// word: every lane is a pass of its own in its bank.
std::uint32_t group_passes(const std::uint32_t* offset, Mask lanes, std::uint32_t bytes, bool share) {
  const std::uint32_t unit = std::max(bytes, 4u);
  std::uint32_t odd = unit > 16 || !std::has_single_bit(unit);
  for_lanes(lanes, [&](int l) { odd |= offset[l] & (bytes - 1); });
  if (share && !odd) return aligned_passes(offset, lanes, unit);
  std::array<std::uint32_t, 512> words;
  int n = 0;
  std::uint32_t banks = 0;
  for_lanes(lanes, [&](int l) {
    const std::uint32_t first = offset[l] / 4, last = (offset[l] + bytes - 1) / 4;
    for (std::uint32_t x = first; x <= last; ++x) {
      words[std::size_t(n++)] = x;
      banks |= 1u << (x % kBanks);
    }
  });
  if (std::popcount(banks) == n) return 1;  // every word in a bank of its own
  if (share) {
    std::sort(words.begin(), words.begin() + n);
    n = int(std::unique(words.begin(), words.begin() + n) - words.begin());
  }
  std::array<std::uint32_t, kBanks> load{};
  for (int i = 0; i < n; ++i) ++load[words[std::size_t(i)] % kBanks];
  return *std::max_element(load.begin(), load.end());
}

// Whether every active pair of lanes (2i, 2i + 1) reads one address.
bool pairs_agree(const std::uint32_t* offset, Mask lanes) {
  for (int l = 0; l < kLanes; l += 2)
    if ((lanes >> l & 3) == 3 && offset[l] != offset[l + 1]) return false;
  return true;
}
}  // namespace

SharedCost shared_cost(SharedKind kind, std::uint32_t bytes, const std::uint32_t* offset, Mask lanes) {
  if (lanes == ~Mask(0) && bytes >= 4 && bytes <= 16 && kind <= SharedKind::store) {  // consecutive elements
    std::uint32_t apart = offset[0] & (bytes - 1);
    for (std::uint32_t l = 0; l < kLanes; ++l) apart |= (offset[l] - offset[0]) ^ (l * bytes);
    if (!apart) return {bytes / 4, 0};
  }
  if (bytes <= 4) {  // one group; when all lanes are in different banks there is nothing to count
    std::uint32_t banks = 0;
    int n = 0;
    for_lanes(lanes, [&](int l) {
      banks |= 1u << (offset[l] / 4 % kBanks);
      ++n;
    });
    if (std::popcount(banks) == n) return {1, 0};
  }
  int group = kLanes;
  if (kind == SharedKind::matrix || kind == SharedKind::matrix_store) {
    group = 8;
    bytes = 16;
  } else if (bytes == 8) {
    group = 16;
  } else if (bytes >= 16) {
    group = 8;
  }
  // Loads whose lane pairs coincide need half the groups.
  if (kind == SharedKind::load && group < kLanes && pairs_agree(offset, lanes)) group *= 2;
  SharedCost c;
  for (int first = 0; first < kLanes; first += group) {
    const Mask m = lanes & (group == kLanes ? ~Mask(0) : ((Mask(1) << group) - 1) << first);
    if (!m) continue;
    const std::uint32_t passes = group_passes(offset, m, bytes, kind != SharedKind::atomic);
    c.wavefronts += passes;
    c.conflicts += passes - 1;
  }
  return c;
}

std::uint32_t sectors(std::uint32_t bytes, const std::uint64_t* addr, Mask lanes) {
  if (lanes == ~Mask(0)) {
    std::uint64_t apart = 0;
    for (int l = 0; l < kLanes; ++l) apart |= (addr[l] - addr[0]) ^ (std::uint64_t(l) * bytes);
    if (!apart) return std::uint32_t((addr[0] + kLanes * bytes - 1) / 32 - addr[0] / 32 + 1);
  }
  std::array<std::uint64_t, kLanes * 2> s;
  int n = 0;
  for_lanes(lanes, [&](int l) {
    const std::uint64_t first = addr[l] / 32, last = (addr[l] + bytes - 1) / 32;
    if (!n || s[std::size_t(n - 1)] != first) s[std::size_t(n++)] = first;
    if (last != first) s[std::size_t(n++)] = last;
  });
  if (!std::is_sorted(s.begin(), s.begin() + n)) std::sort(s.begin(), s.begin() + n);
  return std::uint32_t(std::unique(s.begin(), s.begin() + n) - s.begin());
}

void count_shared(Warp& w, const Op& op, SharedKind kind, std::uint32_t bytes, const std::uint32_t* offset,
                  Mask lanes) {
  if (!w.worker->launch->options.counters || !lanes) return;
  if (w.worker->accesses) w.worker->accesses->shared(kind, bytes, offset, lanes);
  const SharedCost c = shared_cost(kind, bytes, offset, lanes);
  PcCounters& pc = w.worker->pc[op.inst];
  ++pc.requests;
  pc.wavefronts += c.wavefronts;
  pc.conflicts += c.conflicts;
  pc.bytes += std::uint64_t(std::popcount(lanes)) * bytes;
  Counters& t = w.worker->totals;
  switch (kind) {
    case SharedKind::load:
    case SharedKind::matrix:
      ++t.shared_load_requests;
      t.shared_load_wavefronts += c.wavefronts;
      t.shared_load_conflicts += c.conflicts;
      break;
    case SharedKind::store:
    case SharedKind::matrix_store:
      ++t.shared_store_requests;
      t.shared_store_wavefronts += c.wavefronts;
      t.shared_store_conflicts += c.conflicts;
      break;
    case SharedKind::atomic:
      ++t.shared_atomic_requests;
      t.shared_atomic_conflicts += c.conflicts;
      break;
  }
}

void count_global(Warp& w, const Op& op, GlobalKind kind, std::uint32_t bytes, const std::uint64_t* addr,
                  Mask lanes) {
  if (!w.worker->launch->options.counters || !lanes) return;
  if (w.worker->accesses) w.worker->accesses->global(kind, bytes, addr, lanes);
  const std::uint32_t n = sectors(bytes, addr, lanes);
  const std::uint64_t total = std::uint64_t(std::popcount(lanes)) * bytes;
  PcCounters& pc = w.worker->pc[op.inst];
  ++pc.requests;
  pc.sectors += n;
  pc.bytes += total;
  Counters& t = w.worker->totals;
  switch (kind) {
    case GlobalKind::load:
      ++t.global_load_requests;
      t.global_load_sectors += n;
      t.global_load_bytes += total;
      break;
    case GlobalKind::store:
      ++t.global_store_requests;
      t.global_store_sectors += n;
      t.global_store_bytes += total;
      break;
    case GlobalKind::atomic:
      ++t.global_atomic_requests;
      t.global_atomic_sectors += n;
      break;
  }
}

void add(PcCounters& a, const PcCounters& b) {
  a.issues += b.issues;
  a.lanes += b.lanes;
  a.requests += b.requests;
  a.sectors += b.sectors;
  a.bytes += b.bytes;
  a.wavefronts += b.wavefronts;
  a.conflicts += b.conflicts;
  a.divergent += b.divergent;
}

namespace {
void count_rows(Worker& worker, const Op& op) {
  RowCount& c = worker.rows[op.inst];
  if (!c.rows) return;
  const Elements& e = op.data_as<Elements>();
  PcCounters& pc = worker.pc[op.inst];
  Counters& t = worker.totals;
  const bool store = op.kind == kStoreWords;
  const std::uint64_t bytes = c.rows * kLanes * std::uint64_t(e.count * e.bytes);
  pc.requests += c.rows;
  pc.bytes += bytes;
  if (op.where == Where::shared) {
    const std::uint64_t passes = c.rows * std::uint64_t(e.count);
    pc.wavefronts += passes;
    (store ? t.shared_store_requests : t.shared_load_requests) += c.rows;
    (store ? t.shared_store_wavefronts : t.shared_load_wavefronts) += passes;
  } else {
    pc.sectors += c.sectors;
    (store ? t.global_store_requests : t.global_load_requests) += c.rows;
    (store ? t.global_store_sectors : t.global_load_sectors) += c.sectors;
    (store ? t.global_store_bytes : t.global_load_bytes) += bytes;
  }
  c = {};
}
}  // namespace

void count_all(Worker& worker) {
  const std::vector<Op>& ops = worker.launch->program->ops;
  RunEdge sum;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    sum.issues += worker.runs[i].issues;
    sum.lanes += worker.runs[i].lanes;
    if (ops[i].flags & kMicro) continue;
    worker.pc[ops[i].inst].issues += sum.issues;
    worker.pc[ops[i].inst].lanes += sum.lanes;
    count_rows(worker, ops[i]);
  }
  std::fill(worker.runs.begin(), worker.runs.end(), RunEdge());
}

Counters collect(const LaunchState& launch, const std::vector<std::unique_ptr<Worker>>& workers) {
  const ProgramImpl& p = *launch.program;
  Counters c;
  for (const auto& w : workers) c.add(w->totals);
  c.per_pc.resize(p.insts.size());
  for (const auto& w : workers)
    for (std::size_t i = 0; i < c.per_pc.size(); ++i) emu::add(c.per_pc[i], w->pc[i]);
  for (std::size_t i = 0; i < c.per_pc.size(); ++i) {
    const PcCounters& x = c.per_pc[i];
    if (!x.issues) continue;
    const ptx::Op op = p.inst(std::uint32_t(i)).op;
    c.warp_instructions += x.issues;
    c.thread_instructions += x.lanes;
    c.by_family[std::string(ptx::name(ptx::family(op)))] += x.issues;
    c.by_opcode[p.opcode(std::uint32_t(i))] += x.issues;
    if (op == ptx::Op::bra || op == ptx::Op::brx_idx) {
      c.branches += x.issues;
      c.divergent_branches += x.divergent;
    }
    if (op == ptx::Op::bar_sync || op == ptx::Op::bar_arrive || op == ptx::Op::bar_red ||
        op == ptx::Op::barrier_sync || op == ptx::Op::barrier_arrive || op == ptx::Op::barrier_red)
      c.barriers += x.issues;
  }
  if (c.warp_instructions)
    c.simt_efficiency = double(c.thread_instructions) / (32.0 * double(c.warp_instructions));
  return c;
}

void Counters::add(const Counters& o) {
  warp_instructions += o.warp_instructions;
  thread_instructions += o.thread_instructions;
  blocks += o.blocks, block_steps += o.block_steps;
  busiest_block_steps = std::max(busiest_block_steps, o.busiest_block_steps);
  for (const auto& [k, v] : o.by_family) by_family[k] += v;
  for (const auto& [k, v] : o.by_opcode) by_opcode[k] += v;
#define CGP_EMU_COUNTER(field) field += o.field;
#include "cgp/emu/core/counters.def"
  simt_efficiency = warp_instructions ? double(thread_instructions) / (32.0 * double(warp_instructions)) : 0;
  if (per_pc.size() < o.per_pc.size()) per_pc.resize(o.per_pc.size());
  for (std::size_t i = 0; i < o.per_pc.size(); ++i) emu::add(per_pc[i], o.per_pc[i]);
}

std::vector<std::pair<std::string, std::uint64_t>> flatten(const Counters& c) {
  return {
      {"warp_instructions", c.warp_instructions},
      {"thread_instructions", c.thread_instructions},
#define CGP_EMU_COUNTER(field) {#field, c.field},
#include "cgp/emu/core/counters.def"
  };
}

}  // namespace cgp::emu

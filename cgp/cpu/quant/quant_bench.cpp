// SPDX-License-Identifier: Apache-2.0
// Products of quantised weights beside a loop that reads the same bytes, in turns; the least time of each: of one thread its
// own processor time, of more the wall time. The weights
// lie in as many copies as fill `--mib` MiB, used one after the other, so that they come from memory (1: from the caches).
//   cgp_cpu_quant_bench [--m M] [--k K] [--n VECTORS] [--threads T] [--mib MIB] [--rounds R] [--formats a,b] [--json]
//   cgp_cpu_quant_bench --scaling ...   one thread and T (2) in turns, all in wall time, with the median
#include <immintrin.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "cgp/base/error.h"
#include "cgp/base/random.h"
#include "cgp/base/text.h"
#include "cgp/cpu/quant/matmul.h"
#include "cgp/cpu/quant/packed.h"
#include "cgp/cpu/threads.h"
#include "cgp/profile/measure/system.h"

using namespace cgp;

namespace {

double now(int threads) {
  timespec t{};
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

__attribute__((target("avx2"))) long long read_all(const std::byte* p, std::size_t bytes) {
  __m256i sum[4] = {};
  for (std::size_t i = 0; i + 128 <= bytes; i += 128)
    for (std::size_t v = 0; v < 4; ++v)
      sum[v] = _mm256_add_epi64(sum[v], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + i + 32 * v)));
  const __m256i all = _mm256_add_epi64(_mm256_add_epi64(sum[0], sum[1]), _mm256_add_epi64(sum[2], sum[3]));
  return _mm256_extract_epi64(all, 0) ^ _mm256_extract_epi64(all, 3);
}

struct Options {
  std::int64_t m = 4096, k = 4096, n = 1, mib = 256;
  int threads = 1, rounds = 15;
  std::vector<std::string> formats{"q4_0",  "q4_1",  "q5_0", "q5_1", "q8_0",   "q2_k",
                                   "q3_k",  "q4_k",  "q5_k", "q6_k", "iq4_nl", "iq4_xs",
                                   "mxfp4", "nvfp4", "nf4",  "bf16", "f16"};
  bool json = false, scaling = false;
};

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--json") {
      o.json = true;
      continue;
    }
    if (name == "--scaling") {
      o.scaling = true;
      continue;
    }
    const std::string value = i + 1 < argc ? argv[++i] : "";
    if (name == "--formats") {
      o.formats.clear();
      for (auto f : text::split(value, ',')) o.formats.emplace_back(f);
      continue;
    }
    const auto number = std::atoll(value.c_str());
    if (number < 1)
      throw ArgumentError(ErrorText{"options are named, numbers positive", {}, name + " " + value, {}});
    if (name == "--m")
      o.m = number;
    else if (name == "--k")
      o.k = number;
    else if (name == "--n")
      o.n = number;
    else if (name == "--mib")
      o.mib = number;
    else if (name == "--threads")
      o.threads = int(number);
    else if (name == "--rounds")
      o.rounds = int(number);
    else
      throw ArgumentError(ErrorText{"there is no such option", {}, name, {}});
  }
  return o;
}

struct Row {
  std::string format, version;
  std::size_t bytes;
  std::function<void()> run;
  double best = 1e9;
};

/// The same product with one thread and with several, in turns, so that what else the machine does meets both.
int scaling(const Options& o) {
  const int threads = std::max(2, o.threads);
  std::vector<float> x(std::size_t(o.n * o.k), 0.5f), y(std::size_t(o.m * o.n));
  for (const auto& name : o.formats) {
    const auto format = quant::format_named(name);
    const std::size_t bytes = std::size_t(o.m) * quant::bytes_of(format, std::uint64_t(o.k));
    const std::vector<std::byte> weights(bytes, std::byte{0x11});
    std::vector<double> seconds[2];
    for (int r = 0; r < o.rounds; ++r)
      for (int which = 0; which < 2; ++which) {
        const double start = now(0);
        cpu::quant_matmul(format, weights, o.m, o.n, o.k, x, y,
                          {.activations = cpu::Activations::int8, .threads = which ? threads : 1});
        seconds[which].push_back(now(0) - start);
      }
    for (auto& s : seconds) std::sort(s.begin(), s.end());
    const auto at = [&](int which, std::size_t i) { return seconds[which][i] * 1e6; };
    const std::size_t half = seconds[0].size() / 2, most = seconds[0].size() * 9 / 10;
    std::printf(
        "%s %lld x %lld, %lld vectors, wall us: 1 thread least %.0f median %.0f 90%% %.0f; %d threads %.0f "
        "%.0f %.0f\n",
        name.c_str(), (long long)o.m, (long long)o.k, (long long)o.n, at(0, 0), at(0, half), at(0, most),
        threads, at(1, 0), at(1, half), at(1, most));
  }
  return 0;
}

/// Random bytes, whose scales, wherever they lie, are finite and give no subnormal products. On large pages, as packed
/// weights are: else the read loop would wait for address translation.
void fill(std::span<std::byte> out) {
  SplitMix64 random(1);
  for (std::size_t i = 0; i < out.size(); i += 8) {
    const std::uint64_t word = (random.next() & 0x3b3b3b3b3b3b3b3bull) | 0x4040404040404040ull;
    std::memcpy(&out[i], &word, std::min<std::size_t>(8, out.size() - i));
  }
}

int bench(const Options& o) {
  std::vector<float> x(std::size_t(o.n * o.k)), y(std::size_t(o.m * o.n));
  SplitMix64 random(2);
  for (float& v : x) v = float(random.uniform(-1, 1));
  std::size_t largest = 0;
  const auto bytes_of = [&](const std::string& f) {
    return std::size_t(o.m) * quant::bytes_of(quant::format_named(f), std::uint64_t(o.k));
  };
  for (const auto& f : o.formats) largest = std::max(largest, bytes_of(f));
  const std::size_t all = std::max(largest, std::size_t(o.mib) << 20);
  cpu::AlignedBuffer buffer(all);
  const std::span<std::byte> memory(buffer.as<std::byte>(), all);
  fill(memory);
  std::size_t at = 0;
  const auto next = [&](std::size_t bytes) {
    if (at + bytes > memory.size()) at = 0;
    const std::span<const std::byte> out = memory.subspan(at, bytes);
    at += (bytes + 63) / 64 * 64;
    return out;
  };
  std::vector<Row> rows;
  volatile long long sink = 0;
  for (const auto& f : o.formats) {
    const auto format = quant::format_named(f);
    const std::size_t bytes = bytes_of(f);
    rows.push_back({f, "read", bytes, [&, bytes] {
                      const auto w = next(bytes);
                      cpu::parallel_for(std::int64_t(bytes), 1 << 16, o.threads,
                                        [&](std::int64_t from, std::int64_t to) {
                                          sink = sink + read_all(w.data() + from, std::size_t(to - from));
                                        });
                    }});
    for (auto activations : {cpu::Activations::f32, cpu::Activations::int8}) {
      if (activations == cpu::Activations::int8 && !cpu::has_int8(format) && o.n < cpu::kPanelVectors)
        continue;
      std::vector<cpu::Isa> isas{cpu::Isa::avx2};
      if (cpu::widest_isa() != cpu::Isa::avx2) isas.push_back(cpu::widest_isa());
      for (cpu::Isa isa : isas)
        if (cpu::has(isa))
          rows.push_back({f,
                          std::string(activations == cpu::Activations::f32 ? "f32 " : "int8 ") +
                              std::string(cpu::name(isa)),
                          bytes, [&, format, bytes, activations, isa] {
                            cpu::quant_matmul(format, next(bytes), o.m, o.n, o.k, x, y,
                                              {.isa = isa, .activations = activations, .threads = o.threads});
                          }});
    }
  }
  // as many copies as for the stored ones
  std::vector<std::vector<cpu::PackedWeights>> packed(o.formats.size());
  std::vector<std::size_t> turn(o.formats.size());
  for (std::size_t i = 0; i < o.formats.size(); ++i) {
    const auto format = quant::format_named(o.formats[i]);
    if (!cpu::can_pack(format)) continue;
    const std::size_t bytes = bytes_of(o.formats[i]);
    for (std::size_t c = 0; c * bytes < std::size_t(o.mib) << 20; ++c)
      packed[i].emplace_back(format, next(bytes), o.m, o.k, 0);
    const auto after = std::find_if(rows.rbegin(), rows.rend(), [&](const Row& r) {
                         return r.format == o.formats[i];
                       }).base();
    auto at_row = after;
    for (auto activations : {cpu::Activations::int8, cpu::Activations::int16})
      at_row = rows.insert(
          at_row, {o.formats[i], activations == cpu::Activations::int8 ? "int8 packed" : "int16 packed",
                   std::size_t(packed[i][0].bytes()), [&, i, activations] {
                     cpu::quant_matmul(packed[i][turn[i]++ % packed[i].size()], o.n, x, y,
                                       {.activations = activations, .threads = o.threads});
                   }});
  }
  for (int r = 0; r < o.rounds; ++r)
    for (auto& row : rows) {
      const double start = now(o.threads);
      row.run();
      row.best = std::min(row.best, now(o.threads) - start);
    }
  const auto cpu_name = measure::machine_facts().cpu;
  if (o.json)
    std::printf(
        "{\"cpu\": \"%s\", \"m\": %lld, \"k\": %lld, \"n\": %lld, \"threads\": %d, \"rounds\": %d, \"rows\": "
        "[",
        cpu_name.c_str(), (long long)o.m, (long long)o.k, (long long)o.n, o.threads, o.rounds);
  else
    std::printf("%s: %lld x %lld, %lld vectors, %d threads, least of %d rounds\n", cpu_name.c_str(),
                (long long)o.m, (long long)o.k, (long long)o.n, o.threads, o.rounds);
  double read = 0;
  const char* comma = "";
  for (const auto& row : rows) {
    if (row.version == "read") read = row.best;
    const double gbps = double(row.bytes) / row.best * 1e-9,
                 gops = 2.0 * double(o.m * o.k) * double(o.n) / row.best * 1e-9, share = read / row.best;
    if (o.json)
      std::printf(
          "%s\n {\"format\": \"%s\", \"version\": \"%s\", \"us\": %.1f, \"gbps\": %.2f, \"gops\": %.1f, "
          "\"of_read\": %.3f}",
          comma, row.format.c_str(), row.version.c_str(), row.best * 1e6, gbps, gops, share);
    else
      std::printf("  %-7s %-18s %9.1f us  %6.2f GB/s  %7.1f Gop/s  %5.2f of the read loop\n",
                  row.format.c_str(), row.version.c_str(), row.best * 1e6, gbps, gops, share);
    comma = ",";
  }
  if (o.json) std::printf("\n]}\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options o = parse(argc, argv);
    return o.scaling ? scaling(o) : bench(o);
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}

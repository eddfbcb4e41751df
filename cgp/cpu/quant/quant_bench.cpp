// SPDX-License-Identifier: Apache-2.0
// Products of quantised matrices with a vector: every format and version beside the product with 32-bit
// weights, in turns; one thread by its own processor time.
//   cgp_cpu_quant_bench [M K [rounds]]
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "cgp/base/error.h"
#include "cgp/base/random.h"
#include "cgp/cpu/matvec/matvec.h"
#include "cgp/cpu/quant/gemv.h"
#include "cgp/profile/measure/stats.h"
#include "cgp/profile/measure/system.h"

using namespace cgp;

namespace {

double processor_time() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

struct Row {
  std::string name;
  double bytes;
  std::function<void()> run;
  std::vector<double> seconds, ratios;
};

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t m = argc > 1 ? std::atoll(argv[1]) : 4096, k = argc > 2 ? std::atoll(argv[2]) : 4096;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 15;
  SplitMix64 random(1);
  std::vector<float> a(std::size_t(m * k)), x(std::size_t(k), 0.0f), y(std::size_t(m), 0.0f);
  for (auto* v : {&a, &x})
    for (float& f : *v) f = float(random.uniform(-1, 1));
  std::vector<Row> rows;
  rows.push_back(
      {"f32", double(m * k * 4), [&] { cpu::matvec(m, k, a.data(), k, x.data(), y.data()); }, {}, {}});
  std::vector<std::vector<std::byte>> weights;
  for (cpu::QuantType type : cpu::all_quant_types()) {
    weights.emplace_back(std::size_t(cpu::quantized_bytes(type, m * k)));
    cpu::quantize(type, a, weights.back());
  }
  for (cpu::QuantType type : cpu::all_quant_types())
    for (auto activations : {cpu::Activations::f32, cpu::Activations::int8})
      for (cpu::Isa isa : {cpu::Isa::avx2, cpu::widest_isa()}) {
        if (!cpu::has(isa) || (type == cpu::QuantType::nf4 && activations == cpu::Activations::int8))
          continue;
        const auto& w = weights[std::size_t(type)];
        rows.push_back({std::string(cpu::facts(type).name) +
                            (activations == cpu::Activations::f32 ? " f32  " : " int8 ") +
                            std::string(cpu::name(isa)),
                        double(w.size()),
                        [&, type, activations, isa] {
                          cpu::quant_gemv(type, w, m, 1, k, x, y, {.isa = isa, .activations = activations});
                        },
                        {},
                        {}});
      }
  for (int r = 0; r < rounds; ++r) {
    double first = 0;
    for (auto& row : rows) {
      const double start = processor_time();
      row.run();
      row.seconds.push_back(processor_time() - start);
      if (&row == &rows[0]) first = row.seconds.back();
      row.ratios.push_back(first / row.seconds.back());
    }
  }
  std::printf("%s, %lld x %lld, one thread, %d rounds\n", measure::machine_facts().cpu.c_str(), (long long)m,
              (long long)k, rounds);
  for (auto& row : rows) {
    const double best = *std::min_element(row.seconds.begin(), row.seconds.end());
    std::printf(
        "  %-24s best %8.1f us  %6.1f GB/s  %6.1f GFLOP/s  %5.1f M superblocks/s  %.2f times f32 (median)\n",
        row.name.c_str(), best * 1e6, row.bytes / best * 1e-9, 2.0 * double(m * k) / best * 1e-9,
        double(m * k) / 256 / best * 1e-6, measure::median(row.ratios));
  }
}

// SPDX-License-Identifier: Apache-2.0
// gemm against OpenBLAS and BLIS in one process: rounds in which each runs once, in turns; shortest and
// median time, and the median of the ratios within a round. Each result is compared first.
//   cgp_cpu_gemm_bench [M N K [threads [rounds]]]
#include "cgp/cpu/gemm/gemm.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>

#include "cgp/base/error.h"
#include "cgp/base/random.h"
#include "cgp/profile/measure/measure.h"
#include "cgp/profile/measure/system.h"
#include "cgp/profile/peers/peer_cblas.h"

using namespace cgp;

namespace {

double clock_of(int threads) {
  if (threads > 1) return measure::now();
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

struct Contender {
  std::string name;
  std::function<void(float*)> run;
  std::vector<double> seconds, ratios;  ///< ratio: time of ours over its time
};

void compete(std::int64_t m, std::int64_t n, std::int64_t k, int threads, int rounds) {
  SplitMix64 random(1);
  std::vector<float> a(std::size_t(m * k)), b(std::size_t(k * n)), want, c(std::size_t(m * n));
  for (auto* v : {&a, &b})
    for (float& x : *v) x = float(random.uniform(-1, 1));
  std::vector<Contender> all;
  for (cpu::Isa isa : {cpu::Isa::avx512, cpu::Isa::avx2, cpu::Isa::scalar})
    if (cpu::has(isa) && (isa != cpu::Isa::scalar || m * n * k < 1 << 24))
      all.push_back({std::string("cgp ") + std::string(cpu::name(isa)),
                     [&, isa](float* out) {
                       cpu::gemm(cpu::Transpose::no, cpu::Transpose::no, m, n, k, 1, a.data(), k, b.data(), n,
                                 0, out, n, {.isa = isa, .threads = threads});
                     },
                     {},
                     {}});
  for (const auto& names : {measure::Cblas::openblas(), measure::Cblas::blis()}) try {
      auto peer = std::make_shared<measure::Cblas>(names);
      peer->set_threads(threads);
      all.push_back({peer->name(),
                     [&, peer](float* out) {
                       peer->gemm(false, false, m, n, k, 1, a.data(), k, b.data(), n, 0, out, n);
                     },
                     {},
                     {}});
    } catch (const Unsupported& e) {
      std::printf("%s\n", e.what());
    }
  for (auto& p : all) {
    p.run(c.data());
    if (want.empty()) want = c;
    double off = 0;
    for (std::size_t i = 0; i < c.size(); ++i) off = std::max(off, std::fabs(double(c[i]) - want[i]));
    if (off > double(k) * 0x1p-23) std::printf("%s differs by %g\n", p.name.c_str(), off);
  }
  const double flops = 2.0 * double(m) * double(n) * double(k);
  const int calls = std::max(1, int(2e8 / flops));
  for (int r = 0; r < rounds; ++r) {
    std::vector<double> times(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      auto& p = all[(i + std::size_t(r)) % all.size()];
      const double start = clock_of(threads);
      for (int j = 0; j < calls; ++j) p.run(c.data());
      times[(i + std::size_t(r)) % all.size()] = (clock_of(threads) - start) / calls;
    }
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i].seconds.push_back(times[i]), all[i].ratios.push_back(times[0] / times[i]);
  }
  std::printf("%lld x %lld x %lld, %d threads, %d rounds of %d calls\n", (long long)m, (long long)n,
              (long long)k, threads, rounds, calls);
  for (auto& p : all)
    std::printf("  %-40.40s  best %8.1f  median %8.1f GFLOP/s  our time over its %.3f\n", p.name.c_str(),
                flops / *std::min_element(p.seconds.begin(), p.seconds.end()) * 1e-9,
                flops / measure::median(p.seconds) * 1e-9, measure::median(p.ratios));
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, long long otherwise) {
    return argc > i ? std::atoll(argv[i]) : otherwise;
  };
  std::printf("%s\n", measure::machine_facts().cpu.c_str());
  if (argc > 3) {
    compete(argument(1, 0), argument(2, 0), argument(3, 0), int(argument(4, 1)), int(argument(5, 40)));
    return 0;
  }
  for (std::int64_t n : {64, 256, 512, 1024, 2048}) compete(n, n, n, 1, 30);
  compete(1000, 1000, 1000, 1, 30);
  compete(8, 4096, 4096, 1, 30);
  compete(1024, 1024, 1024, 2, 30);
}

// SPDX-License-Identifier: Apache-2.0
// How often the comparison is wrong on this machine: three kernels against themselves, and against themselves
// with 3 % and 10 % more work. Prints rates; fails (exit code 1) when they miss what docs/profiler.md
// promises.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "cgp/base/random.h"
#include "cgp/profile/measure/measure.h"

using namespace cgp;
using namespace cgp::measure;

namespace {

struct Kernel {
  const char* name;
  bool quiet;  ///< bound by the core, not by memory that other programs use too
  std::function<std::function<void()>(double factor)> make;
};

void fma(int n) {
  double x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  for (int i = 0; i < n; ++i)
    for (double& v : x) v = v * 1.0000001 + 1e-9;
  keep(x[0]);
  keep(x[7]);
}

std::vector<Kernel> kernels() {
  return {{"fma", true,
           [](double factor) -> std::function<void()> { return [n = int(20000 * factor)] { fma(n); }; }},
          {"stream", false,
           [](double factor) -> std::function<void()> {
             auto data = std::make_shared<std::vector<double>>(std::size_t(double(1 << 18) * factor), 1.0);
             return [data] {
               for (double& x : *data) x = x * 1.0001;
               keep(data->front());
             };
           }},
          {"sort", true, [](double factor) -> std::function<void()> {
             auto source = std::make_shared<std::vector<std::uint32_t>>(4096);
             SplitMix64 random(1);
             for (auto& x : *source) x = std::uint32_t(random.next());
             return [source, repeats = int(std::lround(100 * factor))] {
               // one hundred small sorts, or a few more
               for (int r = 0; r < repeats; ++r) {
                 std::vector<std::uint32_t> v(source->begin(), source->begin() + 256);
                 std::sort(v.begin(), v.end());
                 keep(v[0]);
               }
             };
           }}};
}

}  // namespace

int main(int argc, char** argv) {
  const int trials = argc > 1 ? std::atoi(argv[1]) : 70;
  bool good = true;
  int alarms = 0, same_trials = 0;
  std::printf("%-8s %7s %12s %10s %10s %14s %8s %8s\n", "kernel", "effect", "REGRESSION", "IMPROVED",
              "NO_CHANGE", "INCONCLUSIVE", "pairs", "s each");
  for (const Kernel& kernel : kernels())
    for (const double effect : {0.0, 0.03, 0.10}) {
      int count[4] = {};
      double pairs = 0, seconds = 0;
      const auto a = kernel.make(1), b = kernel.make(1 + effect);
      for (int t = 0; t < trials; ++t) {
        LockstepOptions o;
        o.paired.seed = std::uint64_t(t) + 1;
        const PairedResult r = compare_functions(a, b, o);
        ++count[int(r.verdict)];
        pairs += double(r.pairs.size()), seconds += r.seconds;
      }
      std::printf("%-8s %6.0f%% %12d %10d %10d %14d %8.1f %8.2f\n", kernel.name, effect * 100, count[0],
                  count[1], count[2], count[3], pairs / trials, seconds / trials);
      std::fflush(stdout);
      if (effect == 0) alarms += count[0] + count[1], same_trials += trials;
      if (effect == 0.10 && kernel.quiet) good &= count[0] >= 0.99 * trials;
      if (effect == 0.03 && kernel.quiet) good &= count[0] >= 0.80 * trials;
    }
  good &= alarms <= same_trials / 200.0 + 1e-9 || alarms <= 1;
  std::printf("false alarms: %d of %d comparisons of a kernel with itself\n%s\n", alarms, same_trials,
              good ? "as promised" : "NOT as promised");
  return good ? 0 : 1;
}

// SPDX-License-Identifier: Apache-2.0
// What the optimisation passes are worth on a GPU: each kernel as it is built, after each pass alone (with
// `dead`, which clears up after the others) and after all of them, timed in turns. Prints time relative to
// "off": below 1 is faster. A pass that does not change the kernel's PTX is not timed.
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/passes.h"
#include "cgp/kernels/bench/table_bench.h"
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/profile/measure/compare.h"
#include "cgp/ptx/parse.h"
#include "cgp/ptx/print.h"

using namespace cgp;
using namespace cgp::kernels;

namespace {

struct Problem {
  const char* label;
  const char* kernel;
  std::vector<std::pair<const char*, const char*>> options;
};

const std::vector<Problem>& problems() {
  static const std::vector<Problem> all = {
      {"gemm simt f32 2048",
       "gemm",
       {{"variant", "simt"}, {"dtype", "f32"}, {"m", "2048"}, {"n", "2048"}, {"k", "2048"}}},
      {"gemm simt f32 nn 4096",
       "gemm",
       {{"variant", "simt"},
        {"dtype", "f32"},
        {"layout", "nn"},
        {"m", "4096"},
        {"n", "4096"},
        {"k", "4096"}}},
      {"gemm sm80 bf16 4096", "gemm", {{"variant", "sm80"}, {"m", "4096"}, {"n", "4096"}, {"k", "4096"}}},
      {"gemm sm90 bf16 4096", "gemm", {{"variant", "sm90"}, {"m", "4096"}, {"n", "4096"}, {"k", "4096"}}},
      {"gemm persistent bf16 8192",
       "gemm",
       {{"variant", "sm90_persistent"}, {"m", "8192"}, {"n", "8192"}, {"k", "8192"}}},
      {"softmax bf16 65536x4096", "softmax", {{"rows", "65536"}, {"cols", "4096"}}},
      {"softmax f32 262144x1024", "softmax", {{"dtype", "f32"}, {"rows", "262144"}, {"cols", "1024"}}},
      {"softmax bf16 4096x65536", "softmax", {{"rows", "4096"}, {"cols", "65536"}}},
      {"reduce sum f32 2^28", "reduce", {{"shape", "268435456"}}},
      {"reduce sum f32 65536x4096 dim 1", "reduce", {{"shape", "65536x4096"}, {"dim", "1"}}},
      {"reduce sum f32 16384x16384 dim 0", "reduce", {{"shape", "16384x16384"}, {"dim", "0"}}},
      {"transpose f32 16384", "transpose", {{"rows", "16384"}, {"cols", "16384"}}},
      {"transpose f32 16383x16381", "transpose", {{"rows", "16383"}, {"cols", "16381"}}},
      {"transpose bf16 16384x32768", "transpose", {{"dtype", "bf16"}, {"rows", "16384"}, {"cols", "32768"}}},
      {"vecadd f32 2^28", "vecadd", {{"n", "268435456"}}}};
  return all;
}

std::vector<ptx::PassOptions> configurations() {
  std::vector<ptx::PassOptions> out{ptx::PassOptions::none()};
  for (std::size_t p = 0; p < std::size_t(ptx::Pass::kCount); ++p) {
    if (ptx::Pass(p) == ptx::Pass::fma) continue;
    out.push_back(ptx::PassOptions::only(ptx::Pass(p)).set(ptx::Pass::dead));
  }
  out.push_back(ptx::parse_passes("strength,mad,dead"));
  out.push_back(ptx::parse_passes("fold,copy,cse,strength,mad,dead"));
  out.push_back(ptx::PassOptions::all());
  out.push_back(ptx::PassOptions::all().set(ptx::Pass::hoist, false).set(ptx::Pass::address, false));
  return out;
}

/// The process-wide choice of passes while in scope.
class WithPasses {
 public:
  explicit WithPasses(const ptx::PassOptions& o) { dsl::set_passes(o); }
  ~WithPasses() { dsl::set_passes({}); }
};

void bench(const runtime::Device& device, const Problem& p, int rounds, bool verify) {
  const KernelEntry& kernel = find_kernel(p.kernel);
  Options options(kernel.name, kernel.options);
  for (const auto& [name, value] : p.options) options.set(name, value);
  const auto problem = kernel.prepare(device, options, {}, 1);
  std::printf("%s: %s\n", p.label, problem->variant.c_str());
  // One problem, one set of buffers; which passes are on when it is launched decides which kernel runs.
  std::vector<measure::Contender> contenders;
  for (const auto& passes : configurations()) {
    if (passes.any()) {
      const WithPasses with(passes);
      ptx::PassStatistics statistics;
      bool changed = false;
      for (const auto& image : problem->images) {
        ptx::Module m = ptx::parse(*image.ptx);
        statistics.add(ptx::optimise(m, passes));
        changed = changed || ptx::print(m) != *image.ptx;
      }
      if (!changed) {
        std::printf("  %-60s no change\n", name(passes).c_str());
        continue;
      }
      if (verify) {
        problem->launch(device.stream());
        device.stream().wait();
        const Check check = problem->verify();
        if (!check.pass)
          throw Error({text::cat(p.label, " is wrong with ", name(passes)), {}, check.describe(), {}});
      }
    }
    contenders.push_back({name(passes), [&problem, passes](runtime::Stream& s) {
                            const WithPasses with(passes);
                            problem->launch(s);
                          }});
  }
  contenders.push_back({"none again", contenders[0].run});  // how far apart two runs of the same are
  measure::CompareOptions o;
  o.rounds = rounds;
  const auto timings = measure::compare(device, contenders, o);
  const double off = timings[0].summary.median;
  for (const auto& t : timings)
    std::printf("  %-60s %9.4f ms  %.4f  ±%.1f%%\n", t.name.c_str(), t.summary.median, t.summary.median / off,
                100 * t.summary.spread());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 31;
  bool verify = false;  // against the host's oracle: slow for these sizes
  std::string device = "cuda:0";
  std::vector<std::string> prefixes;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--rounds") && i + 1 < argc)
      rounds = std::atoi(argv[++i]);
    else if (!std::strcmp(argv[i], "--verify"))
      verify = true;
    else if (argv[i][0] == '-') {
      std::printf("usage: %s [--rounds N] [--verify] [PREFIX...]   PREFIX of a problem: gemm, softmax, ...\n",
                  argv[0]);
      return 2;
    } else
      prefixes.push_back(argv[i]);
  }
  return guarded([&] {
    const auto d = runtime::Device::open(device);
    std::printf("%s\n", d.info().name.c_str());
    for (const Problem& p : problems()) {
      bool wanted = prefixes.empty();
      for (const auto& prefix : prefixes) wanted = wanted || std::string(p.label).rfind(prefix, 0) == 0;
      if (!wanted) continue;
      try {
        bench(d, p, rounds, verify);
      } catch (const Unsupported& e) {
        std::printf("%s: %s\n", p.label, e.what());
      }
    }
  });
}

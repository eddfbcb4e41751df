// SPDX-License-Identifier: Apache-2.0
// How fast the emulator runs kernels of the catalogue: warp instructions a second of CPU time on one host
// thread, without checks and with all of them; and how much faster two threads are, and what CPU time they
// take of one's. Of several runs the fastest counts.
//
//   cgp_emulator_bench [REPEATS [LABEL]]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "cgp/base/error.h"
#include "cgp/emu/emu.h"
#include "cgp/kernels/catalog/catalog.h"

using namespace cgp;
using namespace cgp::kernels;

namespace {

struct Problem {
  const char *label, *device, *kernel;
  std::vector<std::pair<const char*, const char*>> options;
};

const std::vector<Problem>& problems() {
  static const std::vector<Problem> all = {
      {"softmax f32", "emu:sm_90a", "softmax", {{"dtype", "f32"}, {"rows", "512"}, {"cols", "4096"}}},
      {"softmax bf16", "emu:sm_90a", "softmax", {{"rows", "512"}, {"cols", "4096"}}},
      {"reduce f32", "emu:sm_90a", "reduce", {{"shape", "1024x4096"}}},
      {"reduce f32 columns", "emu:sm_90a", "reduce", {{"shape", "1024x4096"}, {"dim", "0"}}},
      {"transpose f32", "emu:sm_90a", "transpose", {{"rows", "1024"}, {"cols", "1024"}}},
      {"gemm simt f32 256",
       "emu:sm_90a",
       "gemm",
       {{"variant", "simt"}, {"dtype", "f32"}, {"m", "256"}, {"n", "256"}, {"k", "256"}}},
      {"gemm sm80 bf16 512",
       "emu:sm_80",
       "gemm",
       {{"variant", "sm80"}, {"m", "512"}, {"n", "512"}, {"k", "512"}}},
      {"gemm sm90 bf16 256",
       "emu:sm_90a",
       "gemm",
       {{"variant", "sm90"}, {"m", "256"}, {"n", "256"}, {"k", "256"}}},
      {"gemm sm90 bf16 1024",
       "emu:sm_90a",
       "gemm",
       {{"variant", "sm90"}, {"m", "1024"}, {"n", "1024"}, {"k", "512"}}},
      {"attention sm80 bf16", "emu:sm_80", "attention", {{"batch", "1"}, {"n", "256"}}},
      {"attention sm90 bf16", "emu:sm_90a", "attention", {{"batch", "1"}, {"n", "256"}}}};
  return all;
}

struct Speed {
  double cpu = 0, wall = 0, instructions = 0;
};

Speed measure(const Problem& p, const char* checks, int workers, int repeats) {
  const KernelEntry& kernel = find_kernel(p.kernel);
  Options settings(kernel.name, kernel.options);
  for (const auto& [name, value] : p.options) settings.set(name, value);
  const auto device = runtime::Device::open(p.device);
  emu::Options options = device.emulator_options();
  options.checks = emu::parse_checks(checks);
  options.workers = workers;
  device.set_emulator_options(options);
  device.keep_results(0);
  const auto problem = kernel.prepare(device, settings, {}, 1);
  Speed best;
  for (int i = 0; i < repeats; ++i) {
    device.clear_results();
    const std::clock_t cpu = std::clock();
    const auto wall = std::chrono::steady_clock::now();
    problem->launch(device.stream());
    device.stream().wait();
    const double c = double(std::clock() - cpu) / CLOCKS_PER_SEC;
    const double w = std::chrono::duration<double>(std::chrono::steady_clock::now() - wall).count();
    best.cpu = i ? std::min(best.cpu, c) : c;
    best.wall = i ? std::min(best.wall, w) : w;
    best.instructions = 0;
    for (const auto& launch : device.results())
      best.instructions += double(launch.result->counters.warp_instructions);
  }
  return best;
}

void row(const Problem& p, int repeats) {
  const Speed none = measure(p, "none", 1, repeats), all = measure(p, "all", 1, repeats),
              two = measure(p, "all", 2, repeats);
  std::printf("| %-20s | %9.0f | %6.1f | %6.1f | %8.3f | %5.2f | %5.2f |\n", p.label,
              none.instructions / 1000, none.instructions / none.cpu / 1e6, all.instructions / all.cpu / 1e6,
              all.cpu, all.wall / two.wall, two.cpu / all.cpu);
  std::fflush(stdout);
}
}  // namespace

int main(int argc, char** argv) try {
  const int repeats = argc > 1 ? std::max(1, std::atoi(argv[1])) : 5;
  const std::string only = argc > 2 ? argv[2] : "";
  std::printf(
      "| kernel | thousand instructions | M/s, no checks | M/s, all checks | CPU s, all checks "
      "| 2 threads: faster by | CPU |\n|---|---:|---:|---:|---:|---:|---:|\n");
  for (const Problem& p : problems())
    if (only.empty() || only == p.label) row(p, repeats);
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}

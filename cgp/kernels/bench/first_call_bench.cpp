// SPDX-License-Identifier: Apache-2.0
// How long the first call of a kernel takes in a fresh process: the device opened, then one product of each
// problem, with what was compiled on the way. Without a cache:
//   CGP_CACHE_DIR=off cgp_first_call_bench [KEY...]     e.g. bf16/nt/4096x4096x4096
#include <chrono>
#include <cstdio>
#include <vector>

#include "cgp/base/error.h"
#include "cgp/kernels/bench/table_bench.h"
#include "cgp/kernels/gemm/select/gemm_planner.h"
#include "cgp/kernels/pack/cubin_pack.h"

int main(int argc, char** argv) {
  using namespace cgp;
  using namespace cgp::kernels;
  using Clock = std::chrono::steady_clock;
  const auto milliseconds = [](Clock::time_point since) {
    return std::chrono::duration<double, std::milli>(Clock::now() - since).count();
  };
  std::vector<std::string> keys(argv + 1, argv + argc);
  if (keys.empty())
    keys = {"bf16/nt/4096x4096x4096", "bf16/nt/1x4096x4096", "f16/nn/1024x1024x1024",
            "bf16/nt/1000x3001x5003", "f32/nn/512x512x512"};
  return guarded([&] {
    auto start = Clock::now();
    const auto device = runtime::Device::open("cuda:0");
    (void)device.stream().native_handle();
    std::printf("%s opened in %.1f ms, %zu embedded cubins\n", device.info().name.c_str(),
                milliseconds(start), embedded_cubins().size());
    auto& planner = GemmPlanner::of(device);
    for (const auto& key : keys) {
      const auto p = parse_gemm_key(key);
      const auto size = [](DType t, std::uint64_t n) { return n * std::uint64_t(bytes(t)); };
      runtime::Buffer<std::uint8_t> a(device, size(p.type, p.a_elements())),
          b(device, size(*p.type_b, p.b_elements())), c(device, size(*p.type_c, p.c_elements()));
      a.zero(), b.zero();
      const GemmAddresses at{a.address(), b.address(), c.address()};
      const auto before = device.load_counts();
      start = Clock::now();
      const auto choice = *planner.choose(p, at);
      run_gemm(device.stream(), choice, p, at);
      const double queued = milliseconds(start);
      device.stream().wait();
      const double first = milliseconds(start);
      start = Clock::now();
      run_gemm(device.stream(), *planner.choose(p, at), p, at);
      const double again = milliseconds(start);
      device.stream().wait();
      const auto after = device.load_counts();
      std::printf(
          "%-26s first call %7.2f ms (queued after %.2f), second queued after %.4f ms; compiled %d, embedded "
          "%d, "
          "cached %d  %s\n",
          key.c_str(), first, queued, again, int(after.jit_compilations - before.jit_compilations),
          int(after.embedded_cubins - before.embedded_cubins), int(after.cache_hits - before.cache_hits),
          choice.variant.name.c_str());
    }
  });
}

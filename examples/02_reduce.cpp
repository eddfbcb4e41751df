// SPDX-License-Identifier: Apache-2.0
// Rung 2: a sum. Threads work together.
//   State goes round a loop as a value: k.loop takes the start, the body hands back the next, the loop
//   returns the last; there is no variable to assign to. Lanes of a warp exchange registers by shuffles;
//   warps of a block meet in shared memory, with a barrier. k.warp() and k.cta() prove that all their threads
//   are here: a shuffle inside a divergent if_ is an error while building.
#include "examples/example.h"

namespace {

using namespace cgp::dsl;
constexpr int kThreads = 256, kWarps = kThreads / 32;

// part[block] = sum of this block's share of x.
void sum(Kernel& k, In<f32> x, Out<f32> part, Val<u32> n) {
  k.block(kThreads);
  const auto first = k.ctaid_x() * kThreads + k.tid(), stride = k.nctaid_x() * kThreads;
  const auto mine = k.loop(range(first, n, stride), Val<f32>(0.f),
                           [&](Val<u32> i, Val<f32> so_far) { return so_far + x.ld(i); });

  // A butterfly: after each step, twice as many lanes hold the same, twice as large sum.
  Warp warp = k.warp();
  const auto pair = mine + shfl<bfly>(warp, mine, 1);
  const auto four = pair + shfl<bfly>(warp, pair, 2);
  const auto eight = four + shfl<bfly>(warp, four, 4);
  const auto half = eight + shfl<bfly>(warp, eight, 8);
  const auto whole = half + shfl<bfly>(warp, half, 16);

  const auto of_warp = k.shared<f32>(kWarps);
  of_warp.st_if(warp.lane() == 0u, warp.index, whole);
  k.sync();
  k.if_(k.tid() == 0u, [&] {
    std::vector<Val<f32>> sums{of_warp.ld(0)};
    for (int w = 1; w < kWarps; ++w) sums.push_back(sums.back() + of_warp.ld(w));  // a C++ loop: unrolled
    part.st(k.ctaid_x(), sums.back());
  });
}

bool run(const cgp::runtime::Device& device) {
  const auto fn = device.load(cgp::launch::image(build("sum", device.info().arch, sum)));
  const std::uint32_t n = 100'003, blocks = 16;
  const auto host = example::small_integers<float>(n, 1);
  const auto x = device.upload<float>(host);
  auto part = device.alloc<float>(blocks), total = device.alloc<float>(1);
  fn(device.stream(), cgp::runtime::Dim3{blocks}, x, part, n);
  example::show(device, "sums of 16 blocks");
  fn(device.stream(), cgp::runtime::Dim3{1}, part, total, blocks);  // the same kernel adds up the blocks
  example::show(device, "sum of 16 sums");

  double want = 0;
  for (float v : host) want += v;
  const float got = total.to_vector()[0];
  std::printf("%g, should be %g\n", double(got), want);
  return got == want;
}

}  // namespace

int main(int argc, char** argv) { return example::main_on_device(argc, argv, run); }

// SPDX-License-Identifier: Apache-2.0
// Rung 7: roles. The shape of every fast Hopper GEMM.
//   One warpgroup only loads, two only multiply: the loader runs ahead as far as the ring has stages and
//   never makes a tensor core wait for an address computation. The loader needs few registers and gives them
//   up (setmaxnreg), the multipliers take them for accumulators. Block size, barrier counts and register
//   hand-over all follow from the two role declarations.
#include "cgp/dsl/mma/wgmma.h"
#include "examples/example.h"

namespace {

using namespace cgp::dsl;
constexpr int kBm = 128, kBn = 256, kBk = 64;
using TileA = Tile<bf16, kBm, kBk>;
using TileB = Tile<bf16, kBn, kBk>;

void gemm(Kernel& k, int stages, TmaIn<TileA> a, TmaIn<TileB> b, Out<f32> c, Val<u32> n, Val<u32> k_tiles) {
  auto load = k.role<Warpgroup>(1, /*registers=*/40);
  auto math = k.role<Warpgroup>(kBm / 64, /*registers=*/232);
  Ring<ByThreads, TileA, TileB> ring(k, stages, load, math);
  const auto m0 = k.ctaid_y() * kBm, n0 = k.ctaid_x() * kBn;

  load.one_thread([&](Thread& t) {
    k.loop(k_tiles, [&](Val<u32> tile) { ring.fill(t, at(a, m0, tile * kBk), at(b, n0, tile * kBk)); });
  });

  math.run([&](Warpgroup& wg) {
    auto first = wgmma(wg, fresh<f32, 64, kBn>(wg), ring.take(wg));
    // One product stays in flight: issue the next, then free the stage of the one before it.
    auto last = k.loop(k_tiles - 1, std::move(first),
                       [&](Val<u32>, auto busy) { return std::move(busy).then(wg, ring.take(wg)); });
    auto acc = std::move(last).wait(wg);  // only now readable
    const auto row0 = m0 + wg.index * 64;
    std::move(acc).each_pair(wg, [&](Val<u32> r, Val<u32> col, Val<f32> lo, Val<f32> hi) {
      c.st<2>(((row0 + r) * n + n0 + col) / 2, Vec<f32, 2>(lo, hi));
    });
  });
}

bool run(const cgp::runtime::Device& device) {
  example::needs(device, 90, "sm_90a");
  example::Gemm g(device);
  const auto built = build("gemm_specialised", device.info().arch, gemm, 4);
  std::printf("%d threads a block, %d bytes of shared memory\n", built.block[0], built.dynamic_smem);
  const auto fn = device.load(cgp::launch::image(built));
  fn(device.stream(), cgp::runtime::Dim3{g.n / kBn, g.m / kBm},
     example::matrix_map(device, fn, 0, g.a, g.m, g.k), example::matrix_map(device, fn, 1, g.b, g.n, g.k),
     g.c, g.n, g.k / kBk);
  example::show(device, "roles, TMA, wgmma");
  return g.check();
}

}  // namespace

int main(int argc, char** argv) { return example::main_on_device(argc, argv, run); }

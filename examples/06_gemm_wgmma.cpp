// SPDX-License-Identifier: Apache-2.0
// Rung 6: the tensor cores of Hopper.
//   wgmma multiplies tiles where they lie in shared memory: 128 threads issue it together and go on. What is
//   under way has a type of its own (InFlight): its sums cannot be read and its stage cannot be refilled
//   before a wait gives them back. Here the threads that multiply also keep the ring filled; rung 7 splits
//   the jobs.
#include "cgp/dsl/mma/wgmma.h"
#include "examples/example.h"

namespace {

using namespace cgp::dsl;
constexpr int kBm = 64, kBn = 128, kBk = 64, kStages = 3;
using TileA = Tile<bf16, kBm, kBk>;  // 128-byte rows: swizzled by default
using TileB = Tile<bf16, kBn, kBk>;

void gemm(Kernel& k, TmaIn<TileA> a, TmaIn<TileB> b, Out<f32> c, Val<u32> n, Val<u32> k_tiles) {
  k.block(128);
  Cta cta = k.cta();
  Ring<ByThreads, TileA, TileB> ring(k, kStages, cta);
  Warpgroup wg = k.warpgroup();
  const auto m0 = k.ctaid_y() * kBm, n0 = k.ctaid_x() * kBn;
  const auto fill = [&](Val<u32> tile) {
    k.if_(tile < k_tiles, [&] {
      wg.one_thread([&](Thread& t) { ring.fill(t, at(a, m0, tile * kBk), at(b, n0, tile * kBk)); });
    });
  };
  for (std::uint32_t s = 0; s < kStages; ++s) fill(Val<u32>(s));

  auto first = wgmma(wg, fresh<f32, kBm, kBn>(wg), ring.take(wg));
  auto last = k.loop(k_tiles - 1, std::move(first), [&](Val<u32> tile, auto busy) {
    auto next = std::move(busy).then(wg, ring.take(wg));  // issue the next; the one before is done: its stage
    fill(tile + kStages);                                 // is free for the tile after the ones under way
    return next;
  });
  auto acc = std::move(last).wait(wg);
  std::move(acc).each_pair(wg, [&](Val<u32> r, Val<u32> col, Val<f32> lo, Val<f32> hi) {
    c.st<2>(((m0 + r) * n + n0 + col) / 2, Vec<f32, 2>(lo, hi));
  });
}

bool run(const cgp::runtime::Device& device) {
  example::needs(device, 90, "sm_90a");
  example::Gemm g(device);
  const auto fn = device.load(cgp::launch::image(build("gemm_wgmma", device.info().arch, gemm)));
  fn(device.stream(), cgp::runtime::Dim3{g.n / kBn, g.m / kBm},
     example::matrix_map(device, fn, 0, g.a, g.m, g.k), example::matrix_map(device, fn, 1, g.b, g.n, g.k),
     g.c, g.n, g.k / kBk);
  example::show(device, "TMA, wgmma");
  return g.check();
}

}  // namespace

int main(int argc, char** argv) { return example::main_on_device(argc, argv, run); }

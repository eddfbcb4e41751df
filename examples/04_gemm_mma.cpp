// SPDX-License-Identifier: Apache-2.0
// Rung 4: the tensor cores of Ampere.
//   A Tile type says shape, element and swizzle once; copies, ldmatrix addresses and products follow from it.
//   AsyncRing keeps copies (cp.async) of later tiles under way while this one is multiplied: a stage can only
//   be read inside the body the ring calls after its wait, so the wait cannot be forgotten.
//   multiply() is ldmatrix and mma.sync over a warp's part of the stage.
#include "cgp/dsl/mma/mma.h"
#include "cgp/dsl/pipeline/async.h"
#include "examples/example.h"

namespace {

using namespace cgp::dsl;
constexpr int kBlock = 128, kDepth = 32, kWarpTile = 64, kStages = 3;
using Operand = Tile<bf16, kBlock, kDepth>;

void gemm(Kernel& k, In<bf16> a, In<bf16> b, Out<f32> c, Val<u32> m, Val<u32> n, Val<u32> kk) {
  k.block(128);  // 2 x 2 warps, each 64 x 64 of the block's 128 x 128
  Cta cta = k.cta();
  Warp warp = k.warp();
  AsyncRing<Operand, Operand> ring(k, kStages);
  const auto m0 = k.ctaid_y() * kBlock, n0 = k.ctaid_x() * kBlock;
  const auto row0 = (warp.index >> 1) * kWarpTile, col0 = (warp.index & 1) * kWarpTile;
  TileSource<Operand> from_a(cta, a, kk, m, kk), from_b(cta, b, kk, n, kk);
  WarpA<Operand, kWarpTile> a_part(warp, row0);
  WarpB<Operand, kWarpTile> b_part(warp, col0);
  auto acc = ring.loop(
      cta, kk / kDepth, zeros<f32, kWarpTile, kWarpTile>(warp),
      [&](auto& stage, const Val<u32>& tile) {  // start the copies of one tile of each operand
        stage.template copy<0>(from_a, m0, tile * kDepth);
        stage.template copy<1>(from_b, n0, tile * kDepth);
      },
      [&](const auto& stage, const Val<u32>&, auto acc) {  // they are here: multiply
        return multiply(warp, std::move(acc), a_part, stage.template get<0>(), b_part,
                        stage.template get<1>());
      });
  std::move(acc).each_pair(warp, [&](Val<u32> r, Val<u32> col, Val<f32> lo, Val<f32> hi) {
    c.st<2>(((m0 + row0 + r) * n + n0 + col0 + col) / 2, Vec<f32, 2>(lo, hi));
  });
}

bool run(const cgp::runtime::Device& device) {
  example::needs(device, 80);
  example::Gemm g(device);
  const auto fn = device.load(cgp::launch::image(build("gemm_mma", device.info().arch, gemm)));
  fn(device.stream(), cgp::runtime::Dim3{g.n / kBlock, g.m / kBlock}, g.a, g.b, g.c, g.m, g.n, g.k);
  example::show(device, "cp.async, mma.sync");
  return g.check();
}

}  // namespace

int main(int argc, char** argv) { return example::main_on_device(argc, argv, run); }

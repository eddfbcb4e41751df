// SPDX-License-Identifier: Apache-2.0
// gemm sm90_pingpong, its tiles of other shapes: both warpgroups (or one) share a tile of C of 64 or 128
// rows. For problems with few tiles, and those whose last wave 128 x 128 and 128 x 192 would leave half
// empty.
//   who      persistent; one producer thread feeds the ring of gemm_shaped_sm90.h
//   memory   stages of 128 bytes of K, of any type of wgmma; results leave through gemm_store_sm90.h
//   needs    what gemm_typed_sm90.h needs; no pairs
#include "cgp/kernels/gemm/gemm_shaped_sm90.h"
#include "cgp/kernels/gemm/gemm_typed_sm90.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

ptx::Mod word(DType t) {
  switch (t) {
    case DType::f32:
      return ptx::Mod::tf32;
    case DType::f16:
      return ptx::Mod::f16;
    case DType::bf16:
      return ptx::Mod::bf16;
    case DType::s8:
      return ptx::Mod::s8;
    default:
      return t == DType::e4m3 ? ptx::Mod::e4m3 : ptx::Mod::e5m2;
  }
}

struct TypedShape {
  ShapedTile tile;
  TypedTuning tune;
  int parts = 0;  ///< of the columns, when sums are promoted
};

// Parameters as those of gemm_pingpong_kernel, or with promoted sums of gemm_promoted_kernel.
void gemm_shaped_kernel(Kernel& k, TypedShape shape) {
  const auto& t = shape.tile;
  const auto& tune = shape.tune;
  ShapedOperand a(k, t.a, t.element_bytes, t.major_a, t.height());
  std::optional<ShapedOperand> declared;
  const auto declare_b = [&] { declared.emplace(k, t.b, t.element_bytes, t.major_b, t.width()); };
  const auto word = [&] { return Param<Val<u32>>::make(k); };
  if (shape.parts) declare_b();
  const auto m = word(), n = word(), k_tiles = word();
  if (shape.parts) (void)word();  // batches: planes of an operand lie that far apart
  const auto rows = word(), cols = word(), tiles = word();
  if (!shape.parts) declare_b();
  const auto& b = *declared;
  HopperStore c(k, tune.c, tune.epilogue, m, n);
  auto math = k.role<Warpgroup>(t.groups, /*registers=*/t.groups == 3 ? 160 : 240);
  auto load = k.role<Warpgroup>(1, /*registers=*/24);
  const ClusterWalk walk{rows, cols, tiles, 1, tune.tile.group};
  k.if_(k.tid() == std::uint32_t(math.threads()), [&] {
    for (const auto* map : {&a.map(), &b.map()}) record::prefetch_tensormap(k, map->address, k.here());
  });
  ShapedProduct product(k, t, load, math, a, b);
  c.open(math, tune.tile.buffers);
  const auto mine = range(walk.first(k), tiles, walk.step(k));
  load.one_thread([&](Thread& thread) {
    k.loop(mine, [&](Val<u32> tile) {
      const auto at = walk.place(k, tile, t.height(), t.width());
      k.loop(k_tiles, [&](Val<u32> kt) { product.fill(thread, at, kt); });
    });
  });
  math.run([&](Warpgroup& wg) {
    auto last = k.loop(mine, c.idle(), [&](Val<u32> tile, PendingStore pending) {
      const auto at = product.mine(wg, walk.place(k, tile, t.height(), t.width()));
      const auto sums = as_floats(product.sums(wg, k_tiles), t.sum == ptx::Mod::s32 && tune.c != DType::s32);
      const int blocks = t.group_rows() / 64, each = int(sums.size()) / blocks;
      std::vector<PendingStore> turn;
      turn.push_back(std::move(pending));
      for (int i = 0; i < blocks; ++i)
        turn.push_back(c.store(wg, std::move(turn.back()),
                               {sums.begin() + i * each, sums.begin() + (i + 1) * each}, t.group_cols(),
                               {at.batch, at.m0 + std::uint32_t(64 * i), at.n0}));
      return std::move(turn.back());
    });
    std::move(last).wait(wg);
  });
}

}  // namespace

ShapedTile gemm_typed_tile(const GemmProblem& p, const GemmTypedTuning& t) {
  const auto major = [](bool k) { return k ? Major::k : Major::mn; };
  ShapedTile s{word(p.type), word(*p.type_b), p.type == DType::s8 ? ptx::Mod::s32 : ptx::Mod::f32};
  s.element_bytes = bytes(p.type), s.major_a = major(!p.trans_a), s.major_b = major(p.trans_b);
  s.rows = t.bm, s.cols = t.bn, s.groups = t.bm == 256 ? 2 : t.bm / 64, s.stages = t.stages;
  return s;
}

Variant gemm_promoted_shaped(const GemmProblem& p, std::string name, const TypedTuning& t) {
  const int parts = t.tile.bn >= 128 ? 2 : 1;
  Variant v = variant(std::move(name), 90, gemm_shaped_kernel, {gemm_typed_tile(p, t.tile), t, parts});
  v.only = "sm_90a";
  return v;
}

Variant gemm_typed_shaped(const GemmProblem& p, std::string name, const TypedTuning& t) {
  Variant v = variant(std::move(name), 90, gemm_shaped_kernel, {gemm_typed_tile(p, t.tile), t});
  v.only = "sm_90a";
  return v;
}

}  // namespace cgp::kernels

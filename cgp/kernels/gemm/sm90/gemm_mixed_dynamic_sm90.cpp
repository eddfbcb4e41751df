// SPDX-License-Identifier: Apache-2.0
// gemm sm90_pingpong, its tiles of other shapes: both warpgroups (or one) share a tile of C of 64 or 128
// rows. For problems with few tiles, and those whose last wave 128 x 128 and 128 x 192 would leave half
// empty.
//   who      persistent; one producer thread feeds the ring of gemm_shaped_sm90.h
//   memory   stages of 128 bytes of K, of any type of wgmma; results leave through gemm_store_sm90.h
//   needs    what gemm_typed_sm90.h needs; no pairs
#include "cgp/kernels/gemm/sm90/gemm_block_scales.h"
#include "cgp/kernels/gemm/sm90/gemm_dynamic_sm90.h"
#include "cgp/kernels/gemm/sm90/gemm_mixed_sm90.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

struct TypedShape {
  ShapedTile tile;
  TypedTuning tune;
  int parts = 0;  ///< of the columns, when sums are promoted
};

// Factors of blocks: [batch][m][k_tiles] of the rows of C, [batch][blocks of columns][k_tiles].
BlockFactors factors_of(Kernel& k, const TypedShape& s, const In<f32>& a, const In<f32>& b,
                        const HopperPlace& at, const Val<u32>& m, const Val<u32>& n,
                        const Val<u32>& k_tiles) {
  const auto batch = to<u64>(at.batch);
  BlockFactors f(a, b, k_tiles);
  for (int r : s.tile.thread_rows()) {
    const auto row = at.m0 + record::warpgroup_origin(k).row + std::uint32_t(r);
    f.row(batch * to<u64>(m) + to<u64>(row), row < m);
  }
  f.columns(s.tile, s.parts, s.tune.epilogue.pairing(), batch, at.n0, n);
  return f;
}

// Parameters as those of gemm_pingpong_kernel. With promoted sums both maps come first; behind the sizes come
// the factors of blocks, and (f32) the word that says whether three bf16 hold the operands: those that they
// do not are another kernel's.
void gemm_shaped_kernel(Kernel& k, TypedShape shape) {
  const auto& t = shape.tile;
  const auto& tune = shape.tune;
  ShapedOperand a(k, t.a, t.element_bytes, t.major_a, t.height());
  std::optional<ShapedOperand> declared;
  const auto declare_b = [&] {
    declared.emplace(k, t.b, t.element_bytes, t.major_b, t.width(), tune.epilogue.pairing() != Pairing::none);
  };
  const auto word = [&] { return Param<Val<u32>>::make(k); };
  std::optional<Val<u32>> batches;
  if (shape.parts) declare_b();
  const auto m = word(), n = word(), k_tiles = word();
  if (shape.parts) batches.emplace(word());
  const auto rows = word(), cols = word();
  const auto all_tiles = word();
  if (!shape.parts) declare_b();
  const auto& b = *declared;
  std::vector<In<f32>> factors;
  for (int i = 0; i < 2 && tune.blocks; ++i) factors.push_back(Param<In<f32>>::make(k));
  const auto tiles =
      t.planes == 1 ? all_tiles : select(Param<In<u32>>::make(k).ld(0) == 0u, all_tiles, Val<u32>(0));
  HopperStore c(k, tune.c, tune.epilogue, m, n, t.cols);
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
      k.loop(k_tiles, [&](Val<u32> kt) { product.fill(thread, at, kt, batches); });
    });
  });
  math.run([&](Warpgroup& wg) {
    k.loop(mine, [&](Val<u32> tile) {
      const auto whole = walk.place(k, tile, t.height(), t.width());
      const auto at = product.mine(wg, whole);
      ShapedPromotion how{shape.parts, tune.tile.overlapped};
      if (tune.blocks) how.factors = factors_of(k, shape, factors[0], factors[1], at, m, n, k_tiles);
      const bool integers = t.sum == ptx::Mod::s32 && !(tune.c == DType::s32 && tune.epilogue.empty());
      const auto sums = as_floats(
          shape.parts ? product.promoted_sums(wg, k_tiles, how) : product.sums(wg, k_tiles), integers);
      const int blocks = t.group_rows() / 64, each = int(sums.size()) / blocks;
      for (int i = 0; i < blocks; ++i)
        c.store(wg, {sums.begin() + i * each, sums.begin() + (i + 1) * each}, t.group_cols(),
                {at.batch, at.m0 + std::uint32_t(64 * i), at.n0});
    });
    c.drain(wg);
  });
}

}  // namespace

ShapedTile gemm_typed_tile(const GemmProblem& p, const GemmTypedTuning& t) {
  const auto major = [](bool k) { return k ? Major::k : Major::mn; };
  ShapedTile s{wgmma_word(p.type), wgmma_word(*p.type_b),
               p.type == DType::s8 ? ptx::Mod::s32 : ptx::Mod::f32};
  s.element_bytes = bytes(p.type), s.major_a = major(!p.trans_a), s.major_b = major(p.trans_b);
  s.rows = t.bm, s.cols = t.bn, s.groups = t.bm == 256 ? 2 : t.bm / 64, s.stages = t.stages;
  if (p.type == DType::f32 && p.precision != GemmPrecision::fast)
    s.a = s.b = ptx::Mod::bf16, s.element_bytes = 2, s.planes = 3;
  return s;
}

Variant gemm_promoted_shaped(const GemmProblem& p, std::string name, const TypedTuning& t) {
  Variant v = variant(std::move(name), 90, gemm_shaped_kernel, {gemm_typed_tile(p, t.tile), t, t.tile.parts});
  v.only = "sm_90a";
  return v;
}

Variant gemm_typed_shaped(const GemmProblem& p, std::string name, const TypedTuning& t) {
  Variant v = variant(std::move(name), 90, gemm_shaped_kernel, {gemm_typed_tile(p, t.tile), t});
  v.only = "sm_90a";
  return v;
}

}  // namespace cgp::kernels

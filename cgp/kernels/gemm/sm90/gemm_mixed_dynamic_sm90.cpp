// SPDX-License-Identifier: Apache-2.0
// gemm mixed precision, tiles that the pingpong kernel does not have: both warpgroups (or one) share a tile of C of 64 or 128
// rows. For problems with few tiles, and those whose last wave 128 x 128 and 128 x 192 would leave half
// empty.
//   who      persistent; one producer thread feeds the ring of gemm_dynamic_sm90.h
//   memory   stages of 128 bytes of K, of any type of wgmma; results are stored by gemm_store_sm90.h
//   needs    what gemm_mixed_sm90.h needs; no pairs
#include "cgp/kernels/gemm/sm90/gemm_block_scales.h"
#include "cgp/kernels/gemm/sm90/gemm_dynamic_sm90.h"
#include "cgp/kernels/gemm/sm90/gemm_mixed_sm90.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

struct MixedBuild {
  DynamicTile tile;
  MixedTuning tune;
  int promote = 0;  ///< column slices in which accumulators are promoted; 0: not
};

// Scales of blocks: [batch][m][k_tiles] of the rows of C, [batch][blocks of columns][k_tiles].
BlockScales scales_of(Warpgroup& wg, const MixedBuild& s, const In<f32>& a, const In<f32>& b,
                      const TileCoord& at, const Val<u32>& m, const Val<u32>& n, const Val<u32>& k_tiles) {
  const auto batch = to<u64>(at.batch);
  BlockScales f(a, b, k_tiles);
  for (int r : s.tile.thread_rows()) {
    const auto row = at.m0 + DynAcc::origin(wg).row + std::uint32_t(r);
    f.row(batch * to<u64>(m) + to<u64>(row), row < m);
  }
  f.columns(s.tile, s.promote, s.tune.epilogue.pairing(), batch, at.n0, n);
  return f;
}

// Parameters as those of gemm_pingpong_kernel. With promoted accumulators both maps come first; behind the sizes come
// the scales of blocks, and (f32) the word that says whether three bf16 hold the operands: those that they
// do not are another kernel's.
void gemm_mixed_dynamic_kernel(Kernel& k, MixedBuild shape) {
  const auto& t = shape.tile;
  const auto& tune = shape.tune;
  const auto a = DynamicOperand::declare(k, DynTile::operand(t.a, t.element_bytes, t.major_a, t.height()));
  std::optional<DynamicOperand> declared;
  const auto declare_b = [&] {
    declared.emplace(DynamicOperand::declare(k, DynTile::operand(t.b, t.element_bytes, t.major_b, t.width()),
                                             tune.epilogue.pairing() != Pairing::none));
  };
  const auto word = [&] { return Param<Val<u32>>::make(k); };
  std::optional<Val<u32>> batches;
  if (shape.promote) declare_b();
  const auto m = word(), n = word(), k_tiles = word();
  if (shape.promote) batches.emplace(word());
  const auto rows = word(), cols = word();
  const auto all_tiles = word();
  if (!shape.promote) declare_b();
  const auto& b = *declared;
  std::vector<In<f32>> scales;
  for (int i = 0; i < 2 && tune.blocks; ++i) scales.push_back(Param<In<f32>>::make(k));
  const auto tiles =
      t.terms == 1 ? all_tiles : select(Param<In<u32>>::make(k).ld(0) == 0u, all_tiles, Val<u32>(0));
  HopperStore c(k, tune.c, tune.epilogue, m, n, t.cols);
  auto math = k.role<Warpgroup>(t.warpgroups, /*registers=*/t.warpgroups == 3 ? 160 : 240);
  auto load = k.role<Warpgroup>(1, /*registers=*/24);
  const ClusterTiles walk{rows, cols, tiles, 1, tune.tile.group};
  prefetch_descriptors(load, a.map(), b.map());
  DynamicMainloop mainloop(k, t, load, math, a, b);
  c.open(math, tune.tile.buffers);
  const auto block_tiles = range(walk.first(k), tiles, walk.step(k));
  load.one_thread([&](Thread& thread) {
    k.loop(block_tiles, [&](Val<u32> tile) {
      const auto at = walk.place(k, tile, t.height(), t.width());
      k.loop(k_tiles, [&](Val<u32> kt) { mainloop.fill(thread, at, kt, batches); });
    });
  });
  math.run([&](Warpgroup& wg) {
    k.loop(block_tiles, [&](Val<u32> tile) {
      const auto whole = walk.place(k, tile, t.height(), t.width());
      const auto at = mainloop.warpgroup_tile(wg, whole);
      Promotion how{shape.promote, tune.tile.overlapped};
      if (tune.blocks) how.scales = scales_of(wg, shape, scales[0], scales[1], at, m, n, k_tiles);
      auto acc =
          shape.promote ? mainloop.accumulate_promoted(wg, k_tiles, how) : mainloop.accumulate(wg, k_tiles);
      const bool whole_integers = tune.c == DType::s32 && tune.epilogue.empty();
      const auto blocks = (whole_integers ? std::move(acc) : to_floats(std::move(acc))).row_blocks();
      for (std::size_t i = 0; i < blocks.size(); ++i)
        c.store(wg, blocks[i], {at.batch, at.m0 + std::uint32_t(64 * i), at.n0});
    });
    c.drain(wg);
  });
}

}  // namespace

DynamicTile gemm_mixed_tile(const GemmProblem& p, const GemmMixedTuning& t) {
  const auto major = [](bool k) { return k ? Major::k : Major::mn; };
  DynamicTile s{wgmma_word(p.type), wgmma_word(*p.type_b),
                p.type == DType::s8 ? ptx::Mod::s32 : ptx::Mod::f32};
  s.element_bytes = bytes(p.type), s.major_a = major(!p.trans_a), s.major_b = major(p.trans_b);
  s.rows = t.bm, s.cols = t.bn, s.warpgroups = t.bm == 256 ? 2 : t.bm / 64, s.stages = t.stages;
  if (p.type == DType::f32 && p.precision != GemmPrecision::fast)
    s.a = s.b = ptx::Mod::bf16, s.element_bytes = 2, s.terms = 3;
  return s;
}

Variant gemm_promoted_dynamic(const GemmProblem& p, std::string name, const MixedTuning& t) {
  Variant v = variant(std::move(name), 90, gemm_mixed_dynamic_kernel,
                      {gemm_mixed_tile(p, t.tile), t, t.tile.promote});
  v.only = "sm_90a";
  return v;
}

Variant gemm_mixed_dynamic(const GemmProblem& p, std::string name, const MixedTuning& t) {
  Variant v = variant(std::move(name), 90, gemm_mixed_dynamic_kernel, {gemm_mixed_tile(p, t.tile), t});
  v.only = "sm_90a";
  return v;
}

}  // namespace cgp::kernels

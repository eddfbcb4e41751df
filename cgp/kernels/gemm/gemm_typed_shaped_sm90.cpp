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

// Factors of blocks: [batch][m][k_tiles] of the rows of C, [batch][blocks of columns][k_tiles].
class BlockFactors {
 public:
  BlockFactors(Kernel& k, const TypedShape& s, const In<f32>& a, const In<f32>& b, const HopperPlace& at,
               const Val<u32>& row0, const Val<u32>& m, const Val<u32>& n, const Val<u32>& k_tiles)
      : a_(a), b_(b) {
    const auto batch = to<u64>(at.batch), depth = to<u64>(k_tiles);
    const auto origin = record::warpgroup_origin(k);
    for (int r = 0; r < s.tile.group_rows(); r += 8) {
      if (r % 64 > 8) continue;
      const auto row = row0 + origin.row + std::uint32_t(r);
      rows_.emplace_back((batch * to<u64>(m) + to<u64>(row)) * depth, row < m);
    }
    const auto blocks = (n + 127u) / 128u;
    for (int p = 0; p < s.parts; ++p) {
      const auto block = column(s, at.n0, n, std::uint32_t(p * s.tile.cols / s.parts)) / 128u;
      cols_.emplace_back((batch * to<u64>(blocks) + to<u64>(block)) * depth, block < blocks);
    }
  }
  std::vector<Val<f32>> operator()(const Val<u32>& k_tile) const {
    std::vector<Val<f32>> f;
    const auto kt = to<u64>(k_tile);
    for (const auto& [from, inside] : rows_) f.push_back(a_.ld_if(inside, from + kt, Val<f32>(0.f))[0]);
    for (const auto& [from, inside] : cols_) f.push_back(b_.ld_if(inside, from + kt, Val<f32>(0.f))[0]);
    return f;
  }

 private:
  // Of the product: where column `at` of the tile comes from.
  static Val<u32> column(const TypedShape& s, const Val<u32>& n0, const Val<u32>& n, std::uint32_t at) {
    const auto half = std::uint32_t(s.tile.cols / 2), in_half = at % half;
    switch (s.tune.epilogue.pairing()) {
      case Pairing::none:
        return n0 + at;
      case Pairing::interleaved:
        return n0 + 2 * in_half;
      default:
        return n0 / 2u + in_half + (at < half ? Val<u32>(0) : n / 2u);
    }
  }
  In<f32> a_, b_;
  std::vector<std::pair<Val<u64>, Val<pred>>> rows_, cols_;
};

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
      k.loop(k_tiles, [&](Val<u32> kt) { product.fill(thread, at, kt, batches); });
    });
  });
  math.run([&](Warpgroup& wg) {
    k.loop(mine, [&](Val<u32> tile) {
      const auto whole = walk.place(k, tile, t.height(), t.width());
      const auto at = product.mine(wg, whole);
      ShapedPromotion how{shape.parts, tune.tile.overlapped};
      if (tune.blocks) how.factors = BlockFactors(k, shape, factors[0], factors[1], at, at.m0, m, n, k_tiles);
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
  ShapedTile s{word(p.type), word(*p.type_b), p.type == DType::s8 ? ptx::Mod::s32 : ptx::Mod::f32};
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

// SPDX-License-Identifier: Apache-2.0
// grouped_gemm sm80, forms rows and depth: the tiles of gemm_sm80.h for groups found on the device.
//   who      persistent blocks of four warps walk over tiles of 128 x 128 of all groups, each warp 64 x 64;
//   every
//            warp finds the tiles on its own
//   memory   four stages of 32 of K by cp.async; chunks behind the group's end are filled with zeros
//   needs    sm_80; 16-bit types; A, B and their rows at multiples of 16 bytes
#include "cgp/base/text.h"
#include "cgp/dsl/mma/mma.h"
#include "cgp/dsl/pipeline/async.h"
#include "cgp/kernels/gemm/epilogue/gemm_epilogue.h"
#include "cgp/kernels/grouped_gemm/grouped_gemm.h"
#include "cgp/kernels/schedule/grouped_tiles.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr int kTile = 128, kDepth = 32, kSide = 64, kStages = 4, kBand = 8;

template <class T, Major M>
using OperandTile = std::conditional_t<M == Major::k, Tile<T, kTile, kDepth>, Tile<T, kDepth, kTile>>;

template <class T>
struct Product {
  In<T> a, b;
  InOut<T> c;
  Val<u32> m, n, k, lda, ldb;
  Val<u32> m0, n0;  ///< the tile's first element
  Val<u32> paired;
  Val<f32> alpha;
};

// One tile, by the whole block.
template <class T, Major MA, Major MB, class RingT>
void multiply_tile(Kernel& k, RingT& ring, const Product<T>& p) {
  using TileA = OperandTile<T, MA>;
  using TileB = OperandTile<T, MB>;
  constexpr bool ka = MA == Major::k, kb = MB == Major::k;
  Cta cta = k.cta();
  Warp w = k.warp();
  const auto wm = (w.index >> 1) * std::uint32_t(kSide), wn = (w.index & 1) * std::uint32_t(kSide);
  TileSource<TileA> source_a(cta, p.a, p.lda, ka ? p.m : p.k, ka ? p.k : p.m);
  TileSource<TileB> source_b(cta, p.b, p.ldb, kb ? p.n : p.k, kb ? p.k : p.n);
  WarpA<TileA, kSide, MA> part_a(w, wm);
  WarpB<TileB, kSide, MB> part_b(w, wn);
  auto acc = ring.loop(
      cta, assume_uniform((p.k + std::uint32_t(kDepth - 1)) / std::uint32_t(kDepth), Uniform::cta),
      zeros<f32, kSide, kSide>(w),
      [&](auto& stage, const Val<u32>& kt) {
        const auto k0 = kt * kDepth;
        stage.template copy<0>(source_a, ka ? p.m0 : k0, ka ? k0 : p.m0);
        stage.template copy<1>(source_b, kb ? p.n0 : k0, kb ? k0 : p.n0);
      },
      [&](const auto& stage, const Val<u32>&, auto acc) {
        return multiply(w, std::move(acc), part_a, stage.template get<0>(), part_b, stage.template get<1>());
      });
  const auto n64 = to<u64>(p.n);
  const auto pairs = p.paired != 0u;
  std::move(acc).each_pair(w, [&](Val<u32> r, Val<u32> c, Val<f32> lo, Val<f32> hi) {
    const auto row = p.m0 + wm + r, col = p.n0 + wn + c;
    const auto at = to<u64>(row) * n64 + to<u64>(col);
    const auto low = to<T>(lo * p.alpha), high = to<T>(hi * p.alpha);
    const auto inside = (row < p.m) & (col < p.n);
    k.if_(
        pairs, [&] { p.c.at(at).template as<b32>().st_if(inside, 0, pack<b32>(low, high)); },
        [&] {
          p.c.st_if(inside, at, low);
          p.c.st_if((row < p.m) & (col + 1 < p.n), at + std::uint64_t(1), high);
        });
  });
}

template <class T, Major MB>
void grouped_rows_sm80(Kernel& k, In<T> a, In<T> b, InOut<T> c, In<u32> ends, Val<u32> wide, Val<u32> groups,
                       Val<u32> rows, Val<u32> n, Val<u32> kk, Val<u32> cols, Val<u32> paired,
                       Val<f32> alpha) {
  k.block(128);
  AsyncRing<OperandTile<T, Major::k>, OperandTile<T, MB>> ring(k, kStages);
  Warp w = k.warp();
  const auto n64 = to<u64>(n), k64 = to<u64>(kk);
  GroupWalk walk(k, RaggedRows{{ends, wide, groups, rows}, cols, kTile}, Uniform::cta);
  walk.each(w, TileSupply{Out<u32>(Val<u64>(0)), false}, [&](const GroupTile& t) {
    const auto start = t.held[0], size = t.held[1];
    const auto at =
        grouped_raster(t.number, (size + std::uint32_t(kTile - 1)) / std::uint32_t(kTile), cols, kBand);
    multiply_tile<T, Major::k, MB>(
        k, ring,
        Product<T>{a.at(to<u64>(start) * k64), b.at(to<u64>(t.group) * n64 * k64),
                   InOut<T>(c.at(to<u64>(start) * n64)), size, n, kk, kk, MB == Major::k ? kk : n,
                   at.row * std::uint32_t(kTile), at.col * std::uint32_t(kTile), paired, alpha});
  });
}

template <class T>
void grouped_depth_sm80(Kernel& k, In<T> a, In<T> b, InOut<T> c, In<u32> ends, Val<u32> wide, Val<u32> groups,
                        Val<u32> rows, Val<u32> m, Val<u32> n, Val<u32> tiles_m, Val<u32> tiles_n,
                        Val<u32> tiles, Val<u32> paired, Val<f32> alpha) {
  constexpr Major MN = Major::mn;
  k.block(128);
  AsyncRing<OperandTile<T, MN>, OperandTile<T, MN>> ring(k, kStages);
  const RaggedEnds groups_end{ends, wide, groups, rows};
  const auto m64 = to<u64>(m), n64 = to<u64>(n);
  k.loop(range(k.ctaid_x(), tiles, k.nctaid_x()), [&](Val<u32> tile) {
    const auto per_group = tiles_m * tiles_n, group = tile / per_group;
    const auto at = grouped_raster(tile % per_group, tiles_m, tiles_n, kBand);
    const auto span = groups_end.span(group);
    multiply_tile<T, MN, MN>(
        k, ring,
        Product<T>{a.at(to<u64>(span.start) * m64), b.at(to<u64>(span.start) * n64),
                   InOut<T>(c.at(to<u64>(group) * m64 * n64)), m, n, span.size, m, n,
                   at.row * std::uint32_t(kTile), at.col * std::uint32_t(kTile), paired, alpha});
  });
}

template <class T>
Variant make(DType type, GroupedForm form, bool trans_b) {
  const bool depth = form == GroupedForm::depth;
  const GroupedConfig config{.a = type,
                             .form = form,
                             .kind = GroupedKind::sm80,
                             .layout = depth ? GemmLayout::any : gemm_layout(false, trans_b)};
  if (depth) return grouped_variant(config, 80, grouped_depth_sm80<T>);
  return trans_b ? grouped_variant(config, 80, grouped_rows_sm80<T, Major::k>)
                 : grouped_variant(config, 80, grouped_rows_sm80<T, Major::mn>);
}

}  // namespace

Variant grouped_sm80(DType t, GroupedForm form, bool trans_b) {
  return t == DType::f16 ? make<f16>(t, form, trans_b) : make<bf16>(t, form, trans_b);
}

}  // namespace cgp::kernels

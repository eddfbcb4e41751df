// SPDX-License-Identifier: Apache-2.0
// gemm typed_mma: mma.sync of every type it has, with an epilogue. The kernel of gemm_sm80.cpp, stages of 64
// bytes of K, another end.
//   needs    sm_80 (8-bit floats: sm_89); rows of A and B that start at multiples of 16 bytes; sizes below
//   2^31
#include "cgp/dsl/mma/mma.h"
#include "cgp/dsl/pipeline/async.h"
#include "cgp/kernels/gemm/epilogue/gemm_direct_store.h"
#include "cgp/kernels/gemm/epilogue/gemm_epilogue.h"
#include "cgp/kernels/schedule/raster.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr int kTile = 128, kWarpTile = 64, kStages = 4, kGroup = 8;
template <class T>
constexpr int kDepth = 512 / T::bits;

template <class T, Major M>
using OperandTile = std::conditional_t<M == Major::k, Tile<T, kTile, kDepth<T>>, Tile<T, kDepth<T>, kTile>>;

template <class TA, class TB, class Sum, Major MA, Major MB>
void gemm_mixed_mma_kernel(Kernel& k, DirectTuning tune, In<TA> a, In<TB> b, Val<u32> m, Val<u32> n,
                           Val<u32> kk, Val<u32> lda, Val<u32> ldb, Val<u64> stride_a, Val<u64> stride_b,
                           Val<u32> tiles_m, Val<u32> tiles_n) {
  k.block(128);
  using TileA = OperandTile<TA, MA>;
  using TileB = OperandTile<TB, MB>;
  const auto batch64 = to<u64>(k.ctaid_z());
  const DirectStore out(k, tune, to<u64>(m), to<u64>(n), batch64);
  Cta cta = k.cta();
  Warp w = k.warp();
  AsyncRing<TileA, TileB> ring(k, kStages);
  const auto tile = grouped_raster(k.ctaid_x(), tiles_m, tiles_n, kGroup);
  const auto m0 = tile.row * kTile, n0 = tile.col * kTile;
  const auto wm = (w.index >> 1) * kWarpTile, wn = (w.index & 1) * kWarpTile;
  constexpr bool ka = MA == Major::k, kb = MB == Major::k;
  TileSource<TileA> a_src(cta, a.at(batch64 * stride_a), lda, ka ? m : kk, ka ? kk : m);
  TileSource<TileB> b_src(cta, b.at(batch64 * stride_b), ldb, kb ? n : kk, kb ? kk : n);
  WarpA<TileA, kWarpTile, MA> a_part(w, wm);
  WarpB<TileB, kWarpTile, MB> b_part(w, wn);
  constexpr std::uint32_t depth = kDepth<TA>;
  const auto acc = ring.loop(
      cta, (kk + (depth - 1)) / depth, zeros<Sum, kWarpTile, kWarpTile>(w),
      [&](auto& stage, const Val<u32>& kt) {
        const auto k0 = kt * depth;
        stage.template copy<0>(a_src, ka ? m0 : k0, ka ? k0 : m0);
        stage.template copy<1>(b_src, kb ? n0 : k0, kb ? k0 : n0);
      },
      [&](const auto& stage, const Val<u32>&, auto accumulators) {
        return multiply(w, std::move(accumulators), a_part, stage.template get<0>(), b_part,
                        stage.template get<1>());
      });
  const auto origin = WarpAcc<Sum, kWarpTile, kWarpTile>::origin(w);
  const auto row0 = to<u64>(m0 + wm + origin.row), col0 = to<u64>(n0 + wn + origin.col);
  std::vector<EpilogueLine> rows;
  for (int i = 0; i < kWarpTile / 8; ++i) rows.push_back(out.row(row0, 8 * i));
  const auto value = [&](int i) -> Value {
    if constexpr (std::is_same_v<Sum, s32>)
      return tune.integers ? Value(acc[i]) : Value(to<f32>(acc[i]));
    else
      return acc[i];
  };
  for (int j = 0; j < kWarpTile / 8; ++j) {
    const auto columns = out.columns(col0, 8 * j);
    for (int i = 0; i < kWarpTile / 8; ++i) {
      const int at = (i / 2 * (kWarpTile / 8) + j) * 4 + i % 2 * 2;
      out.put(rows[std::size_t(i)], columns, value(at), value(at + 1));
    }
  }
  out.finish(to<u64>(m0), to<u64>(n0), true);
}

template <class T>
Variant layouts(bool ta, bool tb, std::string name, const DirectTuning& t) {
  constexpr Major K = Major::k, MN = Major::mn;
  if (ta)
    return tb ? variant(std::move(name), 80, gemm_mixed_mma_kernel<T, T, f32, MN, K>, t)
              : variant(std::move(name), 80, gemm_mixed_mma_kernel<T, T, f32, MN, MN>, t);
  return tb ? variant(std::move(name), 80, gemm_mixed_mma_kernel<T, T, f32, K, K>, t)
            : variant(std::move(name), 80, gemm_mixed_mma_kernel<T, T, f32, K, MN>, t);
}

}  // namespace

Variant gemm_mixed_mma(DType a, DType b, bool trans_a, bool trans_b, std::string name,
                       const DirectTuning& t) {
  constexpr Major K = Major::k;
  switch (a) {
    case DType::f16:
      return layouts<f16>(trans_a, trans_b, std::move(name), t);
    case DType::bf16:
      return layouts<bf16>(trans_a, trans_b, std::move(name), t);
    case DType::f32:
      return variant(std::move(name), 80, gemm_mixed_mma_kernel<tf32, tf32, f32, K, K>, t);
    case DType::s8:
      return variant(std::move(name), 80, gemm_mixed_mma_kernel<s8, s8, s32, K, K>, t);
    case DType::e4m3:
      return b == DType::e4m3 ? variant(std::move(name), 89, gemm_mixed_mma_kernel<e4m3, e4m3, f32, K, K>, t)
                              : variant(std::move(name), 89, gemm_mixed_mma_kernel<e4m3, e5m2, f32, K, K>, t);
    default:
      return b == DType::e4m3 ? variant(std::move(name), 89, gemm_mixed_mma_kernel<e5m2, e4m3, f32, K, K>, t)
                              : variant(std::move(name), 89, gemm_mixed_mma_kernel<e5m2, e5m2, f32, K, K>, t);
  }
}

}  // namespace cgp::kernels

// SPDX-License-Identifier: Apache-2.0
// gemm sm100, the first three steps of the ladder (gemm_sm100.h): one thread of a block of 128 copies and
// multiplies a tile of 128 x 128, then all of them store it. K-major operands (layout nt) only.
#include "cgp/kernels/gemm/sm100/gemm_sm100.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr int kBn = 128;

template <class T, Swizzle Sw>
void gemm_sm100_steps(Kernel& k, int stages,
                      TmaIn<Tile<T, kHopperBm, kHopperBk, Sw>, 1, kHopperBm, kHopperBk> a,
                      TmaIn<Tile<T, kBn, kHopperBk, Sw>, 1, kBn, kHopperBk> b, InOut<T> c, Val<u32> m,
                      Val<u32> n, Val<u64> ldc, Val<u64> stride_c, Val<u32> k_tiles, Val<f32> alpha,
                      Val<f32> beta, Val<u32> paired, Val<u32> rows, Val<u32> cols, Val<u32> tiles) {
  using Accumulator = TmemAcc<f32, kHopperBm, kBn>;
  k.block(128);
  Cta cta = k.cta();
  Warpgroup wg = k.warpgroup();
  GemmSm100Tuning tune;
  GemmWalk walk(k, tune, rows, cols, tiles, kBn);
  const auto where = walk.place(k.ctaid_x());
  Ring<ByUmma, Tile<T, kHopperBm, kHopperBk, Sw>, Tile<T, kBn, kHopperBk, Sw>> ring(k, stages, cta);
  with_tmem<TmemSlots<Accumulator, 1>>(k, [&](auto& tmem) {
    Accumulators accs(k, tmem.template get<0>(), cta);
    cta.one_thread([&](Thread& t) {
      const auto fill = [&](const Val<u32>& kt) {
        ring.fill(t, at(a, where.batch, where.m0, kt * kHopperBk),
                  at(b, where.batch, where.n0, kt * kHopperBk));
      };
      const auto ahead = std::uint32_t(stages - 1);
      if (ahead) k.loop(dsl::min(k_tiles, ahead), fill);
      k.loop(k_tiles, accs.acquire(t), [&](Val<u32> kt, auto sum) {
         if (ahead)
           k.if_(kt + ahead < k_tiles, [&] { fill(kt + ahead); });
         else
           fill(kt);
         return umma(t, std::move(sum), ring.take(t));
       }).commit(t);
    });
    DirectC<T> out{{c, to<u64>(m), to<u64>(n), ldc, alpha, beta}, stride_c, paired};
    out.store(wg, accs.take(wg), where, {}, kBn);
  });
}

template <class T>
Variant make(std::string name, GemmFamily step) {
  Variant v = step == GemmFamily::sm100_tiled
                  ? variant(std::move(name), 100, gemm_sm100_steps<T, Swizzle::b16>, 1)
                  : variant(std::move(name), 100, gemm_sm100_steps<T, Swizzle::b128>,
                            step == GemmFamily::sm100_swizzled ? 1 : 4);
  v.only = "sm_100a";
  return v;
}

}  // namespace

GemmVariant gemm_sm100_ladder(DType t, GemmFamily step) {
  const GemmConfig config{
      .family = step, .a = t, .layout = GemmLayout::nt, .tile_m = 128, .tile_n = 128, .tile_k = 64};
  return {t == DType::f16 ? make<f16>(print(config), step) : make<bf16>(print(config), step), config};
}

}  // namespace cgp::kernels

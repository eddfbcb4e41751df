// SPDX-License-Identifier: Apache-2.0
// gemm sm90: warp-specialised Hopper kernel, TMA ring and wgmma.
//   who      one producer thread feeds the ring; 2 math warpgroups each own 64 rows of a 128 x BN tile of C
//   memory   stages of 128 x 64 and BN x 64 tiles (or their transposes) by TMA with a 128-byte swizzle; what
//   lies
//            outside the matrices arrives as zeros
//   sync     full/empty mbarriers of the ring; one wgmma group stays in flight
//   needs    sm_90a; 16-bit types; rows and batches of A and B at multiples of 16 bytes; k >= 1; sizes below
//   2^32
#include "cgp/base/text.h"
#include "cgp/kernels/gemm/api/gemm.h"
#include "cgp/kernels/gemm/api/gemm_operand.h"
#include "cgp/kernels/gemm/epilogue/gemm_epilogue.h"
#include "cgp/kernels/gemm/sm90/gemm_params_sm90.h"
#include "cgp/kernels/schedule/raster.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

struct GemmTuning {  // decides emitted code, never a type
  int stages, group;
};

template <class T, Major MA, Major MB, int BN>
void gemm_sm90_kernel(Kernel& k, GemmTuning tune) {
  using A = HopperOperand<T, MA, kHopperBm>;
  using B = HopperOperand<T, MB, BN>;
  GemmDirectParams<OnDevice, T, typename A::map, typename B::map> p;
  declare_params(k, p, /*persistent=*/false);
  auto load = k.role<Warpgroup>(1, /*registers=*/40);
  auto math = k.role<Warpgroup>(kHopperBm / 64, /*registers=*/232);
  Ring<ByThreads, typename A::tile, typename B::tile> ring(k, tune.stages, load, math);
  const auto tile = grouped_raster(k.ctaid_x(), *p.tiles_m, *p.tiles_n, tune.group);
  const auto m0 = tile.row * kHopperBm, n0 = tile.col * BN, batch = k.ctaid_z();

  load.one_thread([&](Thread& t) {
    k.loop(*p.k_tiles, [&](Val<u32> kt) {
      const auto k0 = kt * kHopperBk;
      ring.fill(t, A::at(*p.a, batch, m0, k0), B::at(*p.b, batch, n0, k0));
    });
  });

  math.run([&](Warpgroup& wg) {
    // From here the accumulator and the stage belong to the tensor core.
    auto first = wgmma<MA, MB>(wg, fresh<f32, 64, BN>(wg), ring.take(wg));
    // One product stays in flight: issue the next, then free the stage of the one before it.
    auto last = k.loop(*p.k_tiles - 1, std::move(first), [&](Val<u32>, auto busy) {
      return std::move(busy).template then<MA, MB>(wg, ring.take(wg));
    });
    auto acc = std::move(last).wait(wg);  // only now is it readable

    const GemmOutput<T> out{InOut<T>(p.c->at(to<u64>(batch) * *p.stride_c)),
                            to<u64>(*p.m),
                            to<u64>(*p.n),
                            *p.ldc,
                            *p.alpha,
                            *p.beta};
    const auto pairs = *p.paired != 0u;
    const auto row0 = m0 + wg.index * 64;
    std::move(acc).each_pair(wg, [&](Val<u32> r, Val<u32> col, Val<f32> lo, Val<f32> hi) {
      out.put_pair(k, pairs, to<u64>(row0 + r), to<u64>(n0 + col), lo, hi);
    });
  });
}

template <class T, Major MA, Major MB>
Variant make(std::string name, int bn) {
  Variant v = bn == 256 ? variant(std::move(name), 90, gemm_sm90_kernel<T, MA, MB, 256>, GemmTuning{4, 16})
                        : variant(std::move(name), 90, gemm_sm90_kernel<T, MA, MB, 128>, GemmTuning{6, 16});
  v.only = "sm_90a";
  return v;
}
template <class T>
Variant make(const std::string& name, bool ta, bool tb, int bn) {
  constexpr Major K = Major::k, MN = Major::mn;
  if (ta) return tb ? make<T, MN, K>(name, bn) : make<T, MN, MN>(name, bn);
  return tb ? make<T, K, K>(name, bn) : make<T, K, MN>(name, bn);
}

}  // namespace

GemmVariant gemm_sm90(DType t, bool trans_a, bool trans_b, int bn) {
  const GemmConfig config{.family = GemmFamily::sm90,
                          .a = t,
                          .layout = gemm_layout(trans_a, trans_b),
                          .tile_m = 128,
                          .tile_n = bn,
                          .tile_k = 64};
  const auto name = print(config);
  return {t == DType::f16 ? make<f16>(name, trans_a, trans_b, bn) : make<bf16>(name, trans_a, trans_b, bn),
          config};
}

}  // namespace cgp::kernels

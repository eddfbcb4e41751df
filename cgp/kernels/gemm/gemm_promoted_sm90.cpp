// SPDX-License-Identifier: Apache-2.0
// gemm sm90_promoted: products whose sums may not stay in the tensor cores.
//   fp8      wgmma keeps some 14 bits of a sum of 8-bit floats: every 128 of K are summed afresh and added to
//            the total in fp32 registers, times the factors of their blocks if there are any
//   f32      each operand is the sum of three bf16 (24 bits); the six products of more than 2^-24 are summed
//            from the smallest to the largest, afresh for every 64 of K, and added up in fp32 registers
//   who      persistent; one producer thread feeds the ring, 2 math warpgroups own 64 rows each of 128 x BN
//   memory   stages of 128 bytes of K: a tile of A and of B for each plane
//   order    fixed: the same bits every time
//   needs    sm_90a; K contiguous in both operands; rows and batches of A, B and C at multiples of 16 bytes;
//            k >= 1; sizes below 2^31
#include "cgp/kernels/gemm/gemm_typed_sm90.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

struct Planes {
  int a, b;
};
// Smallest first: what is added to a large sum loses the most.
template <int P>
constexpr std::array<Planes, 1> products{{{0, 0}}};
template <>
constexpr std::array<Planes, 6> products<3>{{{1, 1}, {2, 0}, {0, 2}, {1, 0}, {0, 1}, {0, 0}}};

template <class TA, class TB, int P>
struct Stage;
template <class TA, class TB>
struct Stage<TA, TB, 1> {
  using ring = Ring<ByThreads, TA, TB>;
};
template <class TA, class TB>
struct Stage<TA, TB, 3> {
  using ring = Ring<ByThreads, TA, TA, TA, TB, TB, TB>;
};
template <int P, class F, int I = 0>
auto plane(const F& stage, int which) {
  if constexpr (I + 1 < P)
    return which == I ? stage.template get<I>() : plane<P, F, I + 1>(stage, which);
  else
    return stage.template get<I>();
}
template <int P, class F, int I = 0>
auto plane_b(const F& stage, int which) {
  if constexpr (I + 1 < P)
    return which == I ? stage.template get<P + I>() : plane_b<P, F, I + 1>(stage, which);
  else
    return stage.template get<P + I>();
}

template <class TA, class TB, int P, int BN, int Part>
void gemm_promoted_kernel(Kernel& k, TypedTuning tune, typename HopperOperand<TA, Major::k, 128>::map a,
                          typename HopperOperand<TB, Major::k, BN>::map b_map, Val<u32> m, Val<u32> n,
                          Val<u32> k_tiles, Val<u32> batch, Val<u32> rows, Val<u32> cols,
                          Val<u32> all_tiles) {
  using A = HopperOperand<TA, Major::k, 128>;
  using B = HopperOperand<TB, Major::k, BN>;
  constexpr std::uint32_t depth = hopper_depth<TA>;
  const int cluster = tune.tile.cluster;
  if (cluster > 1) k.cluster(cluster);
  std::vector<In<f32>> factors;
  if (tune.blocks)
    for (int i = 0; i < 2; ++i) factors.push_back(Param<In<f32>>::make(k));
  // Operands that three bf16 cannot hold are another kernel's.
  const auto tiles = P == 3 ? select(Param<In<u32>>::make(k).ld(0) == 0u, all_tiles, Val<u32>(0)) : all_tiles;
  HopperStore c(k, tune.c, tune.epilogue, m, n);
  auto math = k.role<Warpgroup>(2, /*registers=*/240);
  auto load = k.role<Warpgroup>(1, /*registers=*/24);
  const ClusterWalk walk{rows, cols, tiles, cluster, tune.tile.group};
  const auto b = cluster > 1 ? b_map.multicast(Axis::x) : b_map;
  const auto make_ring = [&] {
    if constexpr (P == 1)
      return std::make_unique<typename Stage<typename A::tile, typename B::tile, P>::ring>(
          k, tune.tile.stages, load, math, a, b);
    else
      return std::make_unique<typename Stage<typename A::tile, typename B::tile, P>::ring>(
          k, tune.tile.stages, load, math, a, a, a, b, b, b);
  };
  const auto ring = make_ring();
  c.open(math, tune.tile.buffers);
  const auto mine = range(walk.first(k), tiles, walk.step(k));

  load.one_thread([&](Thread& t) {
    k.loop(mine, [&](Val<u32> tile) {
      const auto at = walk.place(k, tile, 128, BN);
      k.loop(k_tiles, [&](Val<u32> kt) {
        const auto k0 = kt * depth;
        const auto of_a = [&](std::uint32_t i) { return A::at(a, at.batch + batch * i, at.m0, k0); };
        const auto of_b = [&](std::uint32_t i) { return B::at(b, at.batch + batch * i, at.n0, k0); };
        if constexpr (P == 1)
          ring->fill(t, of_a(0), of_b(0));
        else
          ring->fill(t, of_a(0), of_a(1), of_a(2), of_b(0), of_b(1), of_b(2));
      });
    });
  });

  math.run([&](Warpgroup& wg) {
    auto last_store = k.loop(mine, c.idle(), [&](Val<u32> tile, PendingStore pending) {
      const auto at = walk.place(k, tile, 128, BN);
      const auto row0 = at.m0 + wg.index * 64u;
      // Factors: [batch][m][k_tiles] and [batch][ceil(n / 128)][k_tiles].
      const auto origin = record::warpgroup_origin(k);
      const auto blocks_n = (n + 127u) / 128u;
      std::vector<Val<u64>> from_a, from_b;
      std::vector<Val<pred>> has_row, has_col;
      if (tune.blocks) {
        for (int h = 0; h < 2; ++h) {
          const auto r = row0 + origin.row + std::uint32_t(8 * h);
          has_row.push_back(r < m);
          from_a.push_back((to<u64>(at.batch) * to<u64>(m) + to<u64>(r)) * to<u64>(k_tiles));
        }
        for (int p = 0; p < BN / Part; ++p) {
          const auto j = (at.n0 + std::uint32_t(p * Part)) / 128u;
          has_col.push_back(j < blocks_n);
          from_b.push_back((to<u64>(at.batch) * to<u64>(blocks_n) + to<u64>(j)) * to<u64>(k_tiles));
        }
      }
      const auto factors_of = [&](const Val<u32>& kt) {
        std::vector<Val<f32>> f;
        for (std::size_t h = 0; h < from_a.size(); ++h)
          f.push_back(factors[0].ld_if(has_row[h], from_a[h] + to<u64>(kt), Val<f32>(0.f))[0]);
        for (std::size_t p = 0; p < from_b.size(); ++p)
          f.push_back(factors[1].ld_if(has_col[p], from_b[p] + to<u64>(kt), Val<f32>(0.f))[0]);
        return f;
      };
      // sum + part, times the factors; part is columns p * Part and on.
      const auto add = [&](const std::vector<Val<f32>>& sum, const auto& part, const std::vector<Val<f32>>& f,
                           int p, std::vector<Val<f32>>& next) {
        std::vector<Val<f32>> both;
        if (tune.blocks)
          for (std::size_t h = 0; h < 2; ++h) both.push_back(f[h] * f[2 + std::size_t(p)]);
        const auto& r = part.values();
        for (std::size_t i = 0; i < r.size(); ++i) {
          const auto& old = sum[std::size_t(p * Part / 2) + i];
          const Val<f32> x(r[i]);
          next.push_back(tune.blocks ? fma(x, both[i / 2 % 2], old) : old + x);
        }
      };
      std::vector<Val<f32>> zero(std::size_t(BN / 2), Val<f32>(0.f));
      const auto one = [&](const std::vector<Val<f32>>& f, const std::vector<Val<f32>>& sum) {
        auto stage = ring->take(wg);
        std::vector<Val<f32>> next;
        for (int p = 0; p < BN / Part; ++p) {
          constexpr auto& list = products<P>;
          const auto a_of = [&](Planes x) { return plane<P>(stage, x.a); };
          const auto b_of = [&](Planes x) { return plane_b<P>(stage, x.b).template rows<Part>(p * Part); };
          auto begun = wgmma(wg, fresh<f32, 64, Part>(wg), a_of(list[0]), b_of(list[0]));
          std::vector<decltype(begun)> busy;
          busy.push_back(std::move(begun));
          for (std::size_t i = 1; i < std::size(list); ++i)
            busy.push_back(std::move(busy.back()).then(wg, a_of(list[i]), b_of(list[i])));
          add(sum, std::move(busy.back()).wait(wg), f, p, next);
        }
        std::move(stage).release(wg);
        return next;
      };
      // Factors of the next stage are on their way while this one is multiplied.
      const auto total =
          k.loop(k_tiles, std::pair(std::move(zero), factors_of(k_tiles * 0u)), [&](Val<u32> kt, auto now) {
             auto next = factors_of(dsl::min(kt + 1u, k_tiles - 1u));
             auto sums = one(now.second, now.first);
             return std::pair<std::vector<Val<f32>>, std::vector<Val<f32>>>(std::move(sums), std::move(next));
           }).first;
      std::vector<Value> sums(total.begin(), total.end());
      return c.store(wg, std::move(pending), sums, BN, {at.batch, row0, at.n0});
    });
    std::move(last_store).wait(wg);
  });
}

template <class TA, class TB>
Variant fp8(std::string name, const TypedTuning& t) {
  return variant(std::move(name), 90, gemm_promoted_kernel<TA, TB, 1, 128, 128>, t);
}

}  // namespace

Variant gemm_promoted(const GemmProblem& p, std::string name, const TypedTuning& t) {
  const bool b4 = p.type_b == DType::e4m3;
  Variant v =
      p.type == DType::f32
          ? (t.tile.bn == 64 ? variant(std::move(name), 90, gemm_promoted_kernel<bf16, bf16, 3, 64, 64>, t)
                             : variant(std::move(name), 90, gemm_promoted_kernel<bf16, bf16, 3, 128, 128>, t))
      : p.type == DType::e4m3
          ? (b4 ? fp8<e4m3, e4m3>(std::move(name), t) : fp8<e4m3, e5m2>(std::move(name), t))
          : (b4 ? fp8<e5m2, e4m3>(std::move(name), t) : fp8<e5m2, e5m2>(std::move(name), t));
  v.only = "sm_90a";
  return v;
}

}  // namespace cgp::kernels

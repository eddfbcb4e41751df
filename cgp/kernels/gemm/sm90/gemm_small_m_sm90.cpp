// SPDX-License-Identifier: Apache-2.0
// gemm sm90_small_m: few rows of A (tokens) against a large B, whose bytes are the cost. The product is
// computed transposed, so that 64 rows of B fill the tensor core's rows and the tokens its columns.
//   who      one producer thread feeds the ring, each math warpgroup owns 64 rows of B of a tile; blocks walk
//   over
//            the tiles, with as many to an SM as the ring leaves room for
//   memory   B by TMA, each byte once, its lines the first to leave L2; A from L2; results straight to memory
//   sync     full and empty mbarriers, on across tiles
//   needs    sm_90a; A stored [m, k]; 16-bit types; rows and batches of A and B at multiples of 16 bytes; k
//   >= 1
#include "cgp/base/text.h"
#include "cgp/dsl/kernel.h"
#include "cgp/dsl/mma/wgmma.h"
#include "cgp/dsl/pipeline/dyn_ring.h"
#include "cgp/kernels/gemm/api/gemm_tuning.h"
#include "cgp/kernels/gemm/epilogue/gemm_epilogue.h"
#include "cgp/kernels/gemm/sm90/gemm_params_sm90.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

// Rows of an operand, `Depth` of K; stored with K contiguous, or with the rows.
template <class T, Major M, int Rows, int Depth>
struct SmallMOperand {
  using tile = Tile<T, Rows, Depth, Swizzle::b128>;
  using map = TmaIn<tile, 1, Rows, Depth>;
  static auto at(const map& m, const Val<u32>& batch, const Val<u32>& row, const Val<u32>& k) {
    return dsl::at(m, batch, row, k);
  }
};
template <class T, int Rows, int Depth>
struct SmallMOperand<T, Major::mn, Rows, Depth> {
  using tile = Tile<T, Depth, Rows, Swizzle::b128>;
  using map = TmaIn<tile, 1, Depth, Rows>;
  static auto at(const map& m, const Val<u32>& batch, const Val<u32>& row, const Val<u32>& k) {
    return dsl::at(m, batch, k, row);
  }
};

template <class T, Major MB, int Tokens, int Rows, int Depth>
void gemm_small_m_kernel(Kernel& k, GemmSmallMTuning tune) {
  using A = SmallMOperand<T, Major::k, Tokens, Depth>;
  using B = SmallMOperand<T, MB, Rows, Depth>;
  GemmDirectParams<OnDevice, T, typename A::map, typename B::map> p;
  declare_params(k, p, /*persistent=*/true);
  const auto& a = *p.a;
  const auto& steps = *p.k_tiles;
  const auto b = tune.evict_first ? p.b->hint(L2Hint::evict_first) : *p.b;
  auto math = k.role<Warpgroup>(Rows / 64);
  auto load = k.role<Warp>(1);
  if (tune.min_blocks > 1) k.min_blocks(tune.min_blocks);
  prefetch_descriptors(load, a, b);
  Ring<ByThreads, typename B::tile, typename A::tile> ring(k, Stages::started_by_producer(tune.stages), load,
                                                           math);
  const auto walk = range(k.ctaid_x(), *p.tiles, k.nctaid_x());
  struct Place {
    Val<u32> batch, m0, n0;
  };
  // The rows of A first: blocks that run together share B in L2.
  const auto place = [&](const Val<u32>& tile) {
    const auto rest = tile / *p.tiles_m;
    return Place{rest / *p.tiles_n, tile % *p.tiles_m * Tokens, rest % *p.tiles_n * Rows};
  };

  load.one_thread([&](Thread& t) {
    k.loop(walk, [&](Val<u32> tile) {
      const auto at = place(tile);
      k.loop(steps, [&](Val<u32> step) {
        ring.fill(t, B::at(b, at.batch, at.n0, step * Depth), A::at(a, at.batch, at.m0, step * Depth));
      });
    });
  });

  math.run([&](Warpgroup& wg) {
    k.loop(walk, [&](Val<u32> tile) {
      const auto at = place(tile);
      auto first = wgmma<MB, Major::k>(wg, fresh<f32, 64, Tokens>(wg), ring.take(wg));
      auto last = k.loop(steps - 1, std::move(first), [&](Val<u32>, auto busy) {
        return std::move(busy).template then<MB, Major::k>(wg, ring.take(wg));
      });
      auto acc = std::move(last).wait(wg);
      const GemmOutput<T> out{InOut<T>(p.c->at(to<u64>(at.batch) * *p.stride_c)),
                              to<u64>(*p.m),
                              to<u64>(*p.n),
                              *p.ldc,
                              *p.alpha,
                              *p.beta};
      const auto n0 = at.n0 + wg.index * 64;
      std::move(acc).each_pair(wg, [&](Val<u32> row, Val<u32> token, Val<f32> lo, Val<f32> hi) {
        out.put(k, to<u64>(at.m0 + token), to<u64>(n0 + row), lo);
        out.put(k, to<u64>(at.m0 + token + 1), to<u64>(n0 + row), hi);
      });
    });
  });
}

template <class T, Major MB, int Tokens>
Variant make(std::string name, const GemmSmallMTuning& t) {
  const auto pick = [&](auto fn) {
    Variant v = variant(std::move(name), 90, fn, t);
    v.only = "sm_90a";
    return v;
  };
  if constexpr (MB == Major::k) {
    if (t.depth == 128)
      return t.rows == 64    ? pick(gemm_small_m_kernel<T, MB, Tokens, 64, 128>)
             : t.rows == 128 ? pick(gemm_small_m_kernel<T, MB, Tokens, 128, 128>)
                             : pick(gemm_small_m_kernel<T, MB, Tokens, 192, 128>);
    if (t.rows == 64) return pick(gemm_small_m_kernel<T, MB, Tokens, 64, 64>);
    if (t.rows == 192) return pick(gemm_small_m_kernel<T, MB, Tokens, 192, 64>);
  }
  return pick(gemm_small_m_kernel<T, MB, Tokens, 128, 64>);
}
template <class T, Major MB>
Variant make(std::string name, const GemmSmallMTuning& t) {
  return t.tokens == 8    ? make<T, MB, 8>(std::move(name), t)
         : t.tokens == 16 ? make<T, MB, 16>(std::move(name), t)
         : t.tokens == 32 ? make<T, MB, 32>(std::move(name), t)
                          : make<T, MB, 64>(std::move(name), t);
}

}  // namespace

GemmVariant gemm_small_m_sm90(DType type, bool trans_b, const GemmSmallMTuning& t) {
  const GemmConfig config{.family = GemmFamily::sm90_small_m,
                          .a = type,
                          .layout = gemm_layout(false, trans_b),
                          .tile_m = t.tokens,
                          .tile_n = t.rows,
                          .tile_k = t.depth,
                          .stages = t.stages,
                          .min_blocks = t.min_blocks,
                          .evict_b = t.evict_first};
  const auto name = print(config);
  if (type == DType::f16)
    return {trans_b ? make<f16, Major::k>(name, t) : make<f16, Major::mn>(name, t), config};
  return {trans_b ? make<bf16, Major::k>(name, t) : make<bf16, Major::mn>(name, t), config};
}

}  // namespace cgp::kernels

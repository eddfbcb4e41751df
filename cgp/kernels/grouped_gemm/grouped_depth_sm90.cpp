// SPDX-License-Identifier: Apache-2.0
// grouped_gemm sm90, form depth: the products of each group's rows, C[g] = A[rows of g]^T B[rows of g].
//   who      persistent blocks walk over the tiles of all C[g]; roles as in grouped_rows_sm90.cpp
//   memory   A and B have tensor maps that end where a group ends (grouped_walk.h): what lies behind are
//   zeros,
//            so a group's last 64 rows need no mask and a group without rows multiplies zeros
//   needs    sm_90a; 16-bit types; A, B, C and their rows at multiples of 16 bytes
#include "cgp/base/text.h"
#include "cgp/dsl/epilogue.h"
#include "cgp/kernels/gemm/gemm_operand.h"
#include "cgp/kernels/grouped_gemm/grouped_gemm.h"
#include "cgp/kernels/grouped_gemm/grouped_walk.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr int kStoreCols = 64;
static_assert(kClipRows == kHopperBk);

template <class T, int BN>
void grouped_depth_kernel(Kernel& k, GroupedTuning tune,
                          typename HopperOperand<T, Major::mn, kHopperBm>::map a,
                          typename HopperOperand<T, Major::mn, BN>::map b,
                          TmaOut<Tile<T, 64, kStoreCols>, 1, 64, kStoreCols> c, In<u32> ends, Val<u32> wide,
                          Val<u32> groups, Val<u32> rows, Val<u32> tiles_m, Val<u32> tiles_n, Val<u32> tiles,
                          Val<f32> alpha) {
  constexpr Major MN = Major::mn;
  using A = HopperOperand<T, MN, kHopperBm>;
  using B = HopperOperand<T, MN, BN>;
  auto math = k.role<Warpgroup>(kHopperBm / 64, /*registers=*/240);
  auto load = k.role<Warpgroup>(1, /*registers=*/24);
  Ring<ByThreads, typename A::tile, typename B::tile> ring(k, tune.stages, load, math, a, b);
  Staging<Tile<T, 64, kStoreCols>> staging(k, math, tune.buffers);
  const RaggedEnds groups_end{ends, wide, groups, rows};
  const auto walk = range(k.ctaid_x(), tiles, k.nctaid_x());

  struct Place {
    Val<u32> group, m0, n0, start, size, k_tiles;
  };
  const auto place = [&](const Val<u32>& tile) {
    const auto per_group = tiles_m * tiles_n, group = tile / per_group, in_group = tile % per_group;
    const auto per_band = tiles_n * std::uint32_t(tune.band);
    const auto top = in_group / per_band * std::uint32_t(tune.band), rest = in_group % per_band;
    const auto height = dsl::min(tiles_m - top, std::uint32_t(tune.band));
    const auto span = groups_end.span(k, group);
    // No rows: one step of zeros.
    const auto steps = dsl::max((span.size + std::uint32_t(kHopperBk - 1)) / std::uint32_t(kHopperBk), 1u);
    return Place{group, (top + rest % height) * kHopperBm, rest / height * BN, span.start, span.size, steps};
  };

  load.one_thread([&](Thread& t) {
    k.loop(walk, [&](Val<u32> tile) {
      const auto at = place(tile);
      k.loop(at.k_tiles, [&](Val<u32> kt) {
        const auto done = kt * kHopperBk;
        const auto clip = clipped(at.start + done, at.size - done);
        ring.fill(t, A::at(a, clip.outer, at.m0, clip.inner), B::at(b, clip.outer, at.n0, clip.inner));
      });
    });
  });

  math.run([&](Warpgroup& wg) {
    auto last_store = k.loop(walk, staging.idle(), [&](Val<u32> tile, PendingStore pending) {
      const auto where = place(tile);
      auto begun = wgmma<MN, MN>(wg, fresh<f32, 64, BN>(wg), ring.take(wg));
      const auto more = assume_uniform(where.k_tiles - 1, Uniform::cta);
      auto last = k.loop(more, std::move(begun), [&](Val<u32>, auto busy) {
        return std::move(busy).template then<MN, MN>(wg, ring.take(wg));
      });
      auto acc = std::move(last).wait(wg).map([&](Val<f32> x) { return x * alpha; });
      std::vector<PendingStore> turn;
      turn.push_back(std::move(pending));
      for (int col = 0; col < BN; col += kStoreCols)
        turn.push_back(
            staging.store(wg, std::move(turn.back()),
                          at(c, where.group, where.m0 + wg.index * 64u, where.n0 + std::uint32_t(col)),
                          [&](auto& out) { store_tile(wg, acc, out, col); }));
      return std::move(turn.back());
    });
    std::move(last_store).wait(wg);
  });
}

template <class T>
Variant make(std::string name, const GroupedTuning& t) {
  Variant v = t.bn == 256   ? variant(std::move(name), 90, grouped_depth_kernel<T, 256>, t)
              : t.bn == 192 ? variant(std::move(name), 90, grouped_depth_kernel<T, 192>, t)
                            : variant(std::move(name), 90, grouped_depth_kernel<T, 128>, t);
  v.only = "sm_90a";
  return v;
}

}  // namespace

Variant grouped_depth_sm90(DType t, const GroupedTuning& tune) {
  const bool half = t == DType::f16;
  auto name = text::cat("grouped_gemm_", half ? "f16" : "bf16", "_depth_sm90__128x", tune.bn, "x64_s",
                        tune.stages, "_b", tune.band);
  return half ? make<f16>(name, tune) : make<bf16>(name, tune);
}

}  // namespace cgp::kernels

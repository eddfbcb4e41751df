// SPDX-License-Identifier: Apache-2.0
// grouped_gemm sm90, form depth: the products of each group's rows, C[g] = A[rows of g]^T B[rows of g].
//   who      persistent blocks walk over the tiles of all C[g]; roles as in grouped_rows_sm90.cpp
//   memory   A and B have tensor maps that end where a group ends (grouped_tiles.h): what lies behind are
//   zeros,
//            so a group's last 64 rows need no mask and a group without rows multiplies zeros
//   needs    sm_90a; 16-bit types; A, B, C and their rows at multiples of 16 bytes
#include "cgp/base/text.h"
#include "cgp/dsl/mma/epilogue.h"
#include "cgp/dsl/pipeline/work_broadcast.h"
#include "cgp/kernels/gemm/api/gemm_operand.h"
#include "cgp/kernels/grouped_gemm/grouped_gemm.h"
#include "cgp/kernels/schedule/grouped_tiles.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr int kStoreCols = 64;

template <class T, int BN>
void grouped_depth_kernel(
    Kernel& k, GroupedTuning tune,
    TmaIn<typename HopperOperand<T, Major::mn, kHopperBm>::tile, 1, 1, kHopperBk, kHopperBm> a,
    TmaIn<typename HopperOperand<T, Major::mn, BN>::tile, 1, 1, kHopperBk, BN> b,
    TmaOut<Tile<T, 64, kStoreCols>, 1, 64, kStoreCols> c, In<u32> ends, Val<u32> wide, Val<u32> groups,
    Val<u32> rows, Val<u32> tiles_m, Val<u32> tiles_n, Val<u32> tiles, Out<u32> counter, Val<f32> alpha) {
  constexpr Major MN = Major::mn;
  using A = HopperOperand<T, MN, kHopperBm>;
  using B = HopperOperand<T, MN, BN>;
  auto math = k.role<Warpgroup>(kHopperBm / 64, /*registers=*/232);
  auto load = k.role<Warpgroup>(1, /*registers=*/40);
  Ring<ByThreads, typename A::tile, typename B::tile> ring(k, tune.stages, load, math, a, b);
  Staging<Tile<T, 64, kStoreCols>> staging(k, math, tune.buffers);
  WorkBroadcast mail(k, 4, 2, math);

  load.run([&](Warpgroup& wg) {
    wg.one_warp([&](Warp& w) {
      const RaggedEnds groups_end{ends, wide, groups, rows};
      const TileSupply supply{counter, tune.taken};
      k.while_(
          k.ctaid_x() + 0u, [&](const Val<u32>& tile) { return assume_uniform(tile < tiles, Uniform::warp); },
          [&](const Val<u32>& tile) {
            const auto asked = supply.ask(k);
            const auto per_group = tiles_m * tiles_n, group = tile / per_group;
            const auto at = grouped_raster(tile % per_group, tiles_m, tiles_n, tune.band);
            const auto m0 = at.row * kHopperBm, n0 = at.col * BN;
            const auto span = groups_end.span(group);
            // No rows: one step of zeros.
            const auto k_tiles =
                dsl::max((span.size + std::uint32_t(kHopperBk - 1)) / std::uint32_t(kHopperBk), 1u);
            mail.send(w, {group, m0, n0, k_tiles});
            w.one_thread([&](Thread& t) {
              k.loop(k_tiles, [&](Val<u32> kt) {
                const auto done = kt * kHopperBk;
                const auto clip = clipped(span.start + done, span.size - done, kHopperBk);
                ring.fill(t, dsl::at(a, kClipWrap, clip.outer, clip.inner, m0),
                          dsl::at(b, kClipWrap, clip.outer, clip.inner, n0));
              });
            });
            return supply.next(w, tile, asked);
          });
      mail.send(w, {Val<u32>(0), Val<u32>(0), Val<u32>(0), Val<u32>(0)});  // nothing to add up: the end
    });
  });

  math.run([&](Warpgroup& wg) {
    struct WorkTile {
      Val<u32> group, m0, n0, k_tiles;
      static auto carried() {
        return std::tuple(&WorkTile::group, &WorkTile::m0, &WorkTile::n0, &WorkTile::k_tiles);
      }
    };
    const auto receive = [&] {
      const auto words = mail.receive(wg);
      return WorkTile{words[0], words[1], words[2], words[3]};
    };
    using State = std::pair<WorkTile, PendingStore>;
    auto last = k.while_(
        State(receive(), staging.idle()),
        [&](State s) {
          std::move(s.second).only_shown();
          return assume_uniform(s.first.k_tiles != 0u, Uniform::warpgroup);
        },
        [&](State s) {
          const auto where = s.first;
          auto begun = wgmma<MN, MN>(wg, fresh<f32, 64, BN>(wg), ring.take(wg));
          const auto more = assume_uniform(where.k_tiles - 1, Uniform::warpgroup);
          auto done = k.loop(more, std::move(begun), [&](Val<u32>, auto busy) {
            return std::move(busy).template then<MN, MN>(wg, ring.take(wg));
          });
          auto acc = std::move(done).wait(wg).map([&](Val<f32> x) { return x * alpha; });
          std::vector<PendingStore> stores;
          stores.push_back(std::move(s.second));
          for (int col = 0; col < BN; col += kStoreCols)
            stores.push_back(
                staging.store(wg, std::move(stores.back()),
                              at(c, where.group, where.m0 + wg.index * 64u, where.n0 + std::uint32_t(col)),
                              [&](auto& out) { store_tile(wg, acc, out, col); }));
          return State(receive(), std::move(stores.back()));
        });
    std::move(last.second).wait(wg);
  });
}

template <class T>
Variant make(const GroupedConfig& config, const GroupedTuning& t) {
  Variant v = t.bn == 256 ? grouped_variant(config, 90, grouped_depth_kernel<T, 256>, t)
                          : grouped_variant(config, 90, grouped_depth_kernel<T, 128>, t);
  v.only = "sm_90a";
  return v;
}

}  // namespace

Variant grouped_depth_sm90(DType t, const GroupedTuning& tune) {
  const auto c = grouped_config_sm90(t, GroupedForm::depth, GemmLayout::any, tune);
  return t == DType::f16 ? make<f16>(c, tune) : make<bf16>(c, tune);
}

}  // namespace cgp::kernels

// SPDX-License-Identifier: Apache-2.0
// grouped_gemm sm90, form rows: persistent blocks walk over the tiles of all groups, which they find from the
// groups' ends themselves.
//   who      one producer warp finds the tiles, tells the others by mail and feeds the ring; 2 math
//   warpgroups
//            own 64 rows each of a 128 x BN tile. One whose rows lie behind the group's end multiplies
//            nothing
//   order    a block takes the next tile that nobody has: see TileSupply
//   memory   TMA tiles of A may reach into the next group: those rows are not stored. C has a tensor map
//            that ends where a group ends (grouped_tiles.h): stores are clipped
//   sync     ring barriers run on across tiles, so the next tile's operands arrive while this one is stored
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

constexpr int kStoreCols = 64;  // 128 bytes of C a row: the widest swizzle

template <class T, Major MB, int BN>
void grouped_rows_kernel(Kernel& k, GroupedTuning tune, typename HopperOperand<T, Major::k, kHopperBm>::map a,
                         typename HopperOperand<T, MB, BN>::map b,
                         TmaOut<Tile<T, 64, kStoreCols>, 1, 1, 64, kStoreCols> c, In<u32> ends, Val<u32> wide,
                         Val<u32> groups, Val<u32> rows, Val<u32> cols, Val<u32> k_tiles, Out<u32> counter,
                         Val<f32> alpha) {
  using A = HopperOperand<T, Major::k, kHopperBm>;
  using B = HopperOperand<T, MB, BN>;
  auto math = k.role<Warpgroup>(kHopperBm / 64, /*registers=*/232);
  auto load = k.role<Warpgroup>(1, /*registers=*/40);
  Ring<ByThreads, typename A::tile, typename B::tile> ring(k, tune.stages, load, math, a, b);
  Staging<Tile<T, 64, kStoreCols>> staging(k, math, tune.buffers);
  WorkBroadcast mail(k, 4, 2, math);

  load.run([&](Warpgroup& wg) {
    wg.one_warp([&](Warp& w) {
      GroupWalk walk(k, RaggedRows{{ends, wide, groups, rows}, cols, kHopperBm}, Uniform::warp);
      const TileSupply supply{counter, tune.taken};
      walk.each(w, supply, [&](const GroupTile& tile) {
        const auto start = tile.held[0], size = tile.held[1];
        const auto at = grouped_raster(
            tile.number, (size + std::uint32_t(kHopperBm - 1)) / std::uint32_t(kHopperBm), cols, tune.band);
        const auto row = at.row * kHopperBm, col = at.col * BN;
        mail.send(w, {start + row, size - row, col});
        w.one_thread([&](Thread& t) {
          k.loop(k_tiles, [&](Val<u32> kt) {
            ring.fill(t, A::at(a, Val<u32>(0), start + row, kt * kHopperBk),
                      B::at(b, tile.group, col, kt * kHopperBk));
          });
        });
      });
      mail.send(w, {Val<u32>(0), Val<u32>(0), Val<u32>(0)});  // no rows left: the end
    });
  });

  math.run([&](Warpgroup& wg) {
    struct WorkTile {
      Val<u32> row, left, col;
      static auto carried() { return std::tuple(&WorkTile::row, &WorkTile::left, &WorkTile::col); }
    };
    const auto receive = [&] {
      const auto words = mail.receive(wg);
      return WorkTile{words[0], words[1], words[2]};
    };
    using State = std::pair<WorkTile, PendingStore>;
    auto last = k.while_(
        State(receive(), staging.idle()),
        [&](State s) {
          std::move(s.second).only_shown();
          return assume_uniform(s.first.left != 0u, Uniform::warpgroup);
        },
        [&](State s) {
          const auto where = s.first;
          const auto warpgroup_row = wg.index * 64u;
          auto stored = k.if_(
              assume_uniform(warpgroup_row < where.left, Uniform::warpgroup),
              [&] {
                auto begun = wgmma<Major::k, MB>(wg, fresh<f32, 64, BN>(wg), ring.take(wg));
                auto done = k.loop(k_tiles - 1, std::move(begun), [&](Val<u32>, auto busy) {
                  return std::move(busy).template then<Major::k, MB>(wg, ring.take(wg));
                });
                auto acc = std::move(done).wait(wg).map([&](Val<f32> x) { return x * alpha; });
                const auto clip = clipped(where.row + warpgroup_row, where.left - warpgroup_row, 64);
                std::vector<PendingStore> stores;
                stores.push_back(std::move(s.second));
                for (int col = 0; col < BN; col += kStoreCols)
                  stores.push_back(
                      staging.store(wg, std::move(stores.back()),
                                    at(c, kClipWrap, clip.outer, clip.inner, where.col + std::uint32_t(col)),
                                    [&](auto& out) { store_tile(wg, acc, out, col); }));
                return std::move(stores.back());
              },
              [&] {
                k.loop(k_tiles, [&](Val<u32>) { ring.take(wg).release(wg); });
                return staging.idle();
              });
          return State(receive(), std::move(stored));
        });
    std::move(last.second).wait(wg);
  });
}

template <class T, Major MB>
Variant make(const GroupedConfig& config, const GroupedTuning& t) {
  Variant v = t.bn == 256 ? grouped_variant(config, 90, grouped_rows_kernel<T, MB, 256>, t)
                          : grouped_variant(config, 90, grouped_rows_kernel<T, MB, 128>, t);
  v.only = "sm_90a";
  return v;
}

}  // namespace

GroupedConfig grouped_config_sm90(DType t, GroupedForm form, GemmLayout layout, const GroupedTuning& tune) {
  return {.a = t,
          .form = form,
          .kind = GroupedKind::sm90,
          .layout = layout,
          .tile_m = 128,
          .tile_n = tune.bn,
          .tile_k = 64,
          .stages = tune.stages,
          .store_buffers = tune.buffers,
          .group = tune.band,
          .static_schedule = !tune.taken};
}

Variant grouped_rows_sm90(DType t, bool trans_b, const GroupedTuning& tune) {
  const auto c = grouped_config_sm90(t, GroupedForm::rows, gemm_layout(false, trans_b), tune);
  if (t == DType::f16) return trans_b ? make<f16, Major::k>(c, tune) : make<f16, Major::mn>(c, tune);
  return trans_b ? make<bf16, Major::k>(c, tune) : make<bf16, Major::mn>(c, tune);
}

}  // namespace cgp::kernels

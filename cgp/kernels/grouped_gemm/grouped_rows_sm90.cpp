// SPDX-License-Identifier: Apache-2.0
// grouped_gemm sm90, form rows: persistent blocks walk over the tiles of all groups, which they find from the
// groups' ends themselves.
//   who      one producer warp feeds the ring, 2 math warpgroups own 64 rows each of a 128 x BN tile; each
//            warp finds the tiles on its own. A warpgroup whose rows lie behind the group's end multiplies
//            nothing.
//   memory   TMA tiles of A may reach into the next group: those rows are not stored. C has a tensor map in
//            which the last row of a group is the last of a dimension (grouped_walk.h): stores are clipped
//   sync     ring barriers run on across tiles, so the next tile's operands arrive while this one is stored
//   needs    sm_90a; 16-bit types; A, B, C and their rows at multiples of 16 bytes
#include "cgp/base/text.h"
#include "cgp/dsl/epilogue.h"
#include "cgp/kernels/gemm/gemm_operand.h"
#include "cgp/kernels/grouped_gemm/grouped_gemm.h"
#include "cgp/kernels/grouped_gemm/grouped_walk.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr int kStoreCols = 64;  // 128 bytes of C a row: the widest swizzle

template <class T, Major MB, int BN>
void grouped_rows_kernel(Kernel& k, GroupedTuning tune, typename HopperOperand<T, Major::k, kHopperBm>::map a,
                         typename HopperOperand<T, MB, BN>::map b,
                         TmaOut<Tile<T, kClipRows, kStoreCols>, 1, kClipRows, kStoreCols> c, In<u32> ends,
                         Val<u32> wide, Val<u32> groups, Val<u32> rows, Val<u32> cols, Val<u32> k_tiles,
                         Val<f32> alpha) {
  using A = HopperOperand<T, Major::k, kHopperBm>;
  using B = HopperOperand<T, MB, BN>;
  auto math = k.role<Warpgroup>(kHopperBm / 64, /*registers=*/240);
  auto load = k.role<Warpgroup>(1, /*registers=*/24);
  Ring<ByThreads, typename A::tile, typename B::tile> ring(k, tune.stages, load, math, a, b);
  Staging<Tile<T, kClipRows, kStoreCols>> staging(k, math, tune.buffers);
  const RaggedEnds groups_end{ends, wide, groups, rows};
  const auto first = k.ctaid_x(), step = k.nctaid_x();

  load.run([&](Warpgroup& wg) {
    wg.one_warp([&](Warp& w) {
      RaggedWalk walk(k, groups_end, cols, kHopperBm, BN, tune.band, Uniform::warp);
      k.loop(range(first, walk.tiles(w), step), walk.window(w, first),
             [&](Val<u32> tile, RaggedWindow window) {
               const auto where = walk.place(w, window, tile);
               w.one_thread([&](Thread& t) {
                 k.loop(k_tiles, [&](Val<u32> kt) {
                   ring.fill(t, A::at(a, Val<u32>(0), where.start + where.row, kt * kHopperBk),
                             B::at(b, where.group, where.col, kt * kHopperBk));
                 });
               });
               return walk.seek(w, std::move(window), tile + step);
             });
    });
  });

  math.run([&](Warpgroup& wg) {
    Warp w = wg.warp();
    RaggedWalk walk(k, groups_end, cols, kHopperBm, BN, tune.band, Uniform::warpgroup);
    using State = std::pair<RaggedWindow, PendingStore>;
    auto last = k.loop(
        range(first, walk.tiles(w), step), State(walk.window(w, first), staging.idle()),
        [&](Val<u32> tile, State s) {
          const auto where = walk.place(w, s.first, tile);
          const auto row = where.row + wg.index * 64u;  // of the group
          auto stored = k.if_(
              row < where.size,
              [&] {
                auto begun = wgmma<Major::k, MB>(wg, fresh<f32, 64, BN>(wg), ring.take(wg));
                auto done = k.loop(k_tiles - 1, std::move(begun), [&](Val<u32>, auto busy) {
                  return std::move(busy).template then<Major::k, MB>(wg, ring.take(wg));
                });
                auto acc = std::move(done).wait(wg).map([&](Val<f32> x) { return x * alpha; });
                const auto clip = clipped(where.start + row, where.size - row);
                std::vector<PendingStore> turn;
                turn.push_back(std::move(s.second));
                for (int col = 0; col < BN; col += kStoreCols)
                  turn.push_back(staging.store(wg, std::move(turn.back()),
                                               at(c, clip.outer, clip.inner, where.col + std::uint32_t(col)),
                                               [&](auto& out) { store_tile(wg, acc, out, col); }));
                return std::move(turn.back());
              },
              [&] {
                k.loop(k_tiles, [&](Val<u32>) { ring.take(wg).release(wg); });
                return staging.idle();
              });
          return State(walk.seek(w, std::move(s.first), tile + step), std::move(stored));
        });
    std::move(last.second).wait(wg);
  });
}

template <class T, Major MB>
Variant make(std::string name, const GroupedTuning& t) {
  Variant v = t.bn == 256   ? variant(std::move(name), 90, grouped_rows_kernel<T, MB, 256>, t)
              : t.bn == 192 ? variant(std::move(name), 90, grouped_rows_kernel<T, MB, 192>, t)
                            : variant(std::move(name), 90, grouped_rows_kernel<T, MB, 128>, t);
  v.only = "sm_90a";
  return v;
}

}  // namespace

Variant grouped_rows_sm90(DType t, bool trans_b, const GroupedTuning& tune) {
  const bool half = t == DType::f16;
  auto name = text::cat("grouped_gemm_", half ? "f16" : "bf16", "_rows_sm90_n", trans_b ? "t" : "n", "__128x",
                        tune.bn, "x64_s", tune.stages, "_b", tune.band);
  if (half) return trans_b ? make<f16, Major::k>(name, tune) : make<f16, Major::mn>(name, tune);
  return trans_b ? make<bf16, Major::k>(name, tune) : make<bf16, Major::mn>(name, tune);
}

}  // namespace cgp::kernels

// SPDX-License-Identifier: Apache-2.0
// grouped_gemm mixed_sm90, form rows: any types of wgmma, scales, beta and epilogues.
//   who      as in grouped_rows_sm90.cpp: one producer warp finds the tiles and tells the math warpgroups,
//   each
//            of which owns 64 rows
//   memory   stages of 128 bytes of K, accumulators and promotion of gemm_dynamic_sm90.h; C is stored by
//            gemm_store_sm90.h and a map that ends where the group ends
//   needs    sm_90a; K contiguous in A and B; A, B, C and their rows at multiples of 16 bytes; k >= 1
#include "cgp/base/text.h"
#include "cgp/dsl/pipeline/work_broadcast.h"
#include "cgp/kernels/gemm/sm90/gemm_block_scales.h"
#include "cgp/kernels/gemm/sm90/gemm_mixed_sm90.h"
#include "cgp/kernels/grouped_gemm/grouped_gemm.h"
#include "cgp/kernels/schedule/grouped_tiles.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

bool accumulators_promoted(const GroupedProblem& p) {
  return bytes(p.type) == 1 && p.type != DType::s8 &&
         (p.precision != GemmPrecision::fast || p.scaling == GemmScaling::block);
}

struct GroupedMixedBuild {
  GroupedProblem p;
  GroupedMixedTuning tune;
  DynamicTile tile;
  Epilogue whole;  ///< alpha, beta and the problem's own
};

// What the kernel needs to scale a tile's accumulators.
struct GroupedScales {
  In<f32> a, b;
  In<u32> index;
  Val<u32> indexed, a_rows;

  // Which row of A stands at row r of C.
  Val<u64> row(const Val<u32>& r, const Val<pred>& inside) const {
    return to<u64>(dsl::min(index.ld_if(inside & (indexed != 0u), r, r)[0], a_rows - 1));
  }
};

// An accumulator of 64 rows times scales of a whole operand, or of rows and columns.
DynAcc scaled(Warpgroup& wg, const GroupedMixedBuild& g, const GroupedScales& f, DynAcc acc,
              const Val<u32>& row0, const Val<u32>& left, const Val<u32>& group, const Val<u32>& n0,
              const Val<u32>& n) {
  const auto by_group = [&] { return f.b.ld(to<u64>(group)); };
  std::vector<Val<f32>> of_rows;
  const auto origin = DynAcc::origin(wg);
  const bool channels = g.p.scaling == GemmScaling::channel;
  for (std::uint32_t h = 0; h < 2; ++h) {
    const auto in = origin.row + 8 * h < left;
    of_rows.push_back(channels ? f.a.ld_if(in, f.row(row0 + origin.row + 8 * h, in), Val<f32>(0.f))[0]
                               : f.a.ld(0) * by_group());
  }
  std::vector<Value> out;
  const int cols = acc.cols();
  for (int c = 0; c < cols; c += 8) {
    std::vector<Val<f32>> of_cols;
    for (std::uint32_t e = 0; e < 2 && channels; ++e) {
      const auto pairing = g.p.epilogue.pairing();
      const auto col = product_column(cols, pairing, n0, n, std::uint32_t(c)) +
                       (origin.col + e) * (pairing == Pairing::interleaved ? 2u : 1u);
      of_cols.push_back(f.b.ld_if(col < n, to<u64>(group) * to<u64>(n) + to<u64>(col), Val<f32>(0.f))[0]);
    }
    for (int v = 0; v < 4; ++v) {
      const auto x = acc.get<f32>(c / 2 + v) * of_rows[std::size_t(v / 2)];
      out.push_back(channels ? x * of_cols[std::size_t(v % 2)] : x);
    }
  }
  return DynAcc(ptx::Mod::f32, 64, cols, AccRegs(std::move(out)));
}

void grouped_mixed_kernel(Kernel& k, GroupedMixedBuild g) {
  const auto& t = g.tile;
  const auto pairing = g.p.epilogue.pairing();
  const auto a = DynamicOperand::declare(k, DynTile::operand(t.a, t.element_bytes, Major::k, t.height()));
  const auto b = DynamicOperand::declare(k, DynTile::operand(t.b, t.element_bytes, Major::k, t.width()),
                                         pairing != Pairing::none);
  const auto word = [&] { return Param<Val<u32>>::make(k); };
  const auto ends = Param<In<u32>>::make(k);
  const auto wide = word(), groups = word(), rows = word(), n = word(), cols = word(), k_tiles = word();
  const auto counter = Param<Out<u32>>::make(k);
  std::optional<GroupedScales> scales;
  if (g.p.scaling != GemmScaling::none) {
    const auto of_a = Param<In<f32>>::make(k), of_b = Param<In<f32>>::make(k);
    const auto index = Param<In<u32>>::make(k);
    const auto indexed = word();
    scales.emplace(GroupedScales{of_a, of_b, index, indexed, word()});
  }
  HopperStore c(k, *g.p.type_c, g.whole, rows, n, 0, /*ragged=*/true);
  auto math = k.role<Warpgroup>(t.warpgroups, /*registers=*/232);
  auto load = k.role<Warpgroup>(1, /*registers=*/40);
  // Before the ring, whose barriers its producer makes known to those who take: compute-sanitizer's racecheck
  // sees races that are none where a barrier of the whole block comes after one at which the producer only
  // arrives.
  WorkBroadcast mail(k, 4, 2, math);
  DynamicMainloop mainloop(k, t, load, math, a, b);
  c.open(math, g.tune.buffers);

  load.run([&](Warpgroup& wg) {
    wg.one_warp([&](Warp& w) {
      GroupWalk walk(k, RaggedRows{{ends, wide, groups, rows}, cols, t.height()}, Uniform::warp);
      walk.each(w, TileSupply{counter, true}, [&](const GroupTile& tile) {
        const auto start = tile.held[0], size = tile.held[1], high = Val<u32>(std::uint32_t(t.height()));
        const auto at = grouped_raster(tile.number, (size + (high - 1)) / high, cols, g.tune.band);
        const auto row = at.row * high, col = at.col * std::uint32_t(t.width());
        mail.send(w, {start + row, size - row, col, tile.group});
        w.one_thread([&](Thread& thread) {
          k.loop(k_tiles, [&](Val<u32> kt) {
            mainloop.fill(thread, {Val<u32>(0), start + row, col}, {tile.group, start + row, col}, kt);
          });
        });
      });
      mail.send(w, {Val<u32>(0), Val<u32>(0), Val<u32>(0), Val<u32>(0)});  // no rows left: the end
    });
  });

  math.run([&](Warpgroup& wg) {
    struct WorkTile {
      Val<u32> row, left, col, group;
      static auto carried() {
        return std::tuple(&WorkTile::row, &WorkTile::left, &WorkTile::col, &WorkTile::group);
      }
    };
    const auto receive = [&] {
      const auto words = mail.receive(wg);
      return WorkTile{words[0], words[1], words[2], words[3]};
    };
    k.while_(
        receive(), [&](const WorkTile& s) { return assume_uniform(s.left != 0u, Uniform::warpgroup); },
        [&](const WorkTile& where) {
          const auto warpgroup_row = wg.index * 64u;
          k.if_(
              assume_uniform(warpgroup_row < where.left, Uniform::warpgroup),
              [&] {
                const auto row0 = where.row + warpgroup_row, left = where.left - warpgroup_row;
                auto acc = [&] {
                  if (!accumulators_promoted(g.p)) return mainloop.accumulate(wg, k_tiles);
                  Promotion how{g.tune.promote};
                  if (g.p.scaling == GemmScaling::block) {
                    BlockScales f(scales->a, scales->b, k_tiles);
                    const auto origin = DynAcc::origin(wg);
                    for (int r : t.thread_rows()) {
                      const auto in = origin.row + std::uint32_t(r) < left;
                      f.row(scales->row(row0 + origin.row + std::uint32_t(r), in), in);
                    }
                    f.columns(t, g.tune.promote, pairing, to<u64>(where.group), where.col, n);
                    how.scales = f;
                  }
                  return mainloop.accumulate_promoted(wg, k_tiles, how);
                }();
                const bool whole = g.p.type_c == DType::s32 && g.whole.empty() && !scales;
                auto floats = whole ? std::move(acc) : to_floats(std::move(acc));
                if (scales && g.p.scaling != GemmScaling::block)
                  c.store(wg,
                          scaled(wg, g, *scales, std::move(floats), row0, left, where.group, where.col, n),
                          {Val<u32>(0), row0, where.col}, left);
                else
                  c.store(wg, floats, {Val<u32>(0), row0, where.col}, left);
              },
              [&] { mainloop.pass(wg, k_tiles); });
          return receive();
        });
    c.drain(wg);
  });
}

}  // namespace

GroupedMixedTuning grouped_mixed_tuning(const GroupedProblem& q) {
  const auto p = q.whole();
  const bool pairs = p.epilogue.pairing() != Pairing::none;
  GroupedMixedTuning t;
  t.bn = pairs && bytes(*p.type_c) == 1 ? 256 : 128;
  const int subtiles = (pairs ? t.bn / 2 : t.bn) * bytes(*p.type_c) / 128;
  t.buffers = subtiles % 2 == 0 ? 2 : 1;
  t.stages = std::min(8, (222 * 1024 - t.bm / 64 * t.buffers * 8192) / ((t.bm + t.bn) * 128));
  t.promote = std::max(t.bn / 128,
                       p.epilogue.pairing() == Pairing::halves && p.scaling == GemmScaling::block ? 2 : 1);
  return t;
}

Variant grouped_mixed_sm90(const GroupedProblem& q, const GroupedMixedTuning& t) {
  const auto p = q.whole();
  const auto sum = p.type == DType::s8 ? ptx::Mod::s32 : ptx::Mod::f32;
  GroupedMixedBuild g{p, t, {.a = wgmma_word(p.type), .b = wgmma_word(*p.type_b), .accumulator = sum}, {}};
  g.tile.element_bytes = bytes(p.type), g.tile.rows = t.bm, g.tile.cols = t.bn, g.tile.warpgroups = t.bm / 64;
  g.tile.stages = t.stages;
  g.whole = grouped_epilogue(p, {});
  const GroupedConfig config{.a = p.type,
                             .b = *p.type_b,
                             .c = *p.type_c,
                             .form = GroupedForm::rows,
                             .kind = GroupedKind::mixed_sm90,
                             .tile_m = t.bm,
                             .tile_n = t.bn,
                             .tile_k = 128 / bytes(p.type),
                             .stages = t.stages,
                             .store_buffers = t.buffers,
                             .group = t.band,
                             .promote = accumulators_promoted(p) ? t.promote : 0,
                             .scaling = p.scaling,
                             .epilogue = g.whole.name()};
  Variant v = grouped_variant(config, 90, grouped_mixed_kernel, g);
  v.only = "sm_90a";
  return v;
}

}  // namespace cgp::kernels

// SPDX-License-Identifier: Apache-2.0
// The Hopper GEMM whose tile is a build-time value: one kernel of three parts.
//   tile order   persistent (as many clusters as fit the device walk over the tiles) or a block for each tile:
//                schedule/tile_scheduler.h
//   main loop    one producer thread feeds the ring, 1 to 3 math warpgroups share the tile; the blocks of a
//                cluster along M share the tiles of B by multicast, along N those of A. Ring barriers run on
//                across tiles, so the next tile's operands arrive while this one is stored
//   epilogue     alpha, plus beta times the source C, which the producer fetches through the ring; through
//                shared memory in the type of C and out by TMA, clipped at the edges
//   needs        sm_90a; 16-bit types or 8-bit floats; rows and batches of A, B and C at multiples of 16 bytes
#include <cstdio>
#include <optional>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/gemm/api/gemm.h"
#include "cgp/kernels/gemm/api/gemm_tuning.h"
#include "cgp/kernels/gemm/sm90/gemm_block_scales.h"
#include "cgp/kernels/gemm/sm90/gemm_dynamic_sm90.h"
#include "cgp/kernels/gemm/sm90/gemm_params_sm90.h"
#include "cgp/kernels/schedule/tile_scheduler.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

struct PersistentBuild {
  ptx::Mod type;  ///< of C
  DynamicTile tile;
  GemmPersistentShape shape;
  int buffers;
};

using Params = GemmPersistentParams<OnDevice>;

Params declare(Kernel& k, const PersistentBuild& g) {
  const auto& t = g.tile;
  const auto a = DynTile::operand(t.a, t.element_bytes, t.major_a, t.height()),
             b = DynTile::operand(t.b, t.element_bytes, t.major_b, t.width()), c = t.subtile_tile(g.type);
  Params p;
  p.a.shape(a, DynamicOperand::box(a)), p.b.shape(b, DynamicOperand::box(b));
  p.c.shape(c, DynamicOperand::box(c)), p.source.shape(c, DynamicOperand::box(c));
  declare_params(k, p, GemmPersistentForm{g.shape.source_c, !g.shape.non_persistent});
  return p;
}

template <class Scheduler>
void gemm(Kernel& k, const PersistentBuild& g, const Params& p, const Role<Warpgroup>& load,
          const Role<Warpgroup>& math, Scheduler tiles) {
  const auto& shape = g.shape;
  const auto a = shape.cluster_n() > 1 ? p.a->multicast(Scheduler::along_n) : *p.a,
             b = shape.cluster_m() > 1 ? p.b->multicast(Axis::x) : *p.b;
  prefetch_descriptors(load, a, b, *p.c);
  DynamicMainloop mainloop(k, g.tile, load, math, DynamicOperand(a),
                           DynamicOperand(shape.b_evict_first ? b.hint(L2Hint::evict_first) : b));
  DynamicResults results(k, g.tile, *p.c, math, g.buffers);
  tiles.start();

  load.one_thread([&](Thread& thread) {
    tiles.each(std::tuple<>{}, [&](const TileCoord& at, std::tuple<> none) {
      k.loop(*p.k_tiles, [&](Val<u32> kt) { mainloop.fill(thread, at, kt); });
      if (shape.source_c) mainloop.fill_source(thread, *p.source, at);
      return none;
    });
  });
  math.run([&](Warpgroup& wg) {
    auto storing = tiles.each(results.idle(), [&](const TileCoord& at, PendingStore pending) {
      std::optional<TileCoord> own;  // divided out before the main loop, if at all
      if (Scheduler::walks) own.emplace(mainloop.warpgroup_tile(wg, at));
      auto acc = mainloop.accumulate(wg, *p.k_tiles).template map<f32>([&](int, const Val<f32>& x) {
        return x * *p.alpha;
      });
      std::vector<DynFilled> source;
      if (shape.source_c) source = mainloop.take_source(wg, p.c->tile());
      if (!own) own.emplace(mainloop.warpgroup_tile(wg, at));
      return shape.source_c
                 ? results.store(wg, std::move(pending), std::move(acc), *own, std::move(source), *p.beta)
                 : results.store(wg, std::move(pending), std::move(acc), *own, mainloop);
    });
    std::move(storing).wait_read(wg);
  });
}

void gemm_persistent_kernel(Kernel& k, PersistentBuild g) {
  const auto& t = g.tile;
  const auto& shape = g.shape;
  const auto p = declare(k, g);
  const int cluster_m = shape.cluster_m(), cluster_n = shape.cluster_n();
  if (cluster_m * cluster_n > 1)
    shape.non_persistent ? k.cluster(cluster_m, cluster_n) : k.cluster(shape.cluster);
  const auto math = k.role<Warpgroup>(t.warpgroups, /*registers=*/t.warpgroups == 3 ? 160 : 240);
  const auto load = k.role<Warpgroup>(1, /*registers=*/24);
  const TileGrid grid{t.height(), t.width(), cluster_m, cluster_n, shape.group};
  if (shape.non_persistent)
    gemm(k, g, p, load, math, GridTiles(k, grid));
  else
    gemm(k, g, p, load, math, PersistentTiles(k, grid, *p.rows, *p.cols, *p.tiles));
}

void require_source_fits(const GemmPersistentShape& s, const DynamicTile& tile) {
  if (s.source_c && !tile.source_stages())
    throw Unsupported(text::cat("gemm: the source C of a tile of ", tile.height(), " x ", tile.width(),
                                " does not fit into ", tile.stages, " stages"));
}

// Type of C: bf16 for 8-bit inputs.
ptx::Mod result_word(DType type) { return type == DType::f16 ? ptx::Mod::f16 : ptx::Mod::bf16; }

int default_buffers(const GemmPersistentShape& s, const DynamicTile& tile) {
  return s.buffers ? s.buffers : tile.store_buffers();
}

GemmConfig config_of(DType type, bool trans_a, bool trans_b, const GemmPersistentShape& s,
                     const DynamicTile& tile) {
  const int buffers = default_buffers(s, tile);
  return {.family = s.non_persistent ? GemmFamily::sm90_non_persistent : GemmFamily::sm90_persistent,
          .a = type,
          .c = bytes(type) == 1 ? DType::bf16 : type,
          .layout = gemm_layout(trans_a, trans_b),
          .tile_m = tile.height(),
          .tile_n = tile.width(),
          .tile_k = 128 / bytes(type),
          .stages = tile.stages,
          .cluster_m = s.cluster_m(),
          .cluster_n = s.cluster_n(),
          .group = s.non_persistent ? 0 : s.group,
          .store_buffers = s.non_persistent || buffers == tile.store_buffers() ? 0 : buffers,
          .evict_b = s.b_evict_first,
          .swap_ab = s.swap_ab,
          .source_c = s.source_c};
}

}  // namespace

GemmVariant gemm_persistent_sm90(DType type, bool trans_a, bool trans_b, const GemmPersistentShape& s) {
  const DynamicTile tile = gemm_persistent_tile(type, trans_a, trans_b, s);
  if (s.non_persistent && !tile.results_fit_ring())
    throw Unsupported(text::cat("gemm: the results of a tile of ", tile.height(), " x ", tile.width(),
                                " do not fit into ", tile.stages, " stages"));
  require_source_fits(s, tile);
  const auto config = config_of(type, trans_a, trans_b, s, tile);
  const int buffers = s.non_persistent ? 1 : default_buffers(s, tile);
  Variant v = variant(print(config), 90, gemm_persistent_kernel, {result_word(type), tile, s, buffers});
  v.only = "sm_90a";
  return {std::move(v), config};
}

GemmChoice choose_persistent_sm90(DType type, bool trans_a, bool trans_b, const GemmPersistentShape& s) {
  const auto tile = gemm_persistent_tile(type, trans_a, trans_b, s);
  GemmChoice c{GemmFamily::sm90_persistent,
               gemm_persistent_sm90(type, trans_a, trans_b, s),
               {},
               std::uint32_t(tile.width() * s.cluster_n()),
               s.cluster};
  c.tile_m = std::uint32_t(tile.height() * s.cluster_m());
  c.by_grid = s.non_persistent;
  return c;
}

std::optional<GemmChoice> choose_persistent_sm90(const GemmConfig& c) {
  const bool non_persistent = c.family == GemmFamily::sm90_non_persistent;
  if (!non_persistent && c.family != GemmFamily::sm90_persistent) return {};
  if (c.a == DType::f32 || c.a == DType::s8 || c.layout == GemmLayout::any) return {};
  const bool trans_a = c.layout == GemmLayout::tn || c.layout == GemmLayout::tt,
             trans_b = c.layout == GemmLayout::nt || c.layout == GemmLayout::tt;
  GemmPersistentShape s;
  s.rows = c.swap_ab ? c.tile_n : c.tile_m, s.cols = c.swap_ab ? c.tile_m : c.tile_n;
  s.swap_ab = c.swap_ab, s.stages = c.stages, s.buffers = c.store_buffers;
  s.cluster = c.cluster_m * c.cluster_n;
  s.shared = c.cluster_n == 1 ? GemmShared::b : c.cluster_m == 1 ? GemmShared::a : GemmShared::both;
  s.group = non_persistent ? s.group : c.group, s.b_evict_first = c.evict_b == int(GemmEviction::first);
  s.source_c = c.source_c, s.non_persistent = non_persistent;
  if (s.rows % 64 || s.rows < 64 || s.rows > 256 || s.cols % 8 || s.cols < 8 || s.cols > 384 ||
      s.stages < 1 || s.cluster < 1 || s.group < 1)
    return {};
  const auto tile = gemm_persistent_tile(c.a, trans_a, trans_b, s);
  if ((non_persistent && !tile.results_fit_ring()) || (s.source_c && !tile.source_stages()) ||
      config_of(c.a, trans_a, trans_b, s, tile) != c)
    return {};
  return choose_persistent_sm90(c.a, trans_a, trans_b, s);
}

DynamicTile gemm_persistent_tile(DType type, bool trans_a, bool trans_b, const GemmPersistentShape& s) {
  DynamicTile t{wgmma_word(type),
                wgmma_word(type),
                ptx::Mod::f32,
                bytes(type),
                trans_a ? Major::mn : Major::k,
                trans_b ? Major::k : Major::mn,
                s.rows,
                s.cols,
                s.rows == 64    ? 1
                : s.rows == 192 ? 3
                                : 2,
                s.swap_ab,
                s.stages,
                1,
                s.non_persistent};
  if (!t.stages) t.stages = t.fitting_stages(s.buffers ? s.buffers : t.store_buffers());
  return t;
}

GemmVariant gemm_persistent_sm90(DType t, bool trans_a, bool trans_b, int bn,
                                 const GemmPersistentTuning& tune) {
  return gemm_persistent_sm90(t, trans_a, trans_b,
                              GemmPersistentShape{.cols = bn,
                                                  .stages = tune.stages,
                                                  .buffers = tune.buffers,
                                                  .cluster = tune.cluster,
                                                  .group = tune.group});
}

}  // namespace cgp::kernels

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
  declare_params(k, p, GemmPersistentForm{g.shape.old, !g.shape.single});
  return p;
}

template <class Scheduler>
void gemm(Kernel& k, const PersistentBuild& g, const Params& p, const Role<Warpgroup>& load,
          const Role<Warpgroup>& math, Scheduler tiles) {
  const auto& shape = g.shape;
  const auto a = shape.beside() > 1 ? p.a->multicast(Scheduler::along_n) : *p.a,
             b = shape.below() > 1 ? p.b->multicast(Axis::x) : *p.b;
  prefetch_descriptors(load, a, b, *p.c);
  DynamicMainloop mainloop(k, g.tile, load, math, DynamicOperand(a),
                           DynamicOperand(shape.b_first ? b.hint(L2Hint::evict_first) : b));
  DynamicResults results(k, g.tile, *p.c, math, g.buffers);
  tiles.start();

  load.one_thread([&](Thread& thread) {
    tiles.each(std::tuple<>{}, [&](const TileCoord& at, std::tuple<> none) {
      k.loop(*p.k_tiles, [&](Val<u32> kt) { mainloop.fill(thread, at, kt); });
      if (shape.old) mainloop.fill_source(thread, *p.source, at);
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
      if (shape.old) source = mainloop.take_source(wg, p.c->tile());
      if (!own) own.emplace(mainloop.warpgroup_tile(wg, at));
      return shape.old
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
  const int cluster_m = shape.below(), cluster_n = shape.beside();
  if (cluster_m * cluster_n > 1) shape.single ? k.cluster(cluster_m, cluster_n) : k.cluster(shape.cluster);
  const auto math = k.role<Warpgroup>(t.warpgroups, /*registers=*/t.warpgroups == 3 ? 160 : 240);
  const auto load = k.role<Warpgroup>(1, /*registers=*/24);
  const TileGrid grid{t.height(), t.width(), cluster_m, cluster_n, shape.group};
  if (shape.single)
    gemm(k, g, p, load, math, GridTiles(k, grid));
  else
    gemm(k, g, p, load, math, PersistentTiles(k, grid, *p.rows, *p.cols, *p.tiles));
}

void require_source_fits(const GemmPersistentShape& s, const DynamicTile& tile) {
  if (s.old && !tile.source_stages())
    throw Unsupported(text::cat("gemm: the source C of a tile of ", tile.height(), " x ", tile.width(),
                                " do not fit into ", tile.stages, " stages"));
}

// Of results: 8-bit floats give bf16.
ptx::Mod result_word(DType type) { return type == DType::f16 ? ptx::Mod::f16 : ptx::Mod::bf16; }

Variant non_persistent_variant(DType type, bool trans_a, bool trans_b, const GemmPersistentShape& s,
                               const DynamicTile& tile) {
  if (!tile.results_fit_ring())
    throw Unsupported(text::cat("gemm: the results of a tile of ", tile.height(), " x ", tile.width(),
                                " do not fit into ", tile.stages, " stages"));
  const auto cluster = s.shared == GemmShared::both ? text::cat("_c2x2")
                       : s.shared == GemmShared::a  ? text::cat("_c1x", s.cluster)
                                                    : text::cat("_c", s.cluster);
  auto name = text::cat("gemm_", cgp::name(type), "_single_sm90_", trans_a ? "t" : "n", trans_b ? "t" : "n",
                        "__", tile.height(), "x", tile.width(), "x64_s", tile.stages, cluster,
                        s.b_first ? "_first" : "", s.turned ? "_turned" : "", s.old ? "_old" : "");
  require_source_fits(s, tile);
  Variant v = variant(std::move(name), 90, gemm_persistent_kernel, {result_word(type), tile, s, 1});
  v.only = "sm_90a";
  return v;
}

}  // namespace

Variant gemm_persistent_sm90(DType type, bool trans_a, bool trans_b, const GemmPersistentShape& s) {
  const DynamicTile tile = gemm_persistent_tile(type, trans_a, trans_b, s);
  if (s.single) return non_persistent_variant(type, trans_a, trans_b, s, tile);
  const int buffers = s.buffers ? s.buffers : tile.store_buffers();
  auto name = text::cat("gemm_", cgp::name(type), "_persistent_sm90_", trans_a ? "t" : "n",
                        trans_b ? "t" : "n", "__", tile.height(), "x", tile.width(), "x64_s", tile.stages,
                        s.shared == GemmShared::a ? "_c1x" : "_c", s.cluster, "_g", s.group);
  if (buffers != tile.store_buffers()) text::append(name, text::cat("_b", buffers));
  if (s.b_first) text::append(name, "_first");
  if (s.turned) text::append(name, "_turned");
  if (s.old) text::append(name, "_old");
  require_source_fits(s, tile);
  Variant v = variant(std::move(name), 90, gemm_persistent_kernel, {result_word(type), tile, s, buffers});
  v.only = "sm_90a";
  return v;
}

GemmChoice choose_persistent_sm90(DType type, bool trans_a, bool trans_b, const GemmPersistentShape& s) {
  const auto tile = gemm_persistent_tile(type, trans_a, trans_b, s);
  GemmChoice c{GemmKind::sm90_persistent,
               gemm_persistent_sm90(type, trans_a, trans_b, s),
               {},
               std::uint32_t(tile.width() * s.beside()),
               s.cluster};
  c.tile_m = std::uint32_t(tile.height() * s.below());
  c.by_grid = s.single;
  return c;
}

std::optional<GemmChoice> persistent_sm90_named(std::string_view name, DType t, bool trans_a, bool trans_b) {
  const auto at = name.find("__");
  GemmPersistentShape s;
  s.single = name.find("_single_sm90_") != name.npos;
  if ((!s.single && name.find("_persistent_sm90_") == name.npos) || at == name.npos) return {};
  const std::string form(name.substr(at + 2));
  const auto has = [&](const char* word) { return form.find(word) != form.npos; };
  const bool beside = has("_c1x"), both = s.single && has("_c2x2");
  int height = 0, width = 0;
  if (s.single) {
    if (std::sscanf(form.c_str(), beside ? "%dx%dx64_s%d_c1x%d" : "%dx%dx64_s%d_c%d", &height, &width,
                    &s.stages, &s.cluster) < 4)
      return {};
    if (both) s.cluster = 4;
  } else if (std::sscanf(form.c_str(), beside ? "%dx%dx64_s%d_c1x%d_g%d_b%d" : "%dx%dx64_s%d_c%d_g%d_b%d",
                         &height, &width, &s.stages, &s.cluster, &s.group, &s.buffers) < 5)
    return {};
  s.turned = has("_turned"), s.b_first = has("_first"), s.old = has("_old");
  if (beside) s.shared = GemmShared::a;
  if (both) s.shared = GemmShared::both;
  s.rows = s.turned ? width : height, s.cols = s.turned ? height : width;
  if (s.rows % 64 || s.rows < 64 || s.rows > 256 || s.cols % 8 || s.cols < 8 || s.cols > 384 ||
      s.stages < 1 || s.cluster < 1 || s.group < 1)
    return {};
  const auto tile = gemm_persistent_tile(t, trans_a, trans_b, s);
  if ((s.single && !tile.results_fit_ring()) || (s.old && !tile.source_stages())) return {};
  auto c = choose_persistent_sm90(t, trans_a, trans_b, s);
  if (c.variant.name != name) return {};
  return c;
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
                s.turned,
                s.stages,
                1,
                s.single};
  if (!t.stages) t.stages = t.fitting_stages(s.buffers ? s.buffers : t.store_buffers());
  return t;
}

Variant gemm_persistent_sm90(DType t, bool trans_a, bool trans_b, int bn, const GemmPersistentTuning& tune) {
  return gemm_persistent_sm90(t, trans_a, trans_b,
                              GemmPersistentShape{.cols = bn,
                                                  .stages = tune.stages,
                                                  .buffers = tune.buffers,
                                                  .cluster = tune.cluster,
                                                  .group = tune.group});
}

}  // namespace cgp::kernels

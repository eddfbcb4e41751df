// SPDX-License-Identifier: Apache-2.0
// gemm sm90_persistent: the warp-specialised kernel of gemm_sm90.cpp made persistent, with tiles of many
// shapes.
//   who      as many clusters as fit the device walk over the tiles of C; in a block, one producer thread
//   feeds
//            the ring and 1 to 3 math warpgroups share the tile (gemm_shaped_sm90.h)
//   memory   the blocks of a cluster lie below each other and share the tiles of B by multicast, or beside
//   each
//            other and share those of A; results go through shared memory in the type of C and are stored by
//            TMA, clipped at the edges
//   sync     ring barriers run on across tiles, so the next tile's operands arrive while this one is stored
//   beta     the producer fetches the old C behind the last stage of a tile, through the ring
//   needs    what gemm_sm90.cpp needs, and rows and batches of C at multiples of 16 bytes
#include <cstdio>
#include <optional>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/gemm/api/gemm.h"
#include "cgp/kernels/gemm/api/gemm_tuning.h"
#include "cgp/kernels/gemm/sm90/gemm_block_scales.h"
#include "cgp/kernels/gemm/sm90/gemm_dynamic_sm90.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

struct PersistentBuild {
  ptx::Mod type;
  ShapedTile tile;
  GemmPersistentShape shape;
  int buffers;
};

void gemm_persistent_kernel(Kernel& k, PersistentBuild tune) {
  const auto& t = tune.tile;
  const auto& shape = tune.shape;
  ShapedOperand a_all(k, t.a, t.element_bytes, t.major_a, t.height()),
      b_all(k, t.b, t.element_bytes, t.major_b, t.width());
  ShapedResults c(k, t, tune.type, shape.old);
  const auto k_tiles = Param<Val<u32>>::make(k);
  const auto alpha = Param<Val<f32>>::make(k);
  std::optional<Val<f32>> beta;
  if (shape.old) beta.emplace(Param<Val<f32>>::make(k));
  // In tiles of a whole cluster.
  const auto rows = Param<Val<u32>>::make(k), cols = Param<Val<u32>>::make(k),
             tiles = Param<Val<u32>>::make(k);
  const bool clusters = shape.cluster > 1, beside = shape.shared == GemmShared::a;
  if (clusters) k.cluster(shape.cluster);
  auto math = k.role<Warpgroup>(t.groups, /*registers=*/t.groups == 3 ? 160 : 240);
  auto load = k.role<Warpgroup>(1, /*registers=*/24);
  const auto a = clusters && beside ? a_all.shared(Axis::x) : a_all,
             b = clusters && !beside ? b_all.shared(Axis::x) : b_all;
  k.if_(k.tid() == std::uint32_t(math.threads()), [&] {
    for (const auto* map : {&a.map(), &b.map(), &c.map()})
      record::prefetch_tensormap(k, map->address, k.here());
  });
  ShapedProduct product(k, t, load, math, a, shape.b_first ? b.hint(L2Hint::evict_first) : b);
  c.open(math, tune.buffers);
  const auto first = clusters ? k.clusterid_x() : k.ctaid_x(),
             step = clusters ? k.nclusterid_x() : k.nctaid_x();
  const auto rank = clusters ? k.cluster_ctarank() : Val<u32>(0);
  const auto walk = range(first, tiles, step);

  // Groups of `group` rows, down the columns of a group first: neighbours in time share what L2 holds.
  const auto place = [&](const Val<u32>& tile) {
    const auto per_batch = rows * cols, in_batch = tile % per_batch;
    const auto per_group = cols * std::uint32_t(shape.group);
    const auto top = in_batch / per_group * std::uint32_t(shape.group), rest = in_batch % per_group;
    const auto height = dsl::min(rows - top, std::uint32_t(shape.group));
    const auto row = top + rest % height, col = rest / height;
    const auto size = std::uint32_t(shape.cluster);
    return HopperPlace{tile / per_batch, (beside ? row : row * size + rank) * std::uint32_t(t.height()),
                       (beside ? col * size + rank : col) * std::uint32_t(t.width())};
  };

  load.one_thread([&](Thread& thread) {
    k.loop(walk, [&](Val<u32> tile) {
      const auto at = place(tile);
      k.loop(k_tiles, [&](Val<u32> kt) { product.fill(thread, at, kt); });
      if (shape.old) product.fill_old(thread, c.old(), at);
    });
  });
  math.run([&](Warpgroup& wg) {
    k.loop(walk, [&](Val<u32> tile) {
      const auto where = product.mine(wg, place(tile));
      std::vector<Value> scaled;
      for (const auto& x : product.sums(wg, k_tiles)) scaled.push_back(Val<f32>(x) * alpha);
      if (shape.old) return c.store(wg, scaled, where, product.take_old(wg), *beta);
      c.store(wg, scaled, where);
    });
    c.drain(wg);
  });
}

// A block for each tile: rows of clusters along x, columns along y, batches along z. Nothing to divide before
// the first load.
void gemm_single_kernel(Kernel& k, PersistentBuild tune) {
  const auto& t = tune.tile;
  const auto& shape = tune.shape;
  const int below = shape.below(), beside = shape.beside();
  ShapedOperand a_all(k, t.a, t.element_bytes, t.major_a, t.height()),
      b_all(k, t.b, t.element_bytes, t.major_b, t.width());
  ShapedResults c(k, t, tune.type, shape.old);
  const auto k_tiles = Param<Val<u32>>::make(k);
  const auto alpha = Param<Val<f32>>::make(k);
  std::optional<Val<f32>> beta;
  if (shape.old) beta.emplace(Param<Val<f32>>::make(k));
  if (below * beside > 1) k.cluster(below, beside);
  auto math = k.role<Warpgroup>(t.groups, /*registers=*/t.groups == 3 ? 160 : 240);
  auto load = k.role<Warpgroup>(1, /*registers=*/24);
  const auto a = beside > 1 ? a_all.shared(Axis::y) : a_all, b = below > 1 ? b_all.shared(Axis::x) : b_all;
  const HopperPlace at{k.ctaid_z(), k.ctaid_x() * std::uint32_t(t.height()),
                       k.ctaid_y() * std::uint32_t(t.width())};
  k.if_(k.tid() == std::uint32_t(math.threads()), [&] {
    for (const auto* map : {&a.map(), &b.map(), &c.map()})
      record::prefetch_tensormap(k, map->address, k.here());
  });
  ShapedProduct product(k, t, load, math, a, shape.b_first ? b.hint(L2Hint::evict_first) : b);
  c.open(math, 1);
  load.one_thread([&](Thread& thread) {
    k.loop(k_tiles, [&](Val<u32> kt) { product.fill(thread, at, kt); });
    if (shape.old) product.fill_old(thread, c.old(), at);
  });
  math.run([&](Warpgroup& wg) {
    std::vector<Value> scaled;
    for (const auto& x : product.sums(wg, k_tiles)) scaled.push_back(Val<f32>(x) * alpha);
    if (shape.old)
      c.store(wg, scaled, product.mine(wg, at), product.take_old(wg), *beta);
    else
      c.store(wg, scaled, product.mine(wg, at), &product);
    c.drain(wg);
  });
}

void require_old_fits(const GemmPersistentShape& s, const ShapedTile& tile) {
  if (s.old && !shaped_old_slots(tile))
    throw Unsupported(text::cat("gemm: the old results of a tile of ", tile.height(), " x ", tile.width(),
                                " do not fit into ", tile.stages, " stages"));
}

// Of results: 8-bit floats give bf16.
ptx::Mod result_word(DType type) { return type == DType::f16 ? ptx::Mod::f16 : ptx::Mod::bf16; }

int default_buffers(const GemmPersistentShape& s, const ShapedTile& tile) {
  return s.buffers ? s.buffers : shaped_buffers(tile);
}

GemmConfig config_of(DType type, bool trans_a, bool trans_b, const GemmPersistentShape& s,
                     const ShapedTile& tile) {
  const int buffers = default_buffers(s, tile);
  return {.family = s.single ? GemmFamily::sm90_non_persistent : GemmFamily::sm90_persistent,
          .a = type,
          .c = bytes(type) == 1 ? DType::bf16 : type,
          .layout = gemm_layout(trans_a, trans_b),
          .tile_m = tile.height(),
          .tile_n = tile.width(),
          .tile_k = 128 / bytes(type),
          .stages = tile.stages,
          .cluster_m = s.below(),
          .cluster_n = s.beside(),
          .group = s.single ? 0 : s.group,
          .store_buffers = s.single || buffers == shaped_buffers(tile) ? 0 : buffers,
          .evict_b = s.b_first,
          .swap_ab = s.turned,
          .source_c = s.old};
}

}  // namespace

GemmVariant gemm_persistent_sm90(DType type, bool trans_a, bool trans_b, const GemmPersistentShape& s) {
  const ShapedTile tile = gemm_persistent_tile(type, trans_a, trans_b, s);
  if (s.single && !shaped_single_fits(tile))
    throw Unsupported(text::cat("gemm: the results of a tile of ", tile.height(), " x ", tile.width(),
                                " do not fit into ", tile.stages, " stages"));
  require_old_fits(s, tile);
  const auto config = config_of(type, trans_a, trans_b, s, tile);
  const int buffers = s.single ? 1 : default_buffers(s, tile);
  Variant v = variant(print(config), 90, s.single ? gemm_single_kernel : gemm_persistent_kernel,
                      {result_word(type), tile, s, buffers});
  v.only = "sm_90a";
  return {std::move(v), config};
}

GemmChoice choose_persistent_sm90(DType type, bool trans_a, bool trans_b, const GemmPersistentShape& s) {
  const auto tile = gemm_persistent_tile(type, trans_a, trans_b, s);
  GemmChoice c{GemmFamily::sm90_persistent,
               gemm_persistent_sm90(type, trans_a, trans_b, s),
               {},
               std::uint32_t(tile.width() * s.beside()),
               s.cluster};
  c.tile_m = std::uint32_t(tile.height() * s.below());
  c.by_grid = s.single;
  return c;
}

std::optional<GemmChoice> choose_persistent_sm90(const GemmConfig& c) {
  const bool single = c.family == GemmFamily::sm90_non_persistent;
  if (!single && c.family != GemmFamily::sm90_persistent) return {};
  if (c.a == DType::f32 || c.a == DType::s8 || c.layout == GemmLayout::any) return {};
  const bool trans_a = c.layout == GemmLayout::tn || c.layout == GemmLayout::tt,
             trans_b = c.layout == GemmLayout::nt || c.layout == GemmLayout::tt;
  GemmPersistentShape s;
  s.rows = c.swap_ab ? c.tile_n : c.tile_m, s.cols = c.swap_ab ? c.tile_m : c.tile_n;
  s.turned = c.swap_ab, s.stages = c.stages, s.buffers = c.store_buffers;
  s.cluster = c.cluster_m * c.cluster_n;
  s.shared = c.cluster_n == 1 ? GemmShared::b : c.cluster_m == 1 ? GemmShared::a : GemmShared::both;
  s.group = single ? s.group : c.group, s.b_first = c.evict_b == int(GemmEviction::first);
  s.old = c.source_c, s.single = single;
  if (s.rows % 64 || s.rows < 64 || s.rows > 256 || s.cols % 8 || s.cols < 8 || s.cols > 384 ||
      s.stages < 1 || s.cluster < 1 || s.group < 1)
    return {};
  const auto tile = gemm_persistent_tile(c.a, trans_a, trans_b, s);
  if ((single && !shaped_single_fits(tile)) || (s.old && !shaped_old_slots(tile)) ||
      config_of(c.a, trans_a, trans_b, s, tile) != c)
    return {};
  return choose_persistent_sm90(c.a, trans_a, trans_b, s);
}

ShapedTile gemm_persistent_tile(DType type, bool trans_a, bool trans_b, const GemmPersistentShape& s) {
  ShapedTile t{wgmma_word(type),
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
  if (!t.stages) t.stages = shaped_stages(t, s.buffers ? s.buffers : shaped_buffers(t));
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

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

Variant single_variant(DType type, bool trans_a, bool trans_b, const GemmPersistentShape& s,
                       const ShapedTile& tile) {
  if (!shaped_single_fits(tile))
    throw Unsupported(text::cat("gemm: the results of a tile of ", tile.height(), " x ", tile.width(),
                                " do not fit into ", tile.stages, " stages"));
  const auto cluster = s.shared == GemmShared::both ? text::cat("_c2x2")
                       : s.shared == GemmShared::a  ? text::cat("_c1x", s.cluster)
                                                    : text::cat("_c", s.cluster);
  auto name = text::cat("gemm_", cgp::name(type), "_single_sm90_", trans_a ? "t" : "n", trans_b ? "t" : "n",
                        "__", tile.height(), "x", tile.width(), "x64_s", tile.stages, cluster,
                        s.b_first ? "_first" : "", s.turned ? "_turned" : "", s.old ? "_old" : "");
  require_old_fits(s, tile);
  Variant v = variant(std::move(name), 90, gemm_single_kernel, {result_word(type), tile, s, 1});
  v.only = "sm_90a";
  return v;
}

}  // namespace

Variant gemm_persistent_sm90(DType type, bool trans_a, bool trans_b, const GemmPersistentShape& s) {
  const ShapedTile tile = gemm_persistent_tile(type, trans_a, trans_b, s);
  if (s.single) return single_variant(type, trans_a, trans_b, s, tile);
  const int buffers = s.buffers ? s.buffers : shaped_buffers(tile);
  auto name = text::cat("gemm_", cgp::name(type), "_persistent_sm90_", trans_a ? "t" : "n",
                        trans_b ? "t" : "n", "__", tile.height(), "x", tile.width(), "x64_s", tile.stages,
                        s.shared == GemmShared::a ? "_c1x" : "_c", s.cluster, "_g", s.group);
  if (buffers != shaped_buffers(tile)) text::append(name, text::cat("_b", buffers));
  if (s.b_first) text::append(name, "_first");
  if (s.turned) text::append(name, "_turned");
  if (s.old) text::append(name, "_old");
  require_old_fits(s, tile);
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
  if ((s.single && !shaped_single_fits(tile)) || (s.old && !shaped_old_slots(tile))) return {};
  auto c = choose_persistent_sm90(t, trans_a, trans_b, s);
  if (c.variant.name != name) return {};
  return c;
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

Variant gemm_persistent_sm90(DType t, bool trans_a, bool trans_b, int bn, const GemmPersistentTuning& tune) {
  return gemm_persistent_sm90(t, trans_a, trans_b,
                              GemmPersistentShape{.cols = bn,
                                                  .stages = tune.stages,
                                                  .buffers = tune.buffers,
                                                  .cluster = tune.cluster,
                                                  .group = tune.group});
}

}  // namespace cgp::kernels

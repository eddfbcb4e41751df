// SPDX-License-Identifier: Apache-2.0
// The product of a layer with that of its adapter.
//   who      as the persistent GEMM (gemm/sm90/gemm_persistent_sm90.cpp), whose tile order, ring and epilogue it has
//   memory   a stage behind those of x and W holds 64 columns of t and B; what lies beyond r arrives as zeros
//   pdl      x and W are under way before the work queued before has ended; t waits for it
//   needs    sm_90a; 16-bit types; addresses and rows at multiples of 16 bytes
#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/sync/sync.h"
#include "cgp/kernels/common/params.h"
#include "cgp/kernels/gemm/api/gemm_tuning.h"
#include "cgp/kernels/gemm/sm90/gemm_dynamic_sm90.h"
#include "cgp/kernels/lora/lora_product.h"
#include "cgp/kernels/schedule/tile_scheduler.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

struct LoraConfig {
  DType type = DType::bf16;
  bool transposed = true;
  int rows = 128, cols = 256, cluster = 2, group = 8;
  bool pdl = false;
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.type("type", "", c.type);
    v.flag("transposed", c.transposed);
    v.number("rows", "rows", c.rows);
    v.number("cols", "cols", c.cols);
    v.number("cluster", "cluster", c.cluster, 1);
    v.number("group", "group", c.group);
    v.flag("pdl", c.pdl);
  }
};
DynamicTile tile_of(const LoraConfig& c) {
  return gemm_persistent_tile(c.type, false, c.transposed,
                              {.rows = c.rows, .cols = c.cols, .cluster = c.cluster});
}

template <class Side>
struct LoraParams {
  Field<Side, DynTmaIn> x, w, t, b;
  Field<Side, DynTmaOut> y;
  Field<Side, Val<u32>> k_tiles, r_tiles, rows, cols, tiles;

  template <class F>
  void visit(F&& f) {
    f(x, w, t, b, y, k_tiles, r_tiles, rows, cols, tiles);
  }
};

void lora_kernel(Kernel& k, LoraConfig c) {
  const auto tile = tile_of(c);
  const auto of_x = DynTile::operand(tile.a, 2, tile.major_a, tile.height()),
             of_w = DynTile::operand(tile.b, 2, tile.major_b, tile.width()),
             of_y = tile.subtile_tile(c.type == DType::f16 ? ptx::Mod::f16 : ptx::Mod::bf16);
  LoraParams<OnDevice> p;
  p.x.shape(of_x, DynamicOperand::box(of_x)), p.w.shape(of_w, DynamicOperand::box(of_w));
  p.t.shape(of_x, DynamicOperand::box(of_x)), p.b.shape(of_w, DynamicOperand::box(of_w));
  p.y.shape(of_y, DynamicOperand::box(of_y));
  declare_params(k, p);
  if (c.cluster > 1) k.cluster(c.cluster);
  const auto math = k.role<Warpgroup>(tile.warpgroups, /*registers=*/240);
  const auto load = k.role<Warpgroup>(1, /*registers=*/24);
  PersistentTiles tiles(k, {tile.height(), tile.width(), c.cluster, 1, c.group}, *p.rows, *p.cols, *p.tiles);
  const auto shared_by_cluster = [&](const DynTmaIn& map) {
    return DynamicOperand(c.cluster > 1 ? map.multicast(Axis::x) : map);
  };
  const DynamicOperand x(*p.x), t(*p.t), w = shared_by_cluster(*p.w), b = shared_by_cluster(*p.b);
  prefetch_descriptors(load, x.map(), w.map(), t.map(), b.map(), *p.y);
  DynamicMainloop mainloop(k, tile, load, math, x, w);
  DynamicResults results(k, tile, *p.y, math, tile.store_buffers());
  tiles.start();

  load.one_thread([&](Thread& thread) {
    tiles.each(std::tuple<>{}, [&](const TileCoord& at, std::tuple<> none) {
      k.loop(*p.k_tiles, [&](Val<u32> kt) { mainloop.fill(thread, at, kt); });
      if (c.pdl) griddepcontrol_wait(k);
      k.loop(*p.r_tiles, [&](Val<u32> kt) { mainloop.fill(thread, t, b, at, at, kt); });
      return none;
    });
  });
  math.run([&](Warpgroup& wg) {
    auto storing = tiles.each(results.idle(), [&](const TileCoord& at, PendingStore pending) {
      const auto own = mainloop.warpgroup_tile(wg, at);
      auto acc = mainloop.accumulate(wg, *p.k_tiles + *p.r_tiles);
      return results.store(wg, std::move(pending), std::move(acc), own, mainloop);
    });
    std::move(storing).wait_read(wg);
  });
}

Variant lora_variant(const LoraConfig& c) {
  Variant v = config_variant("lora_product", c, 90, lora_kernel);
  v.only = "sm_90a";
  return v;
}

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

}  // namespace

std::string reject(const LoraProduct& p, const runtime::DeviceInfo& d) {
  if (d.arch != "sm_90a") return text::cat("one pass needs sm_90a; the device is ", d.arch);
  if (p.type != DType::bf16 && p.type != DType::f16)
    return text::cat("one pass needs f16 or bf16; the type is ", name(p.type));
  if (p.k == 0 || p.r == 0 || p.k % 8 || p.n % 8 || p.r % 8)
    return text::cat("one pass needs n, k and r that are multiples of 8; they are ", p.n, ", ", p.k, " and ",
                     p.r);
  if ((p.x | p.w | p.t | p.b | p.y) % 16) return "one pass needs addresses at multiples of 16 bytes";
  return {};
}

void lora_product(runtime::Stream& s, const LoraProduct& p) {
  if (auto why = reject(p, s.device().info()); !why.empty()) throw Unsupported(std::move(why));
  if (p.m == 0 || p.n == 0) return;
  const LoraConfig c{.type = p.type, .transposed = p.transposed, .pdl = p.pdl};
  const auto tile = tile_of(c);
  const auto fn = load(s.device(), lora_variant(c));
  const auto map = [&](std::size_t param, std::uint64_t address, std::uint64_t rows, std::uint64_t cols) {
    auto spec = tensor_map_spec(fn.image(), param);
    spec.dims = {cols, rows, 1}, spec.strides = {cols * 2, cols * 2};
    spec.l2 = runtime::L2Promotion::b128;
    return s.device().tensor_map(spec, address);
  };
  const auto weight = [&](std::size_t param, std::uint64_t address, std::uint64_t depth) {
    return p.transposed ? map(param, address, p.n, depth) : map(param, address, depth, p.n);
  };
  const auto cluster = std::uint64_t(c.cluster);
  const std::uint64_t rows = ceil_div(p.m, std::uint64_t(tile.height()) * cluster),
                      cols = ceil_div(p.n, std::uint64_t(tile.width())), tiles = rows * cols;
  LoraParams<OnHost> args;
  args.x = map(0, p.x, p.m, p.k), args.w = weight(1, p.w, p.k);
  args.t = map(2, p.t, p.m, p.r), args.b = weight(3, p.b, p.r);
  args.y = map(4, p.y, p.m, p.n);
  args.k_tiles = std::uint32_t(ceil_div(p.k, 64)), args.r_tiles = std::uint32_t(ceil_div(p.r, 64));
  args.rows = std::uint32_t(rows), args.cols = std::uint32_t(cols), args.tiles = std::uint32_t(tiles);
  const auto concurrent =
      std::uint64_t(std::max(1, usable_sms(s.device().info().sm_count, c.cluster) / c.cluster));
  launch(
      s, fn,
      runtime::Launch{.grid = {std::uint32_t(std::min(tiles, concurrent) * cluster)}, .programmatic = p.pdl},
      args);
}

std::vector<Variant> lora_product_variants() {
  std::vector<Variant> all;
  for (DType type : {DType::bf16, DType::f16})
    for (bool transposed : {false, true})
      for (bool pdl : {false, true})
        all.push_back(lora_variant({.type = type, .transposed = transposed, .pdl = pdl}));
  return all;
}

}  // namespace cgp::kernels

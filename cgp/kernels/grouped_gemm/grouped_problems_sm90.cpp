// SPDX-License-Identifier: Apache-2.0
// grouped_gemm sm90, form problems: products with addresses, sizes and leading dimensions of their own.
//   who      a first kernel makes the tensor maps, a warp an item: it copies the host's pattern, replaces
//            address, extents and strides, and publishes it in scratch memory. The second is that of the form
//            rows, which finds the tiles of items instead of ragged rows
//   sync     every thread that uses an item's map acquires it
//   needs    sm_90a; 16-bit types. Items whose rows are not at multiples of 16 bytes, and those with k = 0,
//   are
//            left to the simt kernel, which runs behind this one
#include "cgp/base/text.h"
#include "cgp/dsl/mma/epilogue.h"
#include "cgp/dsl/pipeline/tensor_map_edit.h"
#include "cgp/dsl/pipeline/work_broadcast.h"
#include "cgp/kernels/gemm/api/gemm_operand.h"
#include "cgp/kernels/grouped_gemm/grouped_gemm.h"
#include "cgp/kernels/schedule/grouped_tiles.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr int kStoreCols = 64, kMapWords = kGroupedMapBytes / 4;
template <class T>
using OutputMap = TmaOut<Tile<T, 64, kStoreCols>, 1, 64, kStoreCols>;

GroupedItems items_of(Kernel& k, const In<u32>& items, const Val<u32>& count, int element_bytes, int bn) {
  return {items, count, GroupedItems::Take::aligned, element_bytes, kHopperBm, bn, k.tid() < 0u};
}

template <class T, Major MB, int BN>
void grouped_maps_kernel(Kernel& k, typename HopperOperand<T, Major::k, kHopperBm>::map a,
                         typename HopperOperand<T, MB, BN>::map b, OutputMap<T> c, In<u32> items,
                         Val<u32> count, Out<u32> maps) {
  k.block(32);
  Warp w = k.warp();
  const auto source = items_of(k, items, count, T::bits / 8, BN);
  const auto g = k.ctaid_x();
  const auto held = source.held(g);
  const auto tiles = assume_uniform(source.tiles(held), Uniform::cta);
  const auto item = items.at(to<u64>(g) * std::uint64_t(12));
  const auto pointers = item.template as<u64>();
  const auto edit = [&](const auto& map, int which, const Val<u32>& rows, const Val<u32>& cols) {
    TensorMapEdit e(w, map);
    const auto bytes = to<u64>(item.ld(9 + which)) * std::uint64_t(T::bits / 8);
    e.address(Ptr<global, u8>(pointers.ld(which))).extent(1, rows).extent(2, cols).stride(1, bytes);
    (void)std::move(e).publish(w,
                               maps.at(g * std::uint32_t(3 * kMapWords) + std::uint32_t(which * kMapWords)));
  };
  k.if_(tiles != 0u, [&] {
    const auto m = held[0], n = held[1], kk = held[2];
    edit(a, 0, m, kk);
    edit(b, 1, MB == Major::k ? n : kk, MB == Major::k ? kk : n);
    edit(c, 2, m, n);
  });
}

template <class T, Major MB, int BN>
void grouped_problems_kernel(Kernel& k, GroupedTuning tune,
                             typename HopperOperand<T, Major::k, kHopperBm>::map a,
                             typename HopperOperand<T, MB, BN>::map b, OutputMap<T> c, In<u32> items,
                             Val<u32> count, In<u32> maps, Out<u32> counter, Val<f32> alpha) {
  using A = HopperOperand<T, Major::k, kHopperBm>;
  using B = HopperOperand<T, MB, BN>;
  auto math = k.role<Warpgroup>(kHopperBm / 64, /*registers=*/232);
  auto load = k.role<Warpgroup>(1, /*registers=*/40);
  Ring<ByThreads, typename A::tile, typename B::tile> ring(k, tune.stages, load, math, a, b);
  Staging<Tile<T, 64, kStoreCols>> staging(k, math, tune.buffers);
  WorkBroadcast mail(k, 4, 2, math);
  const auto map_of = [&](const Val<u32>& group, int which) {
    return PublishedMap(maps.at(group * std::uint32_t(3 * kMapWords) + std::uint32_t(which * kMapWords)));
  };

  load.run([&](Warpgroup& wg) {
    wg.one_warp([&](Warp& w) {
      GroupWalk walk(k, items_of(k, items, count, T::bits / 8, BN), Uniform::warp);
      walk.each(w, TileSupply{counter, tune.taken}, [&](const GroupTile& tile) {
        const auto tiles_of = [](const Val<u32>& n, int of) {
          return (n + std::uint32_t(of - 1)) / std::uint32_t(of);
        };
        const auto at = grouped_raster(tile.number, tiles_of(tile.held[0], kHopperBm),
                                       tiles_of(tile.held[1], BN), tune.band);
        const auto m0 = at.row * kHopperBm, n0 = at.col * BN, k_tiles = tiles_of(tile.held[2], kHopperBk);
        mail.send(w, {tile.group, m0, n0, k_tiles});
        w.one_thread([&](Thread& t) {
          const auto its_a = map_of(tile.group, 0).acquire(a);
          const auto its_b = map_of(tile.group, 1).acquire(b);
          k.loop(k_tiles, [&](Val<u32> kt) {
            ring.fill(t, A::at(its_a, Val<u32>(0), m0, kt * kHopperBk),
                      B::at(its_b, Val<u32>(0), n0, kt * kHopperBk));
          });
        });
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
          auto begun = wgmma<Major::k, MB>(wg, fresh<f32, 64, BN>(wg), ring.take(wg));
          const auto more = assume_uniform(where.k_tiles - 1, Uniform::warpgroup);
          auto done = k.loop(more, std::move(begun), [&](Val<u32>, auto busy) {
            return std::move(busy).template then<Major::k, MB>(wg, ring.take(wg));
          });
          auto acc = std::move(done).wait(wg).map([&](Val<f32> x) { return x * alpha; });
          const auto its_c = map_of(where.group, 2).acquire(c);
          std::vector<PendingStore> stores;
          stores.push_back(std::move(s.second));
          for (int col = 0; col < BN; col += kStoreCols)
            stores.push_back(staging.store(
                wg, std::move(stores.back()),
                at(its_c, Val<u32>(0), where.m0 + wg.index * 64u, where.n0 + std::uint32_t(col)),
                [&](auto& out) { store_tile(wg, acc, out, col); }));
          return State(receive(), std::move(stores.back()));
        });
    std::move(last.second).wait(wg);
  });
}

void grouped_items_kernel(Kernel& k, In<u64> a, In<u64> b, In<u64> c, Out<u32> items, Val<u32> count,
                          Val<u32> m, Val<u32> n, Val<u32> kk, Val<u32> lda, Val<u32> ldb, Val<u32> ldc) {
  k.block(128);
  k.each_thread(count, [&](ThreadIndex i) {
    const auto item = items.at(to<u64>(i) * std::uint64_t(12));
    const auto addresses = item.as<u64>();
    addresses.st(0, a.ld(i));
    addresses.st(1, b.ld(i));
    addresses.st(2, c.ld(i));
    item.st(6, m), item.st(7, n), item.st(8, kk), item.st(9, lda), item.st(10, ldb), item.st(11, ldc);
  });
}

template <class T, Major MB>
GroupedProblemsVariants make(const GroupedConfig& config, const GroupedTuning& t) {
  auto of_maps = config;
  of_maps.maps = true;
  const auto pick = [&](auto bn) {
    constexpr int n = decltype(bn)::value;
    GroupedProblemsVariants v{grouped_variant(of_maps, 90, grouped_maps_kernel<T, MB, n>),
                              grouped_variant(config, 90, grouped_problems_kernel<T, MB, n>, t)};
    v.maps.only = v.products.only = "sm_90a";
    return v;
  };
  return t.bn == 128 ? pick(std::integral_constant<int, 128>()) : pick(std::integral_constant<int, 256>());
}

}  // namespace

GroupedProblemsVariants grouped_problems_sm90(DType t, bool trans_b, const GroupedTuning& tune) {
  const auto c = grouped_config_sm90(t, GroupedForm::problems, gemm_layout(false, trans_b), tune);
  if (t == DType::f16) return trans_b ? make<f16, Major::k>(c, tune) : make<f16, Major::mn>(c, tune);
  return trans_b ? make<bf16, Major::k>(c, tune) : make<bf16, Major::mn>(c, tune);
}

Variant grouped_items() { return variant("grouped_items", 75, grouped_items_kernel); }

}  // namespace cgp::kernels

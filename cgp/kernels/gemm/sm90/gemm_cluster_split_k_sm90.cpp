// SPDX-License-Identifier: Apache-2.0
// gemm sm90_cluster_split_k: for products with few tiles. The blocks of a cluster share one tile of C and split its K.
//   who      in a block, one producer thread feeds the ring, BM / 64 math warpgroups own 64 rows each
//   memory   TMA tiles; each block sends the columns of its partial sums that others own to them through
//            distributed shared memory, and adds up and stores its own columns
//   sync     the cluster's barrier between sending and adding up
//   order    partial sums are added in the order of K, whoever comes first: the same bits every time
//   needs    what gemm_sm90.cpp needs, and K of at least 64 a block
#include "cgp/base/text.h"
#include "cgp/dsl/kernel.h"
#include "cgp/dsl/pipeline/cluster.h"
#include "cgp/dsl/pipeline/dyn_ring.h"
#include "cgp/kernels/gemm/api/gemm_operand.h"
#include "cgp/kernels/gemm/api/gemm_tuning.h"
#include "cgp/kernels/gemm/epilogue/gemm_epilogue.h"
#include "cgp/kernels/gemm/sm90/gemm_params_sm90.h"
#include "cgp/kernels/schedule/raster.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

// Exchanges partial sums, in registers as wgmma leaves them: what a thread sends is what the same thread of
// the other block would hold.
template <int BM, int BN>
class Partials {
 public:
  Partials(Kernel& k, int split)
      : k_(k), split_(split), count_(BN / 2 / split), data_(k.shared<f32>(BM * BN, 128)) {}

  /// To each block of the cluster the columns that it owns.
  void send(const Acc<f32, 64, BN>& acc) {
    const auto thread = k_.tid();  // the math warpgroups come first in the block
    const auto rank = k_.cluster_ctarank();
    const auto words = [&](auto width) {
      constexpr int W = decltype(width)::value;
      for (int to = 0; to < split_; ++to) {
        const auto peer = mapa(data_, Val<u32>(std::uint32_t(to)));
        for (int i = 0; i < count_ / W; ++i)
          peer.at(slot(rank * std::uint32_t(count_ / W) + std::uint32_t(i), thread, W))
              .template st<W>(
                  0, RegGroup<f32, W>::generate([&](int j) { return acc[to * count_ + W * i + j]; }));
      }
    };
    count_ % 4 == 0 ? words(std::integral_constant<int, 4>{}) : words(std::integral_constant<int, 2>{});
  }
  /// The sums of the columns that this block owns; first of them: rank * BN / split.
  std::vector<Val<f32>> sum() { return count_ % 4 == 0 ? added<4>() : added<2>(); }

 private:
  static Val<u32> slot(const Val<u32>& word, const Val<u32>& thread, int width) {
    return (word * std::uint32_t(2 * BM) + thread) * std::uint32_t(width);
  }
  template <int W>
  std::vector<Val<f32>> added() {
    const auto thread = k_.tid();
    std::vector<Val<f32>> out;
    for (int i = 0; i < count_ / W; ++i) {
      std::vector<RegGroup<f32, W>> loaded;
      for (int from = 0; from < split_; ++from)
        loaded.push_back(
            data_.at(slot(Val<u32>(std::uint32_t(from * (count_ / W) + i)), thread, W)).template ld<W>());
      for (int j = 0; j < W; ++j) {
        std::vector<Val<f32>> total{loaded[0][j]};
        for (int from = 1; from < split_; ++from)
          total.push_back(total.back() + loaded[std::size_t(from)][j]);
        out.push_back(total.back());
      }
    }
    return out;
  }

  Kernel& k_;
  int split_, count_;
  Ptr<shared, f32> data_;
};

template <class T, Major MA, Major MB, int BM, int BN>
void gemm_cluster_split_k_kernel(Kernel& k, GemmClusterSplitKTuning tune) {
  using A = HopperOperand<T, MA, BM>;
  using B = HopperOperand<T, MB, BN>;
  GemmDirectParams<OnDevice, T, typename A::map, typename B::map> p;
  declare_params(k, p, /*persistent=*/false);
  const auto& k_tiles = *p.k_tiles;
  const bool shares_b = tune.shared == GemmShared::b, shares_a = tune.shared == GemmShared::a;
  const auto b_once = tune.evict_first ? p.b->hint(L2Hint::evict_first) : *p.b;
  const auto a = shares_a ? p.a->multicast(Axis::x) : *p.a;
  const auto b = shares_b ? b_once.multicast(Axis::x) : b_once;
  const int split = tune.split;
  const bool clusters = split > 1 || shares_b || shares_a;
  if (clusters) k.cluster(split > 1 ? split : 2);
  auto math = k.role<Warpgroup>(BM / 64);
  auto load = k.role<Warpgroup>(1);
  if (tune.min_blocks) k.min_blocks(tune.min_blocks);
  prefetch_descriptors(load, a, b);
  Ring<ByThreads, typename A::tile, typename B::tile> ring(
      k, clusters ? Stages(tune.stages) : Stages::started_by_producer(tune.stages), load, math, a, b);
  std::vector<Partials<BM, BN>> partials;
  if (split > 1) partials.emplace_back(k, split);

  // Tiles in groups of rows, as in the other variants, or (group 0) as the grid has them; the blocks of a
  // cluster have the same one.
  const auto index = clusters ? k.clusterid_x() : k.ctaid_x();
  const auto rank = clusters ? k.cluster_ctarank() : Val<u32>(0);
  const auto batch = k.ctaid_z();
  const auto tile = [&]() -> std::pair<Val<u32>, Val<u32>> {
    if (tune.group == 0) return {index, k.ctaid_y() + 0u};
    const auto tile = grouped_raster(index, *p.tiles_m, *p.tiles_n, tune.group);
    return {tile.row, tile.col};
  }();
  const auto m0 = shares_b ? (tile.first * 2u + rank) * BM : tile.first * BM,
             n0 = shares_a ? (tile.second * 2u + rank) * BN : tile.second * BN;
  const auto from = split > 1 ? k_tiles * rank / std::uint32_t(split) : k_tiles * 0u,
             to_tile = split > 1 ? k_tiles * (rank + 1) / std::uint32_t(split) : k_tiles + 0u;

  load.one_thread([&](Thread& t) {
    k.loop(range(from, to_tile), [&](Val<u32> kt) {
      ring.fill(t, A::at(a, batch, m0, kt * kHopperBk), B::at(b, batch, n0, kt * kHopperBk));
    });
  });

  const auto output = [&] {
    return GemmOutput<T>{InOut<T>(p.c->at(to<u64>(batch) * *p.stride_c)),
                         to<u64>(*p.m),
                         to<u64>(*p.n),
                         *p.ldc,
                         *p.alpha,
                         *p.beta};
  };
  const auto store_accumulator = [&](Warpgroup& wg) {
    const auto out = output();
    const auto pairs = *p.paired != 0u;
    const auto accumulators = partials.back().sum();
    const auto origin = Acc<f32, 64, BN>::origin(wg);
    // Two registers of a thread are two columns of a row, four the same of two rows: of 16 blocks that share
    // 64 columns every other owns the lower rows.
    const bool rows = BN / split < 8;
    const auto row0 = m0 + wg.index * 64 + (rows ? rank % 2u * 8u : rank * 0u);
    const auto col0 = n0 + (rows ? rank / 2u * 8u : rank * std::uint32_t(BN / split)) + origin.col;
    std::vector<typename GemmOutput<T>::Pair> all;
    for (std::size_t i = 0; i + 1 < accumulators.size(); i += 2)
      all.push_back({to<u64>(row0 + origin.row + std::uint32_t(8 * ((i >> 1) & 1))),
                     to<u64>(col0 + std::uint32_t(8 * (i >> 2))), accumulators[i], accumulators[i + 1]});
    out.put_pairs(k, pairs, all);
  };
  math.run([&](Warpgroup& wg) {
    auto first = wgmma<MA, MB>(wg, fresh<f32, 64, BN>(wg), ring.take(wg));
    auto last = k.loop(to_tile - from - 1, std::move(first), [&](Val<u32>, auto busy) {
      return std::move(busy).template then<MA, MB>(wg, ring.take(wg));
    });
    auto acc = std::move(last).wait(wg);
    if (split == 1) {
      const auto out = output();
      const auto pairs = *p.paired != 0u;
      const auto row0 = m0 + wg.index * 64;
      k.if_(
          pairs & (*p.beta == 0.f),
          [&] {
            const auto origin = Acc<f32, 64, BN>::origin(wg);
            const auto row = row0 + origin.row, col = n0 + origin.col;
            const auto first = out.c.at(to<u64>(row) * *p.ldc + to<u64>(col)).template as<b32>();
            const auto second = out.c.at(to<u64>(row + 8) * *p.ldc + to<u64>(col)).template as<b32>();
            const auto upper = row < *p.m, lower = row + 8 < *p.m;
            for (int i = 0; i < BN / 2; i += 4) {
              const auto inside = col + std::uint32_t(2 * i) < *p.n;
              const auto word = [&](int j) {
                return pack<b32>(to<T>(acc[i + j] * *p.alpha), to<T>(acc[i + j + 1] * *p.alpha));
              };
              first.st_if(upper & inside, i, word(0));
              second.st_if(lower & inside, i, word(2));
            }
          },
          [&] {
            const auto origin = Acc<f32, 64, BN>::origin(wg);
            std::vector<typename GemmOutput<T>::Pair> all;
            for (int i = 0; i < BN / 2; i += 2)
              all.push_back({to<u64>(row0 + origin.row + std::uint32_t(4 * (i & 2))),
                             to<u64>(n0 + origin.col + std::uint32_t(8 * (i >> 2))), acc[i], acc[i + 1]});
            out.put_pairs(k, pairs, all);
          });
      return;
    }
    partials.back().send(acc);
  });
  if (split == 1) return;
  auto cta = k.cta();
  cluster_sync(cta);
  math.run(store_accumulator);
}

template <class T, Major MA, Major MB>
Variant make(std::string name, int bm, int bn, const GemmClusterSplitKTuning& t) {
  const auto pick = [&](auto fn) { return variant(std::move(name), 90, fn, t); };
  if constexpr (MB == Major::k)  // with N contiguous, tiles are whole swizzle patterns of 64 columns
    if (bn == 32) {
      Variant narrow = pick(gemm_cluster_split_k_kernel<T, MA, MB, 64, 32>);
      narrow.only = "sm_90a";
      return narrow;
    }
  if constexpr (MA == Major::k && MB == Major::k)
    if (bm == 192) {  // three warpgroups, where tiles of 128 rows leave many processors idle
      Variant high = pick(gemm_cluster_split_k_kernel<T, MA, MB, 192, 64>);
      high.only = "sm_90a";
      return high;
    }
  Variant v = bm == 128   ? bn == 128 ? pick(gemm_cluster_split_k_kernel<T, MA, MB, 128, 128>)
                                      : pick(gemm_cluster_split_k_kernel<T, MA, MB, 128, 64>)
                : bn == 256 ? pick(gemm_cluster_split_k_kernel<T, MA, MB, 64, 256>)
              : bn == 128 ? pick(gemm_cluster_split_k_kernel<T, MA, MB, 64, 128>)
                          : pick(gemm_cluster_split_k_kernel<T, MA, MB, 64, 64>);
  v.only = "sm_90a";
  return v;
}
template <class T>
Variant make_layout(const std::string& name, bool ta, bool tb, int bm, int bn,
                    const GemmClusterSplitKTuning& t) {
  constexpr Major K = Major::k, MN = Major::mn;
  if (ta) return tb ? make<T, MN, K>(name, bm, bn, t) : make<T, MN, MN>(name, bm, bn, t);
  return tb ? make<T, K, K>(name, bm, bn, t) : make<T, K, MN>(name, bm, bn, t);
}

}  // namespace

GemmVariant gemm_cluster_split_k_sm90(DType type, bool trans_a, bool trans_b, int bm, int bn,
                                      const GemmClusterSplitKTuning& t) {
  const bool multicast = t.shared != GemmShared::none;
  const GemmConfig config{.family = GemmFamily::sm90_cluster_split_k,
                          .a = type,
                          .layout = gemm_layout(trans_a, trans_b),
                          .tile_m = bm,
                          .tile_n = bn,
                          .tile_k = 64,
                          .stages = t.stages,
                          .cluster_m = multicast ? t.shared == GemmShared::a ? 1 : 2 : 0,
                          .cluster_n = multicast ? t.shared == GemmShared::a ? 2 : 1 : 0,
                          .split_k = t.split,
                          .group = t.group,
                          .raster_grid = t.group == 0,
                          .min_blocks = t.min_blocks,
                          .evict_b = t.evict_first};
  const auto name = print(config);
  return {type == DType::f16 ? make_layout<f16>(name, trans_a, trans_b, bm, bn, t)
                             : make_layout<bf16>(name, trans_a, trans_b, bm, bn, t),
          config};
}

}  // namespace cgp::kernels

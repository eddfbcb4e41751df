// SPDX-License-Identifier: Apache-2.0
#pragma once
// gemm sm90_tail_split: the persistent kernel of gemm_persistent_sm90.cpp with two answers to tiles that do
// not fill the last wave: tiles of more widths, and clusters whose blocks share what is left, each a part of
// K.
//   who      as sm90_persistent; blocks walk over whole tiles alone; then each cluster takes one of the tiles
//   that
//            are left
//   memory   partial sums of a shared tile go to the block that owns their columns through distributed shared
//            memory, into the ring's stages, which nobody needs any more
//   sync     two mbarriers a block: the peers' stages are free; the peers' sums have arrived
//   order    partial sums are added in the order of K: the same bits every time
//   needs    what sm90_persistent needs; K of at least 64 a block of the cluster
#include "cgp/base/text.h"
#include "cgp/dsl/mma/epilogue.h"
#include "cgp/dsl/pipeline/cluster.h"
#include "cgp/kernels/gemm/api/gemm_operand.h"
#include "cgp/kernels/gemm/api/gemm_tuning.h"

namespace cgp::kernels {

/// Columns that are stored at once: 128 bytes a row with a swizzle, or an odd number of 16-byte pieces
/// without, which do not meet in banks either. They divide the tile into an even number of parts.
constexpr int tail_store_cols(int bn) {
  if (bn % 64 == 0) return 64;
  for (int c : {104, 88, 72, 56, 40, 24})
    if (bn % (2 * c) == 0) return c;
  return 8;
}

namespace tail_split {
using namespace dsl;

inline L2Hint l2_hint(GemmLines l) {
  return l == GemmLines::first  ? L2Hint::evict_first
         : l == GemmLines::last ? L2Hint::evict_last
                                : L2Hint::none;
}

template <class T, int BN>
using StoreTile = Tile<T, 64, tail_store_cols(BN), tail_store_cols(BN) == 64 ? Swizzle::b128 : Swizzle::none>;

/// The exchange of partial sums, in registers as wgmma leaves them: what a thread sends is what the same
/// thread of the other block would hold.
template <int BM, int BN>
class Exchange {
 public:
  /// The barriers are ready after the next barrier of the cluster: the ring's.
  Exchange(Kernel& k, int split)
      : k_(k), split_(split), count_(BN / 2 / split), free_(k.smem(16, 16)), sent_(free_ + 8) {
    k.if_(k.tid() == 0, [&] {
      for (int bar : {free_, sent_})
        record::mbarrier_init(k, {k.smem_addr(0), bar}, Val<u32>(std::uint32_t(kWarps * (split - 1))),
                              k.here());
    });
  }
  /// The sums of the columns that this block owns, BN / split of them from rank * BN / split on. `stages` is
  /// free in this block when all its warps are here.
  std::vector<Val<f32>> sum(Warpgroup& wg, const Acc<f32, 64, BN>& acc, const Ptr<shared, f32>& stages) {
    const auto rank = k_.cluster_ctarank();
    arrive_at_peers(wg, rank, free_);
    record::mbarrier_wait(k_, {k_.smem_addr(0), free_}, Val<u32>(0), /*cluster=*/true, k_.here());
    // Slot `turn` of the owner holds the sums of the block `turn + 1` after it.
    const auto thread = k_.tid();  // the math warpgroups come first in the block
    const auto slot = [&](int turn, int i) {
      return (thread + std::uint32_t((turn * (count_ / 4) + i) * kThreads)) * 4u;
    };
    for (int to = 0; to < split_; ++to)
      k_.if_(rank != Val<u32>(std::uint32_t(to)), [&] {
        const auto peer = mapa(stages, Val<u32>(std::uint32_t(to)));
        const auto turn = (rank + std::uint32_t(split_ - 1 - to)) % std::uint32_t(split_);
        const auto first = (turn * std::uint32_t(count_ / 4 * kThreads) + thread) * 4u;
        for (int i = 0; i < count_ / 4; ++i)
          peer.at(first + std::uint32_t(i * kThreads * 4))
              .template st<4>(
                  0, RegGroup<f32, 4>::generate([&](int j) { return acc[to * count_ + 4 * i + j]; }));
      });
    arrive_at_peers(wg, rank, sent_);
    record::mbarrier_wait(k_, {k_.smem_addr(0), sent_}, Val<u32>(0), /*cluster=*/true, k_.here());
    std::vector<Val<f32>> out;
    for (int i = 0; i < count_; ++i) out.push_back(mine(acc, rank, i));
    return added(out, rank, [&](int turn, int i) { return stages.at(slot(turn, i)).template ld<4>(); });
  }

 private:
  static constexpr int kWarps = BM / 16, kThreads = 32 * kWarps;

  void arrive_at_peers(Warpgroup& wg, const Val<u32>& rank, int bar) {
    auto warp = wg.warp();
    warp.sync();
    warp.one_thread([&](Thread&) {
      for (int step = 1; step < split_; ++step) {
        const auto peer = mapa(Ptr<shared, u64>(k_.smem_addr(0), bar),
                               (rank + std::uint32_t(step)) % std::uint32_t(split_));
        if (bar == free_)  // the stages were only read
          record::mbarrier_free_peer(k_, {peer.base(), 0}, k_.here());
        else
          record::mbarrier_arrive_cluster(k_, {peer.base(), 0}, k_.here());
      }
    });
  }
  // Register i of the columns that block `rank` owns.
  Val<f32> mine(const Acc<f32, 64, BN>& acc, const Val<u32>& rank, int i) const {
    std::vector<Val<f32>> v{acc[i]};
    for (int r = 1; r < split_; ++r)
      v.push_back(select(rank == Val<u32>(std::uint32_t(r)), acc[r * count_ + i], v.back()));
    return v.back();
  }
  // The sum in the order of K: of blocks 0, 1, ...; block s is this one or lies in slot (s - rank - 1) mod
  // split.
  template <class Load>
  std::vector<Val<f32>> added(const std::vector<Val<f32>>& own, const Val<u32>& rank, Load&& load) const {
    std::vector<Val<f32>> out;
    for (int i = 0; i < count_ / 4; ++i) {
      std::vector<RegGroup<f32, 4>> slots;
      for (int turn = 0; turn + 1 < split_; ++turn) slots.push_back(load(turn, i));
      for (int j = 0; j < 4; ++j) {
        const auto& here = own[std::size_t(4 * i + j)];
        // For each rank the terms come in another order: split is 2 or 4, so choose term by term.
        std::vector<Val<f32>> total;
        for (int s = 0; s < split_; ++s) {
          std::vector<Val<f32>> term{here};
          for (int r = 0; r < split_; ++r)
            if (r != s)
              term.push_back(select(rank == Val<u32>(std::uint32_t(r)),
                                    slots[std::size_t((s - r - 1 + 2 * split_) % split_)][j], term.back()));
          total.push_back(total.empty() ? term.back() : total.back() + term.back());
        }
        out.push_back(total.back());
      }
    }
    return out;
  }

  Kernel& k_;
  int split_, count_;
  int free_, sent_;  ///< mbarriers: the peers' stages are free; their sums have arrived
};

template <class T, Major MA, Major MB, int BM, int BN>
void kernel(Kernel& k, GemmTailTuning tune, typename HopperOperand<T, MA, BM>::map a_map,
            typename HopperOperand<T, MB, BN>::map b_map,
            TmaOut<StoreTile<T, BN>, 1, 64, tail_store_cols(BN)> c_map, Val<u32> k_tiles, Val<f32> alpha,
            Val<u32> rows, Val<u32> cols, Val<u32> whole, Val<u32> tiles) {
  using A = HopperOperand<T, MA, BM>;
  using B = HopperOperand<T, MB, BN>;
  constexpr int kStore = tail_store_cols(BN);
  const auto a = a_map.hint(l2_hint(tune.a));
  const auto b = b_map.hint(l2_hint(tune.b));
  const auto c = c_map.hint(l2_hint(tune.c));
  const int split = tune.split;
  if (split > 1) k.cluster(split);
  auto math = k.role<Warpgroup>(BM / 64, /*registers=*/240);
  auto load = k.role<Warpgroup>(1, /*registers=*/24);
  k.if_(k.tid() == std::uint32_t(math.threads()), [&] {
    for (const auto* map : {&a.map(), &b.map(), &c.map()})
      record::prefetch_tensormap(k, map->address, k.here());
  });
  std::optional<Exchange<BM, BN>> exchange;
  if (split > 1) exchange.emplace(k, split);
  Ring<ByThreads, typename A::tile, typename B::tile> ring(k, tune.stages, load, math);
  Staging<StoreTile<T, BN>> staging(k, math, tune.buffers);

  // Groups of `group` rows, down the columns of a group first: neighbours in time share what L2 holds.
  struct Place {
    Val<u32> batch, m0, n0;
  };
  const auto place = [&](const Val<u32>& tile) {
    const auto per_batch = rows * cols, in_batch = tile % per_batch;
    const auto per_group = cols * std::uint32_t(tune.group);
    const auto top = in_batch / per_group * std::uint32_t(tune.group), rest = in_batch % per_group;
    const auto height = dsl::min(rows - top, std::uint32_t(tune.group));
    return Place{tile / per_batch, (top + rest % height) * BM, rest / height * BN};
  };
  const auto walk = range(k.ctaid_x(), whole, k.nctaid_x());
  // The tile that this cluster shares, if there is one, and this block's part of K.
  const auto shared_tile = split > 1 ? whole + k.clusterid_x() : whole + 0u;
  const auto rank = split > 1 ? k.cluster_ctarank() : Val<u32>(0);
  const auto from = split > 1 ? k_tiles * rank / std::uint32_t(split) : k_tiles * 0u,
             to = split > 1 ? k_tiles * (rank + 1) / std::uint32_t(split) : k_tiles + 0u;

  load.one_thread([&](Thread& t) {
    const auto fill = [&](const Place& at, const auto& parts) {
      k.loop(parts, [&](Val<u32> kt) {
        ring.fill(t, A::at(a, at.batch, at.m0, kt * kHopperBk), B::at(b, at.batch, at.n0, kt * kHopperBk));
      });
    };
    k.loop(walk, [&](Val<u32> tile) { fill(place(tile), k_tiles); });
    if (split > 1) k.if_(shared_tile < tiles, [&] { fill(place(shared_tile), range(from, to)); });
  });

  math.run([&](Warpgroup& wg) {
    const auto product = [&](const Val<u32>& steps) {
      auto begun = wgmma<MA, MB>(wg, fresh<f32, 64, BN>(wg), ring.take(wg));
      auto last = k.loop(steps - 1, std::move(begun), [&](Val<u32>, auto busy) {
        return std::move(busy).template then<MA, MB>(wg, ring.take(wg));
      });
      return std::move(last).wait(wg);
    };
    const auto store = [&](PendingStore pending, const Place& where, const Val<u32>& n0, const auto& acc,
                           int width) {
      std::vector<PendingStore> turn;
      turn.push_back(std::move(pending));
      for (int col = 0; col < width; col += kStore)
        turn.push_back(staging.store(wg, std::move(turn.back()),
                                     at(c, where.batch, where.m0 + wg.index * 64, n0 + std::uint32_t(col)),
                                     [&](auto& out) { store_tile(wg, acc, out, col); }));
      return std::move(turn.back());
    };
    auto last_store = k.loop(walk, staging.idle(), [&](Val<u32> tile, PendingStore pending) {
      const auto where = place(tile);
      const auto acc = product(k_tiles).map([&](Val<f32> x) { return x * alpha; });
      return store(std::move(pending), where, where.n0, acc, BN);
    });
    if constexpr (BM == 128 && BN % 128 == 0) {
      if (split > 1)
        k.if_(shared_tile < tiles, [&] {
          const auto where = place(shared_tile);
          const auto part = product(to - from);
          auto sums = exchange->sum(wg, part, ring.template storage<f32>(k));
          const auto finish = [&](auto width) {
            constexpr int W = decltype(width)::value;
            std::vector<Value> scaled;
            for (const auto& x : sums) scaled.push_back(x * alpha);
            const Acc<f32, 64, W> acc{AccRegs(std::move(scaled))};
            store(staging.idle(), where, where.n0 + rank * std::uint32_t(W), acc, W).wait(wg);
          };
          split == 2 ? finish(std::integral_constant<int, BN / 2>{})
                     : finish(std::integral_constant<int, BN / 4>{});
        });
    }
    std::move(last_store).wait(wg);
  });
}

template <class T, Major MA, Major MB, int BM, int... BN>
void choose(Variant& v, int bn, const GemmTailTuning& t, std::integer_sequence<int, BN...>) {
  ((bn == BN ? void(v = variant(v.name, 90, kernel<T, MA, MB, BM, BN>, t)) : void()), ...);
}
template <class T, Major MA, Major MB>
Variant make(std::string name, int bm, int bn, const GemmTailTuning& t) {
  Variant v;
  v.name = std::move(name);
  // The many widths for the layouts of linear layers; for others they would be code that nobody runs.
  constexpr bool every = MA == Major::k && MB == Major::k;
  using Wide = std::integer_sequence<int, 128, 192, 256>;
  using Every = std::integer_sequence<int, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256>;
  using Low = std::integer_sequence<int, 112, 128, 144, 192, 256>;
  bm == 128 ? choose<T, MA, MB, 128>(v, bn, t, std::conditional_t<every, Every, Wide>())
            : choose<T, MA, MB, 64>(v, bn, t, std::conditional_t<every, Low, Wide>());
  v.only = "sm_90a";
  return v;
}

}  // namespace tail_split

Variant gemm_tail_split_sm90_bf16_nx(std::string name, bool trans_b, int bm, int bn, const GemmTailTuning& t);
Variant gemm_tail_split_sm90_bf16_tx(std::string name, bool trans_b, int bm, int bn, const GemmTailTuning& t);
Variant gemm_tail_split_sm90_f16_nx(std::string name, bool trans_b, int bm, int bn, const GemmTailTuning& t);
Variant gemm_tail_split_sm90_f16_tx(std::string name, bool trans_b, int bm, int bn, const GemmTailTuning& t);

}  // namespace cgp::kernels

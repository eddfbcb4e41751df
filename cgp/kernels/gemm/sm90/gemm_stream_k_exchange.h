// SPDX-License-Identifier: Apache-2.0
#pragma once
// The blocks of a cluster that split K of one tile exchange partial accumulators through distributed shared
// memory, in the ring's stages, which nobody needs any more: each block gets the columns that it owns.
#include "cgp/dsl/mma/fragment.h"
#include "cgp/dsl/pipeline/peer_signals.h"

namespace cgp::kernels::stream_k {
using namespace dsl;

/// What a thread sends is what the same thread of the other block would hold. Summands are added in the order
/// of K: the same bits every time.
template <int BM, int BN>
class StreamKExchange {
 public:
  /// Ready after the next barrier of the cluster: the ring's.
  StreamKExchange(Kernel& k, int split)
      : k_(k), split_(split), count_(BN / 2 / split), signals_(k, 2, split, kWarps) {}
  /// The accumulator of the columns that this block owns, BN / split of them from rank * BN / split on.
  /// `stages` is free in this block when all its warps are here.
  std::vector<Val<f32>> reduce(Warpgroup& wg, const Acc<f32, 64, BN>& acc, const Ptr<shared, f32>& stages) {
    const auto rank = k_.cluster_ctarank();
    signals_.send_read(wg.warp(), kStagesFree, rank);
    signals_.wait(kStagesFree);
    // Slot `turn` of the owner holds what the block `turn + 1` after it sent.
    const auto thread = k_.tid();  // the math warpgroups come first in the block
    const auto slot = [&](int step, int i) {
      return (thread + std::uint32_t((step * (count_ / 4) + i) * kThreads)) * 4u;
    };
    for (int to = 0; to < split_; ++to)
      k_.if_(rank != Val<u32>(std::uint32_t(to)), [&] {
        const auto peer = mapa(stages, Val<u32>(std::uint32_t(to)));
        const auto step = (rank + std::uint32_t(split_ - 1 - to)) % std::uint32_t(split_);
        const auto first = (step * std::uint32_t(count_ / 4 * kThreads) + thread) * 4u;
        for (int i = 0; i < count_ / 4; ++i)
          peer.at(first + std::uint32_t(i * kThreads * 4))
              .template st<4>(
                  0, RegGroup<f32, 4>::generate([&](int j) { return acc[to * count_ + 4 * i + j]; }));
      });
    signals_.send_written(wg.warp(), kSent, rank);
    signals_.wait(kSent);
    std::vector<Val<f32>> out;
    for (int i = 0; i < count_; ++i) out.push_back(owned(acc, rank, i));
    return added(out, rank, [&](int step, int i) { return stages.at(slot(step, i)).template ld<4>(); });
  }

 private:
  static constexpr int kWarps = BM / 16, kThreads = 32 * kWarps;
  static constexpr int kStagesFree = 0, kSent = 1;

  // Register i of the columns that block `rank` owns.
  Val<f32> owned(const Acc<f32, 64, BN>& acc, const Val<u32>& rank, int i) const {
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
      for (int step = 0; step + 1 < split_; ++step) slots.push_back(load(step, i));
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
  PeerSignals signals_;
};

}  // namespace cgp::kernels::stream_k

// SPDX-License-Identifier: Apache-2.0
#pragma once
// PeerSignals: one-time signals between the blocks of a cluster. A block waits for one until the warps of all
// its peers have sent it.
//   PeerSignals signals(k, 2, /*blocks=*/4, /*warps=*/8);
//   signals.send_read(warp, 0, rank);    my warp has read: your copy may be overwritten
//   signals.send_written(warp, 1, rank); what my warp wrote to your shared memory is there
//   signals.wait(0);
#include "cgp/dsl/pipeline/cluster.h"

namespace cgp::dsl {

class PeerSignals {
 public:
  /// `warps` warps of each of `blocks` blocks send. Ready after the next barrier of the cluster: a ring's.
  PeerSignals(Kernel& k, int count, int blocks, int warps, Here at = Here::now())
      : k_(k), blocks_(blocks), bars_(k.smem(8 * count, 16, at)) {
    k.if_(
        k.tid() == 0,
        [&] {
          for (int i = 0; i < count; ++i)
            record::mbarrier_init(k, {k.smem_addr(0), bars_ + 8 * i},
                                  Val<u32>(std::uint32_t(warps * (blocks - 1))), at);
        },
        at);
  }
  PeerSignals(const PeerSignals&) = delete;
  /// `rank`: of this block in its cluster. The warp has read its shared memory: asynchronous copies may overwrite it.
  void send_read(Warp w, int i, const Val<u32>& rank, Here at = Here::now()) {
    send(w, i, rank, record::mbarrier_free_peer, at);
  }
  /// What the warp wrote to its peers is visible there after their wait.
  void send_written(Warp w, int i, const Val<u32>& rank, Here at = Here::now()) {
    send(w, i, rank, record::mbarrier_arrive_cluster, at);
  }
  void wait(int i, Here at = Here::now()) {
    record::mbarrier_wait(k_, {k_.smem_addr(0), bars_ + 8 * i}, Val<u32>(0), /*cluster=*/true, at);
  }

 private:
  void send(Warp& w, int i, const Val<u32>& rank, void (*arrive)(Kernel&, const record::SharedAddress&, Here),
            Here at) {
    w.sync(at);
    w.one_thread(
        [&](Thread&) {
          for (int step = 1; step < blocks_; ++step) {
            const auto peer = mapa(Ptr<shared, u64>(k_.smem_addr(0), bars_ + 8 * i),
                                   (rank + std::uint32_t(step)) % std::uint32_t(blocks_));
            arrive(k_, {peer.base(), 0}, at);
          }
        },
        at);
  }
  Kernel& k_;
  int blocks_, bars_;
};

}  // namespace cgp::dsl

// SPDX-License-Identifier: Apache-2.0
#pragma once
// WarpRing: stages of one tile that warps fill with ordinary stores (st.shared, stmatrix), for the tensor core
// of a role to read. It is Ring with warps in place of TMA: barriers, stage, parity and counts are derived.
//   WarpRing<TileT> ring(k, stages, /*fillers=*/2, math);
//   auto stage = ring.open(w);          waits until it is free; by each of the filling warps
//   stmatrix<x4>(w, stage.tile().address() + ..., ...);
//   std::move(stage).publish(w);        the last filler's publish completes the stage
//   HeldStage<TileT> v(ring.take(wg));  by every member of the role that reads
// A stage that is opened and never published is a BuildError at the line of its open.
#include "cgp/dsl/pipeline/ring.h"

namespace cgp::dsl {

template <class TileT>
class WarpRing {
 public:
  /// `fillers` warps write each stage; every warp of `to` frees it.
  WarpRing(Kernel& k, int stages, int fillers, const Role<Warpgroup>& to, Here at = Here::now())
      : k_(k),
        data_(k.smem(TileT::bytes * stages, TileT::align, at)),
        bars_(k.smem(kPair * stages, kPair, at)),
        filling_(k, stages, 1),
        reading_(k, stages, 0),
        one_lane_(k.laneid() < 1u) {
    k.if_(
        k.tid() == 0u,
        [&] {
          for (int s = 0; s < stages; ++s) {
            record::mbarrier_init(k, {k.smem_addr(0), bars_ + kPair * s}, Val<u32>(fillers), at);
            record::mbarrier_init(k, {k.smem_addr(0), bars_ + kPair * s + 8}, Val<u32>(to.threads() / 32),
                                  at);
          }
          record::fence_mbarrier_init(k, at);
        },
        at);
    record::sync_cluster_or_block(k, at);
  }
  WarpRing(const WarpRing&) = delete;

  /// A free stage, being written by this warp.
  class [[nodiscard]] Open {
   public:
    Open(Open&& o) noexcept : ring_(std::exchange(o.ring_, nullptr)), at_(o.at_) {}
    ~Open() {
      if (ring_) ring_->k_.problem("a stage of a ring was opened but never published", at_);
    }
    SmemTile<TileT> tile() const { return SmemTile<TileT>(ring_->data(ring_->filling_)); }
    /// This warp's part is written: visible to the tensor core.
    void publish(Warp& w, Here at = Here::now()) && { std::exchange(ring_, nullptr)->publish(w, at); }

   private:
    friend class WarpRing;
    Open(WarpRing& ring, Here at) : ring_(&ring), at_(at) {}
    WarpRing* ring_;
    Here at_;
  };
  Open open(Warp& w, Here at = Here::now()) {
    w.converged("opening a stage", at);
    record::mbarrier_wait(k_, {barrier(filling_), 8}, filling_.parity(), false, at);
    return Open(*this, at);
  }
  /// Waits for a full stage.
  Filled<ByThreads, TileT> take(Warpgroup& wg, Here at = Here::now()) {
    wg.converged("ring.take", at);
    record::mbarrier_wait(k_, {barrier(reading_), 0}, reading_.parity(), false, at);
    const SmemTile<TileT> tile(data(reading_));
    record::StageToken token(barrier(reading_) + 8u, one_lane_, false, at);
    reading_.advance(at);
    return Filled<ByThreads, TileT>({tile}, std::move(token));
  }

 private:
  static constexpr int kPair = 16;  // full at +0, empty at +8
  void publish(Warp& w, Here at) {
    record::fence_proxy_async(k_, ptx::Mod::shared_cta, at);
    w.sync(at);
    k_.guarded(one_lane_, [&] { record::mbarrier_arrive(k_, {barrier(filling_), 0}, at); });
    filling_.advance(at);
  }
  Val<u32> barrier(const record::PhaseCursor& c) const {
    return k_.smem_addr(bars_) + record::times(c.stage(), kPair);
  }
  Val<u32> data(const record::PhaseCursor& c) const {
    return k_.smem_addr(data_) + record::times(c.stage(), TileT::bytes);
  }
  Kernel& k_;
  int data_, bars_;
  record::PhaseCursor filling_, reading_;
  Val<pred> one_lane_;
};

}  // namespace cgp::dsl

// SPDX-License-Identifier: Apache-2.0
#pragma once
// WorkBroadcast: one warp sends work tiles (a few numbers each) to every warp of a role, in order, through a ring of
// slots in shared memory. The producer of a persistent kernel decides which tile comes next and tells the consumers.
//   WorkBroadcast broadcast(k, /*words=*/4, /*slots=*/2, math);
//   broadcast.send(w, {row, col, ...});      by one warp
//   auto work = broadcast.receive(wg);       by every member of the role, as often as something is sent
// A slot has two mbarriers, full (the sender arrives) and empty (each receiving warp does).
#include "cgp/dsl/pipeline/ring.h"

namespace cgp::dsl {

class WorkBroadcast {
 public:
  template <class To>
  WorkBroadcast(Kernel& k, int words, int slots, const Role<To>& to, Here at = Here::now())
      : k_(k), words_((words + 3) / 4 * 4), send_(k, slots, 1), receive_(k, slots, 0) {
    k.at(at);
    k.needs_sm(90, "a work broadcast", at);
    if (words < 1 || slots < 1)
      throw BuildError("a work broadcast has at least one slot of at least one word", at,
                       text::cat(slots, " slots of ", words, " words"));
    data_ = k.smem(words_ * 4 * slots, 16, at);
    bars_ = k.smem(kPair * slots, 16, at);
    k.if_(
        k.tid() == 0,
        [&] {
          for (int s = 0; s < slots; ++s) {
            record::mbarrier_init(k, {k.smem_addr(0), bars_ + kPair * s}, Val<u32>(1), at);
            record::mbarrier_init(k, {k.smem_addr(0), bars_ + kPair * s + 8}, Val<u32>(to.threads() / 32),
                                  at);
          }
          record::fence_mbarrier_init(k, at);
        },
        at);
    record::sync_cluster_or_block(k, at);
  }
  WorkBroadcast(const WorkBroadcast&) = delete;

  /// Waits for an empty slot and writes there.
  void send(Warp& w, const std::vector<Val<u32>>& work, Here at = Here::now()) {
    check(work.size(), at);
    const auto bar = barrier(send_);
    record::mbarrier_wait(k_, {bar, 8}, send_.parity(), false, at);
    const auto to = data(send_);
    w.one_thread(
        [&](Thread&) {
          for (std::size_t i = 0; i < work.size(); ++i) to.st(int(i), work[i], at);
          record::mbarrier_arrive(k_, {bar, 0}, at);
        },
        at);
    send_.advance(at);
  }
  /// Waits for the next work tile. The same in all threads of the scope.
  template <class S>
  std::vector<Val<u32>> receive(S& scope, Here at = Here::now()) {
    scope.converged("receiving a work tile", at);
    const auto bar = barrier(receive_);
    record::mbarrier_wait(k_, {bar, 0}, receive_.parity(), false, at);
    const auto from = data(receive_);
    std::vector<Val<u32>> work;
    for (int v = 0; v < words_ / 4; ++v) {
      const auto four = from.template ld<4>(v, at);
      for (int i = 0; i < 4; ++i) work.push_back(assume_uniform(four[i], scope.over));
    }
    k_.inst(ptx::Op::bar_warp_sync, {}, {ptx::Operand::integer(-1)});
    k_.guarded(k_.laneid() == Val<u32>(0), [&] { record::mbarrier_arrive(k_, {bar, 8}, at); });
    receive_.advance(at);
    return work;
  }

 private:
  static constexpr int kPair = 16;  // full at +0, empty at +8
  void check(std::size_t n, Here at) const {
    if (n == 0 || int(n) > words_)
      throw BuildError("a work tile fits its slot", at, text::cat(n, " words, the slot has ", words_));
  }
  Val<u32> barrier(const record::PhaseCursor& c) const {
    return k_.smem_addr(bars_) + record::times(c.stage(), kPair);
  }
  Ptr<shared, u32> data(const record::PhaseCursor& c) const {
    return Ptr<shared, u32>(k_.smem_addr(data_) + record::times(c.stage(), words_ * 4));
  }
  Kernel& k_;
  int words_, data_ = 0, bars_ = 0;
  record::PhaseCursor send_, receive_;
};

}  // namespace cgp::dsl

// SPDX-License-Identifier: Apache-2.0
#pragma once
// Mailbox: letters of a few numbers from one warp to every warp of a role, in order, some of them under way
// at a time. A persistent kernel's producer decides what comes next and tells the others with it.
//   Mailbox mail(k, /*words=*/4, /*slots=*/2, math);
//   mail.send(w, {row, col, ...});        by one warp
//   auto letter = mail.receive(wg);       by every member of the role, as often as something is sent
// A slot has two mbarriers, full (the sender arrives) and empty (each receiving warp does).
#include "cgp/dsl/pipeline/ring.h"

namespace cgp::dsl {

class Mailbox {
 public:
  template <class To>
  Mailbox(Kernel& k, int words, int slots, const Role<To>& to, Here at = Here::now())
      : k_(k), words_((words + 3) / 4 * 4), send_(k, slots, 1), receive_(k, slots, 0) {
    k.at(at);
    k.needs_sm(90, "a mailbox", at);
    if (words < 1 || slots < 1)
      throw BuildError("a mailbox has slots for letters of at least one number", at,
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
  Mailbox(const Mailbox&) = delete;

  /// Waits for an empty slot and writes there.
  void send(Warp& w, const std::vector<Val<u32>>& letter, Here at = Here::now()) {
    check(letter.size(), at);
    const auto bar = barrier(send_);
    record::mbarrier_wait(k_, {bar, 8}, send_.parity(), false, at);
    const auto to = data(send_);
    w.one_thread(
        [&](Thread&) {
          for (std::size_t i = 0; i < letter.size(); ++i) to.st(int(i), letter[i], at);
          record::mbarrier_arrive(k_, {bar, 0}, at);
        },
        at);
    send_.advance(at);
  }
  /// Waits for the next letter. The same in all threads of the scope.
  template <class S>
  std::vector<Val<u32>> receive(S& scope, Here at = Here::now()) {
    scope.converged("receiving a letter", at);
    const auto bar = barrier(receive_);
    record::mbarrier_wait(k_, {bar, 0}, receive_.parity(), false, at);
    const auto from = data(receive_);
    std::vector<Val<u32>> letter;
    for (int v = 0; v < words_ / 4; ++v) {
      const auto four = from.template ld<4>(v, at);
      for (int i = 0; i < 4; ++i) letter.push_back(assume_uniform(four[i], scope.over));
    }
    k_.inst(ptx::Op::bar_warp_sync, {}, {ptx::Operand::integer(-1)});
    k_.guarded(k_.laneid() == Val<u32>(0), [&] { record::mbarrier_arrive(k_, {bar, 8}, at); });
    receive_.advance(at);
    return letter;
  }

 private:
  static constexpr int kPair = 16;  // full at +0, empty at +8
  void check(std::size_t n, Here at) const {
    if (n == 0 || int(n) > words_)
      throw BuildError("a letter fits its slot", at,
                       text::cat(n, " numbers, the slot has room for ", words_));
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

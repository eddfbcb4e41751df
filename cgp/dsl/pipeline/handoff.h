// SPDX-License-Identifier: Apache-2.0
#pragma once
// Handoff: slots of shared memory through which each warpgroup of a role hands blocks of data to one thread of
// its own, which stores them to global memory while the warpgroup goes on.
//   Handoff slots(k, members, depth, bytes, note_words);
//   auto slot = slots.open(wg);            waits until it is free; write slots.data(slot), slots.note(slot)
//   slots.send(wg, slot);
//   auto slot = slots.receive(t, member);  waits until it is sent
//   slots.next(t);                         the next receive is of the slot behind it
//   slots.free(t, slot);                   it may be opened again: now, or some slots later
// BulkStores: asynchronous bulk stores and additions of one thread, which must be waited for.
#include "cgp/dsl/pipeline/ring.h"
#include "cgp/dsl/sync/sync.h"

namespace cgp::dsl {

class Handoff {
 public:
  struct Slot {
    Val<u32> index;
  };
  /// `depth` slots for each of `members` warpgroups: `bytes` of data, `note_words` numbers beside them.
  Handoff(Kernel& k, int members, int depth, int bytes, int note_words, Here at = Here::now())
      : k_(k),
        depth_(depth),
        bytes_(bytes),
        note_bytes_((note_words * 4 + 15) / 16 * 16),
        data_(k.smem(members * depth * bytes, 128, at)),
        notes_(k.smem(members * depth * note_bytes_, 16, at)),
        bars_(k.smem(members * depth * kPair, 16, at)),
        send_(k, depth, 1),
        receive_(k, depth, 0) {
    k.if_(
        k.tid() == 0u,
        [&] {
          for (int i = 0; i < members * depth; ++i) {
            record::mbarrier_init(k, {k.smem_addr(0), bars_ + kPair * i}, Val<u32>(Warpgroup::warps), at);
            record::mbarrier_init(k, {k.smem_addr(0), bars_ + kPair * i + 8}, Val<u32>(1), at);
          }
          record::fence_mbarrier_init(k, at);
        },
        at);
    record::sync_cluster_or_block(k, at);
  }
  Handoff(const Handoff&) = delete;

  Slot open(Warpgroup& wg, Here at = Here::now()) {
    wg.converged("opening a slot", at);
    const Slot slot = slot_of(send_, wg.index);
    record::mbarrier_wait(k_, {barriers(slot), 8}, send_.parity(), false, at);
    return slot;
  }
  Ptr<shared, f32> data(const Slot& slot, const Val<u32>& byte) const {
    return Ptr<shared, f32>(address(slot) + byte);
  }
  Ptr<shared, f32> data(const Slot& slot) const { return Ptr<shared, f32>(address(slot)); }
  Ptr<shared, u32> note(const Slot& slot) const {
    return Ptr<shared, u32>(k_.smem_addr(notes_) + slot.index * std::uint32_t(note_bytes_));
  }
  /// What the warpgroup wrote is visible to asynchronous copies of the receiving thread.
  void send(Warpgroup& wg, const Slot& slot, Here at = Here::now()) {
    wg.converged("sending a slot", at);
    fence_async_shared(k_, at);
    k_.inst(ptx::Op::bar_warp_sync, {}, {ptx::Operand::integer(-1)});
    k_.guarded(k_.laneid() == 0u, [&] { record::mbarrier_arrive(k_, {barriers(slot), 0}, at); });
    send_.advance(at);
  }

  /// The slot that the next receive waits for.
  Slot current(Thread&, const Val<u32>& member) const { return slot_of(receive_, member); }
  Slot receive(Thread&, const Val<u32>& member, Here at = Here::now()) {
    const Slot slot = slot_of(receive_, member);
    record::mbarrier_wait(k_, {barriers(slot), 0}, receive_.parity(), false, at);
    return slot;
  }
  void next(Thread&, Here at = Here::now()) { receive_.advance(at); }
  void free(Thread&, const Slot& slot, Here at = Here::now()) {
    record::mbarrier_arrive(k_, {barriers(slot), 8}, at);
  }

 private:
  static constexpr int kPair = 16;  // full at +0, empty at +8
  Slot slot_of(const record::PhaseCursor& c, const Val<u32>& member) const {
    return {member * std::uint32_t(depth_) + c.stage()};
  }
  Val<u32> barriers(const Slot& s) const { return k_.smem_addr(bars_) + s.index * std::uint32_t(kPair); }
  Val<u32> address(const Slot& s) const { return k_.smem_addr(data_) + s.index * std::uint32_t(bytes_); }

  Kernel& k_;
  int depth_, bytes_, note_bytes_, data_, notes_, bars_;
  record::PhaseCursor send_, receive_;
};

/// Each store or addition is a group of its own; groups complete in order.
class BulkStores {
 public:
  explicit BulkStores(Thread& t, Here at = Here::now()) : k_(t.k), at_(at) {}
  BulkStores(const BulkStores&) = delete;
  ~BulkStores() {
    if (pending_)
      k_.problem("bulk stores were issued but never waited for", at_, "call wait() before the thread ends");
  }
  /// `bytes`: a multiple of 16, as both addresses.
  template <class T>
  void store(const Ptr<global, T>& to, const Ptr<shared, T>& from, const Val<u32>& bytes,
             Here at = Here::now()) {
    issue(to, from, bytes, record::StoreOp::store, at);
  }
  /// to[i] += from[i].
  template <class T>
  void add(const Ptr<global, T>& to, const Ptr<shared, T>& from, const Val<u32>& bytes,
           Here at = Here::now()) {
    issue(to, from, bytes, record::StoreOp::add, at);
  }
  /// All but the last `but` groups have read shared memory.
  void wait_read(int but = 0, Here at = Here::now()) { record::bulk_wait(k_, but, true, at); }
  /// All groups are done; what they wrote is visible to this thread.
  void wait(Here at = Here::now()) {
    record::bulk_wait(k_, 0, false, at);
    pending_ = false;
  }

 private:
  template <class T>
  void issue(const Ptr<global, T>& to, const Ptr<shared, T>& from, const Val<u32>& bytes, record::StoreOp op,
             Here at) {
    record::bulk_store(k_, {to.base(), to.offset()}, {from.base(), int(from.offset())}, bytes, op, T::mod,
                       L2Hint::none, at);
    record::bulk_commit(k_, at);
    pending_ = true;
  }
  Kernel& k_;
  Here at_;
  bool pending_ = false;
};

}  // namespace cgp::dsl

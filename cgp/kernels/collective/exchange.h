// SPDX-License-Identifier: Apache-2.0
#pragma once
// What kernels of a Communicator's ranks do to exchange data; the memory that they use is the Communicator's.
//   Exchange     staging memory that peers read, and signals between blocks
//   Flags        one for each tile that a rank hands to another
//   LowLatency   single f32, each with its call's number in one word of 8 bytes: what NCCL calls the LL protocol. One way
//                across the link, no fence, 8 bytes for 4
// All hold the number of the call, which the devices count: nothing is ever reset, and graphs may be replayed. Two slots
// take turns: whoever has heard of call e + 1 from a rank knows that the rank's launch of call e has ended.
#include "cgp/dsl/kernel.h"
#include "cgp/kernels/collective/communicator.h"

namespace cgp::kernels {

inline constexpr std::uint32_t kExchangeBlocks = 64;  ///< blocks of a launch that may signal
inline constexpr int kExchangePhases = 2;
/// f32 that a rank may send in one call.
inline constexpr std::uint64_t kLowLatencyElements = 256 << 10;

/// Communicator::table(): addresses of each rank's memory.
enum TableWord : std::uint32_t {
  kStagingTable,
  kSignalTable = kStagingTable + kMostRanks,
  kLowLatencyTable = kSignalTable + kMostRanks,
  kFlagTable = kLowLatencyTable + kMostRanks,
  kTableWords = kFlagTable + kMostRanks
};
/// Flags that each rank may set in the memory of another in one launch; they hold the call's number.
inline constexpr std::uint32_t kFlags = 8192;
/// Words of a rank's signals: of each way of exchange the calls and the blocks that have ended.
enum SignalWord : std::uint32_t {
  kExchangeCall,
  kExchangeDone,
  kLowLatencyCall,
  kLowLatencyDone,
  kFlagCall,
  kFlagDone,
  kSignals,
  kSignalWords = kSignals + kExchangePhases * kExchangeBlocks * kMostRanks
};

/// The number of the call that runs, from 1 on.
class CallNumber {
 public:
  CallNumber(dsl::Kernel& k, const dsl::In<dsl::u64>& table, const dsl::Val<dsl::u32>& rank, SignalWord call,
             SignalWord done)
      : k_(k),
        own_(table.ld(rank + std::uint32_t(kSignalTable))),
        call_word_(call),
        done_word_(done),
        now_(own_.ld(int(call)) + 1u) {}
  const dsl::Val<dsl::u32>& now() const { return now_; }
  const dsl::Ptr<dsl::global, dsl::u32>& own() const { return own_; }
  /// By all threads of each block, at its end: the last block of the launch counts the call.
  void end() const {
    k_.sync();
    k_.if_(k_.tid() == 0u, [&] {
      const auto before = dsl::atom<dsl::acq_rel, dsl::gpu, dsl::op::add>(own_, int(done_word_), 1u);
      k_.if_(before == k_.nctaid_x() - 1u, [&] {
        own_.st(int(done_word_), 0u);
        own_.st(int(call_word_), now_);
      });
    });
  }

 private:
  dsl::Kernel& k_;
  dsl::Ptr<dsl::global, dsl::u32> own_;
  SignalWord call_word_, done_word_;
  dsl::Val<dsl::u32> now_;
};

class Exchange {
 public:
  Exchange(dsl::Kernel& k, int ranks, const dsl::In<dsl::u64>& table, const dsl::Val<dsl::u32>& rank)
      : k_(k),
        ranks_(ranks),
        table_(table),
        rank_(rank),
        call_(k, table, rank, kExchangeCall, kExchangeDone) {}

  /// A rank's staging memory in this call; `slot`: bytes of it.
  dsl::Ptr<dsl::global, dsl::b8> staging(const dsl::Val<dsl::u32>& rank,
                                         const dsl::Val<dsl::u64>& slot) const {
    return dsl::Ptr<dsl::global, dsl::b8>(table_.ld(rank + std::uint32_t(kStagingTable)))
        .at(dsl::to<dsl::u64>(call_.now() & 1u) * slot);
  }
  /// What this block wrote so far is there for the same block of all ranks, and theirs for this one.
  void signal_and_wait(int phase) const {
    using namespace dsl;
    k_.sync();
    k_.if_(k_.tid() < std::uint32_t(ranks_), [&] {
      const auto first = (k_.ctaid_x() + std::uint32_t(phase) * kExchangeBlocks) * std::uint32_t(kMostRanks) +
                         std::uint32_t(kSignals);
      const Ptr<global, u32> peer(table_.ld(k_.tid() + std::uint32_t(kSignalTable)));
      peer.template st<release, sys>(first + rank_, call_.now());
      const auto poll = [&] { return call_.own().template ld<acquire, sys>(first + k_.tid()); };
      (void)k_.while_(
          poll(), [&](const Val<u32>& seen) { return bits<s32>(seen - call_.now()) < 0; },
          [&](const Val<u32>&) { return poll(); });
    });
    k_.sync();
  }
  void end() const { call_.end(); }

 private:
  dsl::Kernel& k_;
  int ranks_;
  dsl::In<dsl::u64> table_;
  dsl::Val<dsl::u32> rank_;
  CallNumber call_;
};

/// Flags for what is handed over tile by tile.
class Flags {
 public:
  Flags(dsl::Kernel& k, const dsl::In<dsl::u64>& table, const dsl::Val<dsl::u32>& rank)
      : k_(k), table_(table), rank_(rank), call_(k, table, rank, kFlagCall, kFlagDone) {}
  const dsl::Val<dsl::u32>& call() const { return call_.now(); }
  /// This rank's flag in the memory of `peer`, to give to set() on another thread or later.
  dsl::Val<dsl::u64> address(const dsl::Val<dsl::u32>& peer, const dsl::Val<dsl::u32>& flag) const {
    return table_.ld(peer + std::uint32_t(kFlagTable)) + dsl::to<dsl::u64>(rank_ * kFlags + flag) * 4u;
  }
  /// By one thread, behind a barrier of those that wrote what the flag stands for.
  void set(const dsl::Val<dsl::u64>& address) const {
    dsl::Ptr<dsl::global, dsl::u32>(address).template st<dsl::release, dsl::sys>(0, call_.now());
  }
  /// What the calling thread reads from now on is what `peer` wrote before it set its flag here.
  void wait(const dsl::Val<dsl::u32>& peer, const dsl::Val<dsl::u32>& flag) const {
    using namespace dsl;
    const Ptr<global, u32> own(table_.ld(rank_ + std::uint32_t(kFlagTable)));
    const auto poll = [&] { return own.template ld<acquire, sys>(peer * kFlags + flag); };
    (void)k_.while_(
        poll(), [&](const Val<u32>& seen) { return bits<s32>(seen - call_.now()) < 0; },
        [&](const Val<u32>&) { return poll(); });
  }
  void end() const { call_.end(); }

 private:
  dsl::Kernel& k_;
  dsl::In<dsl::u64> table_;
  dsl::Val<dsl::u32> rank_;
  CallNumber call_;
};

class LowLatency {
 public:
  /// Not before the work queued before this launch has ended (griddepcontrol.wait): it may be the call before.
  LowLatency(dsl::Kernel& k, int ranks, const dsl::In<dsl::u64>& table, const dsl::Val<dsl::u32>& rank)
      : k_(k),
        ranks_(ranks),
        table_(table),
        rank_(rank),
        call_(k, table, rank, kLowLatencyCall, kLowLatencyDone) {}

  /// The sum of `value` over the ranks, in their order, for threads with `there`; `element` is one of this call's
  /// kLowLatencyElements, each used once.
  dsl::Val<dsl::f32> sum(const dsl::Val<dsl::f32>& value, const dsl::Val<dsl::u32>& element,
                         const dsl::Val<dsl::pred>& there) const {
    using namespace dsl;
    const auto slot = (call_.now() & 1u) * std::uint32_t(ranks_);
    const auto place = [&](const Val<u32>& from) {
      return to<u64>(slot + from) * kLowLatencyElements + to<u64>(element);
    };
    const auto memory = [&](const Val<u32>& of) {
      return Ptr<global, u64>(table_.ld(of + std::uint32_t(kLowLatencyTable)));
    };
    return k_.if_(
        there,
        [&] {
          const auto word = to<u64>(bits<u32>(value)) | to<u64>(call_.now()) << 32u;
          for (int q = 0; q < ranks_; ++q) {
            const Val<u32> peer{std::uint32_t(q)};
            k_.if_(peer != rank_, [&] { memory(peer).template st<relaxed, sys>(place(rank_), word); });
          }
          std::vector<Val<f32>> total;
          for (int q = 0; q < ranks_; ++q) {
            const Val<u32> peer{std::uint32_t(q)};
            const auto poll = [&] { return memory(rank_).template ld<relaxed, sys>(place(peer)); };
            const auto got = k_.if_(
                peer == rank_, [&] { return word; },
                [&] {
                  return k_.while_(
                      poll(), [&](const Val<u64>& seen) { return to<u32>(seen >> 32u) != call_.now(); },
                      [&](const Val<u64>&) { return poll(); });
                });
            const auto of_peer = bits<f32>(to<u32>(got));
            total.push_back(q ? total.back() + of_peer : of_peer);
          }
          return total.back();
        },
        [&] { return Val<f32>(0); });
  }
  void end() const { call_.end(); }

 private:
  dsl::Kernel& k_;
  int ranks_;
  dsl::In<dsl::u64> table_;
  dsl::Val<dsl::u32> rank_;
  CallNumber call_;
};

}  // namespace cgp::kernels

// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the asynchronous families share: who issued an operation, the two kinds of groups (cp.async per
// thread, bulk per thread) and how an operation reports its end.
#include "cgp/emu/async/mbarrier.h"
#include "cgp/emu/core/machine.h"
#include "cgp/emu/race/race.h"

namespace cgp::emu {

/// The issuing instruction and thread; stays valid until the cluster is gone.
struct Issuer {
  Warp* warp = nullptr;
  const Op* op = nullptr;
  int lane = 0;
};

/// How a bulk operation tells that it is done: complete_tx on mbarriers, or its thread's bulk group.
struct Completion {
  std::vector<SharedPlace> barriers;  ///< one per destination CTA
  std::uint64_t bytes = 0;            ///< credited to each
  std::vector<race::Agent> agents;    ///< per barrier: who signals, for the race detector
  race::ReleasedPtr released;         ///< what the issuing thread knew
  void signal(const Issuer& by) const;
};

/// One arrival of an asynchronous operation on an mbarrier, with what was `released` to it; none on a broken
/// one.
void arrive_for(const Issuer& by, const SharedPlace& barrier, const race::ReleasedPtr& released);

/// A bulk operation (cp.async.bulk*, cp.reduce.async.bulk*): one issuing thread.
struct BulkOp : AsyncOp {
  Issuer by;
  bool grouped = false;      ///< completes through bulk groups
  std::uint64_t number = 0;  ///< the group it belongs to
  Completion completion;
  void complete() final;
  virtual void write() = 0;  ///< writes the destination
};

/// Groups committed so far by each lane, for cp.async and for bulk operations. Of the latter also the last
/// operation that reads shared memory, one more than its group's number, and how many groups' sources the
/// lane has waited for.
struct GroupState {
  std::array<std::uint64_t, kLanes> copies{}, bulk{}, bulk_source{}, bulk_read{};
  std::array<const Op*, kLanes> bulk_source_op{};
};
inline GroupState& groups(Warp& w) { return state_of<GroupState>(w, std::uint32_t(ptx::Family::async)); }

/// For the race detector, at issue: the operation reads and writes [address, address + bytes). Call begin()
/// first; writes name the destination (index of the mbarrier).
class BulkRace {
 public:
  explicit BulkRace(BulkOp& op);
  void read(Where where, std::uint64_t address, std::uint64_t bytes) const;
  void write(std::size_t destination, Where where, std::uint64_t address, std::uint64_t bytes,
             race::Use use = race::Use::write) const;

 private:
  BulkOp& op_;
  race::Agent reader_, writer_;
};

/// A block has ended: its memory may be another's, but a bulk store that nobody waited for may still read it.
void check_bulk_sources_at_exit(Cta& cta);

/// Gives the operation its group (when grouped) and hands it to the policy.
void submit_bulk(std::unique_ptr<BulkOp> op);

/// The lanes of `active` but for those that issue what an earlier one does: same(earlier, lane). Stores that a
/// whole warp issues with equal operands are one store (ptxas emits one for the warp); reductions are not.
template <class Same>
Mask distinct_stores(Mask active, Same&& same) {
  Mask distinct = 0;
  for_lanes(active, [&](int lane) {
    bool repeats = false;
    for_lanes(distinct, [&](int earlier) { repeats = repeats || same(earlier, lane); });
    if (!repeats) distinct |= lane_bit(lane);
  });
  return distinct;
}

/// Shared or global bytes of a bulk operation, resolved for later use.
struct BulkRange {
  std::byte* host = nullptr;
  Where where = Where::generic;
  std::uint64_t address = 0;
};

/// Bytes and 32-byte sectors that a bulk operation moves to or from global memory.
void count_bulk(Warp& w, const Op& op, bool store, std::uint64_t address, std::uint64_t bytes);

/// The destination and source spaces of "cp.async.bulk.DST.SRC": the first two space modifiers.
struct BulkSpaces {
  Where destination = Where::generic, source = Where::generic;
};
BulkSpaces bulk_spaces(Decoder& d, const ptx::Inst& i);

/// One element-wise reduction of cp.reduce.async.bulk*: to[i] = to[i] OP from[i].
enum class Reduce : std::uint8_t { add, min, max, inc, dec, and_, or_, xor_ };
Reduce reduce_of(Decoder& d, const ptx::Inst& i);
using ReduceFn = void (*)(Reduce, std::byte* to, const std::byte* from, std::size_t count);
/// nullptr when the type has no such reduction.
ReduceFn reduce_function(ptx::Mod type, Reduce r);

}  // namespace cgp::emu

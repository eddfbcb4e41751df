// SPDX-License-Identifier: Apache-2.0
#pragma once
// Races on Tensor Memory: which asynchronous operation touched which columns, and whether the next one knows
// of its end. Parties are the tensor unit (in order), and the loads and the stores of each warp.
#include "cgp/emu/race/race.h"

namespace cgp::emu::race {

/// Units for unit_agent(): the loads and the stores of warp 0 and on.
inline constexpr std::uint32_t kTensorLoads = 128, kTensorStores = 160;

struct TensorRange {
  int lane = 0, lanes = 128, column = 0, columns = 0;
};
/// `lane` of `w` issues on behalf of its thread; an empty agent is the thread itself (tcgen05.dealloc).
void tensor_access(Warp& w, const Op& op, int lane, Agent agent, Cta& cta, const TensorRange& r, Use use);
/// tcgen05.fence::after_thread_sync, or ::before_thread_sync, by the active lanes. What another thread's
/// operation did (or the own one's, when an mbarrier told of its end) may be relied on by operations behind
/// an `after` fence, and where nothing but a wait ended it (ld, st) if a `before` fence of its warp followed.
/// PTX ISA 9.7.16.6. Not needed by operations that follow each other in one unit, for what the warp's own
/// tcgen05.wait ended, and by dealloc.
void tensor_fence(Warp& w, bool after);
/// Columns that were allocated: what an earlier owner did there is ordered by the allocator.
void tensor_allocated(Cta& cta, int column, int columns);

}  // namespace cgp::emu::race

// SPDX-License-Identifier: Apache-2.0
#pragma once
// Shared memory of a block of the cluster that others still use when it exits. An access after the exit is
// found where it happens; this finds the ones that came first by luck: the block exits although the other
// block has done nothing since its access that could tell of its end, or although it has not looked since.
#include "cgp/emu/core/machine.h"

namespace cgp::emu {

/// Warp `w` has read or written [address, address + bytes) of `owner`, a block of its cluster.
void note_remote_access(Warp& w, const Op& op, Cta& owner, int lane, std::uint32_t offset);
/// Something that another block may wait for: a cluster barrier arrival, an arrival or a copy on another
/// block's mbarrier, a strong store, an atomic, a fence.
void note_release(Warp& w);
/// Something by which a block may have learned of another's: a cluster barrier or an mbarrier waited for, a
/// strong load, an atomic.
void note_acquire(Warp& w);
/// All threads of `cta` have exited.
void check_remote_accesses(Cta& cta);

}  // namespace cgp::emu

// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where a bulk operation writes in shared memory: one place, or the same offset in every CTA of a multicast.
#include <vector>

#include "cgp/emu/async/mbarrier.h"

namespace cgp::emu {

/// The CTA mask operand of `lane` (0 without one), checked against the cluster's size.
Mask multicast_ranks(Warp& w, const Op& op, Loc mask, int lane);
/// The shared places that `address` means: itself, or its offset in each CTA of `ranks`.
std::vector<SharedPlace> destinations(Warp& w, const Op& op, Where where, std::uint64_t address, Mask ranks,
                                      int lane);
/// The .shared::cluster address of a place.
std::uint64_t cluster_address(const SharedPlace& p);

}  // namespace cgp::emu

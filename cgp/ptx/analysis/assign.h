// SPDX-License-Identifier: Apache-2.0
#pragma once
// Numbers of registers for a chain of operations, as ptxas gives them out where nothing is short. Part of the
// register estimate.
#include "cgp/ptx/analysis/schedule.h"

namespace cgp::ptx {

/// One more than the highest register that the operations take in this order. Each takes the lowest free
/// number, except that
///   * register 1 is the stack pointer;
///   * pairs begin at even numbers, what a vector of four loads at multiples of four;
///   * what is stored beside a 64-bit address, and the number that is scaled and added to one, lies in an odd
///     register: the pair's low half is in the other bank;
///   * a memory instruction keeps what it reads for some operations more, since the hardware takes it late;
///     only its own result may have the place, and that of a load from shared memory may not.
int assigned_registers(const std::vector<Operation>& ops, const std::vector<std::uint32_t>& order,
                       const BlockValues& v);

}  // namespace cgp::ptx

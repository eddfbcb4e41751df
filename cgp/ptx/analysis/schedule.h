// SPDX-License-Identifier: Apache-2.0
#pragma once
// A list schedule of a basic block, as a compiler for a GPU makes it: the operation with the longest way to
// the block's end first, until too many values are live. Used by the register estimate.
#include <cstdint>
#include <utility>
#include <vector>

#include "cgp/ptx/module.h"

namespace cgp::ptx {

/// Index of a value that takes registers; the caller numbers them.
using LiveId = std::uint32_t;

struct Operation {
  const Inst* inst = nullptr;
  std::vector<LiveId> reads, writes;
  /// The write of a guarded instruction: threads without the guard keep the old content.
  bool partial = false;
};

struct BlockValues {
  std::vector<LiveId> in, out;  ///< live before and after the block, without duplicates
  std::vector<int> size;        ///< 32-bit registers of each value
};

/// Most registers live at once when the operations run in this order.
int most_live(const std::vector<Operation>& ops, const std::vector<std::uint32_t>& order,
              const BlockValues& v);

/// The same, when a store, an atomic or an exchange between lanes keeps what it reads for `held` operations
/// more: it takes its sources some time after its issue.
int most_live_held(const std::vector<Operation>& ops, const std::vector<std::uint32_t>& order,
                   const BlockValues& v, int held);

/// The order in which they run: dependences of values and memory are kept. From `target` live registers on,
/// what frees most goes first.
std::vector<std::uint32_t> schedule(const std::vector<Operation>& ops, const BlockValues& v, int target);

}  // namespace cgp::ptx

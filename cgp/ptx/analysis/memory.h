// SPDX-License-Identifier: Apache-2.0
#pragma once
// What each memory access costs, from the addresses of its lanes alone: 32-byte sectors of global memory, and
// passes and bank conflicts of shared memory (the rules are those of docs/emulator.md, "Counters").
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cgp/ptx/analysis/spaces.h"
#include "cgp/ptx/analysis/values.h"

namespace cgp::ptx {

enum class AccessKind : std::uint8_t { load, store, atomic, matrix };

// ---------------------------------------------------------------- of given addresses
/// Distinct 32-byte sectors.
std::uint32_t sectors_of(const std::vector<std::uint64_t>& addresses, std::uint32_t bytes);
struct BankCost {
  std::uint32_t passes = 0, conflicts = 0;  ///< conflicts: passes beyond one per group of lanes
};
/// `lanes[k]` is the lane of address k (groups are made of lanes).
BankCost banks_of(const std::vector<std::uint64_t>& addresses, const std::vector<int>& lanes, AccessKind kind,
                  std::uint32_t bytes);

// ---------------------------------------------------------------- of a program
/// One warp of the block, with all its lanes that no known condition excludes.
struct WarpCost {
  std::uint32_t warp = 0, lanes = 0;
  std::uint32_t sectors = 0;  ///< global
  BankCost banks;             ///< shared
};

struct MemoryAccess {
  std::uint32_t inst = 0;
  Space space = Space::generic;  ///< global or shared when it is known
  AccessKind kind = AccessKind::load;
  std::uint32_t bytes = 0;  ///< of one lane
  LinearForm address;
  /// Cost of every warp that has lanes here; absent when it is not known, and `why` says why.
  std::optional<std::vector<WarpCost>> warps;
  std::string why;
  /// When the alignment alone is open: sectors of a warp at best and at worst.
  std::uint32_t least_sectors = 0, most_sectors = 0;
  /// The lanes are exactly these whenever the warp comes; otherwise a condition that is not known may
  /// exclude some, and the costs are those of all.
  bool all_lanes = false;
  bool misaligned = false;  ///< whatever the symbols are, some lane's address is no multiple of `bytes`
  std::uint64_t total_lanes() const;
  std::uint64_t total_sectors() const;
  BankCost total_banks() const;
};
/// Loads, stores, atomics, cp.async and matrix loads of global and shared memory, in program order.
std::vector<MemoryAccess> memory_accesses(const ThreadValues& v, const Pointers& p);

}  // namespace cgp::ptx

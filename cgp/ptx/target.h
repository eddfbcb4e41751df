// SPDX-License-Identifier: Apache-2.0
#pragma once
// GPU targets: names ("sm_90a"), which .version knows them, which PTX runs where, and the limits of each
// chip.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cgp/ptx/module.h"

namespace cgp::ptx {

/// sm_90a is {90, 'a'}: code for exactly this chip; sm_100f is {100, 'f'}: code for its family; plain targets
/// have suffix 0 and run on everything newer.
struct Target {
  int sm = 0;
  char suffix = 0;
  friend bool operator==(const Target&, const Target&) = default;
};
std::optional<Target> parse_target(std::string_view name);
std::string name(Target t);

/// Every target that we know, oldest first, with the lowest .version that may name it (ptxas 13.0).
struct KnownTarget {
  Target target;
  Version since;
};
const std::vector<KnownTarget>& known_targets();
std::optional<Version> lowest_version(Target t);
/// Highest .version that we know.
inline constexpr Version kNewestVersion{9, 0};
/// True for the versions that exist (6.5 is followed by 7.0).
bool version_exists(Version v);

/// May a module with `.target module` be loaded on a chip `device` (PTX ISA, ".target")?
bool runs_on(Target module, Target device);

/// A condition on targets in the instruction table: "90" is sm_90 and everything newer, "90a" exactly sm_90a,
/// "100f" the a and f targets of the family of sm_100, "30-69" a range.
struct TargetCondition {
  int sm = 0;
  char suffix = 0;
  int last = 0;  ///< of a range; 0 = open
};
bool satisfies(Target t, const TargetCondition& c);
std::string name(const TargetCondition& c);

/// Limits of one chip (CUDA C++ Programming Guide, "Compute Capabilities").
struct ChipLimits {
  int sm = 0;
  int warps_per_sm = 0, blocks_per_sm = 0;
  int registers_per_sm = 65536, registers_per_thread = 255;
  int register_granularity = 256;      ///< registers are given to warps in units of this many
  int warp_granularity = 4;            ///< warps are placed on this many sub-partitions
  std::uint32_t shared_per_sm = 0;     ///< bytes, including the reserve of each block
  std::uint32_t shared_per_block = 0;  ///< bytes that one block may ask for (opt-in)
  std::uint32_t shared_reserved = 0;   ///< bytes that the system takes of each block
  std::uint32_t shared_granularity = 128;
  int threads_per_block = 1024;
};
/// Null when the chip is not in the table.
const ChipLimits* chip_limits(int sm);

}  // namespace cgp::ptx

// SPDX-License-Identifier: Apache-2.0
#pragma once
// Lines of 32 words that whole warps access together: the race detector remembers such a row as one entry
// instead of one per word, until an access of another kind needs the words. What it then writes down (settle)
// is what the accesses would have left in the words, so that findings do not depend on it.
#include "cgp/emu/race/race_clock.h"

namespace cgp::emu::race {

inline constexpr std::uint32_t kLineBytes = 128, kLineWords = 32;
/// A page whose lines had to be settled so often is kept in words.
inline constexpr std::uint32_t kSettleOften = 64;

/// Word k of a line belongs to lane (first + (k >> shift)) mod 32 ^ turn.
struct LaneMap {
  std::uint8_t shift = 0, first = 0, turn = 0;
  std::uint32_t lane(std::uint32_t k) const { return ((first + (k >> shift)) & 31) ^ turn; }
  friend bool operator==(const LaneMap&, const LaneMap&) = default;
};

/// What a whole warp last did to a line.
struct RowMark {
  std::uint32_t clock = 0;  ///< 0: nothing
  std::uint32_t inst = 0;
  std::uint32_t cluster = 0;  ///< + 1; of accesses to global memory
  std::uint16_t warp = 0;
  LaneMap map;
  Stamp stamp(std::uint32_t k) const {
    return clock ? make_stamp(clock, std::uint32_t(warp) << 5 | map.lane(k), inst) : 0;
  }
};

/// A warp whose lanes all access plainly and know the same.
struct RowParty {
  std::uint32_t base = 0;    ///< the own block is known up to it
  std::uint32_t synced = 0;  ///< the own warp is
  std::uint32_t clock = 0, inst = 0, cluster = 0, warp = 0, rank = 0;
  RowMark mark(LaneMap map) const { return {clock, inst, cluster, std::uint16_t(warp), map}; }
};

/// Whether what `m` says is of the own block and certain to happen before the access of all lanes.
inline bool ordered(const RowParty& p, const RowMark& m, LaneMap map) {
  if (!m.clock) return true;
  if (m.clock <= p.base && m.warp / kWarpsPerCta == p.rank) return true;
  return m.warp == p.warp && (m.clock <= p.synced || m.map == map);
}

/// Bits of the lines that `bytes` at `offset` of a page touch.
inline std::uint32_t lines_of(std::uint32_t offset, std::uint32_t bytes) {
  const std::uint32_t first = offset / kLineBytes, last = (offset + bytes - 1) / kLineBytes;
  return (~0u << first) & (~0u >> (31 - last));
}

}  // namespace cgp::emu::race

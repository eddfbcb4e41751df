// SPDX-License-Identifier: Apache-2.0
#pragma once
// The common case of the race detector's shadows as loops over consecutive units, compiled for any machine
// and for AVX-512 (handlers.h explains the pair).
#include <cstdint>

namespace cgp::emu::race {

/// A run of units: unit k belongs to lane first_lane + (k >> shift).
struct LaneRun {
  std::uint64_t limit = 0;       ///< stamps of the own block below it are ordered before
  std::uint64_t read_limit = 0;  ///< the same for read summaries of shared memory; 0 for others' memory
  std::uint64_t rank = 0, warp = 0, synced = 0, clock = 0;
  std::uint64_t thread = 0, party = 0;  ///< of lane 0
  std::uint64_t lane_step = 1;          ///< parties per lane: 0 for one agent
  std::uint64_t first_lane = 0, shift = 0;
  std::uint64_t inst = 0, group_bit = 0;
  std::uint32_t me = 0;  ///< cluster + 1
};

// All return false, and change nothing, when a unit needs a closer look.
#define CGP_EMU_RACE_LANES                                                                                    \
  bool shared_read(const LaneRun& p, const std::uint64_t* write, std::uint64_t* reads, std::uint64_t* seen,   \
                   std::uint32_t* inst, std::uint32_t n);                                                     \
  bool shared_write(const LaneRun& p, std::uint64_t* write, std::uint64_t* reads, std::uint32_t n);           \
  /* lane k accesses unit at[k], one of its own */                                                            \
  bool shared_read_at(const LaneRun& p, const std::uint64_t* write, std::uint64_t* reads,                     \
                      std::uint64_t* seen, std::uint32_t* inst, const std::uint32_t* at);                     \
  bool shared_write_at(const LaneRun& p, std::uint64_t* write, std::uint64_t* reads,                          \
                       const std::uint32_t* at);                                                              \
  /* Distinct offsets from `base` below `size`, multiples of `bytes`, of the lanes of `mask`, and the lanes \
     of each; returns how many, and in `mask` whose they are. */ \
  std::uint32_t group_lanes(const std::uint32_t* offset, std::uint32_t base, std::uint32_t size,              \
                            std::uint32_t bytes, std::uint32_t& mask, std::uint32_t* distinct,                \
                            std::uint32_t* lanes);                                                            \
  /* Whether offset[k] - offset[0] are apart[k]. */                                                           \
  bool apart_by(const std::uint32_t* offset, const std::uint32_t* apart);                                     \
  /* unit at[k], one of its own, is read by lanes[k] */                                                       \
  bool shared_read_by(const LaneRun& p, const std::uint64_t* write, std::uint64_t* reads,                     \
                      std::uint64_t* seen, std::uint32_t* inst, const std::uint32_t* at,                      \
                      const std::uint32_t* lanes, std::uint32_t n);                                           \
  /* write may be nullptr: nothing was written; older may be nullptr while nothing needs it */                \
  bool global_read(const LaneRun& p, const std::uint64_t* write, const std::uint32_t* writer,                 \
                   std::uint64_t* read, std::uint32_t* reader, std::uint64_t* older,                          \
                   std::uint32_t* older_reader, std::uint32_t n);                                             \
  bool global_write(const LaneRun& p, std::uint64_t* write, std::uint32_t* writer, std::uint64_t* read,       \
                    const std::uint32_t* reader, std::uint64_t* older, const std::uint32_t* older_reader,     \
                    std::uint32_t n);
}  // namespace cgp::emu::race
namespace cgp::emu {
namespace isa_portable {
using race::LaneRun;
CGP_EMU_RACE_LANES
}  // namespace isa_portable
#if defined(CGP_EMU_PORTABLE_ONLY)
namespace isa_avx512 = isa_portable;
#else
namespace isa_avx512 {
using race::LaneRun;
CGP_EMU_RACE_LANES
}  // namespace isa_avx512
#endif
#undef CGP_EMU_RACE_LANES
}  // namespace cgp::emu

// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a thread of control knows of the others: vector clocks for happens-before.
//
// Every cluster has one counter that moves on at each synchronisation in it; an access is stamped with its
// value and the party that made it. A party is one of 2^17 in its cluster: a thread (rank * 1024 + warp * 32
// + lane) or an agent of an asynchronous operation (see Party). "A is ordered before B" means: B's knowledge
// of A's party reaches A's stamp. Because one counter serves the whole cluster, "all threads of that block up
// to 17" is one number; what is finer than a block is kept per warp and lane mask.
#include <cstdint>
#include <memory>
#include <vector>

#include "cgp/emu/core/machine.h"

namespace cgp::emu::race {

inline constexpr int kIdBits = 17, kInstBits = 17, kClockShift = kIdBits + kInstBits;
inline constexpr std::uint32_t kMaxClock = (1u << 30) - 1, kIdMask = (1u << kIdBits) - 1;
inline constexpr std::uint32_t kWarpsPerCta = 32, kThreadWarps = 512;  ///< warps of kind thread

/// clock << 34 | party << 17 | instruction; 0: no access.
using Stamp = std::uint64_t;
inline Stamp make_stamp(std::uint32_t clock, std::uint32_t id, std::uint32_t inst) {
  return std::uint64_t(clock) << kClockShift | std::uint64_t(id) << kInstBits | inst;
}
inline std::uint32_t clock_of(Stamp s) { return std::uint32_t(s >> kClockShift); }
inline std::uint32_t id_of(Stamp s) { return std::uint32_t(s >> kInstBits) & kIdMask; }
inline std::uint32_t inst_of(Stamp s) { return std::uint32_t(s) & ((1u << kInstBits) - 1); }

/// Lanes of a warp (of any kind of party) known up to a clock. The masks of one warp are disjoint.
struct Entry {
  std::uint32_t warp = 0;  ///< party >> 5
  Mask mask = 0;
  std::uint32_t clock = 0;
  friend bool operator==(const Entry&, const Entry&) = default;
};

/// Knowledge of one cluster.
struct Part {
  std::uint32_t cluster = 0;
  std::vector<std::uint32_t> base;  ///< by rank: all threads of the block are known up to it
  std::vector<Entry> entries;       ///< by warp

  std::uint32_t known(std::uint32_t id) const;
  Mask known_lanes(std::uint32_t warp, std::uint32_t clock) const;  ///< known at least up to `clock`
  void add(std::uint32_t warp, Mask mask, std::uint32_t clock);
  void raise_base(std::uint32_t rank, std::uint32_t clock);
  void join(const Part& other);

 private:
  bool below_base(const Entry& e) const {
    return e.warp < kThreadWarps && base[e.warp / kWarpsPerCta] >= e.clock;
  }
};
using PartPtr = std::shared_ptr<const Part>;

/// Knowledge of all clusters; shared and never changed.
struct Knowledge {
  std::vector<PartPtr> parts;  ///< by cluster
  const Part* find(std::uint32_t cluster) const;
};
using Known = std::shared_ptr<const Knowledge>;

std::uint32_t known(const Known& k, std::uint32_t cluster, std::uint32_t id);
Mask known_lanes(const Known& k, std::uint32_t cluster, std::uint32_t warp, std::uint32_t clock);
Known join(const Known& a, const Known& b);

/// Knowledge with its second half: what was covered by a fence.proxy.async.
struct Clock {
  Known known, fenced;
  friend bool operator==(const Clock&, const Clock&) = default;
};
Clock join(const Clock& a, const Clock& b);

/// (rank, clock): all threads of that block are known up to the clock.
using Bases = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

/// Collects what several parties release into one Clock.
class Collector {
 public:
  void include(const Known& k) { include(known_, k); }
  void include(const Clock& c) { include(known_, c.known), include(fenced_, c.fenced); }
  void include_fenced(const Known& k) { include(fenced_, k); }
  void add(std::uint32_t warp, Mask mask, std::uint32_t clock) { known_.own.push_back({warp, mask, clock}); }
  void add_fenced(std::uint32_t warp, Mask mask, std::uint32_t clock) {
    if (clock) fenced_.own.push_back({warp, mask, clock});
  }
  bool empty() const { return known_.from.empty() && known_.own.empty(); }
  friend bool operator==(const Collector&, const Collector&) = default;
  /// Own entries and bases are of `cluster`, which has `ranks` blocks.
  Clock finish(std::uint32_t cluster, std::uint32_t ranks, const Bases& bases = {}) const;

 private:
  struct Half {
    std::vector<Known> from;
    std::vector<Entry> own;
    friend bool operator==(const Half&, const Half&) = default;
  };
  static void include(Half& h, const Known& k);
  static Known finish(const Half& h, std::uint32_t cluster, std::uint32_t ranks, const Bases& bases);
  Half known_, fenced_;
};

}  // namespace cgp::emu::race

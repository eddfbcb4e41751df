// SPDX-License-Identifier: Apache-2.0
#pragma once
// The state of mbarrier objects: pending and expected arrivals, outstanding bytes (tx-count), phase.
// PTX ISA 9.7.13.15. State lives beside shared memory; the eight bytes there hold an encoding of it, so that
// a plain store over a live barrier is noticed.
#include <cstdint>
#include <string>
#include <unordered_map>

#include "cgp/emu/core/machine.h"

namespace cgp::emu {

struct Mbarrier {
  static constexpr std::uint32_t kMaxCount = (1u << 20) - 1;
  static constexpr std::int64_t kMaxTx = (1 << 20) - 1;

  bool valid = false;
  std::uint32_t expected = 0, pending = 0;  ///< arrivals per phase, and those still missing
  std::int64_t tx = 0;                      ///< bytes outstanding; below zero when completion came first
  std::uint64_t phase = 0;                  ///< completed phases
  /// Who changed it last, for reports.
  const Op* made_by = nullptr;  ///< mbarrier.init
  const Op* last_op = nullptr;
  Dim3 last_block;
  std::uint32_t last_warp = 0;

  void init(std::uint32_t count);
  /// All return an empty string, or what is wrong (the object is then unchanged).
  std::string arrive(std::uint32_t count);
  std::string arrive_without_completing(std::uint32_t count);
  std::string drop(std::uint32_t count);
  std::string expect(std::int64_t bytes);
  std::string complete(std::int64_t bytes);
  /// cp.async.mbarrier.arrive without .noinc raises the pending count for the arrival to come.
  std::string add_pending();

  /// The phase of parity `p` has completed: true at once for the phase before a fresh barrier's first.
  bool parity_done(std::uint32_t p) const { return (phase & 1) != (p & 1); }
  /// The opaque value that arrive returns: the phase and the pending count before the arrival.
  std::uint64_t token() const { return (phase & 0xffffffffffull) << 20 | pending; }
  bool token_done(std::uint64_t token) const { return (phase & 0xffffffffffull) > token >> 20; }
  /// The token is of a phase that is neither the current one nor the one before: a wait for it is undefined.
  bool token_stale(std::uint64_t token) const { return (phase & 0xffffffffffull) > (token >> 20) + 1; }
  static std::uint32_t token_pending(std::uint64_t token) { return std::uint32_t(token & kMaxCount); }

  /// "pending 1 of 65 arrivals, tx 512 bytes outstanding".
  std::string describe() const;
  /// What the eight bytes in shared memory hold.
  std::uint64_t word() const;

 private:
  void advance();
};

/// The barriers of one CTA, by offset in its shared memory.
struct MbarrierTable {
  std::unordered_map<std::uint32_t, Mbarrier> at;
};
inline constexpr std::uint32_t kMbarrierSlot = std::uint32_t(ptx::Family::mbarrier);

/// A barrier found through an address. `state` is nullptr after a finding.
struct MbarrierRef {
  Cta* cta = nullptr;
  std::uint32_t offset = 0;
  Mbarrier* state = nullptr;
  std::byte* host = nullptr;
  explicit operator bool() const { return state != nullptr; }
  std::uint64_t address() const { return cta->shared_base() | offset; }
  void publish() const;                             ///< writes word() to shared memory
  void publish(const Warp& w, const Op& op) const;  ///< the same, and notes who changed the barrier
};

/// Of a finding: the variable, the offset and where it was initialised (the C++ line of a ring). `address` is that of
/// the cluster's shared memory.
std::string mbarrier_name(const Warp& w, std::uint64_t address, const Mbarrier* b);

/// Finds the barrier at `address` on behalf of `lane`, checking bounds, alignment and (unless `fresh`) that
/// it is initialised and not overwritten.
MbarrierRef find_mbarrier(Warp& w, const Op& op, Where where, std::uint64_t address, int lane, bool fresh);
/// The same for a CTA and offset (multicast, completions).
MbarrierRef find_mbarrier(Warp& w, const Op& op, Cta& cta, std::uint32_t offset, int lane, bool fresh);

/// Whether [offset, offset + bytes) of the CTA's shared memory overlaps a live mbarrier.
bool overlaps_mbarrier(Cta& cta, std::uint64_t offset, std::uint64_t bytes);

/// complete_tx by the asynchronous unit; reports misuse at `op`.
void complete_tx(Warp& w, const Op& op, int lane, Cta& cta, std::uint32_t offset, std::uint64_t bytes);
/// Reports what Mbarrier's functions return.
void report_mbarrier(Warp& w, const Op& op, int lane, const MbarrierRef& r, const std::string& what);

/// The CTA and offset that a shared or generic address names; {nullptr, 0} when it is not shared memory.
struct SharedPlace {
  Cta* cta = nullptr;
  std::uint32_t offset = 0;
};
SharedPlace shared_place(const Warp& w, Where where, std::uint64_t address);

}  // namespace cgp::emu

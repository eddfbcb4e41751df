// SPDX-License-Identifier: Apache-2.0
#include "cgp/emu/async/mbarrier.h"

#include "cgp/base/text.h"
#include "cgp/emu/core/machine_impl.h"
#include "cgp/emu/race/race.h"

namespace cgp::emu {
using text::cat;

void Mbarrier::init(std::uint32_t count) {
  valid = true;
  expected = pending = count;
  tx = 0;
  phase = 0;
}

void Mbarrier::advance() {
  if (pending != 0 || tx != 0) return;
  ++phase;
  pending = expected;
}

std::string Mbarrier::arrive(std::uint32_t count) {
  if (count == 0 || count > kMaxCount)
    return cat("an arrival of count ", count, "; counts are 1 to ", kMaxCount);
  if (count > pending)
    return cat("an arrival of count ", count, " when only ", pending, " of ", expected,
               " arrivals of this phase are pending");
  pending -= count;
  advance();
  return {};
}

std::string Mbarrier::arrive_without_completing(std::uint32_t count) {
  if (count >= pending && tx == 0)
    return cat("a .noComplete arrival of count ", count, " completes the phase: ", pending, " of ", expected,
               " arrivals are pending");
  return arrive(count);
}

std::string Mbarrier::drop(std::uint32_t count) {
  if (count > expected) return cat("arrive_drop of ", count, " from an expected count of ", expected);
  if (count > pending)
    return cat("arrive_drop of ", count, " when only ", pending, " of ", expected, " arrivals are pending");
  expected -= count;
  return arrive(count);
}

std::string Mbarrier::expect(std::int64_t bytes) {
  if (bytes < 0 || tx + bytes > kMaxTx)
    return cat("expect_tx of ", bytes, " bytes brings the tx-count to ", tx + bytes, "; its range is +-",
               kMaxTx);
  tx += bytes;
  return {};
}

std::string Mbarrier::complete(std::int64_t bytes) {
  if (bytes < 0 || tx - bytes < -kMaxTx)
    return cat("complete_tx of ", bytes, " bytes brings the tx-count to ", tx - bytes, "; its range is +-",
               kMaxTx);
  tx -= bytes;
  advance();
  return {};
}

std::string Mbarrier::add_pending() {
  if (pending == kMaxCount) return cat("the pending count would exceed ", kMaxCount);
  ++pending;
  return {};
}

std::string Mbarrier::describe() const {
  std::string s = cat("pending ", pending, " of ", expected, " arrivals");
  if (tx > 0) s += cat(", tx ", tx, " bytes outstanding");
  if (tx < 0) s += cat(", tx ", -tx, " bytes more completed than expected");
  return s;
}

std::uint64_t Mbarrier::word() const {
  if (!valid) return 0;
  return 1ull << 63 | (phase & 1) << 62 | std::uint64_t(expected) << 41 | std::uint64_t(pending) << 21 |
         (std::uint64_t(tx) & 0x1fffff);
}

void MbarrierRef::publish() const {
  const std::uint64_t word = state->word();
  std::memcpy(host, &word, 8);
}

void MbarrierRef::publish(const Warp& w, const Op& op) const {
  state->last_op = &op;
  state->last_block = w.cta->id;
  state->last_warp = w.index;
  publish();
}

bool overlaps_mbarrier(Cta& cta, std::uint64_t offset, std::uint64_t bytes) {
  const auto table = cta.state.find(kMbarrierSlot);
  if (table == cta.state.end()) return false;
  const auto& all = static_cast<MbarrierTable*>(table->second.get())->at;
  const std::uint64_t first = offset & ~7ull;
  for (std::uint64_t at = first; at < offset + bytes; at += 8)
    if (const auto it = all.find(std::uint32_t(at)); it != all.end() && it->second.valid) return true;
  return false;
}

SharedPlace shared_place(const Warp& w, Where where, std::uint64_t address) {
  if (where == Where::generic) {
    if (address < kSharedWindow || address >= kSharedWindow + (1ull << 32)) return {};
  }
  const auto low = std::uint32_t(address);
  return {shared_owner(w, low), low & ((1u << kRankShift) - 1)};
}

std::string mbarrier_name(const Warp& w, std::uint64_t address, const Mbarrier* b) {
  std::string s = cat("mbarrier ", place_of(w, Where::shared_cluster, address));
  if (b && b->made_by)
    s += cat(" (initialised at ", line_text(*w.worker->launch->program, b->made_by->inst), ")");
  return s;
}

void report_mbarrier(Warp& w, const Op& op, int lane, const MbarrierRef& r, const std::string& what) {
  if (what.empty()) return;
  const bool tx = what.find("tx-count") != what.npos;
  w.report(Check::barrier, tx ? "mbarrier.tx" : "mbarrier.count", op, lane_bit(lane),
           cat(mbarrier_name(w, r.address(), r.state), ", phase ", r.state->phase, ": ", what),
           tx ? "one arrive.expect_tx per phase with the bytes of all copies that signal it"
              : "the count given to mbarrier.init must be the number of arrivals of a phase",
           r.offset);
}

MbarrierRef find_mbarrier(Warp& w, const Op& op, Cta& cta, std::uint32_t offset, int lane, bool fresh) {
  MbarrierRef r;
  r.cta = &cta;
  r.offset = offset;
  if (std::uint64_t(offset) + 8 > cta.shared_bytes || cta.done) {
    w.report(cta.done ? Check::lifetime : Check::bounds, cta.done ? "lifetime.dsmem" : "oob.shared", op,
             lane_bit(lane),
             cta.done ? cat("an mbarrier in CTA rank ", cta.rank, " of the cluster, which has exited")
                      : cat("an mbarrier at ", text::hex(offset), " of CTA rank ", cta.rank, ", which has ",
                            cta.shared_bytes, " bytes of shared memory"),
             cta.done ? "end with a cluster barrier, or wait for the peers' last arrivals" : "", offset);
    return r;
  }
  r.host = cta.shared.get() + offset;
  Mbarrier& state = state_of<MbarrierTable>(cta, kMbarrierSlot).at[offset];
  if (fresh) {
    r.state = &state;
    return r;
  }
  std::uint64_t word = 0;
  std::memcpy(&word, r.host, 8);
  if (state.valid && word == state.word()) {
    r.state = &state;
    return r;
  }
  const bool overwritten = state.valid;
  w.report(Check::barrier, "mbarrier.state", op, lane_bit(lane),
           cat(mbarrier_name(w, r.address(), &state),
               overwritten ? " was overwritten by an ordinary store since its last use"
                           : " is not initialised (or was invalidated)"),
           overwritten ? "keep barriers apart from data, and mbarrier.inval before reusing their memory"
                       : "mbarrier.init, then fence.mbarrier_init (for the async proxy) and a barrier",
           offset);
  state.valid = false;
  return r;
}

MbarrierRef find_mbarrier(Warp& w, const Op& op, Where where, std::uint64_t address, int lane, bool fresh) {
  if (!resolve_one(w, op, where, address, 8, Access::address_only, lane, 8)) return {};
  const SharedPlace p = shared_place(w, where, address);
  if (!p.cta) {
    w.report(Check::barrier, "mbarrier.state", op, lane_bit(lane),
             cat("address ", text::hex(address), " is not in shared memory, where mbarriers live"));
    return {};
  }
  const MbarrierRef r = find_mbarrier(w, op, *p.cta, p.offset, lane, fresh);
  if (r && !fresh) race::mbarrier_use(w, op, lane, *r.cta, r.offset);
  return r;
}

void complete_tx(Warp& w, const Op& op, int lane, Cta& cta, std::uint32_t offset, std::uint64_t bytes) {
  const MbarrierRef r = find_mbarrier(w, op, cta, offset, lane, false);
  if (!r) return;
  const std::uint64_t phase = r.state->phase;
  report_mbarrier(w, op, lane, r, r.state->complete(std::int64_t(bytes)));
  r.publish(w, op);
  if (r.state->phase > phase) race::mbarrier_complete(w, cta, offset);
}

}  // namespace cgp::emu

// SPDX-License-Identifier: Apache-2.0
// Warps that run without getting anywhere: blocks that poll memory which nobody is left to change.
//
// From time to time all resident blocks of a worker are watched. A warp is certain to spin when it comes
// back, at a jump, to the registers, program counters and lane sets it had before while its stores changed
// nothing: what it does next depends on memory alone. The launch is stuck when every warp spins or is
// blocked, for every worker, and still is when each of them looks again after all of them saw it. A worker
// that saw it lets its blocks run only while it looks, until somebody changes memory: what they did unwatched
// could be what another one waits for.
//
// A warp that counts how often it polls never comes back to a state. It counts as spinning where blocks of the
// grid cannot start for want of room: when all that are resident poll without end, nobody makes room.
#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/emu/core/host_memory.h"
#include "cgp/emu/core/machine_impl.h"

namespace cgp::emu {

using text::cat;

namespace {
constexpr std::uint64_t kSuspectSlices = 4;                 // of a cluster, before it is looked at
constexpr std::uint64_t kBudget = 100'000;                  // instructions of one watched warp
constexpr std::uint64_t kMaxSeen = 1 << 14;                 // jumps of one watched warp
constexpr int kRepeats = 64;                                // of one state
constexpr std::uint64_t kJumpsAPoll = 4, kManyJumps = 512;  // of a warp that does nothing but poll
constexpr int kPasses = 24, kSoftRounds = 8;
// Time skipped before blocks that poll and read the clock count as hung: 1 ms, then 16 times as much each
// time, to 5 hours.
constexpr int kSkips = 7;

std::uint64_t mix(std::uint64_t h, std::uint64_t v) {
  h = (h ^ v) * 0x9e3779b97f4a7c15ull;
  return h ^ h >> 29;
}

std::uint64_t state_hash(const Warp& w) {
  std::uint64_t sets = 0;  // the order of the fragments does not matter
  const auto add = [&](const Op* pc, Mask lanes, State state, const Frame* frame) {
    std::uint64_t h = mix(mix(1, std::uint64_t(reinterpret_cast<std::uintptr_t>(pc))), lanes);
    h = mix(mix(h, std::uint64_t(state)), std::uint64_t(reinterpret_cast<std::uintptr_t>(frame)));
    sets += h;
  };
  add(w.pc, w.lanes, State::runnable, w.frame);
  for (const Fragment& f : w.others) add(f.pc, f.lanes, f.state, f.frame);
  std::uint64_t h = mix(mix(sets, w.live), w.carry);
  for (const auto& frame : w.frames) {
    std::uint64_t part[4] = {h, 1, 2, 3}, v[4];  // four chains that do not wait for each other
    std::uint32_t at = 0;
    for (; at + sizeof v <= frame->function->register_bytes; at += sizeof v) {
      std::memcpy(v, frame->registers + at, sizeof v);
      for (int i = 0; i < 4; ++i) part[i] = mix(part[i], v[i]);
    }
    for (; at + 8 <= frame->function->register_bytes; at += 8) {
      std::memcpy(v, frame->registers + at, 8);
      part[0] = mix(part[0], v[0]);
    }
    h = mix(mix(part[0], part[1]), mix(part[2], part[3]));
  }
  return h;
}

enum class Probe { progress, moved, still };

// Runs one warp until it is certain to repeat itself, parks, changes something or has used its budget.
Probe probe_warp(Warp& w, bool crowded) {
  if (!w.live) return Probe::still;
  const Mask live = w.live;
  const std::uint64_t polls = w.worker->polls;
  std::uint64_t executed = 0;
  const std::uint64_t now = std::max(clock_of(w), w.worker->launch->timer.load(std::memory_order_relaxed));
  w.spin = SpinWatch{};
  w.spin.time = now;
  w.changed = false;
  w.suspect = true;
  while (executed < kBudget && !w.changed && !w.spin.cyclic) {
    const std::uint64_t n =
        run_warp(w, crowded ? std::min(kManyJumps, kBudget - executed) : kBudget - executed);
    if (!n) break;
    executed += n;
    if (w.spin.seen > (crowded ? kManyJumps : kMaxSeen)) break;
  }
  w.suspect = false;
  if (w.changed || w.live != live) return Probe::progress;
  if (!executed || w.spin.cyclic) return Probe::still;
  if (!runnable(w)) return Probe::moved;
  const bool only_polls = w.spin.seen > kManyJumps && w.worker->polls - polls > w.spin.seen / kJumpsAPoll;
  return crowded && only_polls ? Probe::still : Probe::progress;
}

// Clusters that have not started since those that are resident leave no room for them.
std::uint64_t left_outside(const LaunchState& launch) {
  std::uint64_t n = 0;
  for (const DevicePart& d : launch.devices) {
    const std::uint64_t started = d.next_cluster.load();
    if (started < launch.clusters && d.resident.load() >= launch.resident_limit)
      n += launch.clusters - started;
  }
  return n;
}

// Blocks that read the clock may wait for time to pass: skips some. False: enough was skipped.
bool skip_time(LaunchState& launch) {
  SpinBoard& board = launch.spin;
  std::lock_guard lock(board.mutex);
  if (!board.clock_read || board.skips == kSkips) return false;
  launch.skipped += 1ull << (20 + 4 * board.skips);
  board.skips = std::min(kSkips, board.skips + (left_outside(launch) ? 3 : 1));
  board.clock_read = false;
  for (auto& l : board.level)
    if (l != SpinBoard::without_blocks) l = SpinBoard::moving;
  return true;
}

// Whether nothing in the cluster can happen any more unless somebody else changes memory.
bool stuck(Cluster& c) {
  int soft = 0;
  const bool crowded = left_outside(*c.worker->launch) > 0;
  c.worker->enter(c.device);
  for (int pass = 0; pass < kPasses; ++pass) {
    bool moved = false;
    for (auto& cta : c.ctas)
      for (auto& w : cta->warps) {
        const Probe p = cta->done ? Probe::still : probe_warp(*w, crowded);
        if (p == Probe::progress) return false;
        moved = moved || p == Probe::moved;
      }
    if (moved) continue;
    if (c.async.advance()) return false;
    if (++soft > kSoftRounds || !give_up_soft_waits(c)) return true;
  }
  return false;
}
}  // namespace

bool note_jump(Warp& w) {
  SpinWatch& s = w.spin;
  s.ran |= w.lanes;
  if (w.changed) return true;
  const std::uint64_t h = state_hash(w);
  if (s.seen && h == s.reference) {
    Mask must_run = w.lanes;
    for (const Fragment& f : w.others)
      if (f.state == State::runnable) must_run |= f.lanes;
    if (++s.repeats >= kRepeats && (must_run & ~s.ran) == 0) s.cyclic = true;
    return s.cyclic;
  }
  if (++s.seen == s.renew_at) {
    s.reference = h;
    s.renew_at *= 2;
    s.repeats = 0;
    s.ran = 0;
  }
  return s.seen > kMaxSeen;
}

void note_blocks(Worker& worker, SpinBoard::Level level) {
  SpinBoard& board = worker.launch->spin;
  std::lock_guard lock(board.mutex);
  if (level == SpinBoard::moving)
    for (auto& l : board.level)
      if (l != SpinBoard::without_blocks) l = level;
  board.level[std::size_t(worker.index)] = level;
}

bool seen_stuck(const Worker& worker) {
  SpinBoard& board = worker.launch->spin;
  std::lock_guard lock(board.mutex);
  const SpinBoard::Level mine = board.level[std::size_t(worker.index)];
  // Whoever reads the clock may wait for time to pass, which stands still for those who are watched.
  return (mine == SpinBoard::stuck || mine == SpinBoard::stuck_twice) && !board.clock_read;
}

void check_spinning(Worker& worker) {
  ++worker.turns;
  const auto fresh = [](const auto& c) { return c->slices < kSuspectSlices; };
  if (worker.turns < worker.next_probe || worker.resident.empty() ||
      std::any_of(worker.resident.begin(), worker.resident.end(), fresh))
    return;
  SpinBoard& board = worker.launch->spin;
  bool others_stuck = true;
  {
    std::lock_guard lock(board.mutex);
    for (const auto l : board.level) others_stuck = others_stuck && l != SpinBoard::moving;
  }
  const auto probe = [](const auto& c) { return stuck(*c); };
  if (!std::all_of(worker.resident.begin(), worker.resident.end(), probe)) {
    worker.next_probe = worker.turns * 2;
    {
      std::lock_guard lock(board.mutex);
      board.skips = 0;
    }
    return note_blocks(worker, SpinBoard::moving);
  }
  worker.next_probe = worker.turns + worker.resident.size();
  bool all_twice = true;
  {
    std::lock_guard lock(board.mutex);
    auto& mine = board.level[std::size_t(worker.index)];
    mine = others_stuck && mine != SpinBoard::moving ? SpinBoard::stuck_twice : SpinBoard::stuck;
    for (const auto l : board.level) all_twice = all_twice && l >= SpinBoard::stuck_twice;
    if (all_twice) mine = SpinBoard::stuck;  // one worker tells
  }
  if (!all_twice || skip_time(*worker.launch)) return;
  const LaunchState& launch = *worker.launch;
  const std::size_t more = worker.resident.size() - 1;
  const std::uint64_t blocks = launch.launch.cluster.count(), outside = left_outside(launch) * blocks;
  report_deadlock(
      *worker.resident.front(),
      cat("every warp polls memory that nobody is left to change, or is blocked",
          more ? cat(" (so do ", more, " other resident clusters)") : std::string(),
          outside ? cat("; ", outside, outside == 1 ? " block of the grid" : " blocks of the grid",
                        " cannot start before others end: at most ", launch.resident_limit * blocks,
                        " are resident at once")
                  : std::string()));
}

void note_changes(Warp& w, int count, int bytes, int cell, const Loc* rows, std::byte* const* to,
                  Mask lanes) {
  for (int i = 0; i < count && !w.changed; ++i)
    for_lanes(lanes, [&](int l) {
      std::uint64_t v = cell == 32 ? w.row<std::uint32_t>(rows[i])[l] : w.row<std::uint64_t>(rows[i])[l];
      std::uint64_t there = 0;  // perhaps while another host thread writes it
      if (cell != 128) copy_from_device(&there, to[l] + i * bytes, std::size_t(bytes));
      if (cell == 128 || std::memcmp(&there, &v, std::size_t(bytes)) != 0) w.changed = true;
    });
}

}  // namespace cgp::emu

// SPDX-License-Identifier: Apache-2.0
// One warp: fragments, frames, rendezvous, and the loop that executes operations.
#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/emu/async/async_rows.h"
#include "cgp/emu/core/local_memory.h"
#include "cgp/emu/core/machine_impl.h"
#include "cgp/emu/race/race.h"

namespace cgp::emu {

using text::cat;

namespace {
// Backward branches a fragment may take while siblings wait, before it goes to the back of the queue.
constexpr std::uint32_t kPatience = 64;

const Op* no_limit() { return reinterpret_cast<const Op*>(~std::uintptr_t(0)); }

void make_running(Warp& w, const Fragment& f) {
  w.pc = f.pc;
  w.frame = f.frame;
  w.lanes = f.lanes;
  w.base[0] = f.frame->registers;
  w.patience = f.penalty;
}

// The running fragment as a value.
Fragment running(const Warp& w) {
  Fragment f;
  f.pc = w.pc;
  f.frame = w.frame;
  f.lanes = w.lanes;
  f.penalty = w.patience;
  return f;
}

// Lower is better: deeper calls first (they return to join the others), then the lowest PC.
bool before(const Fragment& a, const Fragment& b) {
  if (a.penalty / kPatience != b.penalty / kPatience) return a.penalty < b.penalty;
  if (a.frame->depth != b.frame->depth) return a.frame->depth > b.frame->depth;
  return a.pc < b.pc;
}

// Joins fragments that stand at the same instruction of the same frame. A fragment that waits for the rest of
// its warp becomes runnable when somebody joins it.
void merge(Warp& w) {
  auto& v = w.others;
  for (std::size_t i = 0; i < v.size(); ++i)
    for (std::size_t j = v.size() - 1; j > i; --j) {
      if (v[i].pc != v[j].pc || v[i].frame != v[j].frame) continue;
      const bool joinable = (v[i].state == State::runnable || v[i].state == State::converge) &&
                            (v[j].state == State::runnable || v[j].state == State::converge);
      if (!joinable) continue;
      v[i].lanes |= v[j].lanes;
      v[i].penalty = std::min(v[i].penalty, v[j].penalty);
      v[i].state = State::runnable;
      v.erase(v.begin() + std::ptrdiff_t(j));
    }
}

void poll(Warp& w) {
  for (Fragment& f : w.others)
    if (f.state == State::wait && f.ready(w, f)) {
      f.state = State::runnable;
      f.soft = false;
    }
}

// Nothing can run: either the warp waits for something outside, or its fragments wait for each other in a way
// that cannot end. Only the second is reported here.
void check_stuck(Warp& w) {
  if (w.others.empty()) return;
  for (const Fragment& f : w.others)
    if (f.state == State::wait) return;
  for (const Fragment& f : w.others) {
    if (f.state != State::converge) continue;
    const bool barrier = w.worker->launch->program->inst(f.pc->inst).op <= ptx::Op::kCount &&
                         ptx::family(w.worker->launch->program->inst(f.pc->inst).op) == ptx::Family::barrier;
    Mask elsewhere = w.live & ~f.lanes;
    std::string where;
    for (const Fragment& g : w.others)
      if (&g != &f)
        where += cat("; lanes ", text::hex(g.lanes), " wait at ",
                     line_text(*w.worker->launch->program, g.pc->inst));
    w.fail(Check::barrier, "barrier.divergence", *f.pc, f.lanes,
           cat("lanes ", text::hex(f.lanes), " of warp ", w.index, " reach this .aligned instruction, lanes ",
               text::hex(elsewhere), " do not", where),
           barrier ? "move the barrier out of the divergent branch, or use barrier.sync without .aligned"
                   : "all lanes of the warp must execute an .aligned instruction together");
  }
  for (const Fragment& f : w.others)
    if (f.state == State::meet) {
      Mask there = 0;
      for (const Fragment& g : w.others)
        if (g.state == State::meet && g.meet_mask == f.meet_mask && g.meet_kind == f.meet_kind)
          there |= g.lanes;
      w.fail(
          Check::sync_mask, "sync.mask", *f.pc, f.lanes,
          cat("the mask ", text::hex(f.meet_mask), " names lanes ", text::hex(f.meet_mask & w.live & ~there),
              ", which never execute a matching instruction with this mask"),
          "every lane named in the mask must execute the .sync instruction");
    }
}
}  // namespace

bool runnable(Warp& w) {
  if (!w.live) return false;
  poll(w);
  for (const Fragment& f : w.others)
    if (f.state == State::runnable) return true;
  return false;
}

bool reschedule(Warp& w) {
  if (w.lanes) {
    w.others.push_back(running(w));
    w.lanes = 0;
  }
  const SchedulePolicy schedule = w.worker->launch->options.schedule;
  if (w.others.size() > 1) {
    if (schedule != SchedulePolicy::diverge && schedule != SchedulePolicy::adversarial)
      merge(w);
    else {
      // Only lanes that stand at a convergence point join.
      for (const Fragment& f : w.others)
        if (f.state == State::converge) {
          merge(w);
          break;
        }
    }
    poll(w);
  } else if (!w.others.empty()) {
    poll(w);
  }
  Fragment* best = nullptr;
  const bool shuffled = schedule != SchedulePolicy::fair;
  std::size_t candidates = 0;
  for (Fragment& f : w.others) {
    if (f.state != State::runnable) continue;
    ++candidates;
    if (!best) {
      best = &f;
    } else if (shuffled) {
      if (draw(*w.cta->cluster) % candidates == 0) best = &f;
    } else if (before(f, *best)) {
      best = &f;
    }
  }
  if (!best) {
    check_stuck(w);
    return false;
  }
  const Fragment chosen = *best;
  w.others.erase(w.others.begin() + (best - w.others.data()));
  make_running(w, chosen);
  w.timed_out = chosen.soft;
  w.limit = no_limit();
  for (const Fragment& f : w.others)
    if (f.frame == w.frame && f.pc > w.pc && f.state != State::meet && f.state != State::wait)
      w.limit = std::min(w.limit, f.pc);
  for (const Fragment& f : w.others)
    if ((f.state == State::converge || f.state == State::meet) && f.frame == w.frame)
      if (const Op* look = next_skip_point(w, f)) w.limit = std::min(w.limit, look);
  return true;
}

namespace {
// Starts what the warp goes on with. A warp that waits as a whole, which most do at a barrier, needs no look
// at which fragment is best. False: nothing can run.
bool resume(Warp& w) {
  if (w.lanes || w.others.size() != 1) return reschedule(w);
  Fragment& f = w.others.front();
  if (f.state == State::wait) {
    if (!f.ready(w, f)) return false;
    f.soft = false;
  } else if (f.state != State::runnable) {
    return reschedule(w);
  }
  make_running(w, f);
  w.timed_out = f.soft;
  w.limit = no_limit();
  w.others.pop_back();
  return true;
}

// Consecutive operations executed by the same lanes, from `start` to `op`.
struct Run {
  const Op* start = nullptr;
  const Op* op = nullptr;
  Mask lanes = 0;
  Mask skipped = 0;  // lanes that the guard of `op` left out
};

// `edges` are those of the operations from `code` on.
inline void note_run(RunEdge* edges, const Op* code, const Op* first, const Op* end, Mask lanes) {
  if (first == end) return;
  RunEdge &from = edges[first - code], &to = edges[end - code];
  const std::uint64_t n = lane_count(lanes);
  ++from.issues, from.lanes += n;
  --to.issues, to.lanes -= n;
}

// An operation that needs more than a call: it has a guard, or its registers are followed.
void execute_closely(Warp& w, Run& run) {
  const Op& op = *run.op;
  if (w.taint) propagate_guard(w, op);
  if (op.flags & kGuarded) {
    const Mask act = w.pred(op.guard) & run.lanes;
    if (act != run.lanes) {
      run.skipped = run.lanes & ~act;
      w.worker->pc[op.inst].lanes -= lane_count(run.skipped);
      if (!act) return;
      if (op.flags & kSplits) {
        Fragment rest = running(w);
        rest.lanes = run.skipped;
        w.others.push_back(rest);
        w.lanes = act;
      }
      w.active = act;
    }
  }
  if (op.flags & kAsyncRow) note_rows(w, op);
  if (w.taint) propagate_taint(w, op);
  op.fn(w, op);
}

// Executes operations one behind the other until one jumps, waits or ends, or up to `stop`.
void execute(Warp& w, Run& run, const Op* stop) {
  for (;;) {
    const Op* const op = run.op;
    const Op* const next = op + 1;
    w.pc = next;
    if ((op->flags & (kGuarded | kAsyncRow)) || w.taint) {
      execute_closely(w, run);
      if (w.pc != next || w.event != Warp::none || w.lanes != run.lanes || next >= stop) return;
      w.active = run.lanes;
      run.skipped = 0;
    } else {
      op->fn(w, *op);
      if (w.pc != next || w.event != Warp::none || next >= stop) return;
    }
    run.op = next;
  }
}
}  // namespace

std::uint64_t run_warp(Warp& w, std::uint64_t budget) {
  w.event = Warp::none;
  if (!resume(w)) return 0;
  Worker& worker = *w.worker;
  const Op* const code = worker.launch->program->ops.data();
  RunEdge* const edges = worker.runs.data();
  std::uint64_t executed = 0;
  while (executed < budget) {
    Run run{w.pc, w.pc, w.lanes};
    if (run.start >= w.limit) {
      if (!reschedule(w)) break;
      continue;
    }
    // Only the first operation of a fragment can be one whose wait was given up.
    const std::uint64_t most = w.timed_out ? 1 : std::min<std::uint64_t>(budget - executed, 1 << 20);
    const Op* const stop = std::min(w.limit, run.start + most);
    w.active = run.lanes;
    try {
      execute(w, run, stop);
    } catch (...) {
      note_run(edges, code, run.start, run.op + 1, run.lanes);
      throw;
    }
    const Op* end = run.op + 1;
    if (w.event == Warp::parked && !(run.op->flags & kMicro)) {  // it will be counted when it completes
      worker.pc[run.op->inst].lanes += run.skipped ? lane_count(run.skipped) : 0;
      --end;
    }
    note_run(edges, code, run.start, end, run.lanes);
    executed += std::uint64_t(end - run.start);
    if (run.skipped != run.lanes) w.timed_out = false;
    if (w.event != Warp::none) {
      const bool look = w.suspect && w.event == Warp::jumped, idle = w.event == Warp::idle;
      w.event = Warp::none;
      if (idle || !reschedule(w)) break;
      if (look && note_jump(w)) break;
    }
  }
  w.steps += executed;
  if (w.lanes) {
    w.others.push_back(running(w));
    w.lanes = 0;
  }
  return executed;
}

// ---------------------------------------------------------------- control flow
void branch(Warp& w, const Op& op, const Op* target, Mask taken) {
  if (taken == w.lanes) {
    if (target <= &op && !w.others.empty()) ++w.patience;
    w.pc = target;
    if (!w.others.empty()) w.event = Warp::jumped;
    if (target <= &op && w.suspect) w.event = Warp::jumped;
    return;
  }
  if (!taken) return;
  Fragment f;
  f.pc = target;
  f.frame = w.frame;
  f.lanes = taken;
  f.penalty = w.patience + (target <= &op ? 1 : 0);
  w.others.push_back(f);
  w.lanes &= ~taken;
  w.event = Warp::jumped;
}

bool part_lanes(Warp& w, const Op& op) {
  const SchedulePolicy schedule = w.worker->launch->options.schedule;
  if (std::has_single_bit(w.active)) return false;
  if (schedule == SchedulePolicy::fair || schedule == SchedulePolicy::diverge) return false;
  if (schedule == SchedulePolicy::random && draw(*w.cta->cluster) % 2) return false;
  Fragment rest = running(w);
  rest.pc = &op;
  rest.lanes = w.active & (w.active - 1);
  w.others.push_back(rest);
  PcCounters& c = w.worker->pc[op.inst];  // they execute it later
  c.lanes -= std::uint64_t(std::popcount(rest.lanes));
  w.lanes &= ~rest.lanes;
  w.active &= ~rest.lanes;
  w.event = Warp::jumped;
  return true;
}

void end_fragment(Warp& w, Mask lanes) {
  w.live &= ~lanes;
  for (Frame* f = w.frame; f; f = f->caller) f->lanes &= ~lanes;
  w.lanes &= ~lanes;
  w.cta->exited += std::uint32_t(std::popcount(lanes));
  w.event = Warp::ended;
  release_barriers(*w.cta);
  // Lanes that wait for the whole warp may now be complete.
  for (Fragment& f : w.others)
    if (f.state == State::converge && f.lanes == w.live) f.state = State::runnable;
  for (Fragment& f : w.others)
    if (f.state == State::meet) f.state = State::runnable;  // looks again: exited lanes are excused
}

// ---------------------------------------------------------------- frames
void grow_local(Warp& w, std::uint32_t bytes) {
  if (bytes <= w.local_stride) return;
  constexpr std::uint32_t kMaxStack = 512 * 1024;
  if (bytes > kMaxStack)
    throw EmuFault(ErrorText{cat("a thread's stack exceeds ", kMaxStack, " bytes"),
                             cat("function '", w.frame ? w.frame->function->name : std::string(), "'"),
                             cat(bytes, " bytes are needed"), "recursion without an end?"});
  const std::uint32_t stride = std::max((bytes + 15u) / 16u * 16u, std::min(w.local_stride * 2, kMaxStack));
  std::unique_ptr<std::byte[]> bigger(new std::byte[std::size_t(stride) * kLanes * 2]());
  for (int l = 0; l < kLanes * 2; ++l)  // bytes, then marks
    if (w.local_stride)
      std::memcpy(bigger.get() + std::size_t(l) * stride, w.local.get() + std::size_t(l) * w.local_stride,
                  w.local_stride);
  w.local = std::move(bigger);
  w.local_stride = stride;
}

namespace {
// Where the locals of a callee start: behind those of every calling lane.
std::uint32_t locals_start(const Warp& w, const Function& callee) {
  std::uint32_t top = 0;
  if (w.frame) for_lanes(w.active, [&](int l) { top = std::max(top, w.frame->local_top[std::size_t(l)]); });
  return (top + callee.local_align - 1) / callee.local_align * callee.local_align;
}

void add_lanes(Frame& f, Mask lanes) {
  f.lanes |= lanes;
  for_lanes(lanes, [&](int l) { f.local_top[std::size_t(l)] = f.local_base + f.function->local_bytes; });
}

// Nothing of a call's locals is written when it begins.
void forget_locals(Warp& w, const Frame& f) {
  if (!(w.checks & std::uint32_t(Check::uninit))) return;
  for_lanes(w.active, [&](int l) { mark_local(w, l, f.local_base, f.function->local_bytes, false); });
}

// Lanes that made the same call before and have not returned: their frame has cells for everybody, and lanes
// of one frame can meet and merge again.
Frame* frame_to_join(Warp& w, const Function& callee, const Op* return_to, const Op* call) {
  if (!call) return nullptr;
  for (const auto& f : w.frames) {
    if (f->call != call || f->caller != w.frame || f->function != &callee || f->return_to != return_to)
      continue;
    if (f->local_base < locals_start(w, callee)) continue;
    for (Mask& m : f->taint) m &= ~w.active;
    add_lanes(*f, w.active);
    forget_locals(w, *f);
    return f.get();
  }
  return nullptr;
}
}  // namespace

Frame* push_frame(Warp& w, const Function& callee, const Op* return_to, const Op* call) {
  if (Frame* f = frame_to_join(w, callee, return_to, call)) return f;
  std::unique_ptr<Frame> frame;
  for (std::size_t i = w.spare_frames.size(); i-- > 0;)
    if (w.spare_frames[i]->function == &callee) {
      frame = std::move(w.spare_frames[i]);
      w.spare_frames.erase(w.spare_frames.begin() + std::ptrdiff_t(i));
      break;
    }
  if (!frame) {
    frame = std::make_unique<Frame>();
    frame->function = &callee;
    frame->storage.reset(new std::byte[callee.register_bytes + 64]);
    const auto at = reinterpret_cast<std::uintptr_t>(frame->storage.get());
    frame->registers = frame->storage.get() + (64 - at % 64) % 64;
  }
  std::memset(frame->registers, 0, callee.register_bytes);
  frame->taint.clear();
  frame->caller = w.frame;
  frame->return_to = return_to;
  frame->call = call;
  frame->lanes = 0;
  frame->async_rows.reset();
  frame->depth = w.frame ? w.frame->depth + 1 : 0;
  frame->local_base = locals_start(w, callee);
  add_lanes(*frame, w.active);
  grow_local(w, frame->local_base + callee.local_bytes);
  forget_locals(w, *frame);
  w.frames.push_back(std::move(frame));
  return w.frames.back().get();
}

void pop_frame(Warp& w, Frame* frame) {
  for (std::size_t i = w.frames.size(); i-- > 0;)
    if (w.frames[i].get() == frame) {
      if (w.spare_frames.size() < 16) w.spare_frames.push_back(std::move(w.frames[i]));
      w.frames.erase(w.frames.begin() + std::ptrdiff_t(i));
      return;
    }
}

// ---------------------------------------------------------------- waiting
bool Warp::converge_slow(const Op& op) {
  if (lanes == live && active == live) return true;
  Fragment f = running(*this);
  f.pc = &op;
  f.lanes = active;
  f.at = &op;
  f.state = State::converge;
  others.push_back(f);
  lanes &= ~active;
  event = parked;
  // Somebody may wait at this very instruction already.
  Mask here = 0;
  for (const Fragment& g : others)
    if (g.pc == &op && g.frame == f.frame && g.state == State::converge) here |= g.lanes;
  if (here == live)
    for (Fragment& g : others)
      if (g.pc == &op && g.frame == f.frame && g.state == State::converge) g.state = State::runnable;
  return false;
}

void Warp::wait(const Op& op, ReadyFn ready, DescribeFn describe, std::uint64_t key, std::uint64_t extra,
                bool soft) {
  Fragment& f = others.emplace_back();
  f.pc = &op;
  f.frame = frame;
  f.penalty = patience;
  f.lanes = active;
  f.at = &op;
  f.state = State::wait;
  f.ready = ready;
  f.describe = describe;
  f.key = key;
  f.extra = extra;
  f.soft = soft;
  lanes &= ~active;
  event = parked;
}

void Warp::wait_past(const Op& op, ReadyFn ready, DescribeFn describe, std::uint64_t key,
                     std::uint64_t extra) {
  wait(op, ready, describe, key, extra);
  others.back().pc = pc;
  event = jumped;  // executed, unlike an operation that is parked to be tried again
}

void Warp::note_rendezvous(Mask together) { race::on_rendezvous(*this, together); }

bool Warp::meet(const Op& op, Mask members, std::uint32_t kind, Meeting& m) {
  m.parts = 0;
  m.lanes = 0;
  if (active & ~members) {
    fail(Check::sync_mask, "sync.mask", op, active & ~members,
         cat("executed by lanes ", text::hex(active & ~members), ", which its mask ", text::hex(members),
             " does not name"),
         "a lane that executes a .sync instruction must be in its own mask");
  }
  const Mask needed = members & live;
  if (active == needed) {
    m.part[0] = {&op, base[0], active};
    m.parts = 1;
    m.lanes = active;
    if (race) note_rendezvous(active);
    return true;
  }
  Mask there = active;
  for (const Fragment& g : others)
    if (g.state == State::meet && g.meet_mask == members && g.meet_kind == kind) there |= g.lanes;
  if (there != needed) {
    Fragment f = running(*this);
    f.pc = &op;
    f.lanes = active;
    f.at = &op;
    f.state = State::meet;
    f.meet_mask = members;
    f.meet_kind = kind;
    others.push_back(f);
    lanes &= ~active;
    event = parked;
    return false;
  }
  m.part[0] = {&op, base[0], active};
  m.parts = 1;
  m.lanes = there;
  for (Fragment& g : others) {
    if (g.state != State::meet || g.meet_mask != members || g.meet_kind != kind) continue;
    m.part[std::size_t(m.parts++)] = {g.pc, g.frame->registers, g.lanes};
    PcCounters& c = worker->pc[g.pc->inst];
    ++c.issues;
    c.lanes += std::uint64_t(std::popcount(g.lanes));
    g.pc += 1;
    g.state = State::runnable;
  }
  event = jumped;
  if (race) note_rendezvous(there);
  return true;
}

}  // namespace cgp::emu

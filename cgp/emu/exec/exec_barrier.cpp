// SPDX-License-Identifier: Apache-2.0
// Named barriers of a block, bar.warp.sync, fences.
#include "cgp/base/text.h"
#include "cgp/emu/core/dsmem_lifetime.h"
#include "cgp/emu/core/machine_impl.h"
#include "cgp/emu/decode/decode_modifiers.h"
#include "cgp/emu/decode/families.h"
#include "cgp/emu/race/race.h"

namespace cgp::emu {

using ptx::Mod;
using POp = ptx::Op;
using text::cat;

namespace {
enum Form : std::uint8_t { sync, arrive, reduce };
enum Reduce : std::uint8_t { none, all, any, popc };

std::uint64_t key_of(std::uint32_t id, std::uint64_t generation) { return generation << 4 | id; }

void write_result(std::byte* registers, const Op& op, const NamedBarrier& b, Mask lanes) {
  if (op.vec == none) return;
  std::byte* row = registers + (op.d & ~3);
  if (op.vec == popc) {
    for_lanes(lanes, [&](int l) { std::memcpy(row + 4 * l, &b.last_popc, 4); });
    return;
  }
  Mask m;
  std::memcpy(&m, row, 4);
  m = (m & ~lanes) | ((op.vec == all ? b.last_and : b.last_or) ? lanes : 0);
  std::memcpy(row, &m, 4);
}

bool barrier_done(Warp& w, const Fragment& f) {
  const NamedBarrier& b = w.cta->barriers[f.key & 15];
  if (b.generation == f.key >> 4) return false;
  write_result(f.frame->registers, *f.at, b, f.lanes);
  if (w.race) race::barrier_leave(w, std::uint32_t(f.key & 15), f.lanes);
  return true;
}

std::string describe_barrier(const Warp& w, const Fragment& f) {
  const NamedBarrier& b = w.cta->barriers[f.key & 15];
  const std::uint32_t expected = b.expected ? b.expected : w.cta->threads - w.cta->exited;
  std::string s =
      cat("wait for barrier ", f.key & 15, ": ", b.arrived, " of ", expected, " threads have arrived");
  std::string missing, gone;
  for (const auto& other : w.cta->warps) {
    if (b.warps >> other->index & 1) continue;
    std::string& list = other->live ? missing : gone;
    list += cat(list.empty() ? "" : " ", other->index);
  }
  if (!missing.empty()) s += cat("; warps ", missing, " have not arrived");
  if (!gone.empty()) s += cat("; warps ", gone, " have exited");
  return s;
}

void finish(Cta& cta, NamedBarrier& b) {
  race::barrier_complete(cta, std::uint32_t(&b - cta.barriers.data()),
                         b.expected == 0 || b.expected == cta.threads);
  b.last_and = b.red_and;
  b.last_or = b.red_or;
  b.last_popc = b.red_popc;
  const std::uint64_t generation = b.generation + 1;
  const bool a = b.last_and, o = b.last_or;
  const std::uint32_t p = b.last_popc;
  b = NamedBarrier{};
  b.generation = generation;
  b.last_and = a;
  b.last_or = o;
  b.last_popc = p;
}

// Findings are put into words out of line: barriers are executed often.
#define CGP_EMU_RARE [[gnu::noinline, gnu::cold]]

// The mode and the count of all arrivals of one generation must agree.
bool agrees(const Op& op, const NamedBarrier& b, std::uint32_t count) {
  return b.expected == count && (b.mode == int(op.kind) || (b.mode != reduce && op.kind != reduce));
}
CGP_EMU_RARE void report_disagreement(Warp& w, const Op& op, const NamedBarrier& b, std::uint32_t id,
                                      std::uint32_t count) {
  const auto line = w.worker->launch->program->inst(b.first->inst).ptx_line;
  if (b.mode != int(op.kind) && (b.mode == reduce || op.kind == reduce))
    w.fail(
        Check::barrier, "barrier.count", op, w.active,
        cat("barrier ", id,
            " is used with .red and without in one generation (the first arrival was PTX line ", line, ")"));
  w.fail(Check::barrier, "barrier.count", op, w.active,
         cat("barrier ", id, " is waited for with ",
             count ? cat(count, " threads") : std::string("all threads"), ", the first arrival (PTX line ",
             line, ") said ", b.expected ? cat(b.expected, " threads") : std::string("all threads")));
}
CGP_EMU_RARE void report_operands(Warp& w, const Op& op, std::uint32_t id, std::uint32_t count) {
  if (id > 15)
    w.fail(Check::barrier, "barrier.count", op, w.active, cat("barrier ", id, ": there are 16, 0 to 15"));
  w.fail(Check::barrier, "barrier.count", op, w.active,
         cat("a thread count of ", count, ": it must be a multiple of ", kLanes));
}
CGP_EMU_RARE void report_too_many(Warp& w, const Op& op, const NamedBarrier& b, std::uint32_t id,
                                  std::uint32_t count) {
  w.fail(Check::barrier, "barrier.count", op, w.active,
         cat(b.arrived, " threads arrive at barrier ", id, ", which expects ", count));
}

CGP_EMU_RARE std::uint32_t same_in_lanes(Warp& w, const Op& op, Loc l, std::string_view what) {
  const auto* p = w.row<std::uint32_t>(l);
  const std::uint32_t v = p[std::countr_zero(w.active)];
  for_lanes(w.active, [&](int lane) {
    if (p[lane] != v)
      w.fail(Check::barrier, "barrier.divergence", op, lane_bit(lane),
             cat("lanes of one warp name different ", what, "s: ", v, " and ", p[lane]));
  });
  return v;
}

inline std::uint32_t warp_uniform(Warp& w, const Op& op, Loc l, std::string_view what) {
  return l & kConstant ? *w.row<std::uint32_t>(l) : same_in_lanes(w, op, l, what);
}

void exec_bar(Warp& w, const Op& op) {
  const bool aligned = op.small & 1;
  if (aligned && !w.converge(op)) return;
  const std::uint32_t id = warp_uniform(w, op, op.a, "barrier");
  const std::uint32_t count = op.b == kNoLoc ? 0 : warp_uniform(w, op, op.b, "thread count");
  if (id > 15 || count % kLanes) report_operands(w, op, id, count);
  NamedBarrier& b = w.cta->barriers[id];
  if (b.first) {
    if (!agrees(op, b, count)) report_disagreement(w, op, b, id, count);
  } else {
    b.first = &op;
    b.mode = op.kind;
    b.expected = count;
  }
  // An aligned barrier counts the whole warp, exited lanes included.
  const std::uint32_t joining = count && aligned ? kLanes : lane_count(w.active);
  b.arrived += joining;
  b.warps |= 1u << w.index;
  if (op.vec != none) {
    const Mask p = w.pred(op.c);
    b.red_and = b.red_and && (p & w.active) == w.active;
    b.red_or = b.red_or || (p & w.active);
    b.red_popc += std::uint32_t(std::popcount(p & w.active));
  }
  if (count && b.arrived > count) report_too_many(w, op, b, id, count);
  if (w.race) race::barrier_arrive(w, id, w.active, op.kind != arrive);
  if (barrier_complete(*w.cta, b)) {
    finish(*w.cta, b);
    if (op.kind != arrive && w.race) race::barrier_leave(w, id, w.active);
    return write_result(w.base[0], op, b, w.active);
  }
  if (op.kind == arrive) return;
  w.wait_past(op, barrier_done, describe_barrier, key_of(id, b.generation));
  if (w.others.size() == 1 && !w.lanes) w.event = Warp::idle;
}

void decode_bar(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {Mod::aligned, Mod::popc, Mod::and_, Mod::or_, Mod::cta});
  const bool old = i.op == POp::bar_sync || i.op == POp::bar_arrive || i.op == POp::bar_red;
  op.flags |= kSplits;
  op.small = old || i.has(Mod::aligned) ? 1 : 0;
  op.kind = i.op == POp::bar_sync || i.op == POp::barrier_sync       ? sync
            : i.op == POp::bar_arrive || i.op == POp::barrier_arrive ? arrive
                                                                     : reduce;
  op.vec = none;
  std::size_t at = 0;
  std::size_t last = i.operands.size();
  if (op.kind == reduce) {
    op.vec = i.has(Mod::popc) ? popc : i.has(Mod::and_) ? all : any;
    op.d = op.vec == popc ? d.dest(d.operand(i, 0), Mod::u32) : d.pred_dest(d.operand(i, 0));
    at = 1;
    last = i.operands.size() - 1;
    op.c = d.pred(d.operand(i, last));
  }
  op.a = d.source(d.operand(i, at), Mod::u32);
  if (at + 1 < last) op.b = d.source(d.operand(i, at + 1), Mod::u32);
  op.fn = exec_bar;
}

// ---------------------------------------------------------------- warps and fences
void exec_warp_sync(Warp& w, const Op& op) {
  Meeting meeting;
  meet_members(w, op, op.a, std::uint32_t(POp::bar_warp_sync), meeting);
}
void decode_warp_sync(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {});
  op.flags |= kSplits;
  op.a = d.source(d.operand(i, 0), Mod::b32);
  op.fn = exec_warp_sync;
}

void exec_fence(Warp& w, const Op& op) {
  race::fence(w, op);
  note_release(w);
#if defined(__SANITIZE_THREAD__)  // ThreadSanitizer does not understand fences
  static std::atomic<int> order{0};
  order.fetch_add(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}
void decode_fence(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(
      d, i,
      {Mod::cta, Mod::cluster, Mod::gpu, Mod::sys, Mod::gl, Mod::sc, Mod::acq_rel, Mod::acquire, Mod::release,
       Mod::proxy, Mod::alias, Mod::sync_restrict_shared_cta, Mod::sync_restrict_shared_cluster});
  op.fn = exec_fence;
}
}  // namespace

bool barrier_complete(const Cta& cta, const NamedBarrier& b) {
  if (!b.first || b.mode < 0) return false;
  return b.expected ? b.arrived >= b.expected : b.arrived >= cta.threads - cta.exited;
}

void release_barriers(Cta& cta) {
  for (NamedBarrier& b : cta.barriers)
    if (b.first && b.expected == 0 && b.arrived && barrier_complete(cta, b)) finish(cta, b);
}

void add_barrier(Table& t) {
  for (POp o : {POp::bar_sync, POp::bar_arrive, POp::bar_red, POp::barrier_sync, POp::barrier_arrive,
                POp::barrier_red})
    t.set(o, decode_bar);
  t.set(POp::bar_warp_sync, decode_warp_sync);
  t.set(POp::membar, decode_fence);
  t.set(POp::fence, decode_fence);
}

}  // namespace cgp::emu

// SPDX-License-Identifier: Apache-2.0
// mbarrier.* and the fences that go with it, griddepcontrol. PTX ISA 9.7.13.15. Semantics (.release,
// .acquire) and scopes order nothing here: the machine executes one warp instruction at a time.
#include "cgp/base/text.h"
#include "cgp/emu/async/mbarrier.h"
#include "cgp/emu/core/dsmem_lifetime.h"
#include "cgp/emu/core/machine_impl.h"
#include "cgp/emu/decode/tensor_families.h"
#include "cgp/emu/race/race.h"

namespace cgp::emu {
namespace {

using ptx::Inst;
using ptx::Mod;
using ptx::OperandKind;
using text::cat;

std::size_t address_operand(Decoder& d, const Inst& i) {
  for (std::size_t n = 0; n < i.operands.size(); ++n)
    if (i.operands[n].kind == OperandKind::address) return n;
  d.unsupported("it has no address operand");
}

template <class F>
void each_barrier(Warp& w, const Op& op, bool fresh, F&& f) {
  std::uint64_t address[kLanes];
  w.addresses(op, address);
  for_lanes(w.active, [&](int lane) {
    if (const MbarrierRef r = find_mbarrier(w, op, op.where, address[lane], lane, fresh)) {
      const std::uint64_t phase = r.state->phase;
      f(lane, r);
      r.publish(w, op);
      if (r.state->phase > phase) race::mbarrier_complete(w, *r.cta, r.offset);
      if (r.cta != w.cta) note_release(w);
    }
  });
  race::issued(w);
  note_change(w);
}

// ---------------------------------------------------------------- init, inval
void exec_init(Warp& w, const Op& op) {
  const std::uint32_t* count = w.row<std::uint32_t>(op.b);
  std::uint64_t address[kLanes];
  w.addresses(op, address);
  each_barrier(w, op, true, [&](int lane, const MbarrierRef& r) {
    std::uint64_t word = 0;
    std::memcpy(&word, r.host, 8);
    if (r.state->valid && word == r.state->word())
      w.report(Check::barrier, "mbarrier.state", op, lane_bit(lane),
               cat("mbarrier.init over the live ", mbarrier_name(w, r.address(), r.state)),
               "one thread initialises it once; mbarrier.inval first to reuse the memory", r.offset);
    if (count[lane] == 0 || count[lane] > Mbarrier::kMaxCount) {
      w.report(Check::barrier, "mbarrier.count", op, lane_bit(lane),
               cat("an expected count of ", count[lane], "; it is 1 to ", Mbarrier::kMaxCount), {}, r.offset);
      return;
    }
    r.state->init(count[lane]);
    r.state->made_by = &op;
    race::mbarrier_init(w, op, lane, *r.cta, r.offset);
    mark_unwritten(w, op.where, address[lane], 8);  // its bytes are opaque: reading them is an error
  });
}
void decode_init(Decoder& d, const Inst& i, Op& op) {
  d.set_address(d.operand(i, 0), op);
  op.b = d.source(d.operand(i, 1), Mod::u32);
  op.where = d.where(i);
  op.fn = exec_init;
}

void exec_inval(Warp& w, const Op& op) {
  each_barrier(w, op, false, [](int, const MbarrierRef& r) { r.state->valid = false; });
}
void decode_inval(Decoder& d, const Inst& i, Op& op) {
  d.set_address(d.operand(i, 0), op);
  op.where = d.where(i);
  op.fn = exec_inval;
}

// ---------------------------------------------------------------- arrive, expect_tx, complete_tx
enum class Arrive : std::uint8_t { plain, no_complete, expect_tx, drop, drop_no_complete, drop_expect_tx };

// op.d: state or scratch; op.b: count or bytes.
void exec_arrive(Warp& w, const Op& op) {
  const std::uint32_t* operand = w.row<std::uint32_t>(op.b);
  std::uint64_t* token = op.d == kNoLoc ? nullptr : w.row<std::uint64_t>(op.d);
  each_barrier(w, op, false, [&](int lane, const MbarrierRef& r) {
    Mbarrier& b = *r.state;
    race::mbarrier_arrive(w, op, lane, *r.cta, r.offset);
    if (token) token[lane] = b.token();
    const auto check = [&](const std::string& what) {
      report_mbarrier(w, op, lane, r, what);
      return what.empty();
    };
    switch (Arrive(op.kind)) {
      case Arrive::plain:
        check(b.arrive(operand[lane]));
        break;
      case Arrive::no_complete:
        check(b.arrive_without_completing(operand[lane]));
        break;
      case Arrive::expect_tx:
        if (check(b.expect(operand[lane]))) check(b.arrive(1));
        break;
      case Arrive::drop:
        check(b.drop(operand[lane]));
        break;
      case Arrive::drop_no_complete:
        if (operand[lane] < b.pending)
          check(b.drop(operand[lane]));
        else
          check(b.arrive_without_completing(operand[lane]));
        break;
      case Arrive::drop_expect_tx:
        if (check(b.expect(operand[lane]))) check(b.drop(1));
        break;
    }
  });
}
void decode_arrive(Decoder& d, const Inst& i, Op& op) {
  const bool drop = i.op == ptx::Op::mbarrier_arrive_drop;
  const std::size_t at = address_operand(d, i);
  const bool tx = i.has(Mod::expect_tx);
  op.kind = std::uint8_t(tx                       ? (drop ? Arrive::drop_expect_tx : Arrive::expect_tx)
                         : i.has(Mod::noComplete) ? (drop ? Arrive::drop_no_complete : Arrive::no_complete)
                                                  : (drop ? Arrive::drop : Arrive::plain));
  if (at == 1 && d.operand(i, 0).kind != OperandKind::sink) op.d = d.dest(d.operand(i, 0), Mod::b64);
  d.set_address(d.operand(i, at), op);
  op.where = d.where(i);
  if (i.operands.size() > at + 1)
    op.b = d.source(d.operand(i, at + 1), Mod::u32);
  else if (tx)
    d.unsupported("expect_tx without a byte count");
  else
    op.b = d.constant(1, 32);
  op.fn = exec_arrive;
}

void exec_tx(Warp& w, const Op& op) {
  const std::uint32_t* bytes = w.row<std::uint32_t>(op.b);
  each_barrier(w, op, false, [&](int lane, const MbarrierRef& r) {
    report_mbarrier(w, op, lane, r, op.kind ? r.state->complete(bytes[lane]) : r.state->expect(bytes[lane]));
  });
}
void decode_tx(Decoder& d, const Inst& i, Op& op) {
  d.set_address(d.operand(i, 0), op);
  op.b = d.source(d.operand(i, 1), Mod::u32);
  op.where = d.where(i);
  op.kind = i.op == ptx::Op::mbarrier_complete_tx;
  op.fn = exec_tx;
}

// ---------------------------------------------------------------- test_wait, try_wait
// Fragment::key is the barrier (rank << 24 | offset); extra is the phase waited for << 1 | its parity, or the
// token.
struct WaitFor {
  bool parity = false;
  bool may_block = false;  ///< try_wait
  bool done(const Mbarrier& b, std::uint64_t operand) const {
    return parity ? b.parity_done(std::uint32_t(operand)) : b.token_done(operand);
  }
};

Mbarrier* waited(Cluster& cluster, std::uint64_t key) {
  const auto rank = std::size_t(key >> kRankShift);
  if (rank >= cluster.ctas.size()) return nullptr;
  MbarrierTable& t = state_of<MbarrierTable>(*cluster.ctas[rank], kMbarrierSlot);
  const auto it = t.at.find(std::uint32_t(key & ((1u << kRankShift) - 1)));
  return it == t.at.end() ? nullptr : &it->second;
}

bool wait_ready(Warp& w, const Fragment& f) {
  const Mbarrier* b = waited(*w.cta->cluster, f.key);
  if (!b || !b->valid) return true;
  if (!f.at->data_as<WaitFor>().parity) return b->token_done(f.extra);
  const std::uint64_t phase = f.extra >> 1;
  if (b->phase > phase + 1)
    w.report(
        Check::barrier, "mbarrier.phase", *f.at, f.lanes,
        cat("waits for phase ", phase, " of ", mbarrier_name(w, f.key, b), ", which is in phase ", b->phase,
            ": the next phase completed before this thread saw the end of its own, and parity ", phase & 1,
            " now means phase ", phase + 2),
        "let the next phase depend on an arrival of every thread that waits for this one", f.key);
  return b->phase > phase;
}
std::string wait_describe(const Warp& w, const Fragment& f) {
  const Mbarrier* b = waited(*w.cta->cluster, f.key);
  std::string s = mbarrier_name(w, f.key, b);
  if (!b || !b->valid) return s + ", which is not initialised";
  s += cat(" phase ", b->phase, ": ", b->describe());
  if (f.pc->data_as<WaitFor>().parity)
    s += cat(" (waits for parity ", f.extra & 1, ", done when phase ", f.extra >> 1, " completes)");
  if (!b->last_op) return s;
  const ProgramImpl& p = *w.worker->launch->program;
  return s + cat(", last changed by warp ", b->last_warp, " of block (", b->last_block.x, ",",
                 b->last_block.y, ",", b->last_block.z, ") at ", line_text(p, b->last_op->inst), " '",
                 ptx::name(p.inst(b->last_op->inst).op), "',");
}

// A loop that does nothing but poll: after this many rounds in which nothing else of the cluster could run
// and the barrier stayed as it was, the wait is no longer given up, so that the machine sees a deadlock.
constexpr int kSpinRounds = 64;
constexpr std::uint64_t kTightLoop = 4;  // instructions from one poll to the next

struct Spin {
  std::uint64_t key = 0, word = 0, steps = 0;
  int rounds = 0;
};
// Under AsyncPolicy::random, one look in so many is false although it need not be.
constexpr std::uint64_t kSpurious = 4;

struct SpinState {
  std::unordered_map<const Op*, Spin> at;
};

bool spins(Warp& w, const Op& op, std::uint64_t key) {
  Spin& s = state_of<SpinState>(w, kMbarrierSlot).at[&op];
  const Mbarrier* b = waited(*w.cta->cluster, key);
  const std::uint64_t word = b ? b->word() : 0;
  const bool same = s.key == key && s.word == word && w.steps - s.steps <= kTightLoop;
  s = {key, word, w.steps, same ? s.rounds + 1 : 0};
  return s.rounds > kSpinRounds;
}

// Lanes whose wait succeeded have what the phase brought.
void acquire(Warp& w, const Op& op, Mask done, const std::uint64_t* address) {
  while (done) {
    const std::uint64_t first = address[std::countr_zero(done)];
    Mask same = 0;
    for_lanes(done, [&](int l) { same |= address[l] == first ? lane_bit(l) : 0; });
    if (const SharedPlace p = shared_place(w, op.where, first); p.cta)
      race::mbarrier_acquire(w, op, same, *p.cta, p.offset);
    done &= ~same;
  }
}

void exec_wait(Warp& w, const Op& op) {
  const auto& what = op.data_as<WaitFor>();
  std::uint64_t address[kLanes];
  w.addresses(op, address);
  Mask done = 0, broken = 0;
  std::uint64_t key = 0, operand_of_key = 0;
  for_lanes(w.active, [&](int lane) {
    const MbarrierRef r = find_mbarrier(w, op, op.where, address[lane], lane, false);
    if (!r) {
      broken |= lane_bit(lane);
      return;
    }
    const std::uint64_t operand =
        what.parity ? w.row<std::uint32_t>(op.b)[lane] & 1 : w.row<std::uint64_t>(op.b)[lane];
    if (!what.parity && r.state->token_stale(operand))
      w.report(Check::barrier, "mbarrier.phase", op, lane_bit(lane),
               cat("the state is of phase ", operand >> 20, " of ", mbarrier_name(w, r.address(), r.state),
                   ", which is in phase ", r.state->phase,
                   ": a wait is defined for the current phase and the one before"),
               "wait for each phase before the next but one can complete", r.offset);
    if (what.done(*r.state, operand)) {
      done |= lane_bit(lane);
    } else {
      key = std::uint64_t(r.cta->rank) << kRankShift | r.offset;
      operand_of_key = what.parity ? r.state->phase << 1 | operand : operand;
    }
  });
  if (broken)
    w.fail(Check::barrier, "mbarrier.state", op, broken,
           "a wait on something that is not an mbarrier never ends",
           "mbarrier.init before the first wait, with a barrier between them");
  AsyncQueue& queue = w.cta->cluster->async;
  if (what.may_block && queue.policy == AsyncPolicy::random && queue.draw() % kSpurious == 0)
    return w.set_pred(op.d, 0, w.active);
  // Blocking until the phase ends is what both forms may do; a wait that nothing ends is resumed with false.
  if (!done && (!w.timed_out || spins(w, op, key)))
    return w.wait(op, wait_ready, wait_describe, key, operand_of_key, !w.timed_out);
  if (done) note_acquire(w);
  if (w.race) acquire(w, op, done, address);
  w.set_pred(op.d, done, w.active);
}
void decode_wait(Decoder& d, const Inst& i, Op& op) {
  WaitFor what;
  what.parity = i.has(Mod::parity);
  what.may_block = i.op == ptx::Op::mbarrier_try_wait;
  op.d = d.pred_dest(d.operand(i, 0));
  d.set_address(d.operand(i, 1), op);
  op.b = d.source(d.operand(i, 2), what.parity ? Mod::u32 : Mod::b64);
  if (i.operands.size() > 3) d.source(d.operand(i, 3), Mod::u32);  // the time hint bounds nothing here
  op.where = d.where(i);
  op.data = d.keep(what);
  op.flags |= kSplits;
  op.fn = exec_wait;
}

void exec_pending_count(Warp& w, const Op& op) {
  const std::uint64_t* token = w.row<std::uint64_t>(op.a);
  std::uint32_t* out = w.row<std::uint32_t>(op.d);
  for_lanes(w.active, [&](int lane) { out[lane] = Mbarrier::token_pending(token[lane]); });
}
void decode_pending_count(Decoder& d, const Inst& i, Op& op) {
  op.d = d.dest(d.operand(i, 0), Mod::u32);
  op.a = d.source(d.operand(i, 1), Mod::b64);
  op.fn = exec_pending_count;
}

void exec_nothing(Warp&, const Op&) {}
void decode_nothing(Decoder&, const Inst&, Op& op) { op.fn = exec_nothing; }

// Fences change nothing but what is ordered before what.
void exec_init_fence(Warp& w, const Op& op) { race::fence(w, op); }
void decode_init_fence(Decoder&, const Inst&, Op& op) { op.fn = exec_init_fence; }
void exec_proxy_fence(Warp& w, const Op&) { race::proxy_fence(w); }
void exec_map_fence(Warp& w, const Op& op) {
  race::fence(w, op);
  if (op.kind == 0) return;  // .release
  std::uint64_t address[kLanes];
  w.addresses(op, address);
  race::map_fence(w, op, address);
}
void decode_proxy_fence(Decoder& d, const Inst& i, Op& op) {
  op.fn = i.has(Mod::async) || i.has(Mod::async_generic) ? exec_proxy_fence : exec_nothing;  // .alias
  if (!i.has(Mod::tensormap_generic)) return;
  op.fn = exec_map_fence;
  op.kind = i.has(Mod::acquire);
  if (op.kind) d.set_address(d.operand(i, 0), op);
}

}  // namespace

void add_mbarrier(Table& t) {
  t.set(ptx::Op::mbarrier_init, decode_init);
  t.set(ptx::Op::mbarrier_inval, decode_inval);
  t.set(ptx::Op::mbarrier_arrive, decode_arrive);
  t.set(ptx::Op::mbarrier_arrive_drop, decode_arrive);
  t.set(ptx::Op::mbarrier_expect_tx, decode_tx);
  t.set(ptx::Op::mbarrier_complete_tx, decode_tx);
  t.set(ptx::Op::mbarrier_test_wait, decode_wait);
  t.set(ptx::Op::mbarrier_try_wait, decode_wait);
  t.set(ptx::Op::mbarrier_pending_count, decode_pending_count);
  t.set(ptx::Op::fence_mbarrier_init, decode_init_fence);
  t.set(ptx::Op::fence_proxy, decode_proxy_fence);
  // One grid runs at a time: the grids it depends on have completed.
  t.set(ptx::Op::griddepcontrol, decode_nothing);
}

}  // namespace cgp::emu

// SPDX-License-Identifier: Apache-2.0
// cp.async and its groups. PTX ISA 9.7.9.25.3. Every lane is its own agent; a group that is waited for forces
// the operations in it.
#include "cgp/base/text.h"
#include "cgp/emu/async/async_ops.h"
#include "cgp/emu/core/host_memory.h"
#include "cgp/emu/decode/tensor_families.h"
#include "cgp/emu/race/race.h"

namespace cgp::emu {
namespace {

using ptx::Inst;
using ptx::Mod;
using ptx::OperandKind;
using text::cat;

struct CopyPlan {
  Address to, from;
  Where to_where = Where::shared, from_where = Where::global;
  std::uint32_t bytes = 16;
  Loc size = kNoLoc;    // bytes to read, the rest is zero
  Loc ignore = kNoLoc;  // predicate: read nothing
};

/// The copies of one warp instruction. Shared with a cp.async.mbarrier.arrive that must follow them.
struct CopyWork {
  Issuer by;
  const CopyPlan* plan = nullptr;
  Mask lanes = 0, readable = 0, initialised = 0;
  std::array<std::uint64_t, kLanes> group{}, to_address{};
  std::array<std::uint32_t, kLanes> read_bytes{};
  std::array<std::byte*, kLanes> to{}, from{};
  alignas(16) std::array<std::array<std::byte, 16>, kLanes> data;
  bool sampled = false, done = false;

  void sample() {
    sampled = true;
    for_lanes(lanes, [&](int l) {
      const auto i = std::size_t(l);
      std::memset(data[i].data(), 0, 16);
      if (readable >> l & 1) copy_from_device(data[i].data(), from[i], read_bytes[i]);
    });
  }
  void finish() {
    if (done) return;
    if (!sampled) sample();
    done = true;
    for_lanes(lanes, [&](int l) {
      const auto i = std::size_t(l);
      std::memcpy(to[i], data[i].data(), plan->bytes);
      if (initialised >> l & 1) mark_written(*by.warp, plan->to_where, to_address[i], plan->bytes);
    });
    note_change(*by.warp);
  }
};

struct CopyOp : AsyncOp {
  std::shared_ptr<CopyWork> work;
  void poison() override {
    for_lanes(work->lanes, [&](int l) { poison_bytes(work->to[std::size_t(l)], work->plan->bytes); });
  }
  void read() override {
    if (!work->sampled) work->sample();
  }
  void complete() override { work->finish(); }
};

struct CopyState {
  std::vector<std::weak_ptr<CopyWork>> pending;  // of this warp, for mbarrier.arrive
};
CopyState& copies(Warp& w) { return state_of<CopyState>(w, std::uint32_t(ptx::Family::async) + 64); }

// Sources: full lanes together, short ones (zero fill) one by one, since each reads its own length.
void resolve_sources(Warp& w, const Op& op, CopyWork& work, const std::uint64_t* address) {
  const CopyPlan& p = *work.plan;
  Mask full = 0;
  for_lanes(work.lanes, [&](int l) {
    const auto i = std::size_t(l);
    std::uint32_t n = p.bytes;
    if (p.size != kNoLoc) n = w.row<std::uint32_t>(p.size)[l];
    if (p.ignore != kNoLoc && (w.pred(p.ignore) >> l & 1)) n = 0;
    if (n > p.bytes) {
      w.report(Check::bounds, "oob.global", op, lane_bit(l),
               cat("cp.async of ", p.bytes, " bytes with a source size of ", n),
               "the source size is at most the copy size; the rest is filled with zeros");
      n = p.bytes;
    }
    work.read_bytes[i] = n;
    if (n == p.bytes) {
      full |= lane_bit(l);
    } else if (n) {
      work.from[i] = resolve_one(w, op, p.from_where, address[l], n, Access::read, l, p.bytes);
      if (work.from[i]) work.readable |= lane_bit(l);
    }
  });
  if (full)
    work.readable |= resolve(w, op, p.from_where, address, p.bytes, Access::read, full, work.from.data());
  count_global(w, op, GlobalKind::load, p.bytes, address, work.readable);
}

// Lanes that read as much as they write; the others (zero fill) read less or nothing.
Mask full_reads(const CopyWork& work) {
  Mask m = 0;
  for_lanes(work.readable, [&](int l) {
    if (work.read_bytes[std::size_t(l)] == work.plan->bytes) m |= lane_bit(l);
  });
  return m;
}

void exec_copy(Warp& w, const Op& op) {
  const auto& p = op.data_as<CopyPlan>();
  auto work = std::make_shared<CopyWork>();
  work->by = {&w, &op, std::countr_zero(w.active)};
  work->plan = &p;
  std::uint64_t from[kLanes];
  w.addresses(p.to, work->to_address.data());
  w.addresses(p.from, from);
  work->lanes = resolve(w, op, p.to_where, work->to_address.data(), p.bytes, Access::async_write, w.active,
                        work->to.data());
  w.unwritten = 0;
  resolve_sources(w, op, *work, from);
  // A copy of never-written bytes leaves the destination never written: only their use is an error.
  work->initialised = work->lanes & ~w.unwritten;
  w.unwritten = 0;
  race::copy_access(w, op, p.from_where, from, p.bytes, race::Use::read, full_reads(*work));
  race::copy_access(w, op, p.to_where, work->to_address.data(), p.bytes, race::Use::write, work->lanes);
  AsyncQueue& queue = w.cta->cluster->async;
  if (queue.policy == AsyncPolicy::eager) return work->finish();
  work->group = groups(w).copies;
  auto pending = std::make_unique<CopyOp>();
  pending->work = work;
  copies(w).pending.push_back(work);
  queue.submit(std::move(pending));
}

void decode_copy(Decoder& d, const Inst& i, Op& op) {
  CopyPlan p;
  p.to = d.address(d.operand(i, 0));
  p.from = d.address(d.operand(i, 1));
  p.bytes = std::uint32_t(d.immediate(d.operand(i, 2)));
  if (p.bytes != 4 && p.bytes != 8 && p.bytes != 16) d.unsupported("the copy size must be 4, 8 or 16 bytes");
  if (i.has(Mod::cg) && p.bytes != 16) d.unsupported("cp.async.cg copies 16 bytes");
  const std::size_t end = i.operands.size() - (i.has(Mod::L2_cache_hint) ? 1 : 0);
  if (end > 3) {
    const ptx::Operand& o = d.operand(i, 3);
    if (d.cell_bits(o) == 1)
      p.ignore = d.pred(o);
    else
      p.size = d.source(o, Mod::u32);
  }
  op.data = d.keep(std::move(p));
  op.fn = exec_copy;
}

// ---------------------------------------------------------------- groups
void exec_commit(Warp& w, const Op&) {
  GroupState& g = groups(w);
  for_lanes(w.active, [&](int l) { ++g.copies[std::size_t(l)]; });
  race::commit_group(w, race::Group::copy);
}
void decode_commit(Decoder&, const Inst&, Op& op) { op.fn = exec_commit; }

// op.imm: groups that may stay pending; -1: wait_all, which also covers copies not yet committed.
void exec_wait_group(Warp& w, const Op& op) {
  race::wait_group(w, race::Group::copy, op.imm);
  AsyncQueue& queue = w.cta->cluster->async;
  if (!queue.pending()) return;
  const GroupState& g = groups(w);
  queue.force([&](const AsyncOp& x) {
    const auto* copy = dynamic_cast<const CopyOp*>(&x);
    if (!copy || copy->work->by.warp != &w) return false;
    bool covered = false;
    for_lanes(copy->work->lanes & w.active, [&](int l) {
      const auto i = std::size_t(l);
      covered = covered || op.imm < 0 || copy->work->group[i] + std::uint64_t(op.imm) < g.copies[i];
    });
    return covered;
  });
}
void decode_wait_group(Decoder& d, const Inst& i, Op& op) {
  op.imm = i.op == ptx::Op::cp_async_wait_all ? -1 : std::int64_t(d.immediate(d.operand(i, 0)));
  op.fn = exec_wait_group;
}

// ---------------------------------------------------------------- completion through an mbarrier
/// The arrival that follows the copies issued before it by the same threads.
struct ArriveOp : AsyncOp {
  Issuer by;
  SharedPlace barrier;
  race::ReleasedPtr released;
  std::vector<std::shared_ptr<CopyWork>> after;
  void complete() override {
    for (const auto& work : after) work->finish();
    if (barrier.cta->done) return;  // nobody waited for it
    arrive_for(by, barrier, released);
    note_change(*by.warp);
  }
};

void exec_arrive(Warp& w, const Op& op) {
  std::uint64_t address[kLanes];
  w.addresses(op, address);
  CopyState& mine = copies(w);
  std::erase_if(mine.pending, [](const auto& weak) {
    const auto work = weak.lock();
    return !work || work->done;
  });
  const bool count_up = op.kind == 0;  // without .noinc
  for_lanes(w.active, [&](int lane) {
    const MbarrierRef r = find_mbarrier(w, op, op.where, address[lane], lane, false);
    if (!r) return;
    if (count_up) {
      report_mbarrier(w, op, lane, r, r.state->add_pending());
      r.publish();
    }
    auto arrive = std::make_unique<ArriveOp>();
    arrive->by = {&w, &op, lane};
    arrive->released = race::copies_so_far(w, lane);
    arrive->barrier = {r.cta, r.offset};
    for (const auto& weak : mine.pending)
      if (auto work = weak.lock(); work && (work->lanes >> lane & 1))
        arrive->after.push_back(std::move(work));
    w.cta->cluster->async.submit(std::move(arrive));
  });
  race::issued(w);
}
void decode_arrive(Decoder& d, const Inst& i, Op& op) {
  d.set_address(d.operand(i, 0), op);
  op.where = d.where(i);
  op.kind = i.has(Mod::noinc);
  op.fn = exec_arrive;
}

}  // namespace

void add_cp_async(Table& t) {
  t.set(ptx::Op::cp_async, decode_copy);
  t.set(ptx::Op::cp_async_commit_group, decode_commit);
  t.set(ptx::Op::cp_async_wait_group, decode_wait_group);
  t.set(ptx::Op::cp_async_wait_all, decode_wait_group);
  t.set(ptx::Op::cp_async_mbarrier_arrive, decode_arrive);
}

}  // namespace cgp::emu

// SPDX-License-Identifier: Apache-2.0
// Clusters: mapa, getctarank, barrier.cluster, st.async, red.async; and setmaxnreg. PTX ISA 9.7.8.22,
// 9.7.13.4, 9.7.9.12, 9.7.13.9, 9.7.20.5.
#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/emu/async/async_ops.h"
#include "cgp/emu/core/dsmem_lifetime.h"
#include "cgp/emu/core/machine_impl.h"
#include "cgp/emu/decode/decode_rewrite.h"
#include "cgp/emu/decode/tensor_families.h"

namespace cgp::emu {
namespace {

using ptx::Inst;
using ptx::Mod;
using ptx::OperandKind;
using text::cat;

// ---------------------------------------------------------------- mapa, getctarank
constexpr std::uint64_t kOffsetMask = (1u << kRankShift) - 1;

void exec_mapa(Warp& w, const Op& op) {
  const std::uint32_t* rank = w.row<std::uint32_t>(op.b);
  for_lanes(w.active, [&](int l) {
    const std::uint64_t a = op.bytes == 8 ? w.row<std::uint64_t>(op.a)[l] : w.row<std::uint32_t>(op.a)[l];
    const std::uint64_t to = (a & ~0xffffffffull) | std::uint64_t(rank[l]) << kRankShift | (a & kOffsetMask);
    if (op.bytes == 8)
      w.row<std::uint64_t>(op.d)[l] = to;
    else
      w.row<std::uint32_t>(op.d)[l] = std::uint32_t(to);
  });
}
void decode_mapa(Decoder& d, const Inst& i, Op& op) {
  const Mod type = i.type(0);
  op.bytes = std::uint8_t(ptx::type_bits(type) / 8);
  op.d = d.dest(d.operand(i, 0), type);
  op.a = d.source(d.operand(i, 1), type);
  op.b = d.source(d.operand(i, 2), Mod::u32);
  op.fn = exec_mapa;
}

void exec_getctarank(Warp& w, const Op& op) {
  std::uint32_t* out = w.row<std::uint32_t>(op.d);
  for_lanes(w.active, [&](int l) {
    const std::uint64_t a = op.bytes == 8 ? w.row<std::uint64_t>(op.a)[l] : w.row<std::uint32_t>(op.a)[l];
    out[l] = std::uint32_t(a) >> kRankShift;
  });
}
void decode_getctarank(Decoder& d, const Inst& i, Op& op) {
  const Mod type = i.type(0);
  op.bytes = std::uint8_t(ptx::type_bits(type) / 8);
  op.d = d.dest(d.operand(i, 0), Mod::u32);
  op.a = d.source(d.operand(i, 1), type);
  op.fn = exec_getctarank;
}

// ---------------------------------------------------------------- barrier.cluster
struct ClusterBarrier {
  std::uint64_t generation = 0;
};
struct ClusterArrivals {  // of one warp
  Mask arrived = 0;       // in the current generation
  std::array<std::uint64_t, kLanes> generation{};
  Mask owing = 0;  // lanes that arrived and have not waited
};
constexpr std::uint32_t kClusterSlot = std::uint32_t(ptx::Family::barrier) + 128;

ClusterArrivals& arrivals(Warp& w) { return state_of<ClusterArrivals>(w, kClusterSlot); }

// Ends the generation when every thread that has not exited has arrived.
void try_complete(Cluster& c) {
  for (auto& cta : c.ctas)
    for (auto& w : cta->warps)
      if (w->live & ~arrivals(*w).arrived) return;
  ++state_of<ClusterBarrier>(c, kClusterSlot).generation;
  race::cluster_complete(c);
  for (auto& cta : c.ctas)
    for (auto& w : cta->warps) arrivals(*w).arrived = 0;
}

void exec_arrive(Warp& w, const Op& op) {
  if (op.kind && !w.converge(op)) return;
  Cluster& c = *w.cta->cluster;
  ClusterArrivals& mine = arrivals(w);
  if (const Mask twice = mine.owing & w.active) {
    w.fail(Check::barrier, "barrier.count", op, twice,
           "barrier.cluster.arrive again before barrier.cluster.wait",
           "arrive and wait alternate in every thread");
    return;
  }
  note_release(w);
  mine.arrived |= w.active;
  mine.owing |= w.active;
  const std::uint64_t generation = state_of<ClusterBarrier>(c, kClusterSlot).generation;
  for_lanes(w.active, [&](int l) { mine.generation[std::size_t(l)] = generation; });
  race::cluster_arrive(w, w.active, op.small != 0);
  try_complete(c);
  note_change(w);
}

bool cluster_ready(Warp& w, const Fragment& f) {
  Cluster& c = *w.cta->cluster;
  auto& b = state_of<ClusterBarrier>(c, kClusterSlot);
  if (b.generation <= f.key) try_complete(c);  // threads may have exited since
  return b.generation > f.key;
}
std::string cluster_describe(const Warp& w, const Fragment&) {
  std::size_t total = 0;
  std::string missing;
  for (auto& cta : w.cta->cluster->ctas) {
    std::size_t absent = 0;
    for (auto& other : cta->warps) {
      total += std::size_t(std::popcount(other->live));
      absent += std::size_t(std::popcount(other->live & ~arrivals(*other).arrived));
    }
    if (absent) missing += cat(missing.empty() ? "" : ", ", absent, " threads of CTA rank ", cta->rank);
  }
  return cat("barrier.cluster: of ", total, " threads, ", missing, " have not arrived");
}

void exec_wait(Warp& w, const Op& op) {
  if (op.kind && !w.converge(op)) return;
  ClusterArrivals& mine = arrivals(w);
  if (const Mask missing = w.active & ~mine.owing) {
    w.fail(Check::barrier, "barrier.count", op, missing,
           "barrier.cluster.wait without a barrier.cluster.arrive before it",
           "every thread arrives before it waits");
    return;
  }
  const auto& barrier = state_of<ClusterBarrier>(*w.cta->cluster, kClusterSlot);
  const auto still_waiting = [&] {
    Mask m = 0;
    for_lanes(w.active,
              [&](int l) { m |= mine.generation[std::size_t(l)] >= barrier.generation ? lane_bit(l) : 0; });
    return m;
  };
  Mask waiting = still_waiting();
  if (waiting) {  // threads may have exited since
    try_complete(*w.cta->cluster);
    waiting = still_waiting();
  }
  if (waiting) {
    // Lanes that were held here meet others that come around again: those of the ended generation go on.
    const Mask over = w.active & ~waiting;
    w.active = waiting;
    w.wait(op, cluster_ready, cluster_describe, barrier.generation);
    if (!over) return;
    w.worker->pc[op.inst].lanes -= lane_count(waiting);
    w.active = over;
    w.event = Warp::jumped;
  }
  mine.owing &= ~w.active;
  race::cluster_leave(w, w.active, false);
  note_acquire(w);
}

void decode_arrive(Decoder&, const Inst& i, Op& op) {
  op.kind = i.has(Mod::aligned);
  op.small = i.has(Mod::relaxed);
  op.flags |= kSplits;
  op.fn = exec_arrive;
}
void decode_wait(Decoder&, const Inst& i, Op& op) {
  op.kind = i.has(Mod::aligned);
  op.flags |= kSplits;
  op.fn = exec_wait;
}

// ---------------------------------------------------------------- st.async, red.async
struct RemotePlan {
  Address to, barrier;
  Where where = Where::shared_cluster;
  std::vector<Loc> values;
  std::size_t element = 4;
  ReduceFn reduce = nullptr;
  Reduce how = Reduce::add;
};

struct RemoteOp : BulkOp {
  const RemotePlan* plan = nullptr;
  std::byte* to = nullptr;
  std::uint64_t address = 0;
  std::array<std::byte, 32> data{};
  std::size_t bytes = 0;
  void poison() override {
    if (to && !plan->reduce) poison_bytes(to, bytes);
  }
  void write() override {
    if (!to) return;
    if (plan->reduce)
      plan->reduce(plan->how, to, data.data(), plan->values.size());
    else
      std::memcpy(to, data.data(), bytes);
    mark_written(*by.warp, plan->where, address, bytes);
  }
};

void exec_remote(Warp& w, const Op& op) {
  const auto& p = op.data_as<RemotePlan>();
  std::uint64_t to[kLanes], barrier[kLanes];
  w.addresses(p.to, to);
  w.addresses(p.barrier, barrier);
  for_lanes(w.active, [&](int lane) {
    const MbarrierRef r = find_mbarrier(w, op, p.where, barrier[lane], lane, false);
    if (!r) return;
    auto x = std::make_unique<RemoteOp>();
    x->by = {&w, &op, lane};
    x->plan = &p;
    x->bytes = p.element * p.values.size();
    x->address = to[lane];
    const Access access = p.reduce ? Access::atomic : Access::async_write;
    x->to = resolve_one(w, op, p.where, to[lane], x->bytes, access, lane, std::uint32_t(x->bytes));
    const SharedPlace place = shared_place(w, p.where, to[lane]);
    if (x->to && place.cta != r.cta)
      w.report(Check::bounds, "oob.shared", op, lane_bit(lane),
               cat("the data goes to CTA rank ", place.cta ? place.cta->rank : 0,
                   ", the mbarrier is in rank ", r.cta->rank),
               "data and mbarrier must be in the same CTA's shared memory");
    for (std::size_t v = 0; v < p.values.size(); ++v) {
      std::uint64_t u =
          p.element == 8 ? w.row<std::uint64_t>(p.values[v])[lane] : w.row<std::uint32_t>(p.values[v])[lane];
      std::memcpy(x->data.data() + v * p.element, &u, p.element);
    }
    x->completion.barriers = {{r.cta, r.offset}};
    x->completion.bytes = x->bytes;
    if (w.race && x->to) {
      const BulkRace race(*x);
      race.write(0, p.where, to[lane], x->bytes, p.reduce ? race::Use::atomic : race::Use::write);
    }
    submit_bulk(std::move(x));
  });
}

void decode_remote(Decoder& d, const Inst& i, Op& op) {
  RemotePlan p;
  if (i.has(Mod::mmio) || !i.has(Mod::mbarrier_complete_tx_bytes)) return decode_mmio_async(d, i, op);
  const Mod type = i.type(0);
  p.to = d.address(d.operand(i, 0));
  p.values = d.sources(d.operand(i, 1), type);
  p.barrier = d.address(d.operand(i, 2));
  p.element = std::size_t(ptx::type_bits(type) / 8);
  if (i.op == ptx::Op::red_async) {
    p.how = reduce_of(d, i);
    p.reduce = reduce_function(type, p.how);
    if (!p.reduce) d.unsupported("this reduction with this type");
  }
  op.data = d.keep(std::move(p));
  op.fn = exec_remote;
}

// ---------------------------------------------------------------- setmaxnreg
// The registers of a block: each warp has an allowance; `dec` gives back to the block's pool, `inc` waits for
// it.
struct RegisterPool {
  std::uint32_t initial = 0;  // per thread
  bool exact = false;         // .maxnreg says it; otherwise only ptxas knows how many a thread starts with
  std::int64_t free = 0;      // registers
  std::vector<std::uint32_t> allowance;
  std::vector<std::vector<const Op*>> done;  // setmaxnreg instructions of each warp, in order
};

std::uint32_t launch_registers(const Warp& w) {
  const LaunchState& launch = *w.worker->launch;
  if (const auto& f = launch.entry->ptx; f->maxnreg) return *f->maxnreg;
  const auto threads = std::max<std::uint32_t>(w.cta->threads, 1);
  const std::uint32_t blocks = std::max<std::uint32_t>(launch.entry->ptx->minnctapersm.value_or(1), 1);
  const std::uint32_t share = launch.properties->registers_per_sm / blocks / ((threads + 127) / 128 * 128);
  // ptxas gives a kernel with setmaxnreg the registers of its largest request, if the block can have them.
  std::uint32_t largest = 24;
  for (const Inst& i : launch.entry->ptx->body)
    if (i.op == ptx::Op::setmaxnreg) largest = std::max(largest, std::uint32_t(i.operands.front().imm));
  return std::min<std::uint32_t>(share / 8 * 8, largest);
}

RegisterPool& register_pool(Warp& w) {
  auto& pool = state_of<RegisterPool>(*w.cta, std::uint32_t(ptx::Family::warp) + 64);
  if (!pool.allowance.empty()) return pool;
  pool.initial = launch_registers(w);
  pool.exact = w.worker->launch->entry->ptx->maxnreg.has_value();
  pool.allowance.assign(w.cta->warps.size(), pool.initial);
  pool.done.resize(w.cta->warps.size());
  return pool;
}

bool registers_ready(Warp& w, const Fragment& f) {
  const RegisterPool& pool = register_pool(w);
  return pool.free >= (std::int64_t(f.key) - pool.allowance[w.index]) * kLanes;
}
std::string registers_describe(const Warp& w, const Fragment& f) {
  const RegisterPool& pool = register_pool(const_cast<Warp&>(w));
  return cat("setmaxnreg.inc to ", f.key, " from ", pool.allowance[w.index], " registers per thread: needs ",
             (f.key - pool.allowance[w.index]) * kLanes, " more for the warp, ", pool.free,
             " are free in the block");
}

// The four warps of a warpgroup must execute the same instructions.
void check_warpgroup(Warp& w, const Op& op, RegisterPool& pool) {
  const std::size_t number = pool.done[w.index].size();
  pool.done[w.index].push_back(&op);
  for (std::size_t other = w.index / 4 * 4;
       other < std::min<std::size_t>(w.index / 4 * 4 + 4, pool.done.size()); ++other) {
    if (number >= pool.done[other].size() || pool.done[other][number]->imm == op.imm) continue;
    w.report(Check::barrier, "setmaxnreg", op, w.active,
             cat("warp ", w.index, " asks for ", op.imm, " registers per thread, warp ", other,
                 " of its warpgroup for ", pool.done[other][number]->imm),
             "all four warps of a warpgroup execute the same setmaxnreg");
    return;
  }
}

// op.imm: registers; op.kind: 1 inc.
void exec_setmaxnreg(Warp& w, const Op& op) {
  if (!w.converge(op)) return;
  RegisterPool& pool = register_pool(w);
  std::uint32_t& mine = pool.allowance[w.index];
  const auto want = std::uint32_t(op.imm);
  if (pool.exact && (op.kind ? want < mine : want > mine))
    w.report(Check::barrier, "setmaxnreg", op, w.active,
             cat(op.kind ? "setmaxnreg.inc to " : "setmaxnreg.dec to ", want, ", but the warp has ", mine,
                 " registers per thread"),
             cat("the block starts with ", pool.initial, " per thread (.maxnreg)"));
  if (op.kind && want > mine) {
    Fragment probe;
    probe.key = want;
    if (!registers_ready(w, probe)) return w.wait(op, registers_ready, registers_describe, want);
  }
  check_warpgroup(w, op, pool);
  pool.free -= (std::int64_t(want) - std::int64_t(mine)) * kLanes;
  mine = want;
  note_change(w);
}
void decode_setmaxnreg(Decoder& d, const Inst& i, Op& op) {
  op.imm = std::int64_t(d.immediate(d.operand(i, 0)));
  if (op.imm % 8 || op.imm < 24 || op.imm > 256)
    d.unsupported("the register count must be a multiple of 8 from 24 to 256");
  op.kind = i.has(Mod::inc);
  op.flags |= kSplits;
  op.fn = exec_setmaxnreg;
}

}  // namespace

void add_cluster(Table& t) {
  t.set(ptx::Op::mapa, decode_mapa);
  t.set(ptx::Op::getctarank, decode_getctarank);
  t.set(ptx::Op::barrier_cluster_arrive, decode_arrive);
  t.set(ptx::Op::barrier_cluster_wait, decode_wait);
  t.set(ptx::Op::st_async, decode_remote);
  t.set(ptx::Op::red_async, decode_remote);
  t.set(ptx::Op::setmaxnreg, decode_setmaxnreg);
}

}  // namespace cgp::emu

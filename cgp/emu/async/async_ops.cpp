// SPDX-License-Identifier: Apache-2.0
#include "cgp/emu/async/async_ops.h"

#include <algorithm>
#include <cmath>

#include "cgp/base/float16.h"
#include "cgp/base/text.h"
#include "cgp/emu/core/access_map_impl.h"
#include "cgp/emu/core/dsmem_lifetime.h"
#include "cgp/emu/core/machine_impl.h"
#include "cgp/emu/decode/tensor_families.h"

namespace cgp::emu {
using ptx::Mod;
using text::cat;

void Completion::signal(const Issuer& by) const {
  for (std::size_t n = 0; n < barriers.size(); ++n) {
    const SharedPlace& p = barriers[n];
    if (!p.cta->done) {
      if (n < agents.size()) {
        race::complete_on_mbarrier(*by.warp, agents[n], *p.cta, p.offset);
        race::arrive_with(*by.warp, released, *p.cta, p.offset);
      }
      complete_tx(*by.warp, *by.op, by.lane, *p.cta, p.offset, bytes);
      continue;
    }
    by.warp->report(
        Check::lifetime, "lifetime.dsmem", *by.op, lane_bit(by.lane),
        cat("the block with cluster rank ", p.cta->rank,
            " exits while this operation may still write its shared memory"),
        "wait for the mbarrier of every copy before the block ends; peers: end with a cluster barrier",
        p.offset, "shared memory", p.offset);
  }
  note_change(*by.warp);
}

void arrive_for(const Issuer& by, const SharedPlace& barrier, const race::ReleasedPtr& released) {
  const MbarrierRef r = find_mbarrier(*by.warp, *by.op, *barrier.cta, barrier.offset, by.lane, false);
  if (!r) return;
  const std::uint64_t phase = r.state->phase;
  race::arrive_with(*by.warp, released, *r.cta, r.offset);
  report_mbarrier(*by.warp, *by.op, by.lane, r, r.state->arrive(1));
  r.publish(*by.warp, *by.op);
  if (r.state->phase > phase) race::mbarrier_complete(*by.warp, *r.cta, r.offset);
}

void BulkOp::complete() {
  write();
  completion.signal(by);
}

BulkRace::BulkRace(BulkOp& op) : op_(op) {
  Warp& w = *op.by.warp;
  if (!w.race) return;
  for (const SharedPlace& p : op.completion.barriers) {
    op.completion.agents.push_back(race::mbarrier_agent(w, *p.cta, p.offset));
    race::copy_issued(w, *op.by.op, op.by.lane, *p.cta, p.offset);
  }
  if (op.completion.agents.empty()) {
    reader_ = race::bulk_read_agent(w, op.by.lane);
    writer_ = race::bulk_write_agent(w, op.by.lane);
  } else {
    reader_ = op.completion.agents[0];
    op.completion.released = race::agent_so_far(w, op.by.lane, reader_);
  }
}

void BulkRace::read(Where where, std::uint64_t address, std::uint64_t bytes) const {
  race::agent_access(*op_.by.warp, *op_.by.op, op_.by.lane, reader_, where, address, bytes, race::Use::read,
                     race::Proxy::async);
}

void BulkRace::write(std::size_t destination, Where where, std::uint64_t address, std::uint64_t bytes,
                     race::Use use) const {
  const auto& agents = op_.completion.agents;
  race::agent_access(*op_.by.warp, *op_.by.op, op_.by.lane,
                     destination < agents.size() ? agents[destination] : writer_, where, address, bytes, use,
                     race::Proxy::async);
}

void submit_bulk(std::unique_ptr<BulkOp> op) {
  note_release(*op->by.warp);
  op->grouped = op->completion.barriers.empty();
  GroupState& g = groups(*op->by.warp);
  const auto lane = std::size_t(op->by.lane);
  op->number = g.bulk[lane];
  if (op->grouped) g.bulk_source[lane] = op->number + 1, g.bulk_source_op[lane] = op->by.op;
  auto& async = op->by.warp->cta->cluster->async;
  async.submit(std::move(op));
}

void check_bulk_sources_at_exit(Cta& cta) {
  constexpr auto kSlot = std::uint32_t(ptx::Family::async);
  for (auto& w : cta.warps) {
    if (w->state.find(kSlot) == w->state.end()) continue;
    const GroupState& g = groups(*w);
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      if (g.bulk_source[lane] <= g.bulk_read[lane]) continue;
      const bool committed = g.bulk_source[lane] <= g.bulk[lane];
      w->report(Check::lifetime, "lifetime.store", *g.bulk_source_op[lane], lane_bit(int(lane)),
                cat("the block ends while this operation may still read its shared memory: the thread that "
                    "issued it ",
                    committed ? "has not waited for its group" : "neither committed it to a group nor waited",
                    ", and the next block may overwrite the memory"),
                cat(committed ? "" : "cp.async.bulk.commit_group, then ",
                    "cp.async.bulk.wait_group.read 0 in the issuing thread before it ends"));
    }
  }
}

void count_bulk(Warp& w, const Op& op, bool store, std::uint64_t address, std::uint64_t bytes) {
  if (!w.worker->launch->options.counters || !bytes) return;
  if (w.worker->accesses) w.worker->accesses->bulk(store, address, bytes);
  const std::uint64_t sectors = (address + bytes - 1) / 32 - address / 32 + 1;
  PcCounters& pc = w.worker->pc[op.inst];
  pc.sectors += sectors;
  pc.bytes += bytes;
  Counters& t = w.worker->totals;
  if (store) {
    t.global_store_sectors += sectors;
    t.global_bulk_store_sectors += sectors;
    t.global_store_bytes += bytes;
  } else {
    t.global_load_sectors += sectors;
    t.global_bulk_load_sectors += sectors;
    t.global_load_bytes += bytes;
  }
}

BulkSpaces bulk_spaces(Decoder& d, const ptx::Inst& i) {
  Where found[2];
  int n = 0;
  for (Mod m : i.mods) {
    Where w;
    switch (m) {
      case Mod::global:
        w = Where::global;
        break;
      case Mod::shared:
      case Mod::shared_cta:
        w = Where::shared;
        break;
      case Mod::shared_cluster:
        w = Where::shared_cluster;
        break;
      default:
        continue;
    }
    if (n < 2) found[n++] = w;
  }
  if (n < 2) d.unsupported("it must name its destination and source state spaces");
  return {found[0], found[1]};
}

Reduce reduce_of(Decoder& d, const ptx::Inst& i) {
  const std::pair<Mod, Reduce> all[] = {
      {Mod::add, Reduce::add}, {Mod::min, Reduce::min},   {Mod::max, Reduce::max}, {Mod::inc, Reduce::inc},
      {Mod::dec, Reduce::dec}, {Mod::and_, Reduce::and_}, {Mod::or_, Reduce::or_}, {Mod::xor_, Reduce::xor_}};
  for (const auto& [m, r] : all)
    if (i.has(m)) return r;
  d.unsupported("it names no reduction");
}

namespace {

template <class T>
T reduce_integer(Reduce r, T a, T b) {
  using U = std::make_unsigned_t<T>;
  switch (r) {
    case Reduce::add:
      return T(U(a) + U(b));
    case Reduce::min:
      return std::min(a, b);
    case Reduce::max:
      return std::max(a, b);
    case Reduce::inc:
      return a >= b ? T(0) : T(U(a) + 1);
    case Reduce::dec:
      return a == 0 || a > b ? b : T(U(a) - 1);
    case Reduce::and_:
      return a & b;
    case Reduce::or_:
      return a | b;
    case Reduce::xor_:
      return a ^ b;
  }
  return a;
}
template <class T>
T reduce_real(Reduce r, T a, T b) {
  if (r == Reduce::add) return a + b;
  if (a != a) return b;
  if (b != b) return a;
  return r == Reduce::min ? std::min(a, b) : std::max(a, b);
}

// Blocks run on several host threads, and atomics of others may hit the same elements: each is replaced as
// one.
template <class U, class F>
void replace_each(std::byte* to, const std::byte* from, std::size_t count, F&& f) {
  for (std::size_t i = 0; i < count; ++i) {
    U b;
    std::memcpy(&b, from + i * sizeof(U), sizeof(U));
    std::atomic_ref<U> element(*reinterpret_cast<U*>(to + i * sizeof(U)));
    U old = element.load(std::memory_order_relaxed);
    while (!element.compare_exchange_weak(old, f(old, b))) {
    }
  }
}

template <class T>
void integers(Reduce r, std::byte* to, const std::byte* from, std::size_t count) {
  using U = std::make_unsigned_t<T>;
  replace_each<U>(to, from, count, [r](U a, U b) { return U(reduce_integer(r, T(a), T(b))); });
}
template <class T>
void reals(Reduce r, std::byte* to, const std::byte* from, std::size_t count) {
  using U = std::conditional_t<sizeof(T) == 2, std::uint16_t,
                               std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;
  replace_each<U>(to, from, count, [r](U a, U b) {
    const T x = std::bit_cast<T>(a), y = std::bit_cast<T>(b);
    if constexpr (sizeof(T) == 2)
      return std::bit_cast<U>(T(reduce_real(r, double(x), double(y))));
    else
      return std::bit_cast<U>(reduce_real(r, x, y));
  });
}

}  // namespace

ReduceFn reduce_function(Mod type, Reduce r) {
  const bool real = r == Reduce::add || r == Reduce::min || r == Reduce::max;
  const bool wrap = r == Reduce::inc || r == Reduce::dec;
  switch (type) {
    case Mod::u32:
      return integers<std::uint32_t>;
    case Mod::b32:
      return wrap ? nullptr : integers<std::uint32_t>;
    case Mod::s32:
      return wrap ? nullptr : integers<std::int32_t>;
    case Mod::u64:
    case Mod::b64:
      return wrap ? nullptr : integers<std::uint64_t>;
    case Mod::s64:
      return wrap ? nullptr : integers<std::int64_t>;
    case Mod::f16:
      return real ? reals<half> : nullptr;
    case Mod::bf16:
      return real ? reals<bfloat16> : nullptr;
    case Mod::f32:
      return r == Reduce::add ? reals<float> : nullptr;
    case Mod::f64:
      return r == Reduce::add ? reals<double> : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace cgp::emu

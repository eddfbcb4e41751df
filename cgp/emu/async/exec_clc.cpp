// SPDX-License-Identifier: Apache-2.0
// Cluster launch control: clusterlaunchcontrol.try_cancel and query_cancel. PTX ISA 9.7.13.18. A request
// takes a cluster of the grid that has not started; that cluster never starts, and its first block's
// coordinates come back as 16 bytes in shared memory.
#include "cgp/base/text.h"
#include "cgp/emu/async/async_ops.h"
#include "cgp/emu/async/bulk_place.h"
#include "cgp/emu/core/machine_impl.h"
#include "cgp/emu/decode/tensor_families.h"

namespace cgp::emu {
namespace {

using ptx::Inst;
using ptx::Mod;
using text::cat;

// Our form of the opaque response: x, y, z of the first block, and a word that says whether there is one.
struct Response {
  std::uint32_t x = 0xdeadbeef, y = 0xdeadbeef, z = 0xdeadbeef, word = 0x0c1c0000;
  static constexpr std::uint32_t kCancelled = 0x0c1c0001, kNothing = 0x0c1c0000;
};

struct CancelPlan {
  Address to, barrier;
  Where where = Where::generic;
  bool all = false;
};

// What the threads of a CTA have seen of its requests.
struct Requests {
  const Op* failed = nullptr;  // the query that observed a failure
};
Requests& requests(Cta& cta) { return state_of<Requests>(cta, std::uint32_t(ptx::Family::async) + 192); }

struct CancelOp : BulkOp {
  std::vector<SharedPlace> places;
  Response response;
  void read() override {
    was_read = true;
    const Cluster& c = *by.warp->cta->cluster;
    LaunchState& launch = *by.warp->worker->launch;
    // Hardware may refuse although work remains; programs must not take a refusal for the end of the grid.
    AsyncQueue& queue = by.warp->cta->cluster->async;
    if (queue.policy == AsyncPolicy::random) {
      queue.random = queue.random * 6364136223846793005ull + 1442695040888963407ull;
      if ((queue.random >> 33) % 8 == 0) return;
    }
    std::atomic<std::uint64_t>& waiting = launch.devices[c.device].next_cluster;
    std::uint64_t next = waiting.load();
    while (next < launch.clusters && !waiting.compare_exchange_weak(next, next + 1)) {
    }
    if (next >= launch.clusters) return;
    const Dim3 g = launch.cluster_grid;
    response = {std::uint32_t(next % g.x) * c.shape.x, std::uint32_t(next / g.x % g.y) * c.shape.y,
                std::uint32_t(next / g.x / g.y) * c.shape.z, Response::kCancelled};
  }
  void write() override {
    for (const SharedPlace& p : places) {
      std::memcpy(p.cta->shared.get() + p.offset, &response, sizeof response);
      mark_written(*by.warp, Where::shared_cluster, cluster_address(p), sizeof response);
    }
  }
};

void exec_try_cancel(Warp& w, const Op& op) {
  const auto& p = op.data_as<CancelPlan>();
  std::uint64_t to[kLanes], barrier[kLanes];
  w.addresses(p.to, to);
  w.addresses(p.barrier, barrier);
  const Mask all = p.all ? Mask((1ull << w.cta->cluster->ctas.size()) - 1) : 0;
  for_lanes(w.active, [&](int lane) {
    if (const Op* seen = requests(*w.cta).failed)
      w.report(Check::program, "launchcontrol", op, lane_bit(lane),
               cat("clusterlaunchcontrol.try_cancel after a failed request was seen at PTX line ",
                   w.worker->launch->program->inst(seen->inst).ptx_line),
               "leave the loop when query_cancel.is_canceled is false");
    if (!resolve_one(w, op, p.where, to[lane], 16, Access::async_write, lane, 16)) return;
    if (!find_mbarrier(w, op, p.where, barrier[lane], lane, false)) return;
    auto x = std::make_unique<CancelOp>();
    x->by = {&w, &op, lane};
    x->places = destinations(w, op, p.where, to[lane], all, lane);
    x->completion.barriers = destinations(w, op, p.where, barrier[lane], all, lane);
    x->completion.bytes = 16;
    if (w.race) {
      const BulkRace race(*x);
      for (std::size_t n = 0; n < x->places.size(); ++n)
        race.write(n, Where::shared_cluster, cluster_address(x->places[n]), 16);
    }
    submit_bulk(std::move(x));
  });
}
void decode_try_cancel(Decoder& d, const Inst& i, Op& op) {
  CancelPlan p;
  p.to = d.address(d.operand(i, 0));
  p.barrier = d.address(d.operand(i, 1));
  p.where = d.where(i);
  p.all = i.has(Mod::multicast_cluster_all);
  op.data = d.keep(std::move(p));
  op.fn = exec_try_cancel;
}

// ---------------------------------------------------------------- query_cancel
struct QueryPlan {
  Loc response = kNoLoc;
  Loc cancelled = kNoLoc;                                 // is_canceled
  std::array<Loc, 4> to{kNoLoc, kNoLoc, kNoLoc, kNoLoc};  // x, y, z, unused
};

void exec_query(Warp& w, const Op& op) {
  const auto& p = op.data_as<QueryPlan>();
  const std::uint64_t* low = w.row<std::uint64_t>(p.response);
  const std::uint64_t* high = w.row<std::uint64_t>(p.response + kRow64);
  Mask cancelled = 0, failed = 0;
  for_lanes(w.active, [&](int l) {
    const auto word = std::uint32_t(high[l] >> 32);
    (word == Response::kCancelled ? cancelled : failed) |= lane_bit(l);
    if (word != Response::kCancelled && word != Response::kNothing)
      w.report(Check::program, "launchcontrol", op, lane_bit(l),
               "clusterlaunchcontrol.query_cancel of 16 bytes that no try_cancel wrote",
               "wait for the mbarrier of the request, then ld.shared.b128 of its response");
    const std::uint32_t value[] = {std::uint32_t(low[l]), std::uint32_t(low[l] >> 32), std::uint32_t(high[l]),
                                   0};
    for (std::size_t i = 0; i < 4; ++i)
      if (p.to[i] != kNoLoc) w.row<std::uint32_t>(p.to[i])[l] = value[i];
  });
  if (p.cancelled != kNoLoc) {
    w.set_pred(p.cancelled, cancelled, w.active);
    if (failed) requests(*w.cta).failed = &op;
    return;
  }
  if (failed)
    w.report(
        Check::program, "launchcontrol", op, failed,
        "query_cancel.get_first_ctaid of a request that cancelled nothing: the coordinates are undefined",
        "test query_cancel.is_canceled first");
}
void decode_query(Decoder& d, const Inst& i, Op& op) {
  QueryPlan p;
  if (i.has(Mod::is_canceled)) {
    p.cancelled = d.pred_dest(d.operand(i, 0));
  } else if (i.has(Mod::get_first_ctaid)) {
    const std::vector<Loc> to = d.dests(d.operand(i, 0), Mod::b32);
    for (std::size_t n = 0; n < to.size() && n < 4; ++n) p.to[n] = to[n];
  } else {
    const std::size_t n = i.has(Mod::get_first_ctaid_x) ? 0 : i.has(Mod::get_first_ctaid_y) ? 1 : 2;
    p.to[n] = d.dest(d.operand(i, 0), Mod::b32);
  }
  p.response = d.source(d.operand(i, 1), Mod::b128);
  op.data = d.keep(std::move(p));
  op.fn = exec_query;
}

}  // namespace

void add_launch_control(Table& t) {
  t.set(ptx::Op::clusterlaunchcontrol_try_cancel, decode_try_cancel);
  t.set(ptx::Op::clusterlaunchcontrol_query_cancel, decode_query);
}

}  // namespace cgp::emu

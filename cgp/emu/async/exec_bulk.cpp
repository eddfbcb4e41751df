// SPDX-License-Identifier: Apache-2.0
// cp.async.bulk and cp.reduce.async.bulk (one-dimensional), and the bulk groups. PTX ISA 9.7.9.25.4.
#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/emu/async/async_ops.h"
#include "cgp/emu/async/bulk_place.h"
#include "cgp/emu/core/host_memory.h"
#include "cgp/emu/core/machine_impl.h"
#include "cgp/emu/decode/tensor_families.h"

namespace cgp::emu {

Mask multicast_ranks(Warp& w, const Op& op, Loc mask, int lane) {
  if (mask == kNoLoc) return 0;
  const Mask ranks = w.row<std::uint32_t>(mask)[lane] & 0xffff;
  const std::size_t size = w.cta->cluster->ctas.size();
  if (ranks >> size)
    w.fail(Check::bounds, "oob.shared", op, lane_bit(lane),
           text::cat("the multicast mask ", text::hex(ranks), " names CTAs beyond the cluster's ", size),
           "launch with a larger cluster or mask with (1 << cluster_nctarank) - 1");
  if (!ranks) w.fail(Check::bounds, "oob.shared", op, lane_bit(lane), "the multicast mask names no CTA");
  return ranks;
}

std::vector<SharedPlace> destinations(Warp& w, const Op& op, Where where, std::uint64_t address, Mask ranks,
                                      int lane) {
  const SharedPlace p = shared_place(w, where, address);
  if (!p.cta) return {};
  if (!ranks) return {p};
  std::vector<SharedPlace> all;
  for_lanes(ranks, [&](int rank) {
    Cta& cta = *w.cta->cluster->ctas[std::size_t(rank)];
    if (cta.done)
      w.fail(Check::lifetime, "lifetime.dsmem", op, lane_bit(lane),
             text::cat("multicast into CTA rank ", rank, ", which has exited"),
             "end with a cluster barrier so that no block leaves while others write to it");
    all.push_back({&cta, p.offset});
  });
  return all;
}

std::uint64_t cluster_address(const SharedPlace& p) { return std::uint64_t(p.cta->shared_base()) | p.offset; }

namespace {

using ptx::Inst;
using ptx::Mod;
using ptx::OperandKind;
using text::cat;

struct BulkPlan {
  Address to, from, barrier;
  BulkSpaces space;
  Loc size = kNoLoc, ranks = kNoLoc, byte_mask = kNoLoc;
  bool has_barrier = false;
  ReduceFn reduce = nullptr;
  Reduce how = Reduce::add;
  std::size_t element = 1;
};

struct BulkCopy : BulkOp {
  const BulkPlan* plan = nullptr;
  std::vector<std::byte*> to;
  std::vector<std::uint64_t> to_address;
  const std::byte* from = nullptr;
  std::uint64_t bytes = 0;
  std::uint32_t byte_mask = 0xffff;
  bool initialised = true;
  std::vector<std::byte> data;

  void read() override {
    data.resize(bytes);
    if (from) copy_from_device(data.data(), from, bytes);
  }
  void poison() override {
    if (!from || plan->reduce || byte_mask != 0xffff) return;
    for (std::byte* host : to) poison_bytes(host, bytes);
  }
  void write() override {
    if (!from) return;
    for (std::size_t n = 0; n < to.size(); ++n) {
      if (plan->reduce) {
        plan->reduce(plan->how, to[n], data.data(), bytes / plan->element);
      } else if (byte_mask == 0xffff) {
        copy_to_device(to[n], data.data(), bytes);
      } else {
        for (std::uint64_t i = 0; i < bytes; ++i)
          if (byte_mask >> (i % 16) & 1) to[n][i] = data[i];
      }
      if (initialised) mark_written(*by.warp, plan->space.destination, to_address[n], bytes);
    }
  }
};

bool check_size(Warp& w, const Op& op, int lane, std::uint64_t bytes) {
  if (bytes % 16 == 0) return true;
  w.fail(Check::alignment, "misaligned", op, lane_bit(lane),
         cat("a bulk copy of ", bytes, " bytes; the size must be a multiple of 16"),
         "pad the buffer to 16 bytes");
  return false;
}

void note_race(BulkCopy& copy, std::uint64_t from) {
  const BulkPlan& p = *copy.plan;
  const BulkRace race(copy);
  const bool global = p.space.destination == Where::global;
  const Where where = global ? Where::global : Where::shared_cluster;
  const race::Use use = p.reduce ? race::Use::atomic : race::Use::write;
  race.read(p.space.source, from, copy.bytes);
  for (std::size_t n = 0; n < copy.to_address.size(); ++n) {
    if (copy.byte_mask == 0xffff) {
      race.write(n, where, copy.to_address[n], copy.bytes, use);
      continue;
    }
    for (std::uint64_t i = 0; i < copy.bytes; ++i)
      if (copy.byte_mask >> (i % 16) & 1) race.write(n, where, copy.to_address[n] + i, 1, use);
  }
  race::issued(*copy.by.warp);
}

// A store of shared memory that was never written, at the first such word that it moves.
void report_unwritten(const BulkCopy& copy, std::uint64_t from) {
  const SharedPlace source = shared_place(*copy.by.warp, copy.plan->space.source, from);
  for (std::uint32_t at = 0; source.cta && at < copy.bytes; ++at) {
    if (!(copy.byte_mask >> at % 16 & 1)) continue;
    const std::uint32_t offset = source.offset + at;
    if (is_written(*copy.by.warp, Where::shared_cluster, source.cta->shared_base() | offset, 1)) continue;
    return report_stored(*copy.by.warp, *copy.by.op, copy.by.lane, *source.cta, offset);
  }
}

void issue(Warp& w, const Op& op, int lane, std::uint64_t to, std::uint64_t from, std::uint64_t barrier) {
  const auto& p = op.data_as<BulkPlan>();
  const std::uint64_t bytes = w.row<std::uint32_t>(p.size)[lane];
  if (!check_size(w, op, lane, bytes)) return;
  auto copy = std::make_unique<BulkCopy>();
  copy->by = {&w, &op, lane};
  copy->plan = &p;
  copy->bytes = bytes;
  if (p.byte_mask != kNoLoc) copy->byte_mask = w.row<std::uint32_t>(p.byte_mask)[lane] & 0xffff;
  const Mask ranks = multicast_ranks(w, op, p.ranks, lane);
  if (p.has_barrier) {
    if (!find_mbarrier(w, op, p.space.destination, barrier, lane, false)) return;
    copy->completion.barriers = destinations(w, op, p.space.destination, barrier, ranks, lane);
    copy->completion.bytes = bytes;
  }
  if (bytes) {
    w.unwritten = 0;
    copy->from = resolve_one(w, op, p.space.source, from, bytes, Access::read, lane, 16);
    copy->initialised = w.unwritten == 0;
    w.unwritten = 0;
    if (p.space.destination == Where::global) {
      copy->to_address = {to};
    } else {
      for (const SharedPlace& place : destinations(w, op, p.space.destination, to, ranks, lane))
        copy->to_address.push_back(cluster_address(place));
    }
    for (std::uint64_t a : copy->to_address) {
      const Where where = p.space.destination == Where::global ? Where::global : Where::shared_cluster;
      std::byte* host = resolve_one(w, op, where, a, bytes, Access::async_write, lane, 16);
      if (!host) copy->from = nullptr;
      copy->to.push_back(host);
    }
    if (!copy->initialised && p.space.destination == Where::global) report_unwritten(*copy, from);
    if (w.race && copy->from) note_race(*copy, from);
    if (p.space.source == Where::global) count_bulk(w, op, false, from, bytes);
    if (p.space.destination == Where::global) count_bulk(w, op, true, to, bytes);
  }
  submit_bulk(std::move(copy));
}

void exec_bulk(Warp& w, const Op& op) {
  const auto& p = op.data_as<BulkPlan>();
  std::uint64_t to[kLanes], from[kLanes], barrier[kLanes] = {};
  w.addresses(p.to, to);
  w.addresses(p.from, from);
  if (p.has_barrier) w.addresses(p.barrier, barrier);
  Mask lanes = w.active;
  if (p.space.destination == Where::global && !p.reduce) {
    const std::uint32_t* size = w.row<std::uint32_t>(p.size);
    const std::uint32_t* mask = p.byte_mask == kNoLoc ? nullptr : w.row<std::uint32_t>(p.byte_mask);
    lanes = distinct_stores(lanes, [&](int x, int y) {
      return to[x] == to[y] && from[x] == from[y] && size[x] == size[y] && (!mask || mask[x] == mask[y]);
    });
  }
  for_lanes(lanes, [&](int lane) { issue(w, op, lane, to[lane], from[lane], barrier[lane]); });
}

void decode_bulk(Decoder& d, const Inst& i, Op& op) {
  BulkPlan p;
  p.space = bulk_spaces(d, i);
  p.to = d.address(d.operand(i, 0));
  p.from = d.address(d.operand(i, 1));
  p.size = d.source(d.operand(i, 2), Mod::u32);
  std::size_t at = 3;
  if (i.has(Mod::mbarrier_complete_tx_bytes)) {
    p.has_barrier = true;
    p.barrier = d.address(d.operand(i, at++));
  } else if (!i.has(Mod::bulk_group)) {
    d.unsupported("it names neither .mbarrier::complete_tx::bytes nor .bulk_group");
  }
  if (i.has(Mod::multicast_cluster)) p.ranks = d.source(d.operand(i, at++), Mod::u16);
  if (i.has(Mod::L2_cache_hint)) d.source(d.operand(i, at++), Mod::b64);
  if (i.has(Mod::cp_mask)) p.byte_mask = d.source(d.operand(i, at++), Mod::u16);
  if (i.op == ptx::Op::cp_reduce_async_bulk) {
    const Mod type = i.type(0);
    p.how = reduce_of(d, i);
    p.reduce = reduce_function(type, p.how);
    p.element = std::size_t(ptx::type_bits(type) / 8);
    if (!p.reduce) d.unsupported(cat("this reduction of .", ptx::name(type)));
    const bool real = ptx::is_float(type);
    if (p.space.destination != Where::global && real)
      d.unsupported("reductions into a peer's shared memory take integer types only");
  }
  op.data = d.keep(std::move(p));
  op.fn = exec_bulk;
}

// ---------------------------------------------------------------- prefetch
void exec_prefetch(Warp& w, const Op& op) {
  std::uint64_t address[kLanes];
  w.addresses(op, address);
  const std::uint32_t* bytes = w.row<std::uint32_t>(op.b);
  for_lanes(w.active, [&](int lane) {
    if (check_size(w, op, lane, bytes[lane]) && bytes[lane])
      resolve_one(w, op, Where::global, address[lane], bytes[lane], Access::address_only, lane, 16);
  });
}
void decode_prefetch(Decoder& d, const Inst& i, Op& op) {
  d.set_address(d.operand(i, 0), op);
  op.b = d.source(d.operand(i, 1), Mod::u32);
  op.fn = exec_prefetch;
}

// ---------------------------------------------------------------- groups
void exec_commit(Warp& w, const Op&) {
  GroupState& g = groups(w);
  for_lanes(w.active, [&](int l) { ++g.bulk[std::size_t(l)]; });
  race::commit_group(w, race::Group::bulk);
}
void decode_commit(Decoder&, const Inst&, Op& op) { op.fn = exec_commit; }

// op.kind: .read, which returns once the sources are read.
void exec_wait_group(Warp& w, const Op& op) {
  race::wait_group(w, race::Group::bulk, op.imm, op.kind != 0);
  AsyncQueue& queue = w.cta->cluster->async;
  GroupState& g = groups(w);
  for_lanes(w.active, [&](int l) {
    const std::uint64_t committed = g.bulk[std::size_t(l)], left = std::uint64_t(op.imm);
    std::uint64_t& read = g.bulk_read[std::size_t(l)];
    if (committed > left) read = std::max(read, committed - left);
  });
  if (!queue.pending()) return;
  const auto covers = [&](const AsyncOp& x) {
    const auto* bulk = dynamic_cast<const BulkOp*>(&x);
    return bulk && bulk->grouped && bulk->by.warp == &w && (w.active >> bulk->by.lane & 1) &&
           bulk->number + std::uint64_t(op.imm) < g.bulk[std::size_t(bulk->by.lane)];
  };
  if (op.kind)
    queue.force_read(covers);
  else
    queue.force(covers);
}
void decode_wait_group(Decoder& d, const Inst& i, Op& op) {
  op.imm = std::int64_t(d.immediate(d.operand(i, 0)));
  op.kind = i.has(Mod::read);
  op.fn = exec_wait_group;
}

}  // namespace

void add_bulk(Table& t) {
  t.set(ptx::Op::cp_async_bulk, decode_bulk);
  t.set(ptx::Op::cp_reduce_async_bulk, decode_bulk);
  t.set(ptx::Op::cp_async_bulk_prefetch, decode_prefetch);
  t.set(ptx::Op::cp_async_bulk_commit_group, decode_commit);
  t.set(ptx::Op::cp_async_bulk_wait_group, decode_wait_group);
}

}  // namespace cgp::emu

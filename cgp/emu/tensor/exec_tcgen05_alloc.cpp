// SPDX-License-Identifier: Apache-2.0
// tcgen05.alloc, dealloc and relinquish_alloc_permit. PTX ISA 9.7.16.7. With .cta_group::2 one warp of each
// CTA of the pair takes part: the operation happens in both CTAs when the second of them arrives.
#include <bit>

#include "cgp/base/text.h"
#include "cgp/emu/core/machine_impl.h"
#include "cgp/emu/decode/tensor_families.h"
#include "cgp/emu/tensor/matrix_plan.h"
#include "cgp/emu/tensor/tcgen05.h"
#include "cgp/ptx/target.h"

namespace cgp::emu {
namespace {

using ptx::Inst;
using text::cat;

struct AllocPlan {
  int group = 1;
  Address to;
  Where where = Where::generic;
  Loc columns = kNoLoc, address = kNoLoc;
};

// What a warp of one CTA wants from a collective operation of the pair.
struct Side {
  const Op* op = nullptr;
  Warp* warp = nullptr;
  std::uint32_t columns = 0, address = 0;
  bool done = false;
};
struct Rendezvous {
  Side side[2];
};
struct RendezvousState {
  std::vector<Rendezvous> of;  // by pair
};
Rendezvous& rendezvous(Cta& cta) {
  auto& all = state_of<RendezvousState>(*cta.cluster, std::uint32_t(ptx::Family::tcgen05) + 64).of;
  if (all.empty()) all.resize(cta.cluster->ctas.size() / 2 + 1);
  return all[cta.rank / 2];
}

std::uint32_t uniform_value(Warp& w, const Op& op, Loc l, const char* what) {
  const std::uint32_t* row = w.row<std::uint32_t>(l);
  const std::uint32_t v = row[std::countr_zero(w.active)];
  Mask other = 0;
  for_lanes(w.active, [&](int lane) { other |= row[lane] != v ? lane_bit(lane) : 0; });
  if (other)
    w.report(Check::barrier, "barrier.divergence", op, other,
             cat("the ", what, " differs between the lanes of warp ", w.index),
             "all threads of the warp must give the same value");
  return v;
}

bool check_columns(Warp& w, const Op& op, std::uint32_t columns) {
  if (columns >= 32 && columns <= 512 && std::has_single_bit(columns)) return true;
  w.fail(Check::bounds, "tcgen05.alloc", op, w.active,
         cat(columns, " columns; Tensor Memory is allocated in 32, 64, 128, 256 or 512 columns"));
  return false;
}

// ---------------------------------------------------------------- the operations on one CTA
std::string line_of(const Warp& w, const Op* op) { return line_text(*w.worker->launch->program, op->inst); }

void free_columns(Warp& w, const Op& op, std::uint32_t address, std::uint32_t columns) {
  TensorMemory& m = tensor_memory(*w.cta);
  const auto report = [&](std::string why, std::string hint) {
    w.report(Check::lifetime, "lifetime.tensor", op, w.active, std::move(why), std::move(hint), address,
             "tensor memory", address & 0xffff);
  };
  TensorMemory::Allocation* a = m.live_at(address & 0xffff);
  if (!a || address >> 16) {
    const TensorMemory::Allocation* was = m.at(address & 0xffff);
    if (was && was->freed_by)
      return report(
          cat("tcgen05.dealloc of ", text::hex(address), ", freed before at ", line_of(w, was->freed_by)),
          "free every allocation once");
    return report(cat("tcgen05.dealloc of ", text::hex(address), ", which no tcgen05.alloc returned"),
                  "pass the address that tcgen05.alloc wrote to shared memory, lane 0");
  }
  if (a->columns != columns)
    return report(cat("tcgen05.dealloc of ", columns, " columns at ", text::hex(address), "; ", a->columns,
                      " were allocated at ", line_of(w, a->by)),
                  "free the number of columns that was allocated");
  if (a->warp != w.index)
    report(cat("tcgen05.dealloc by warp ", w.index, "; warp ", a->warp, " allocated at ", line_of(w, a->by)),
           "the warp that allocates also frees");
  race::tensor_access(w, op, std::countr_zero(w.active), {}, *w.cta, {0, 128, int(a->first), int(a->columns)},
                      race::Use::write);
  m.release(*a, &op);
  note_change(w);
}

void write_address(Warp& w, const Op& op, const AllocPlan& p, std::uint32_t column) {
  uniform_address(w, op, p.to, "tcgen05.alloc");
  std::uint64_t address[kLanes];
  w.addresses(p.to, address);
  const int lane = std::countr_zero(w.active);
  if (std::byte* host = resolve_one(w, op, p.where, address[lane], 4, Access::write, lane, 4)) {
    race::access(w, op, p.where, address, 4, race::Use::write, lane_bit(lane));
    std::memcpy(host, &column, 4);
    if (w.race) race::on_rendezvous(w, w.live);  // all lanes took part: each may read it
  }
  note_change(w);
}

void take(Warp& w, const Op& op, std::uint32_t first, std::uint32_t columns) {
  tensor_memory(*w.cta).take(first, columns, &op, w.index);
  if (w.race) race::tensor_allocated(*w.cta, int(first), int(columns));
}

// ---------------------------------------------------------------- alloc
// Fragment::key: columns; extra: the group size.
bool room_in_pair(Warp& w, std::uint32_t columns, int group) {
  if (group == 1) return tensor_memory(*w.cta).find_room(columns) >= 0;
  const std::size_t leader = w.cta->rank & ~1u;
  auto& ctas = w.cta->cluster->ctas;
  return tensor_memory(*ctas[leader]).find_room(columns) >= 0 &&
         tensor_memory(*ctas[leader + 1]).find_room(columns) >= 0;
}
bool room_ready(Warp& w, const Fragment& f) { return room_in_pair(w, std::uint32_t(f.key), int(f.extra)); }
std::string room_describe(const Warp& w, const Fragment& f) {
  const TensorMemory& m = tensor_memory(*w.cta);
  std::string s = cat("tcgen05.alloc of ", f.key, " columns: ", m.free_columns(), " of 512 are free");
  for (const TensorMemory::Allocation& a : m.allocations)
    if (!a.freed_by) s += cat("; ", a.columns, " are held since ", line_of(w, a.by), " by warp ", a.warp);
  return s;
}

// Both sides wait here: until the peer arrives, and for an alloc until there is room.
bool pair_ready(Warp& w, const Fragment& f) {
  const Rendezvous& r = rendezvous(*w.cta);
  const Side &mine = r.side[w.cta->rank & 1], &peer = r.side[~w.cta->rank & 1];
  if (mine.warp != &w) return mine.warp == nullptr;
  return mine.done || (peer.op && !peer.done && (f.key == 0 || room_in_pair(w, std::uint32_t(f.key), 2)));
}
std::string pair_describe(const Warp& w, const Fragment& f) {
  const Rendezvous& r = rendezvous(*w.cta);
  const Side& peer = r.side[~w.cta->rank & 1];
  if (peer.op) return room_describe(w, f);
  return cat("a .cta_group::2 operation on Tensor Memory: no warp of the peer CTA, rank ", w.cta->rank ^ 1,
             ", has executed its part");
}

// True once the collective has happened; `allocate` is 0 for a dealloc or relinquish.
bool meet_peer(Warp& w, const Op& op, std::uint32_t allocate, std::uint32_t address) {
  Rendezvous& r = rendezvous(*w.cta);
  Side &mine = r.side[w.cta->rank & 1], &peer = r.side[~w.cta->rank & 1];
  if (mine.warp != &w) {
    if (mine.warp) {
      w.wait(op, pair_ready, pair_describe, allocate);
      return false;
    }
    cta_pair(w, op, 2);  // once: after its part the peer may leave at any time
    mine = {&op, &w, allocate, address, false};
    note_change(w);
  }
  if (!mine.done) {
    Fragment probe;
    probe.key = allocate;
    if (!pair_ready(w, probe)) {
      w.wait(op, pair_ready, pair_describe, allocate);
      return false;
    }
    if (peer.columns != mine.columns)
      w.fail(Check::barrier, "tcgen05.pair", op, w.active,
             cat("the CTAs of a pair execute different operations on Tensor Memory: ", mine.columns,
                 " columns here, ", peer.columns, " at ", line_of(w, peer.op)),
             "one warp of each CTA executes the same .cta_group::2 alloc, dealloc and relinquish sequence");
    if (allocate) {
      mine.address = std::uint32_t(tensor_memory(*w.cta).find_room(allocate));
      peer.address = std::uint32_t(tensor_memory(*peer.warp->cta).find_room(allocate));
      take(w, op, mine.address, allocate);
      take(*peer.warp, *peer.op, peer.address, allocate);
    }
    mine.done = peer.done = true;
    note_change(w);
  }
  return true;
}

void need_device(const Warp& w) {
  const LaunchState& launch = *w.worker->launch;
  const std::string& arch = launch.properties->arch;
  const auto device = ptx::parse_target(arch);
  if (device && (device->sm / 10 == 10 || device->sm / 10 == 11)) return;
  throw Unsupported(ErrorText{"tcgen05 needs a device with Tensor Memory",
                              cat("kernel '", launch.launch.entry, "'"), cat("the device is ", arch),
                              "use sm_100a or sm_103a"});
}

void exec_alloc(Warp& w, const Op& op) {
  if (!w.converge(op) || !need_full_warp(w, op)) return;
  const auto& p = op.data_as<AllocPlan>();
  need_device(w);
  const std::uint32_t columns = uniform_value(w, op, p.columns, "number of columns");
  if (!check_columns(w, op, columns)) return;
  TensorMemory& m = tensor_memory(*w.cta);
  if (m.relinquished)
    w.report(Check::lifetime, "lifetime.tensor", op, w.active,
             cat("tcgen05.alloc after tcgen05.relinquish_alloc_permit at ", line_of(w, m.relinquished)),
             "a block that has given up the permit may not allocate again");
  if (p.group == 2) {
    if (!meet_peer(w, op, columns, 0)) return;
    Side& mine = rendezvous(*w.cta).side[w.cta->rank & 1];
    const std::uint32_t column = mine.address;
    mine = {};
    write_address(w, op, p, column);
    return;
  }
  const int column = m.find_room(columns);
  if (column < 0) return w.wait(op, room_ready, room_describe, columns, 1);
  take(w, op, std::uint32_t(column), columns);
  write_address(w, op, p, std::uint32_t(column));
}
void decode_alloc(Decoder& d, const Inst& i, Op& op) {
  need_tensor_target(d);
  AllocPlan p;
  p.group = cta_group_of(i);
  p.to = d.address(d.operand(i, 0));
  p.where = d.where(i);
  p.columns = d.source(d.operand(i, 1), ptx::Mod::u32);
  op.data = d.keep(std::move(p));
  op.flags |= kSplits;
  op.fn = exec_alloc;
}

// ---------------------------------------------------------------- dealloc, relinquish_alloc_permit
void exec_dealloc(Warp& w, const Op& op) {
  if (!w.converge(op) || !need_full_warp(w, op)) return;
  const auto& p = op.data_as<AllocPlan>();
  const std::uint32_t address = uniform_value(w, op, p.address, "address");
  const std::uint32_t columns = uniform_value(w, op, p.columns, "number of columns");
  if (!check_columns(w, op, columns)) return;
  if (p.group == 2) {
    if (!meet_peer(w, op, 0, address)) return;
    rendezvous(*w.cta).side[w.cta->rank & 1] = {};
  }
  free_columns(w, op, address, columns);
}
void decode_dealloc(Decoder& d, const Inst& i, Op& op) {
  need_tensor_target(d);
  AllocPlan p;
  p.group = cta_group_of(i);
  p.address = d.source(d.operand(i, 0), ptx::Mod::u32);
  p.columns = d.source(d.operand(i, 1), ptx::Mod::u32);
  op.data = d.keep(std::move(p));
  op.flags |= kSplits;
  op.fn = exec_dealloc;
}

void exec_relinquish(Warp& w, const Op& op) {
  if (!w.converge(op) || !need_full_warp(w, op)) return;
  if (op.kind == 2) {
    if (!meet_peer(w, op, 0, 0)) return;
    rendezvous(*w.cta).side[w.cta->rank & 1] = {};
  }
  tensor_memory(*w.cta).relinquished = &op;
  note_change(w);
}
void decode_relinquish(Decoder& d, const Inst& i, Op& op) {
  need_tensor_target(d);
  op.kind = std::uint8_t(cta_group_of(i));
  op.flags |= kSplits;
  op.fn = exec_relinquish;
}

}  // namespace

void add_tcgen05_alloc(Table& t) {
  t.set(ptx::Op::tcgen05_alloc, decode_alloc);
  t.set(ptx::Op::tcgen05_dealloc, decode_dealloc);
  t.set(ptx::Op::tcgen05_relinquish_alloc_permit, decode_relinquish);
}

}  // namespace cgp::emu

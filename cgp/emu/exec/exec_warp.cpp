// SPDX-License-Identifier: Apache-2.0
// Exchanges within a warp: shuffles, votes, matches, reductions, elect. Participants may stand at different
// instructions (w.meet), so every one reads its own operands and receives its own result.
#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/emu/core/machine_impl.h"
#include "cgp/emu/decode/decode_modifiers.h"
#include "cgp/emu/decode/families.h"

namespace cgp::emu {

using ptx::Mod;
using POp = ptx::Op;
using text::cat;

namespace {
template <class T>
T* part_row(const Warp& w, const Meeting::Part& p, Loc l) {
  return reinterpret_cast<T*>((l & kConstant ? w.base[1] : p.registers) + (l & ~3));
}
Mask part_pred(const Warp& w, const Meeting::Part& p, Loc l) {
  const Mask m = *part_row<Mask>(w, p, l);
  return l & kNegated ? ~m : m;
}
void set_part_pred(const Warp& w, const Meeting::Part& p, Loc l, Mask v) {
  Mask* m = part_row<Mask>(w, p, l);
  *m = (*m & ~p.lanes) | (v & p.lanes);
}
}  // namespace

// All participants of a .sync instruction, or false while some are missing. Without .sync (old PTX): the
// active ones.
bool meet_members(Warp& w, const Op& op, Loc mask, std::uint32_t kind, Meeting& m) {
  if (mask == kNoLoc) {
    m.part[0] = {&op, w.base[0], w.active};
    m.parts = 1;
    m.lanes = w.active;
    return true;
  }
  const Mask* masks = w.row<Mask>(mask);
  const Mask members = masks[std::countr_zero(w.active)];
  bool same = true;
  for_lanes(w.active, [&](int l) { same = same && masks[l] == members; });
  if (same) return w.meet(op, members, kind, m);
  // Lanes with different masks form different groups: the first group goes on, the others come back here.
  Mask group = 0;
  for_lanes(w.active, [&](int l) {
    if (masks[l] == members) group |= lane_bit(l);
  });
  Fragment rest;
  rest.pc = &op;
  rest.frame = w.frame;
  rest.lanes = w.lanes & ~group;
  rest.penalty = w.patience;
  w.others.push_back(rest);
  w.lanes = group;
  w.active = group;
  if (!w.meet(op, members, kind, m)) return false;
  w.worker->pc[op.inst].lanes -=
      std::uint64_t(std::popcount(rest.lanes));  // they are counted when they execute
  w.event = Warp::jumped;
  return true;
}

namespace {
// ---------------------------------------------------------------- shfl
enum Shuffle : std::uint8_t { up, down, bfly, idx };

void exec_shfl(Warp& w, const Op& op) {
  Meeting m;
  if (!meet_members(w, op, op.e, std::uint32_t(POp::shfl_sync), m)) return;
  std::uint32_t value[kLanes] = {}, result[kLanes];
  for (int i = 0; i < m.parts; ++i) {
    const auto* a = part_row<std::uint32_t>(w, m.part[std::size_t(i)], m.part[std::size_t(i)].op->a);
    for_lanes(m.part[std::size_t(i)].lanes, [&](int l) { value[l] = a[l]; });
  }
  for (int i = 0; i < m.parts; ++i) {
    const Meeting::Part& p = m.part[std::size_t(i)];
    const auto* bs = part_row<std::uint32_t>(w, p, p.op->b);
    const auto* cs = part_row<std::uint32_t>(w, p, p.op->c);
    Mask in_range = 0, absent = 0;
    for_lanes(p.lanes, [&](int l) {
      const int b = int(bs[l] & 31), c = int(cs[l] & 31), seg = int(cs[l] >> 8 & 31);
      const int most = (l & seg) | (c & ~seg), least = l & seg;
      int j = l;
      bool ok = false;
      switch (p.op->kind) {
        case up:
          j = l - b, ok = j >= most;
          break;
        case down:
          j = l + b, ok = j <= most;
          break;
        case bfly:
          j = l ^ b, ok = j <= most;
          break;
        default:
          j = least | (b & ~seg), ok = j <= most;
          break;
      }
      if (!ok) j = l;
      if (ok) in_range |= lane_bit(l);
      if (!(m.lanes >> j & 1)) absent |= lane_bit(l);
      result[l] = value[j];
    });
    if (absent)
      w.report(Check::sync_mask, "sync.mask", *p.op, absent,
               cat("lanes ", text::hex(absent),
                   " read registers of lanes that do not take part (taking part: ", text::hex(m.lanes),
                   ", exited or never started: ", text::hex(~w.live), ")"),
               "shuffle only among the lanes of the mask, before any of them exits");
    auto* d = part_row<std::uint32_t>(w, p, p.op->d);
    for_lanes(p.lanes, [&](int l) { d[l] = result[l]; });
    if (p.op->f != kNoLoc) set_part_pred(w, p, p.op->f, in_range);
  }
}

void decode_shfl(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {Mod::up, Mod::down, Mod::bfly, Mod::idx});
  op.flags |= kSplits;
  op.kind = i.has(Mod::up) ? up : i.has(Mod::down) ? down : i.has(Mod::bfly) ? bfly : idx;
  op.a = d.source(d.operand(i, 1), Mod::b32);
  op.b = d.source(d.operand(i, 2), Mod::b32);
  op.c = d.source(d.operand(i, 3), Mod::b32);
  if (i.op == POp::shfl_sync) op.e = d.source(d.operand(i, 4), Mod::b32);
  ptx::Operand out = d.operand(i, 0);
  if (out.reg2 != ptx::kNone) op.f = d.pred_dest(ptx::Operand::of(out.reg2));
  out.reg2 = ptx::kNone;
  op.d = d.dest(out, Mod::b32);
  op.fn = exec_shfl;
}

// ---------------------------------------------------------------- vote
enum Vote : std::uint8_t { vote_all, vote_any, vote_uni, vote_ballot };

void exec_vote(Warp& w, const Op& op) {
  Meeting m;
  if (!meet_members(w, op, op.e, std::uint32_t(POp::vote_sync) + op.kind, m)) return;
  Mask ballot = 0;
  for (int i = 0; i < m.parts; ++i) {
    const Meeting::Part& p = m.part[std::size_t(i)];
    ballot |= part_pred(w, p, p.op->a) & p.lanes;
  }
  for (int i = 0; i < m.parts; ++i) {
    const Meeting::Part& p = m.part[std::size_t(i)];
    if (p.op->kind == vote_ballot) {
      auto* d = part_row<std::uint32_t>(w, p, p.op->d);
      for_lanes(p.lanes, [&](int l) { d[l] = ballot; });
      continue;
    }
    const bool v = p.op->kind == vote_all   ? ballot == m.lanes
                   : p.op->kind == vote_any ? ballot != 0
                                            : ballot == 0 || ballot == m.lanes;
    set_part_pred(w, p, p.op->d, v ? ~Mask(0) : 0);
  }
}

void decode_vote(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {Mod::all, Mod::any, Mod::uni, Mod::ballot});
  op.flags |= kSplits;
  op.kind = i.has(Mod::all)   ? vote_all
            : i.has(Mod::any) ? vote_any
            : i.has(Mod::uni) ? vote_uni
                              : vote_ballot;
  op.a = d.pred(d.operand(i, 1));
  if (i.op == POp::vote_sync) op.e = d.source(d.operand(i, 2), Mod::b32);
  op.d = op.kind == vote_ballot ? d.dest(d.operand(i, 0), Mod::b32) : d.pred_dest(d.operand(i, 0));
  op.fn = exec_vote;
}

// ---------------------------------------------------------------- match
void exec_match(Warp& w, const Op& op) {
  Meeting m;
  if (!meet_members(w, op, op.e, std::uint32_t(POp::match_any_sync) + op.kind, m)) return;
  std::uint64_t value[kLanes] = {};
  for (int i = 0; i < m.parts; ++i) {
    const Meeting::Part& p = m.part[std::size_t(i)];
    for_lanes(p.lanes, [&](int l) {
      value[l] = p.op->bytes == 8 ? part_row<std::uint64_t>(w, p, p.op->a)[l]
                                  : part_row<std::uint32_t>(w, p, p.op->a)[l];
    });
  }
  const std::uint64_t first = value[std::countr_zero(m.lanes)];
  bool all = true;
  for_lanes(m.lanes, [&](int l) { all = all && value[l] == first; });
  for (int i = 0; i < m.parts; ++i) {
    const Meeting::Part& p = m.part[std::size_t(i)];
    auto* d = part_row<std::uint32_t>(w, p, p.op->d);
    for_lanes(p.lanes, [&](int l) {
      Mask same = 0;
      for_lanes(m.lanes, [&](int k) {
        if (value[k] == value[l]) same |= lane_bit(k);
      });
      d[l] = p.op->kind == 0 ? same : all ? m.lanes : 0;
    });
    if (p.op->f != kNoLoc) set_part_pred(w, p, p.op->f, all ? ~Mask(0) : 0);
  }
}

void decode_match(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {});
  op.flags |= kSplits;
  op.kind = i.op == POp::match_all_sync;
  op.bytes = std::uint8_t(ptx::type_bits(i.type()) / 8);
  op.a = d.source(d.operand(i, 1), i.type());
  op.e = d.source(d.operand(i, 2), Mod::b32);
  ptx::Operand out = d.operand(i, 0);
  if (out.reg2 != ptx::kNone) op.f = d.pred_dest(ptx::Operand::of(out.reg2));
  out.reg2 = ptx::kNone;
  op.d = d.dest(out, Mod::b32);
  op.fn = exec_match;
}

// ---------------------------------------------------------------- redux
enum Redux : std::uint8_t { r_add, r_min, r_max, r_and, r_or, r_xor, r_fmin, r_fmax };

std::uint32_t reduce(const Op& op, std::uint32_t x, std::uint32_t y) {
  const bool sign = op.small & 1;
  switch (op.kind) {
    case r_add:
      return x + y;
    case r_min:
      return sign ? std::uint32_t(std::min(std::int32_t(x), std::int32_t(y))) : std::min(x, y);
    case r_max:
      return sign ? std::uint32_t(std::max(std::int32_t(x), std::int32_t(y))) : std::max(x, y);
    case r_and:
      return x & y;
    case r_or:
      return x | y;
    case r_xor:
      return x ^ y;
    default:
      break;
  }
  // f32: .abs and .NaN as min and max have them
  const float a = std::bit_cast<float>(x), b = std::bit_cast<float>(y);
  if (a != a || b != b) {
    if ((op.small & 4) || (a != a && b != b)) return 0x7fffffffu;
    return a != a ? y : x;
  }
  const bool less = a < b || (a == b && (x >> 31) > (y >> 31));
  return less == (op.kind == r_fmin) ? x : y;
}

void exec_redux(Warp& w, const Op& op) {
  Meeting m;
  if (!meet_members(w, op, op.e, std::uint32_t(POp::redux_sync) + op.kind, m)) return;
  std::uint32_t total = 0;
  bool first = true;
  for (int i = 0; i < m.parts; ++i) {
    const Meeting::Part& p = m.part[std::size_t(i)];
    const auto* a = part_row<std::uint32_t>(w, p, p.op->a);
    for_lanes(p.lanes, [&](int l) {
      const std::uint32_t v = op.small & 2 ? a[l] & 0x7fffffffu : a[l];
      total = first ? v : reduce(op, total, v);
      first = false;
    });
  }
  for (int i = 0; i < m.parts; ++i) {
    const Meeting::Part& p = m.part[std::size_t(i)];
    auto* d = part_row<std::uint32_t>(w, p, p.op->d);
    for_lanes(p.lanes, [&](int l) { d[l] = total; });
  }
}

void decode_redux(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {Mod::add, Mod::min, Mod::max, Mod::and_, Mod::or_, Mod::xor_, Mod::abs, Mod::NaN});
  op.flags |= kSplits;
  const Mod t = i.type();
  const bool f = t == Mod::f32;
  op.kind = i.has(Mod::add)    ? r_add
            : i.has(Mod::min)  ? (f ? r_fmin : r_min)
            : i.has(Mod::max)  ? (f ? r_fmax : r_max)
            : i.has(Mod::and_) ? r_and
            : i.has(Mod::or_)  ? r_or
                               : r_xor;
  op.small = std::uint16_t((t == Mod::s32 ? 1 : 0) | (i.has(Mod::abs) ? 2 : 0) | (i.has(Mod::NaN) ? 4 : 0));
  op.a = d.source(d.operand(i, 1), t);
  op.e = d.source(d.operand(i, 2), Mod::b32);
  op.d = d.dest(d.operand(i, 0), t);
  op.fn = exec_redux;
}

// ---------------------------------------------------------------- elect, activemask
void exec_elect(Warp& w, const Op& op) {
  Meeting m;
  if (!meet_members(w, op, op.e, std::uint32_t(POp::elect_sync), m)) return;
  const int leader = std::countr_zero(m.lanes);
  for (int i = 0; i < m.parts; ++i) {
    const Meeting::Part& p = m.part[std::size_t(i)];
    set_part_pred(w, p, p.op->f, lane_bit(leader));
    auto* d = part_row<std::uint32_t>(w, p, p.op->d);
    for_lanes(p.lanes, [&](int l) { d[l] = std::uint32_t(leader); });
  }
}

void decode_elect(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {});
  op.flags |= kSplits;
  ptx::Operand out = d.operand(i, 0);
  op.f = d.pred_dest(ptx::Operand::of(out.reg2));
  out.reg2 = ptx::kNone;
  op.d = out.reg == ptx::kNone ? d.scratch(32) : d.dest(out, Mod::b32);
  op.e = d.source(d.operand(i, 1), Mod::b32);
  op.fn = exec_elect;
}

void exec_activemask(Warp& w, const Op& op) {
  part_lanes(w, op);
  auto* d = w.row<std::uint32_t>(op.d);
  for_lanes(w.active, [&](int l) { d[l] = w.active; });
}
void decode_activemask(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {});
  op.d = d.dest(d.operand(i, 0), Mod::b32);
  op.flags |= kSplits;
  op.fn = exec_activemask;
}
}  // namespace

void add_warp(Table& t) {
  t.set(POp::shfl, decode_shfl);
  t.set(POp::shfl_sync, decode_shfl);
  t.set(POp::vote, decode_vote);
  t.set(POp::vote_sync, decode_vote);
  t.set(POp::match_any_sync, decode_match);
  t.set(POp::match_all_sync, decode_match);
  t.set(POp::redux_sync, decode_redux);
  t.set(POp::elect_sync, decode_elect);
  t.set(POp::activemask, decode_activemask);
}

}  // namespace cgp::emu

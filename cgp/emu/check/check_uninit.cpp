// SPDX-License-Identifier: Apache-2.0
// Never-written data: followed through registers, reported where it becomes a result (address, branch, global
// store). Compilers load padding and dead lanes, so the load itself is no error. The origin, the instruction that
// read the bytes first, stays with the value through registers and shared memory.
#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/emu/core/local_memory.h"
#include "cgp/emu/core/machine_impl.h"

namespace cgp::emu {

using text::cat;

namespace {
Mask& cell(Frame& f, Loc l) {
  const std::size_t i = std::size_t(l & ~3) / 4;
  if (f.taint.empty()) f.taint.resize(f.function->register_bytes / 4 + 1);
  return f.taint[i];
}
std::uint32_t& origin_of(Warp& w, Loc l) { return w.taint_origin[{w.frame, l & ~3}]; }
bool in_local(const TaintOrigin& o) { return !o.tensor && !o.shared && o.buffer == kLocalBuffer; }
std::string_view class_of(const TaintOrigin& o) {
  return o.tensor      ? "uninit.tensor"
         : o.shared    ? "uninit.shared"
         : in_local(o) ? "uninit.local"
                       : "uninit.global";
}
std::string_view memory_of(const TaintOrigin& o) {
  return o.tensor      ? "Tensor Memory"
         : o.shared    ? "shared memory"
         : in_local(o) ? kLocalBuffer
                       : "global memory";
}
// Lanes in which `row` holds `value`, of the type's width.
Mask holding(const Warp& w, Loc row, ptx::Mod type, std::uint64_t value) {
  const int bits = ptx::type_bits(type);
  if (bits == 1) return value ? w.pred(row) : ~w.pred(row);
  const std::uint64_t used = bits == 64 ? ~0ull : (1ull << bits) - 1;
  Mask m = 0;
  for_lanes(w.active, [&](int l) {
    const std::uint64_t v = bits == 64 ? w.row<std::uint64_t>(row)[l] : w.row<std::uint32_t>(row)[l];
    if (((v ^ value) & used) == 0) m |= lane_bit(l);
  });
  return m;
}

// Lanes whose result is known although a source is not: an AND with a zero, an OR with ones, a selection that
// takes the other value. Code that reads ahead of its bounds and decides with all conditions together relies
// on it.
Mask known_anyway(const Warp& w, const Op& op) {
  const ptx::Inst& i = w.worker->launch->program->inst(op.inst);
  const auto absorbs = [&](Loc by, ptx::Mod type, bool ones) {
    return holding(w, by, type, ones ? ~0ull : 0) & ~taint_of(w, by);
  };
  switch (i.op) {
    case ptx::Op::and_:
    case ptx::Op::or_: {
      const bool ones = i.op == ptx::Op::or_;
      return absorbs(op.a, i.type(), ones) | absorbs(op.b, i.type(), ones);
    }
    case ptx::Op::setp:
      if (i.has(ptx::Mod::and_) || i.has(ptx::Mod::or_))
        return absorbs(op.c, ptx::Mod::pred, i.has(ptx::Mod::or_));
      return 0;
    case ptx::Op::selp: {
      const Mask first = w.pred(op.c);
      return ~taint_of(w, op.c) & ((first & ~taint_of(w, op.a)) | (~first & ~taint_of(w, op.b)));
    }
    default:
      return 0;
  }
}
}  // namespace

Mask taint_of(const Warp& w, Loc l) {
  if (l < 0 || (l & kConstant) || w.frame->taint.empty()) return 0;
  return w.frame->taint[std::size_t(l & ~3) / 4];
}

void taint_loaded(Warp& w, const Op& op, Loc dest, Mask lanes, std::optional<std::uint32_t> origin) {
  if (!lanes || (dest & kConstant)) return;
  cell(*w.frame, dest) |= lanes;
  w.taint = true;
  if (!origin) {
    const auto& all = w.worker->origins;
    const auto mine = std::find_if(all.begin(), all.end(), [&](const TaintOrigin& o) { return o.op == &op; });
    origin = mine == all.end() ? 0 : std::uint32_t(mine - all.begin());
  }
  origin_of(w, dest) = *origin;
}

void taint_result(Warp& w, const Op& op, Loc dest, Mask lanes, bool keep, std::uint32_t origin) {
  if (dest & kConstant) return;
  if (!keep && !w.frame->taint.empty()) cell(*w.frame, dest) = 0;
  taint_loaded(w, op, dest, lanes, origin);
}

std::uint32_t taint_origin(const Warp& w, Loc l) {
  const auto it = w.taint_origin.find({w.frame, l & ~3});
  return it == w.taint_origin.end() ? 0 : it->second;
}

namespace {
// At the instruction that the value comes from, however far it went; the one that uses it is the other party.
void report_value(Warp& w, const Op& op, Mask lanes, std::uint32_t origin, std::string_view use) {
  if (origin >= w.worker->origins.size() || !(w.checks & std::uint32_t(Check::uninit))) return;
  const TaintOrigin& o = w.worker->origins[origin];
  const ProgramImpl& p = *w.worker->launch->program;
  Finding f = make_finding(w, class_of(o), *o.op, lanes,
                           cat("reads bytes of ", memory_of(o), " that were never written; the value ", use,
                               " at ", line_text(p, op.inst), " '", p.text(op.inst), "'"));
  f.address = o.address;
  f.buffer = o.buffer;
  f.byte_offset = o.byte_offset;
  if (o.op != &op) f.other = other_party(w, op, lanes);
  add_finding(*w.worker->launch, *o.op, std::move(f));
}
}  // namespace

void report_taint(Warp& w, const Op& op, Loc source, Mask lanes, std::string_view use) {
  report_value(w, op, lanes, taint_origin(w, source), use);
  // Reported once is enough: the value counts as defined from here on.
  cell(*w.frame, source) &= ~lanes;
}

void report_stored(Warp& w, const Op& op, int lane, const Cta& cta, std::uint32_t at) {
  report_value(w, op, lane_bit(lane), shared_origin(w, op, cta, at), "is stored to global memory");
}

void report_origin(Warp& w, const Op& op, Mask lanes, std::string_view use) {
  for (const TaintOrigin& o : w.worker->origins) {
    if (o.op != &op) continue;
    w.report(Check::uninit, class_of(o), op, lanes, cat(memory_of(o), " that was never written ", use), {},
             o.address, o.buffer, o.byte_offset);
    return;
  }
}

void propagate_taint(Warp& w, const Op& op) {
  const DataFlow& flow = w.worker->launch->program->flow[op.inst];
  if (op.flags & kMicro) return;
  for (Loc a : flow.addresses)
    if (const Mask m = taint_of(w, a) & w.active) report_taint(w, op, a, m, "is used as an address");
  // Of a product each row and column has its own (exec_wgmma.cpp).
  if (ptx::family(w.worker->launch->program->inst(op.inst).op) == ptx::Family::wgmma) return;
  Mask t = 0;
  Loc from = kNoLoc;
  for (Loc s : flow.sources) {
    const Mask m = taint_of(w, s) & w.active;
    if (m) {
      t |= m;
      from = s;
    }
  }
  if (t) t &= ~known_anyway(w, op);
  for (Loc d : flow.dests) {
    if (d & kConstant) continue;
    if (!t && w.frame->taint.empty()) continue;
    Mask& c = cell(*w.frame, d);
    c = (c & ~w.active) | t;
    if (t) origin_of(w, d) = origin_of(w, from);
  }
}

void propagate_guard(Warp& w, const Op& op) {
  if (op.guard == kNoLoc) return;
  if (const Mask m = taint_of(w, op.guard) & w.lanes)
    report_taint(w, op, op.guard, m, "decides a branch or guard");
}

}  // namespace cgp::emu

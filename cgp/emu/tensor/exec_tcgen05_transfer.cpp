// SPDX-License-Identifier: Apache-2.0
// tcgen05.ld, tcgen05.st and tcgen05.wait: Tensor Memory to registers and back. PTX ISA 9.7.16.8. A warp
// reaches the 32 lanes of its place in the warpgroup. Loads write their registers, and stores the memory, any
// time until the wait of their warp.
#include <algorithm>
#include <cmath>

#include "cgp/base/text.h"
#include "cgp/emu/async/async_rows.h"
#include "cgp/emu/core/machine_impl.h"
#include "cgp/emu/decode/tensor_families.h"
#include "cgp/emu/tensor/matrix_plan.h"
#include "cgp/emu/tensor/tcgen05.h"

namespace cgp::emu {
namespace {

using ptx::Inst;
using ptx::Mod;
using text::cat;

enum class TransferShape : std::uint8_t { s32x32b, s16x64b, s16x128b, s16x256b, s16x32bx2 };

struct ReducePlan {
  enum class Op : std::uint8_t { none, min, max } op = Op::none;
  Mod type = Mod::u32;
  bool abs = false, nan = false;
  Loc to = kNoLoc;
};

struct TransferPlan {
  TransferShape shape = TransferShape::s32x32b;
  bool packed = false;
  bool load = true;
  Address address;
  int half_split = 0;
  std::vector<Loc> registers;
  ReducePlan reduce;
};

struct Cell {
  int lane, column;
};
// The lane (from the base) and the 32-bit column that register r of thread t holds. Figures of 9.7.16.2.3.1.
Cell place(TransferShape shape, int t, int r) {
  const int g = t / 4, q = t % 4;
  switch (shape) {
    case TransferShape::s32x32b:
      return {t, r};
    case TransferShape::s16x64b:
      return {g + 8 * (t % 2), t / 2 % 2 + 2 * r};
    case TransferShape::s16x128b:
      return {g + 8 * (r % 2), q + r / 2 * 4};
    case TransferShape::s16x256b:
      return {g + 8 * (r / 2 % 2), 2 * q + r % 2 + r / 4 * 8};
    case TransferShape::s16x32bx2:
      return {t % 16, r};
  }
  return {0, 0};
}
int lanes_of(TransferShape s) { return s == TransferShape::s32x32b ? 32 : 16; }
// 32-bit columns of the whole access (of one half for 16x32bx2), before packing.
int columns_of(TransferShape s, int registers) {
  switch (s) {
    case TransferShape::s16x64b:
    case TransferShape::s16x128b:
    case TransferShape::s16x256b:
      return 2 * registers;
    default:
      return registers;
  }
}

// Calls f(thread, register, lane, column) for every register of the warp; packed registers have a second
// column behind the first.
template <class F>
void each_cell(const TransferPlan& p, F&& f) {
  const int step = p.packed ? 2 : 1;
  for (int r = 0; r < int(p.registers.size()); ++r)
    for (int t = 0; t < kLanes; ++t) {
      const Cell c = place(p.shape, t, r);
      const int half = p.shape == TransferShape::s16x32bx2 && t >= 16 ? p.half_split : 0;
      f(t, std::size_t(r), c.lane, c.column * step + half);
    }
}

bool alive(const Warp& w, const Frame* frame) {
  if (w.cta->done) return false;
  return std::any_of(w.frames.begin(), w.frames.end(), [&](const auto& f) { return f.get() == frame; });
}

// ---------------------------------------------------------------- the operations
struct TransferOp : AsyncOp {
  Issuer by;
  const TransferPlan* plan = nullptr;
  int lane = 0, column = 0;
  bool load = true;
};

void reduce_row(const ReducePlan& p, const std::vector<std::uint32_t>& values, std::uint32_t& out) {
  if (p.type == Mod::f32) {
    bool any = false, nan = false;
    float best = 0;
    for (std::uint32_t u : values) {
      float v = std::bit_cast<float>(p.abs ? u & 0x7fffffffu : u);
      if (v != v) {
        nan = true;
        continue;
      }
      // -0 counts as below +0, as in min and max.
      const auto less = [](float a, float b) {
        return a < b || (a == b && std::signbit(a) && !std::signbit(b));
      };
      if (!any || (p.op == ReducePlan::Op::min ? less(v, best) : less(best, v))) best = v;
      any = true;
    }
    out = (nan && p.nan) || !any ? 0x7fffffffu : std::bit_cast<std::uint32_t>(best);
    return;
  }
  out = values[0];
  for (std::uint32_t v : values) {
    const bool below = p.type == Mod::s32 ? std::int32_t(v) < std::int32_t(out) : v < out;
    if (p.op == ReducePlan::Op::min ? below : v != out && !below) out = v;
  }
}

struct LoadOp : TransferOp {
  Frame* frame = nullptr;
  std::byte* registers = nullptr;

  std::uint32_t* row(Loc l) const { return reinterpret_cast<std::uint32_t*>(registers + (l & ~3)); }
  void poison() override {
    for (Loc l : plan->registers) poison_bytes(registers + (l & ~3), kRow32);
  }
  void complete() override {
    Warp& w = *by.warp;
    if (!alive(w, frame)) return;
    const TransferPlan& p = *plan;
    TensorMemory& m = tensor_memory(*w.cta);
    std::vector<Mask> unwritten(p.registers.size());
    Cell missing{-1, 0};
    each_cell(p, [&](int t, std::size_t r, int dl, int dc) {
      const int l = lane + dl, c = column + dc;
      std::uint32_t v = *m.row(l, c);
      bool known = m.is_written(l, c);
      if (p.packed) {
        v = (v & 0xffff) | *m.row(l, c + 1) << 16;
        known = known && m.is_written(l, c + 1);
      }
      row(p.registers[r])[t] = v;
      if (known) return;
      unwritten[r] |= lane_bit(t);
      if (missing.lane < 0) missing = {l, c};
    });
    if (p.reduce.op != ReducePlan::Op::none) {
      std::vector<std::uint32_t> values(p.registers.size());
      for (int t = 0; t < kLanes; ++t) {
        for (std::size_t r = 0; r < values.size(); ++r) values[r] = row(p.registers[r])[t];
        reduce_row(p.reduce, values, row(p.reduce.to)[t]);
      }
    }
    if (missing.lane >= 0) taint(unwritten, missing);
    note_change(w);
  }
  // Never-written cells are followed through the registers like never-written memory.
  void taint(const std::vector<Mask>& unwritten, Cell missing) {
    Warp& w = *by.warp;
    if (!(w.checks & std::uint32_t(Check::uninit))) return;
    auto& origins = w.worker->origins;
    const bool known =
        std::any_of(origins.begin(), origins.end(), [&](const auto& o) { return o.op == by.op; });
    if (!known) {
      TaintOrigin o;
      o.op = by.op;
      o.address = std::uint64_t(missing.lane) << 16 | std::uint64_t(missing.column);
      o.buffer = "tensor memory";
      o.byte_offset = missing.column;
      o.tensor = true;
      origins.push_back(std::move(o));
    }
    Frame* const running = w.frame;
    w.frame = frame;
    Mask all = 0;
    for (std::size_t r = 0; r < unwritten.size(); ++r) {
      taint_loaded(w, *by.op, plan->registers[r], unwritten[r]);
      all |= unwritten[r];
    }
    if (plan->reduce.op != ReducePlan::Op::none) taint_loaded(w, *by.op, plan->reduce.to, all);
    w.frame = running;
  }
};

struct StoreOp : TransferOp {
  std::vector<std::uint32_t> values;  // [register][thread]
  std::vector<Mask> unwritten;        // per register
  void complete() override {
    Warp& w = *by.warp;
    if (w.cta->done) return;
    TensorMemory& m = tensor_memory(*w.cta);
    const auto put = [&](int l, int c, std::uint32_t v, bool known) {
      *m.row(l, c) = v;
      m.mark(l, c, 1, known);
    };
    each_cell(*plan, [&](int t, std::size_t r, int dl, int dc) {
      const std::uint32_t v = values[r * kLanes + std::size_t(t)];
      const bool known = !(unwritten[r] >> t & 1);
      if (plan->packed) {
        put(lane + dl, column + dc, v & 0xffff, known);
        put(lane + dl, column + dc + 1, v >> 16, known);
      } else {
        put(lane + dl, column + dc, v, known);
      }
    });
    note_change(w);
  }
};

// ---------------------------------------------------------------- issue
// Loads that the warp has issued, for the check of registers that are touched before the wait. A store reads
// its registers at issue: the ISA asks for its wait before the memory is used, not before they change.
std::uint64_t& loads_of(Warp& w) { return state_of<std::uint64_t>(w, std::uint32_t(ptx::Family::tcgen05)); }

void note_registers(Warp& w, const Op& op, const TransferPlan& p) {
  if (!p.load) return;
  std::vector<Loc> rows = p.registers;
  if (p.reduce.op != ReducePlan::Op::none) rows.push_back(p.reduce.to);
  issue_rows(w, AsyncUnit::tensor_load, op, {}, rows, ++loads_of(w));
}

// The parties of a warp's loads and stores, as of its last one: what a wait learns.
struct TransferAgents {
  race::Agent of[2];  // stores, loads
};
TransferAgents& agents(Warp& w) {
  return state_of<TransferAgents>(w, std::uint32_t(ptx::Family::tcgen05) + 192);
}

void note_access(Warp& w, const Op& op, const TransferPlan& p, TensorAddress at) {
  if (!w.race) return;
  const race::Agent agent =
      race::unit_agent(w, (p.load ? race::kTensorLoads : race::kTensorStores) + w.index);
  agents(w).of[p.load] = agent;
  const int columns = columns_of(p.shape, int(p.registers.size())) * (p.packed ? 2 : 1);
  race::TensorRange r{at.lane, lanes_of(p.shape), at.column, columns};
  const race::Use use = p.load ? race::Use::read : race::Use::write;
  const int lane = std::countr_zero(w.active);
  race::tensor_access(w, op, lane, agent, *w.cta, r, use);
  r.column += p.half_split;
  if (p.shape == TransferShape::s16x32bx2) race::tensor_access(w, op, lane, agent, *w.cta, r, use);
  race::issued(w);
}

bool check_access(Warp& w, const Op& op, const TransferPlan& p, TensorAddress at) {
  const Issuer by{&w, &op, std::countr_zero(w.active)};
  const char* name = p.load ? "tcgen05.ld reads" : "tcgen05.st writes";
  const int first = int(w.index % 4) * 32, lanes = lanes_of(p.shape);
  if (at.lane < first || at.lane + lanes > first + 32 || (at.lane - first) % 16 != 0) {
    w.report(Check::bounds, "oob.tensor", op, w.active,
             cat(name, " lanes ", at.lane, " to ", at.lane + lanes - 1, "; warp ", w.index, " reaches lanes ",
                 first, " to ", first + 31, " of Tensor Memory", lanes == 16 ? ", in halves of 16" : ""),
             "add (warp index % 4) * 32 << 16 to the address",
             std::uint64_t(at.lane) << 16 | unsigned(at.column), "tensor memory", at.column);
    return false;
  }
  const int columns = columns_of(p.shape, int(p.registers.size())) * (p.packed ? 2 : 1);
  if (!check_tensor_range(by, *w.cta, at.lane, lanes, at.column, columns, name)) return false;
  return p.shape != TransferShape::s16x32bx2 ||
         check_tensor_range(by, *w.cta, at.lane, lanes, at.column + p.half_split, columns, name);
}

void exec_transfer(Warp& w, const Op& op) {
  if (!w.converge(op) || !need_full_warp(w, op)) return;
  const auto& p = op.data_as<TransferPlan>();
  const TensorAddress at(uniform_address(w, op, p.address, p.load ? "tcgen05.ld" : "tcgen05.st"));
  if (!check_access(w, op, p, at)) return;
  note_registers(w, op, p);
  note_access(w, op, p, at);
  const Issuer by{&w, &op, std::countr_zero(w.active)};
  AsyncQueue& queue = w.cta->cluster->async;
  if (p.load) {
    auto x = std::make_unique<LoadOp>();
    x->by = by;
    x->plan = &p;
    x->lane = at.lane;
    x->column = at.column;
    x->frame = w.frame;
    x->registers = w.base[0];
    queue.submit(std::move(x));
    return;
  }
  auto x = std::make_unique<StoreOp>();
  x->by = by;
  x->plan = &p;
  x->lane = at.lane;
  x->column = at.column;
  x->load = false;
  for (Loc l : p.registers) {
    const std::uint32_t* row = w.row<std::uint32_t>(l);
    x->values.insert(x->values.end(), row, row + kLanes);
    x->unwritten.push_back(w.taint ? taint_of(w, l) : 0);
  }
  queue.submit(std::move(x));
}

void land(Warp& w, bool loads) {
  AsyncQueue& queue = w.cta->cluster->async;
  if (!queue.pending()) return;
  queue.force([&](const AsyncOp& x) {
    const auto* t = dynamic_cast<const TransferOp*>(&x);
    return t && t->by.warp == &w && t->load == loads;
  });
}

void exec_wait(Warp& w, const Op& op) {
  if (!w.converge(op) || !need_full_warp(w, op)) return;
  if (op.kind) settle_rows(w, AsyncUnit::tensor_load, loads_of(w));
  if (w.race) race::wait_agent(w, agents(w).of[op.kind]);
  land(w, bool(op.kind));
}
void decode_wait(Decoder&, const Inst& i, Op& op) {
  op.kind = i.has(Mod::ld);
  op.flags |= kSplits;
  op.fn = exec_wait;
}

// ---------------------------------------------------------------- decode
TransferShape shape_of(Decoder& d, const Inst& i) {
  const std::pair<Mod, TransferShape> all[] = {{Mod::s32x32b, TransferShape::s32x32b},
                                               {Mod::s16x64b, TransferShape::s16x64b},
                                               {Mod::s16x128b, TransferShape::s16x128b},
                                               {Mod::s16x256b, TransferShape::s16x256b},
                                               {Mod::s16x32bx2, TransferShape::s16x32bx2}};
  for (const auto& [m, s] : all)
    if (i.has(m)) return s;
  d.unsupported("it names no shape");
}

void check_registers(Decoder& d, const Inst& i, const TransferPlan& p) {
  const std::pair<Mod, std::size_t> repeats[] = {{Mod::x1, 1},   {Mod::x2, 2},    {Mod::x4, 4},
                                                 {Mod::x8, 8},   {Mod::x16, 16},  {Mod::x32, 32},
                                                 {Mod::x64, 64}, {Mod::x128, 128}};
  const std::size_t each = p.shape == TransferShape::s16x128b   ? 2
                           : p.shape == TransferShape::s16x256b ? 4
                                                                : 1;
  for (const auto& [m, n] : repeats)
    if (i.has(m) && p.registers.size() != n * each)
      d.unsupported(cat("this shape takes ", n * each, " registers, not ", p.registers.size()));
}

void decode_transfer(Decoder& d, const Inst& i, Op& op) {
  need_tensor_target(d);
  TransferPlan p;
  p.shape = shape_of(d, i);
  p.load = i.op != ptx::Op::tcgen05_st;
  p.packed = i.has(Mod::pack_16b) || i.has(Mod::unpack_16b);
  const bool split = p.shape == TransferShape::s16x32bx2;
  if (p.load) {
    std::size_t at = 0;
    p.registers = d.dests(d.operand(i, at++), Mod::b32);
    if (i.op == ptx::Op::tcgen05_ld_red) {
      p.reduce.op = i.has(Mod::min) ? ReducePlan::Op::min : ReducePlan::Op::max;
      p.reduce.type = i.has(Mod::f32) ? Mod::f32 : i.has(Mod::s32) ? Mod::s32 : Mod::u32;
      p.reduce.abs = i.has(Mod::abs);
      p.reduce.nan = i.has(Mod::NaN);
      p.reduce.to = d.dest(d.operand(i, at++), Mod::b32);
    }
    p.address = d.address(d.operand(i, at++));
    if (split) p.half_split = int(std::int64_t(d.immediate(d.operand(i, at))));
  } else {
    p.address = d.address(d.operand(i, 0));
    if (split) p.half_split = int(std::int64_t(d.immediate(d.operand(i, 1))));
    p.registers = d.sources(d.operand(i, split ? 2 : 1), Mod::b32);
  }
  check_registers(d, i, p);
  if (p.load) d.async_rows(p.registers);
  if (p.reduce.op != ReducePlan::Op::none) d.async_rows({p.reduce.to});
  op.flags |= kAsyncOwner;
  op.data = d.keep(std::move(p));
  op.flags |= kSplits;
  op.fn = exec_transfer;
}

}  // namespace

void land_tensor_loads(Warp& w) { land(w, true); }

void add_tcgen05_transfer(Table& t) {
  t.set(ptx::Op::tcgen05_ld, decode_transfer);
  t.set(ptx::Op::tcgen05_ld_red, decode_transfer);
  t.set(ptx::Op::tcgen05_st, decode_transfer);
  t.set(ptx::Op::tcgen05_wait, decode_wait);
}

}  // namespace cgp::emu

// SPDX-License-Identifier: Apache-2.0
// Branches, calls (also of the functions nvcc leaves external), returns, exits and traps.
#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/emu/core/local_memory.h"
#include "cgp/emu/decode/decode_impl.h"
#include "cgp/emu/decode/decode_modifiers.h"
#include "cgp/emu/decode/families.h"

namespace cgp::emu {

using ptx::Mod;
using ptx::OperandKind;
using POp = ptx::Op;
using text::cat;

namespace {
// ---------------------------------------------------------------- branches
void exec_bra(Warp& w, const Op& op) {
  const Mask taken = op.c == kNoLoc ? w.lanes : w.pred(op.c) & w.lanes;
  if (taken && taken != w.lanes) ++w.worker->pc[op.inst].divergent;
  branch(w, op, static_cast<const Op*>(op.data), taken);
}

void decode_bra(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {Mod::uni});
  op.flags |= kBranch;
  op.imm = std::int64_t(d.operand(i, 0).label);
  if (d.operand(i, 0).kind != OperandKind::label) d.unsupported("a target that is not a label");
  if (i.guard != ptx::kNone) {
    ptx::Operand p = ptx::Operand::of(i.guard, i.guard_negated);
    op.c = d.pred(p);
  }
  op.fn = exec_bra;
}

void exec_brx(Warp& w, const Op& op) {
  const auto& table = w.frame->function->tables[op.small];
  const auto* index = w.row<std::uint32_t>(op.a);
  const Op* code = w.frame->function->begin;
  Mask left = w.active;
  int ways = 0;
  Mask first_taken = 0;
  const Op* first_target = nullptr;
  while (left) {
    const std::uint32_t x = index[std::countr_zero(left)];
    Mask same = 0;
    for_lanes(left, [&](int l) {
      if (index[l] == x) same |= lane_bit(l);
    });
    left &= ~same;
    if (x >= table.size())
      w.fail(Check::program, "branch.index", op, same,
             cat("index ", x, " into a list of ", table.size(), " branch targets"));
    const Op* target = code + table[x];
    if (!ways++) {
      first_taken = same;
      first_target = target;
    } else {
      Fragment f;
      f.pc = target;
      f.frame = w.frame;
      f.lanes = same;
      f.penalty = w.patience;
      w.others.push_back(f);
    }
  }
  if (ways > 1) ++w.worker->pc[op.inst].divergent;
  w.lanes = first_taken;
  w.pc = first_target;
  w.event = Warp::jumped;
}

void decode_brx(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {Mod::uni});
  op.flags |= kSplits;
  op.a = d.source(d.operand(i, 0), Mod::u32);
  const ptx::Operand& t = d.operand(i, 1);
  if (t.kind != OperandKind::table) d.unsupported("targets that are not a .branchtargets list");
  op.small = std::uint16_t(t.label);
  op.fn = exec_brx;
}

// ---------------------------------------------------------------- calls
struct Argument {
  bool in_local = false;  ///< a .param variable of the caller: `offset` in its frame
  std::uint32_t offset = 0;
  Loc row = kNoLoc;  ///< register or immediate
  bool wide = false, predicate = false;
};
enum class External : std::uint8_t { none, vprintf, assertfail, malloc, free };
struct Call {
  std::uint32_t function = ptx::kNone;  ///< kNone: through the register `target`
  External external = External::none;
  std::string name;
  Loc target = kNoLoc;
  std::vector<Argument> results, arguments;
};

std::byte* local_bytes(Warp& w, const Frame& f, std::uint32_t offset, int lane) {
  return w.local.get() + std::size_t(lane) * w.local_stride + f.local_base + offset;
}

// The same, for `bytes` of an argument or a result that are written now.
std::byte* passed_bytes(Warp& w, const Frame& f, std::uint32_t offset, std::uint32_t bytes, int lane) {
  mark_local(w, lane, f.local_base + offset, bytes);
  return local_bytes(w, f, offset, lane);
}

// The value of an argument for one lane, as bytes.
std::uint64_t scalar_argument(Warp& w, const Frame& f, const Argument& a, std::uint32_t bytes, int lane) {
  std::uint64_t v = 0;
  if (a.in_local)
    std::memcpy(&v, local_bytes(w, f, a.offset, lane), std::min<std::size_t>(bytes, 8));
  else if (a.predicate)
    v = w.pred(a.row) >> lane & 1;
  else
    v = a.wide ? w.row<std::uint64_t>(a.row)[lane] : w.row<std::uint32_t>(a.row)[lane];
  return v;
}

void put_register(Frame& f, const ParamSlot& s, std::uint64_t v, int lane) {
  std::byte* row = f.registers + (s.reg & ~3);
  if (s.predicate) {
    Mask m;
    std::memcpy(&m, row, 4);
    m = (m & ~lane_bit(lane)) | (v ? lane_bit(lane) : 0);
    std::memcpy(row, &m, 4);
  } else if (s.bytes > 4) {
    std::memcpy(row + lane * 8, &v, 8);
  } else {
    const auto x = std::uint32_t(v);
    std::memcpy(row + lane * 4, &x, 4);
  }
}

void enter(Warp& w, const Op& op, const Call& c, std::uint32_t function, Mask lanes) {
  const Function& callee = w.worker->launch->program->functions[function];
  if (callee.params.size() != c.arguments.size())
    w.fail(Check::program, "call.arguments", op, lanes,
           cat("'", callee.name, "' has ", callee.params.size(), " parameters, the call passes ",
               c.arguments.size()));
  Frame* caller = w.frame;
  const Mask saved = w.active;
  w.active = lanes;
  Frame* f = push_frame(w, callee, w.pc, &op);
  w.active = saved;
  for (std::size_t i = 0; i < c.arguments.size(); ++i) {
    const Argument& a = c.arguments[i];
    const ParamSlot& s = callee.params[i];
    for_lanes(lanes, [&](int l) {
      if (s.reg != kNoLoc) return put_register(*f, s, scalar_argument(w, *caller, a, s.bytes, l), l);
      std::byte* to = passed_bytes(w, *f, s.offset, s.bytes, l);
      if (a.in_local) {
        std::memcpy(to, local_bytes(w, *caller, a.offset, l), s.bytes);
      } else {
        const std::uint64_t v = scalar_argument(w, *caller, a, s.bytes, l);
        std::memcpy(to, &v, std::min<std::size_t>(s.bytes, 8));
      }
    });
  }
  Fragment in;
  in.pc = callee.begin;
  in.frame = f;
  in.lanes = lanes;
  in.penalty = w.patience;
  w.others.push_back(in);
  w.lanes &= ~lanes;
  w.event = Warp::jumped;
}

std::string read_string(Warp& w, const Op& op, std::uint64_t address, int lane) {
  std::string s;
  for (;;) {
    const std::byte* p = resolve_one(w, op, Where::generic, address++, 1, Access::read, lane);
    if (!p || *p == std::byte(0) || s.size() > 65536) return s;
    s.push_back(char(*p));
  }
}

// printf of one lane: the arguments lie one after the other, each aligned to its own size. `taken` becomes
// their number.
std::string format(Warp& w, const Op& op, std::uint64_t text_at, std::uint64_t values, int lane, int& taken) {
  const std::string f = read_string(w, op, text_at, lane);
  std::string out;
  taken = 0;
  auto next = [&](std::uint64_t size) {
    ++taken;
    values = (values + size - 1) / size * size;
    std::uint64_t v = 0;
    if (const std::byte* p = resolve_one(w, op, Where::generic, values, size, Access::read, lane))
      std::memcpy(&v, p, size);
    values += size;
    return v;
  };
  for (std::size_t i = 0; i < f.size(); ++i) {
    if (f[i] != '%') {
      out += f[i];
      continue;
    }
    std::string spec = "%";
    int longs = 0;
    for (++i; i < f.size(); ++i) {
      if (f[i] == 'l' || f[i] == 'z' || f[i] == 'j' || f[i] == 't') {
        ++longs;
        continue;
      }
      if (f[i] == 'h') continue;
      if (f[i] == '*') {
        spec += cat(std::int32_t(next(4)));
        continue;
      }
      spec += f[i];
      if (std::isalpha(static_cast<unsigned char>(f[i])) || f[i] == '%') break;
    }
    char buffer[512];
    const char kind = spec.back();
    if (kind == '%') {
      out += '%';
    } else if (kind == 's') {
      std::snprintf(buffer, sizeof buffer, spec.c_str(), read_string(w, op, next(8), lane).c_str());
      out += buffer;
    } else if (std::strchr("fFeEgGaA", kind)) {
      std::snprintf(buffer, sizeof buffer, spec.c_str(), std::bit_cast<double>(next(8)));
      out += buffer;
    } else if (kind == 'p') {
      out += text::hex(next(8));
    } else if (kind == 'c') {
      out += char(next(4));
    } else {
      spec.insert(spec.size() - 1, "ll");
      const bool is_signed = kind == 'd' || kind == 'i';
      const std::uint64_t raw = next(longs ? 8 : 4);
      const long long v = longs       ? static_cast<long long>(raw)
                          : is_signed ? static_cast<long long>(std::int32_t(raw))
                                      : static_cast<long long>(std::uint32_t(raw));
      std::snprintf(buffer, sizeof buffer, spec.c_str(), v);
      out += buffer;
    }
  }
  return out;
}

void external(Warp& w, const Op& op, const Call& c) {
  LaunchState& launch = *w.worker->launch;
  auto arg = [&](std::size_t i, int l) {
    return i < c.arguments.size() ? scalar_argument(w, *w.frame, c.arguments[i], 8, l) : 0;
  };
  auto result = [&](int l, std::uint64_t v, std::size_t bytes) {
    if (c.results.empty()) return;
    const Argument& r = c.results[0];
    if (r.in_local) {
      std::memcpy(passed_bytes(w, *w.frame, r.offset, std::uint32_t(bytes), l), &v, bytes);
    } else if (r.wide) {
      w.row<std::uint64_t>(r.row)[l] = v;
    } else {
      w.row<std::uint32_t>(r.row)[l] = std::uint32_t(v);
    }
  };
  for_lanes(w.active, [&](int l) {
    switch (c.external) {
      case External::vprintf: {
        int taken = 0;
        const std::string s = format(w, op, arg(0, l), arg(1, l), l, taken);
        w.unwritten = 0;
        result(l, std::uint32_t(taken), 4);
        std::lock_guard lock(launch.mutex);
        launch.output += s;
        return;
      }
      case External::malloc:
        result(l,
               w.worker->heap->alloc(
                   arg(0, l), cat("device malloc at PTX line ", launch.program->inst(op.inst).ptx_line), 16),
               8);
        return;
      case External::free:
        if (arg(0, l) && !w.worker->heap->free(arg(0, l)))
          w.report(Check::lifetime, "lifetime.global", op, lane_bit(l),
                   cat("free of ", text::hex(arg(0, l)), ", where no live allocation starts"), {}, arg(0, l));
        return;
      case External::assertfail:
        w.fail(Check::program, "assert", op, lane_bit(l),
               cat("assertion '", read_string(w, op, arg(0, l), l), "' failed at ",
                   read_string(w, op, arg(1, l), l), ":", std::uint32_t(arg(2, l)), " in ",
                   read_string(w, op, arg(3, l), l)));
        return;
      case External::none:
        return;
    }
  });
}

void exec_call(Warp& w, const Op& op) {
  const Call& c = op.data_as<Call>();
  if (c.external != External::none) return external(w, op, c);
  if (c.function != ptx::kNone) return enter(w, op, c, c.function, w.active);
  // Through a register: one frame for each function that is called.
  Mask left = w.active;
  const std::size_t count = w.worker->launch->program->functions.size();
  while (left) {
    const int first = std::countr_zero(left);
    const std::uint64_t at = w.row<std::uint64_t>(c.target)[first];
    Mask same = 0;
    for_lanes(left, [&](int l) {
      if (w.row<std::uint64_t>(c.target)[l] == at) same |= lane_bit(l);
    });
    left &= ~same;
    const std::uint64_t index = (at - kCodeWindow) >> 4;
    if (at < kCodeWindow || index >= count || w.worker->launch->program->functions[index].ptx->entry)
      w.fail(Check::program, "call.target", op, same,
             cat(text::hex(at), " is not the address of a function"));
    enter(w, op, c, std::uint32_t(index), same);
  }
}

External external_of(std::string_view name) {
  if (name == "vprintf") return External::vprintf;
  if (name == "__assertfail") return External::assertfail;
  if (name == "malloc") return External::malloc;
  if (name == "free") return External::free;
  return External::none;
}

Argument argument(Decoder& d, const ptx::Operand& o, bool result) {
  Argument a;
  if (o.kind == OperandKind::symbol && d.is_frame_local(o.symbol)) {
    a.in_local = true;
    a.offset = d.frame_offset(o.symbol) + std::uint32_t(o.imm);
    return a;
  }
  if (o.kind == OperandKind::reg) {
    const int bits = d.cell_bits(o);
    a.predicate = bits == 1;
    a.wide = bits == 64;
    if (bits == 128) d.unsupported("a 128-bit register argument");
    a.row = a.predicate ? (result ? d.pred_dest(o) : d.pred(o))
            : result    ? d.dest(o, a.wide ? Mod::b64 : Mod::b32)
                        : d.source(o, a.wide ? Mod::b64 : Mod::b32);
    return a;
  }
  if (result) d.unsupported("a result that is neither a register nor a .param variable");
  a.wide = true;
  a.row = d.source(o, Mod::b64);
  return a;
}

void decode_call(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {Mod::uni});
  op.flags |= kSplits;
  Call c;
  std::size_t at = 0;
  if (d.operand(i, 0).kind == OperandKind::list) {
    for (const ptx::Operand& o : d.operand(i, 0).elems) c.results.push_back(argument(d, o, true));
    at = 1;
  }
  const ptx::Operand& target = d.operand(i, at);
  if (at + 1 < i.operands.size() && i.operands[at + 1].kind == OperandKind::list)
    for (const ptx::Operand& o : i.operands[at + 1].elems) c.arguments.push_back(argument(d, o, false));
  if (target.kind == OperandKind::reg) {
    c.target = d.source(target, Mod::b64);
    d.note_call(ptx::kNone);
  } else if (target.kind == OperandKind::symbol) {
    c.name = d.module().text(target.symbol);
    c.function = d.note_call(target.symbol);
    if (c.function == ptx::kNone) {
      c.external = external_of(c.name);
      if (c.external == External::none)
        d.unsupported(cat("function '", c.name, "' has no body in this module"));
    }
  } else {
    d.unsupported("this kind of call target");
  }
  op.data = d.keep(std::move(c));
  op.fn = exec_call;
}

// ---------------------------------------------------------------- the end
void exec_exit(Warp& w, const Op&) { end_fragment(w, w.active); }

void decode_ret(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {Mod::uni});
  op.flags |= kSplits;
  op.fn = i.op == POp::exit ? exec_exit : exec_return;
}

void exec_trap(Warp& w, const Op& op) {
  w.fail(Check::program, "trap", op, w.active, "the program executed a trap");
}
void decode_trap(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {});
  op.flags |= kSplits;
  op.fn = exec_trap;
}

void exec_sleep(Warp& w, const Op& op) {
  ++w.worker->polls;
  // At most 1 ms, and between 0 and twice the time asked for.
  w.slept += std::min<std::uint32_t>(w.row<std::uint32_t>(op.a)[std::countr_zero(w.active)], 1'000'000);
}
void decode_sleep(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {});
  op.a = d.source(d.operand(i, 0), Mod::u32);
  op.fn = exec_sleep;
}
void exec_nothing(Warp&, const Op&) {}
void decode_pmevent(Decoder&, const ptx::Inst&, Op& op) { op.fn = exec_nothing; }
}  // namespace

void exec_return(Warp& w, const Op&) {
  Frame* f = w.frame;
  if (!f->caller) return end_fragment(w, w.active);
  const Function& callee = *f->function;
  const Call& c = f->call->data_as<Call>();
  Frame* caller = f->caller;
  for (std::size_t i = 0; i < c.results.size() && i < callee.returns.size(); ++i) {
    const Argument& r = c.results[i];
    const ParamSlot& s = callee.returns[i];
    for_lanes(w.active, [&](int l) {
      std::uint64_t v = 0;
      if (s.reg != kNoLoc) {
        const std::byte* row = f->registers + (s.reg & ~3);
        if (s.predicate) {
          Mask m;
          std::memcpy(&m, row, 4);
          v = m >> l & 1;
        } else {
          std::memcpy(&v, row + l * (s.bytes > 4 ? 8 : 4), s.bytes > 4 ? 8 : 4);
        }
      } else if (r.in_local) {
        std::memcpy(passed_bytes(w, *caller, r.offset, s.bytes, l), local_bytes(w, *f, s.offset, l), s.bytes);
        return;
      } else {
        std::memcpy(&v, local_bytes(w, *f, s.offset, l), std::min<std::size_t>(s.bytes, 8));
      }
      if (r.in_local) {
        std::memcpy(passed_bytes(w, *caller, r.offset, s.bytes, l), &v, std::min<std::size_t>(s.bytes, 8));
        return;
      }
      ParamSlot to;
      to.reg = r.row;
      to.predicate = r.predicate;
      to.bytes = r.wide ? 8 : 4;
      put_register(*caller, to, v, l);
    });
  }
  Fragment back;
  back.pc = f->return_to;
  back.frame = caller;
  back.lanes = w.active;
  back.penalty = w.patience;
  w.others.push_back(back);
  f->lanes &= ~w.active;
  w.lanes &= ~w.active;
  if (!f->lanes) pop_frame(w, f);
  w.event = Warp::jumped;
}

void add_control(Table& t) {
  t.set(POp::bra, decode_bra);
  t.set(POp::brx_idx, decode_brx);
  t.set(POp::call, decode_call);
  t.set(POp::ret, decode_ret);
  t.set(POp::exit, decode_ret);
  t.set(POp::trap, decode_trap);
  t.set(POp::brkpt, decode_trap);
  t.set(POp::nanosleep, decode_sleep);
  t.set(POp::pmevent, decode_pmevent);
}

}  // namespace cgp::emu

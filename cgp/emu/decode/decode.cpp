// SPDX-License-Identifier: Apache-2.0
// Operands to rows: the Decoder that every family uses, and the table of decoders.
#include "cgp/base/float16.h"
#include "cgp/base/text.h"
#include "cgp/emu/decode/decode_impl.h"
#include "cgp/emu/decode/decode_modifiers.h"
#include "cgp/emu/decode/families.h"
#include "cgp/ptx/print.h"

namespace cgp::emu {

using ptx::Mod;
using ptx::OperandKind;
using text::cat;

std::string_view name(Where w) {
  constexpr std::string_view names[] = {"generic", "global",   "shared", "shared::cluster",
                                        "local",   "constant", "param",  "param::func"};
  return names[int(w)];
}

void add_families(Table& t) {
  add_arithmetic(t);
  add_bits(t);
  add_compare(t);
  add_convert(t);
  add_move(t);
  add_memory(t);
  add_atomic(t);
  add_control(t);
  add_barrier(t);
  add_warp(t);
  add_video(t);
  add_scalar_video(t);
  add_rewrites(t);
}

const Table& decode_table() {
  static const Table table = [] {
    Table t;
    add_families(t);
    add_tensor_families(t);
    return t;
  }();
  return table;
}

std::string_view unsupported_reason(ptx::Op op) {
  switch (op) {
#define CGP_UNSUPPORTED(id, reason) \
  case ptx::Op::id:                 \
    return reason;
#include "cgp/emu/decode/unsupported.def"
    default:
      return {};
  }
}

namespace {
// The bits of a literal as a value of `type`: integers wrap, decimal floating literals round once.
std::uint64_t literal_bits(Decoder& d, const ptx::Operand& o, Mod type) {
  const int bits = ptx::type_bits(type);
  if (o.kind == OperandKind::imm) {
    return bits >= 64 ? o.imm : o.imm & ((1ull << bits) - 1);
  }
  const double v = o.kind == OperandKind::f32_imm ? double(std::bit_cast<float>(std::uint32_t(o.imm)))
                                                  : std::bit_cast<double>(o.imm);
  const bool single = o.kind == OperandKind::f32_imm;
  switch (type) {
    case Mod::f64:
      return std::bit_cast<std::uint64_t>(v);
    case Mod::b64:
    case Mod::u64:
    case Mod::s64:
      return single ? o.imm : std::bit_cast<std::uint64_t>(v);
    case Mod::f32:
    case Mod::b32:
    case Mod::u32:
    case Mod::s32:
    case Mod::tf32:
      return single ? o.imm & 0xffffffffu : std::bit_cast<std::uint32_t>(float(v));
    case Mod::f16:
      return half(v).bits;
    case Mod::bf16:
      return bfloat16(v).bits;
    default:
      d.unsupported(cat("a floating-point literal as .", ptx::name(type)));
  }
}
int cells(int bits) { return bits <= 32 ? 32 : bits; }
}  // namespace

void Decoder::unsupported(const std::string& what) {
  throw Unsupported(
      ErrorText{cat("the emulator does not execute '", ptx::print(*module_, *function_, *inst_), "': ", what),
                inst_->ptx_line ? cat("PTX line ", inst_->ptx_line) : std::string(),
                {},
                {}});
}

void allow(Decoder& d, const ptx::Inst& i, std::initializer_list<Mod> known) {
  for (Mod m : i.mods) {
    if (ptx::is_type(m)) continue;
    bool found = false;
    for (Mod k : known) found = found || k == m;
    if (!found) d.unsupported(cat("the modifier .", ptx::name(m)));
  }
}

void Decoder::keep_alive(std::shared_ptr<const void> p) { builder_->p_->kept.push_back(std::move(p)); }
void Decoder::prelude(Op op) {
  op.flags |= kMicro;
  builder_->prelude_.push_back(op);
}
Loc Decoder::scratch(int bits) { return builder_->new_row(bits); }
std::uint32_t Decoder::frame_offset(ptx::SymbolId s) const { return builder_->f_->local_offset.at(s); }
std::uint32_t Decoder::note_call(ptx::SymbolId s) {
  if (s == ptx::kNone) {
    builder_->f_->calls_indirectly = true;
    return ptx::kNone;
  }
  const auto it = builder_->p_->function_of.find(s);
  if (it == builder_->p_->function_of.end()) return ptx::kNone;
  builder_->f_->callees.push_back(it->second);
  return it->second;
}
bool Decoder::is_frame_local(ptx::SymbolId s) const { return builder_->f_->local_offset.count(s) != 0; }
Loc Decoder::constant(std::uint64_t value, int bits) { return builder_->constant(value, bits); }

const ptx::Operand& Decoder::operand(const ptx::Inst& i, std::size_t n) const {
  if (n >= i.operands.size())
    throw Unsupported(cat("'", ptx::name(i.op), "' at PTX line ", i.ptx_line, " has ", i.operands.size(),
                          " operands; at least ", n + 1, " are needed"));
  return i.operands[n];
}

std::uint64_t Decoder::immediate(const ptx::Operand& o) {
  if (o.kind != OperandKind::imm) unsupported("an operand must be an integer literal");
  return o.imm;
}

int Decoder::cell_bits(const ptx::Operand& o) const {
  if (o.kind != OperandKind::reg) return 0;
  const int bits = ptx::type_bits(function_->regs[o.reg].type);
  return bits == 1 ? 1 : cells(bits);
}

Loc Decoder::source(const ptx::Operand& o, Mod type) {
  const int bits = cells(ptx::type_bits(type));
  switch (o.kind) {
    case OperandKind::reg: {
      const int have = cell_bits(o);
      if (have != bits)
        unsupported(cat("register ", function_->regs[o.reg].name, " has ", have, " bits, .", ptx::name(type),
                        " needs ", bits));
      const Loc l = builder_->register_loc(o.reg);
      builder_->flow_.sources.push_back(l);
      return l;
    }
    case OperandKind::imm:
    case OperandKind::f32_imm:
    case OperandKind::f64_imm: {
      if (bits == 128) unsupported("a 128-bit literal");
      std::uint64_t v = literal_bits(*this, o, type);
      if (ptx::is_signed(type) && ptx::type_bits(type) < 32)
        v = std::uint32_t(std::int32_t(std::uint32_t(v) << (32 - ptx::type_bits(type))) >>
                          (32 - ptx::type_bits(type)));
      return builder_->constant(v, bits);
    }
    case OperandKind::sreg: {
      Op op;
      op.fn = exec_read_sreg;
      op.kind = std::uint8_t(o.sreg);
      op.bytes = std::uint8_t(bits / 8);
      op.d = scratch(bits);
      prelude(op);
      return op.d;
    }
    case OperandKind::symbol: {
      bool local = false;
      std::int64_t offset = 0;
      const Loc l = builder_->symbol(o.symbol, std::int64_t(o.imm), bits, &local, &offset);
      if (!local) return l;
      Op op;
      op.fn = exec_frame_local;
      op.bytes = std::uint8_t(bits / 8);
      op.imm = offset;
      op.d = scratch(bits);
      prelude(op);
      return op.d;
    }
    default:
      unsupported("this kind of source operand");
  }
}

Loc Decoder::dest(const ptx::Operand& o, Mod type) {
  const int bits = cells(ptx::type_bits(type));
  if (o.kind == OperandKind::sink || (o.kind == OperandKind::reg && o.reg == ptx::kNone))
    return scratch(bits);
  if (o.kind != OperandKind::reg) unsupported("a destination must be a register or _");
  const int have = cell_bits(o);
  if (have != bits)
    unsupported(cat("register ", function_->regs[o.reg].name, " has ", have, " bits, .", ptx::name(type),
                    " needs ", bits));
  const Loc l = builder_->register_loc(o.reg);
  builder_->flow_.dests.push_back(l);
  return l;
}

Loc Decoder::pred(const ptx::Operand& o) {
  if (o.kind == OperandKind::imm) return builder_->constant(o.imm ? ~0ull : 0, 32);
  if (o.kind == OperandKind::sreg) {
    Op op;
    op.fn = exec_read_sreg;
    op.kind = std::uint8_t(o.sreg);
    op.bytes = 1;
    op.d = builder_->new_pred();
    prelude(op);
    return op.d;
  }
  if (o.kind != OperandKind::reg || cell_bits(o) != 1) unsupported("this operand must be a predicate");
  const Loc l = builder_->register_loc(o.reg);
  builder_->flow_.sources.push_back(l);
  return l | (o.negated ? kNegated : 0);
}

Loc Decoder::pred_dest(const ptx::Operand& o) {
  if (o.kind == OperandKind::sink || o.reg == ptx::kNone) return builder_->new_pred();
  if (o.kind != OperandKind::reg || cell_bits(o) != 1) unsupported("the destination must be a predicate");
  const Loc l = builder_->register_loc(o.reg);
  builder_->flow_.dests.push_back(l);
  return l;
}

void Decoder::async_rows(const std::vector<Loc>& rows) {
  std::vector<bool>& all = builder_->f_->async_rows;
  for (Loc l : rows) {
    if (l < 0 || (l & kConstant)) continue;
    const std::size_t i = std::size_t(l) / kRow32;
    if (i >= all.size()) all.resize(i + 1);
    all[i] = true;
  }
}

std::vector<Loc> Decoder::sources(const ptx::Operand& o, Mod type) {
  if (o.kind != OperandKind::vector) return {source(o, type)};
  std::vector<Loc> r;
  for (const ptx::Operand& e : o.elems) r.push_back(source(e, type));
  return r;
}

std::vector<Loc> Decoder::dests(const ptx::Operand& o, Mod type) {
  if (o.kind != OperandKind::vector) return {dest(o, type)};
  std::vector<Loc> r;
  for (const ptx::Operand& e : o.elems) r.push_back(dest(e, type));
  return r;
}

Address Decoder::address(const ptx::Operand& o) {
  if (o.kind != OperandKind::address) unsupported("an address operand in brackets is needed");
  Address a;
  a.offset = std::int64_t(o.imm);
  if (o.reg != ptx::kNone) {
    ptx::Operand base = ptx::Operand::of(o.reg);
    const int bits = cell_bits(base);
    if (bits != 32 && bits != 64) unsupported("an address register has 32 or 64 bits");
    a.base = builder_->register_loc(o.reg);
    a.base32 = bits == 32;
    builder_->flow_.addresses.push_back(a.base);
    return a;
  }
  if (o.symbol != ptx::kNone) {
    std::int64_t offset = 0;
    const Loc l = builder_->symbol(o.symbol, a.offset, 64, &a.frame_local, &offset);
    a.uniform = true;
    a.base = a.frame_local ? builder_->constant(0, 64) : l;
    a.offset = a.frame_local ? offset : 0;
    return a;
  }
  a.uniform = true;
  a.base = builder_->constant(0, 64);
  return a;
}

void Decoder::set_address(const ptx::Operand& o, Op& op) {
  const Address a = address(o);
  op.a = a.base;
  op.imm = a.offset;
  op.flags |= std::uint16_t((a.base32 ? kBase32 : 0) | (a.uniform ? kUniformAddress : 0) |
                            (a.frame_local ? kFrameLocal : 0));
}

Where Decoder::where(const ptx::Inst& i) const {
  for (Mod m : i.mods) switch (m) {
      case Mod::global:
        return Where::global;
      case Mod::shared:
      case Mod::shared_cta:
        return Where::shared;
      case Mod::shared_cluster:
        return Where::shared_cluster;
      case Mod::local:
        return Where::local;
      case Mod::const_:
        return Where::constant;
      case Mod::param_entry:
        return Where::param_entry;
      case Mod::param_func:
        return Where::param_func;
      case Mod::param: {
        // In an entry, only its own .param variables (call arguments) live with the locals.
        bool local = !function_->entry;
        for (const ptx::Operand& o : i.operands)
          if (o.kind == OperandKind::address && o.symbol != ptx::kNone)
            local = builder_->f_->local_offset.count(o.symbol) != 0;
        return local ? Where::param_func : Where::param_entry;
      }
      default:
        break;
    }
  // A generic access that names a shared variable goes to its window: ptxas makes LDS and STS of it.
  for (const ptx::Operand& o : i.operands)
    if (o.kind == OperandKind::address && o.symbol != ptx::kNone)
      if (bool module_scope; const ptx::Var* v = builder_->find_var(o.symbol, &module_scope))
        if (v->space == ptx::Space::shared) return Where::shared;
  return Where::generic;
}

}  // namespace cgp::emu

// SPDX-License-Identifier: Apache-2.0
// Operands against the patterns of a form.
#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/ptx/verify/verify_impl.h"

namespace cgp::ptx {
Space named_space(const Inst& i) {
  for (Mod m : i.mods) switch (m) {
      case Mod::global:
        return Space::global;
      case Mod::shared:
      case Mod::shared_cta:
      case Mod::shared_cluster:
        return Space::shared;
      case Mod::local:
        return Space::local;
      case Mod::const_:
        return Space::constant;
      case Mod::param:
      case Mod::param_entry:
      case Mod::param_func:
        return Space::param;
      default:
        break;
    }
  return Space::generic;
}

namespace {

using Kind = OperandPattern::Kind;
using Where = OperandPattern::Where;

enum class Class : std::uint8_t { pred, bits, integer, real, packed };

Class class_of(Mod t) {
  switch (t) {
    case Mod::pred:
      return Class::pred;
    case Mod::b8:
    case Mod::b16:
    case Mod::b32:
    case Mod::b64:
    case Mod::b128:
      return Class::bits;
    case Mod::u8:
    case Mod::u16:
    case Mod::u32:
    case Mod::u64:
    case Mod::s8:
    case Mod::s16:
    case Mod::s32:
    case Mod::s64:
      return Class::integer;
    case Mod::f16:
    case Mod::f32:
    case Mod::f64:
    case Mod::f16x2:
      return Class::real;
    default:
      return Class::packed;  // lives in .bN registers only
  }
}

// PTX ISA, "Operand Size Exceeding Instruction-Type Size" and "Type Checking Rules".
bool compatible(Mod reg, Mod type, bool wider) {
  const Class r = class_of(reg), t = class_of(type);
  if (t == Class::pred || r == Class::pred) return t == r;
  const int have = type_bits(reg), want = std::max(8, type_bits(type));
  if (have != want && !(wider && have > want)) return false;
  switch (t) {
    case Class::bits:
      return true;
    case Class::integer:
      return r == Class::integer || r == Class::bits;
    case Class::real:
      return r == Class::bits || reg == type;
    default:
      return r == Class::bits;
  }
}

std::string ranges_text(const std::vector<OperandPattern::Range>& ranges) {
  std::string s;
  for (const auto& r : ranges) {
    if (!s.empty()) s += ", ";
    s += r.first == r.last ? text::cat(r.first) : text::cat(r.first, " to ", r.last);
    if (r.step > 1) s += text::cat(" in steps of ", r.step);
  }
  return s;
}

bool in_ranges(const std::vector<OperandPattern::Range>& ranges, std::int64_t v) {
  if (ranges.empty()) return true;
  return std::any_of(ranges.begin(), ranges.end(), [v](const auto& r) {
    return v >= r.first && v <= r.last && (v - r.first) % r.step == 0;
  });
}

}  // namespace

InstVerifier::InstVerifier(const Module& m, const CheckOptions& options)
    : m_(m), options_(options), target_(parse_target(m.target)) {
  for (const Var& v : m.vars) variables_.emplace(v.name, &v);
  for (const Function& f : m.functions) functions_.emplace(f.name, &f);
}

void InstVerifier::enter(const Function& f) {
  f_ = &f;
  locals_.clear();
  for (const auto* list : {&f.params, &f.returns, &f.vars})
    for (const Var& v : *list) locals_.emplace(v.name, &v);
}

const Var* InstVerifier::variable(SymbolId s) const {
  if (auto it = locals_.find(s); it != locals_.end()) return it->second;
  if (auto it = variables_.find(s); it != variables_.end()) return it->second;
  return nullptr;
}
const Function* InstVerifier::callee(SymbolId s) const {
  auto it = functions_.find(s);
  return it == functions_.end() ? nullptr : it->second;
}

std::string InstVerifier::describe(const Operand& o) const {
  auto reg = [&](RegId r) {
    return r < f_->regs.size() ? text::cat("register ", f_->regs[r].name, " (.", name(f_->regs[r].type), ")")
                               : std::string("a register that does not exist");
  };
  switch (o.kind) {
    case OperandKind::reg:
      if (o.reg2 != kNone) return "a pair of destinations";
      return o.reg == kNone ? "the sink _" : (o.negated ? "the negated " : "") + reg(o.reg);
    case OperandKind::imm:
      return text::cat("the integer ", std::int64_t(o.imm));
    case OperandKind::f32_imm:
    case OperandKind::f64_imm:
      return "a floating-point constant";
    case OperandKind::sreg:
      return text::cat("the special register %", name(o.sreg));
    case OperandKind::symbol:
      return text::cat("the name ", m_.text(o.symbol));
    case OperandKind::address:
      return "an address";
    case OperandKind::vector:
      return text::cat("a vector of ", o.elems.size());
    case OperandKind::list:
      return "a list";
    case OperandKind::label:
      return "a label";
    case OperandKind::table:
      return "a table of targets";
    case OperandKind::proto:
      return "a prototype";
    case OperandKind::sink:
      return "the sink _";
  }
  return "?";
}

// ---------------------------------------------------------------- operands
bool InstVerifier::register_fits(RegId r, Mod type, bool wider, Attempt& a) const {
  if (r >= f_->regs.size()) {
    a.why = "it is a register that does not exist";
    return false;
  }
  const Reg& reg = f_->regs[r];
  if (type == kNoMod || compatible(reg.type, type, wider)) return true;
  a.why = text::cat("register ", reg.name, " is .", name(reg.type), ", the instruction wants .", name(type),
                    wider ? " or a wider register" : "");
  const int have = type_bits(reg.type), want = std::max(8, type_bits(type));
  if (reg.type == Mod::pred)
    a.hint = "turn a predicate into a number with selp";
  else if (type == Mod::pred)
    a.hint = "make a predicate with setp";
  else if (have == want)
    a.hint = text::cat("mov.b", have, " moves the bits into a register of another type");
  else
    a.hint = "cvt changes the size";
  return false;
}

bool InstVerifier::value_fits(const OperandPattern& p, const Operand& o, Mod type, Attempt& a) const {
  switch (o.kind) {
    case OperandKind::reg:
      if (o.reg2 != kNone && !p.dual) return a.why = "a second destination |%p is not allowed here", false;
      if (o.reg2 != kNone && !register_fits(o.reg2, Mod::pred, false, a)) return false;
      if (o.negated) return a.why = "only predicates can be negated with !", false;
      if (o.reg == kNone) {
        if (!p.sink) return a.why = "the sink _ is not allowed here", false;
        return true;
      }
      return register_fits(o.reg, type, p.wider, a);
    case OperandKind::sink:
      if (p.sink) return true;
      a.why = "the sink _ is not allowed here";
      return false;
    case OperandKind::imm:
      if (p.kind != Kind::source && p.kind != Kind::mov) break;
      if (type != kNoMod && (class_of(type) == Class::real || class_of(type) == Class::packed)) {
        if (class_of(type) == Class::packed && !is_float(type)) break;
        a.why = text::cat("an integer constant cannot be a .", name(type));
        a.hint = type == Mod::f32   ? "write 0f and eight hexadecimal digits"
                 : type == Mod::f64 ? "write 0d and sixteen hexadecimal digits"
                                    : "move the bits into a register first";
        return false;
      }
      if (!in_ranges(p.ranges, std::int64_t(o.imm))) {
        a.why = text::cat(std::int64_t(o.imm), " is not ", ranges_text(p.ranges));
        return false;
      }
      return true;
    case OperandKind::f32_imm:
    case OperandKind::f64_imm:
      if (p.kind != Kind::source && p.kind != Kind::mov) break;
      if (type == Mod::f32 || type == Mod::f64 || type == Mod::b32 || type == Mod::b64) return true;
      a.why = text::cat("a floating-point constant cannot be a .", type == kNoMod ? "?" : name(type));
      return false;
    case OperandKind::sreg:
      if (p.kind != Kind::mov) {
        a.why = text::cat("the special register %", name(o.sreg), " can only be read by mov and cvt");
        a.hint = text::cat("mov.", bits(o.sreg) == 64 ? "u64" : "u32", " it into a register first");
        return false;
      }
      if (type != kNoMod && o.sreg != Sreg::gridid && bits(o.sreg) != type_bits(type) &&
          !(bits(o.sreg) == 32 && type_bits(type) == 16)) {
        a.why = text::cat("%", name(o.sreg), " has ", bits(o.sreg), " bits, .", name(type), " has ",
                          type_bits(type));
        return false;
      }
      return true;
    case OperandKind::symbol:
      // ptxas takes an address wherever an integer constant may stand.
      if (p.kind != Kind::mov &&
          !(options_.foreign && p.kind == Kind::source && type != kNoMod && class_of(type) != Class::real)) {
        a.why = "the address of a variable can only be taken by mov and cvta";
        return false;
      }
      if (type != kNoMod && type_bits(type) != 32 && type_bits(type) != 64) {
        a.why = text::cat("an address does not fit .", name(type));
        return false;
      }
      return true;
    default:
      break;
  }
  a.why = text::cat(describe(o), " is not allowed here");
  return false;
}

bool InstVerifier::predicate_fits(const OperandPattern& p, const Operand& o, Attempt& a) const {
  if (o.kind == OperandKind::reg && o.reg2 == kNone && o.reg != kNone)
    return register_fits(o.reg, Mod::pred, false, a);
  if (o.kind == OperandKind::imm &&
      (p.kind == Kind::pred_or_flag || p.kind == Kind::pred || p.kind == Kind::pred_not)) {
    if (o.imm <= 1) return true;
    a.why = "a constant predicate is 0 or 1";
    return false;
  }
  a.why = text::cat(describe(o), " is not a predicate");
  return false;
}

bool InstVerifier::vector_fits(const OperandPattern& p, const Inst& i, const Operand& o, int count,
                               Attempt& a) const {
  const Mod type = operand_type(p, i.mods);
  if (o.kind != OperandKind::vector) {
    if (count == 1 && o.kind == OperandKind::reg) return value_fits(p, o, type, a);
    a.why = text::cat(describe(o), ", expected a vector of ", count);
    a.hint = "write the registers in braces: {%r1, %r2}";
    return false;
  }
  if (int(o.elems.size()) != count) {
    a.why = text::cat("the vector has ", o.elems.size(), " elements, expected ", count);
    return false;
  }
  OperandPattern element = p;
  // Vector destinations of loads may leave elements out; single sources may be constants.
  element.sink = p.sink || (p.kind == Kind::dest && p.wider);
  for (const Operand& e : o.elems)
    if (!value_fits(element, e, type, a)) return false;
  return true;
}

// mov.b64 %rd, {%r1, %r2} and back
bool InstVerifier::pack_fits(const Operand& o, Mod type, bool destination, Attempt& a) const {
  if (o.kind != OperandKind::vector) return a.why = text::cat(describe(o), ", expected a vector {..}"), false;
  const int bits = type == kNoMod ? 0 : type_bits(type);
  const std::size_t n = o.elems.size();
  if ((n != 2 && n != 4) || bits / int(n) < 8) {
    a.why = text::cat("a vector of ", n, " cannot make up ", bits, " bits");
    return false;
  }
  for (const Operand& e : o.elems) {
    if (destination && e.kind == OperandKind::sink) continue;
    if (!destination && e.kind == OperandKind::imm) continue;
    if (e.kind != OperandKind::reg || e.reg >= f_->regs.size() || e.reg2 != kNone || e.negated) {
      a.why = text::cat(describe(e), " cannot be an element");
      return false;
    }
    const Mod t = f_->regs[e.reg].type;
    if (t == Mod::pred || type_bits(t) * int(n) != bits) {
      a.why = text::cat(describe(e), " is not ", bits / int(n), " bits wide");
      return false;
    }
  }
  return true;
}

bool InstVerifier::base_fits(Space space, bool tensor_memory, const Operand& o, Attempt& a) const {
  if (o.reg != kNone) {
    if (o.reg >= f_->regs.size()) return a.why = "the base register does not exist", false;
    const Reg& r = f_->regs[o.reg];
    const int bits = type_bits(r.type);
    const Class c = class_of(r.type);
    if ((c != Class::bits && c != Class::integer) || (bits != 32 && bits != 64)) {
      a.why =
          text::cat("register ", r.name, " is .", name(r.type), ", an address is a 32- or 64-bit integer");
      return false;
    }
    if (tensor_memory && bits != 32) {
      a.why = text::cat("register ", r.name, " is .", name(r.type), ", tensor memory addresses have 32 bits");
      return false;
    }
    if (options_.foreign) return true;
    if (space == Space::shared && bits == 64) {
      a.why = text::cat("register ", r.name, " is .", name(r.type), ", addresses in .shared have 32 bits");
      a.hint = "take the address with mov.u32, or cvta.to.shared and cvt.u32.u64 of a generic one";
      return false;
    }
    if (space != Space::shared && !tensor_memory && bits == 32 && m_.address_size == 64) {
      a.why = text::cat("register ", r.name, " is .", name(r.type), ", addresses in .", name(space),
                        " have 64 bits");
      return false;
    }
    return true;
  }
  if (o.symbol == kNone) return true;
  const Var* v = variable(o.symbol);
  if (!v) {
    a.why = text::cat(m_.text(o.symbol), " is not a variable");
    return false;
  }
  if (tensor_memory) return a.why = "tensor memory has no variables", false;
  if (space != Space::generic && v->space != space) {
    a.why = text::cat("variable ", m_.text(o.symbol), " is in .", name(v->space),
                      ", the instruction accesses .", name(space));
    return false;
  }
  return true;
}

bool InstVerifier::address_fits(const OperandPattern& p, const Inst& i, const Operand& o, Attempt& a) const {
  if (o.kind != OperandKind::address) {
    a.why = text::cat(describe(o), ", expected an address");
    a.hint = "addresses stand in brackets: [%rd1+16]";
    return false;
  }
  Space space = Space::generic;
  if (p.where == Where::mods) space = named_space(i);
  if (p.where == Where::global) space = Space::global;
  if (p.where == Where::shared) space = Space::shared;
  const bool tensor = p.where == Where::tensor || p.where == Where::gather;
  if (!base_fits(space, p.where == Where::tmem, o, a)) return false;
  if (!tensor) {
    if (o.elems.empty()) return true;
    a.why = "only tensor addresses carry coordinates";
    return false;
  }
  std::size_t n = 5;
  if (p.where == Where::tensor)
    for (Mod m : i.mods)
      if (m >= Mod::d1d && m <= Mod::d5d) n = std::size_t(m) - std::size_t(Mod::d1d) + 1;
  if (o.elems.size() != 1 || o.elems[0].kind != OperandKind::vector || o.elems[0].elems.size() != n) {
    a.why = text::cat("expected a tensor address with ", n, " coordinates: [%map, {", n == 1 ? "x" : "x, y",
                      "}]");
    return false;
  }
  OperandPattern coordinate;
  coordinate.kind = Kind::source;
  for (const Operand& e : o.elems[0].elems)
    if (!value_fits(coordinate, e, Mod::s32, a)) return false;
  return true;
}

bool InstVerifier::argument_fits(const Operand& o, const Var& v, Attempt& a) const {
  if (v.space == Space::reg) {
    OperandPattern p;
    p.kind = Kind::source;
    return value_fits(p, o, v.type, a);
  }
  if (o.kind == OperandKind::symbol) {
    const Var* given = variable(o.symbol);
    if (!given || given->space != Space::param) {
      a.why = text::cat(m_.text(o.symbol), " is not a .param variable");
      return false;
    }
    if (given->bytes() != v.bytes()) {
      a.why = text::cat(m_.text(o.symbol), " has ", given->bytes(), " bytes, the parameter has ", v.bytes());
      return false;
    }
    return true;
  }
  OperandPattern p;
  p.kind = Kind::source;
  p.sink = true;
  return value_fits(p, o, v.is_array ? kNoMod : v.type, a);
}

// call (results), function, (arguments), prototype
bool InstVerifier::call_fits(const Inst& i, Attempt& a) const {
  std::size_t at = 0;
  const std::vector<Operand>& ops = i.operands;
  const Operand* results = at < ops.size() && ops[at].kind == OperandKind::list ? &ops[at++] : nullptr;
  if (at == ops.size()) return a.why = "the function to call is missing", false;
  const Operand& target = ops[at++];
  const Operand* arguments = at < ops.size() && ops[at].kind == OperandKind::list ? &ops[at++] : nullptr;
  const std::vector<Var>*returns = nullptr, *params = nullptr;
  if (target.kind == OperandKind::symbol && callee(target.symbol)) {
    const Function& f = *callee(target.symbol);
    returns = &f.returns;
    params = &f.params;
  } else if (target.kind == OperandKind::reg) {
    if (at == ops.size()) return a.why = "an indirect call needs a .callprototype or .calltargets", false;
    const Operand& last = ops[at++];
    if (last.kind == OperandKind::proto) {
      returns = &f_->prototypes[last.label].returns;
      params = &f_->prototypes[last.label].params;
    } else if (last.kind == OperandKind::table && !f_->tables[last.label].functions.empty()) {
      const Function* f = callee(f_->tables[last.label].functions[0]);
      if (!f) return a.why = "the table of call targets names no function", false;
      returns = &f->returns;
      params = &f->params;
    } else {
      return a.why = "an indirect call needs a .callprototype or .calltargets", false;
    }
  } else {
    a.why = text::cat(describe(target), " is not a function");
    return false;
  }
  if (at != ops.size()) return a.why = "too many operands", false;
  auto list = [&](const Operand* given, const std::vector<Var>& wanted, std::string_view what) {
    const std::size_t n = given ? given->elems.size() : 0;
    if (n != wanted.size()) {
      a.why = text::cat("the function has ", wanted.size(), " ", what, ", the call has ", n);
      return false;
    }
    for (std::size_t k = 0; k < n; ++k)
      if (!argument_fits(given->elems[k], wanted[k], a)) return false;
    return true;
  };
  return list(results, *returns, "results") && list(arguments, *params, "parameters");
}

bool InstVerifier::operand_fits(const Form& f, const OperandPattern& p, const Inst& i, const Operand& o,
                                Attempt& a) const {
  switch (p.kind) {
    case Kind::dest:
    case Kind::source:
    case Kind::reg:
    case Kind::mov: {
      const int count = operand_count(p, i.mods);
      if (count > 0) return vector_fits(p, i, o, count, a);
      // Triton writes ld.global.b32 {%r1}, [%rd1]; ptxas takes it here and in mov.
      if (options_.foreign && (i.op == Op::ld || i.op == Op::st || i.op == Op::mov) &&
          o.kind == OperandKind::vector && o.elems.size() == 1)
        return operand_fits(f, p, i, o.elems[0], a);
      Mod type = operand_type(p, i.mods);
      if (p.type_from == OperandPattern::Type::size)
        type = o.kind == OperandKind::reg && o.reg < f_->regs.size() && type_bits(f_->regs[o.reg].type) == 32
                   ? Mod::u32
                   : Mod::u64;
      if (p.type_from == OperandPattern::Type::address)
        type = o.kind == OperandKind::reg && o.reg < f_->regs.size() && type_bits(f_->regs[o.reg].type) == 32
                   ? Mod::u32
                   : Mod::u64;
      if (!value_fits(p, o, type, a)) return false;
      if (f.op == Op::elect_sync && p.dual && (o.kind != OperandKind::reg || o.reg2 == kNone))
        return a.why = "the elected lane's predicate is missing: elect.sync %r|%p", false;
      return true;
    }
    case Kind::pred_dest:
      if (o.kind == OperandKind::reg && o.reg2 != kNone && p.dual && !o.negated)
        return (o.reg == kNone || register_fits(o.reg, Mod::pred, false, a)) &&
               register_fits(o.reg2, Mod::pred, false, a);
      if (o.kind == OperandKind::reg && !o.negated) return predicate_fits(p, o, a);
      a.why = text::cat(describe(o), " cannot be the destination");
      return false;
    case Kind::pred:
    case Kind::pred_not:
    case Kind::pred_or_flag:
      return predicate_fits(p, o, a);
    case Kind::imm:
      if (o.kind != OperandKind::imm) {
        a.why = text::cat(describe(o), ", expected an integer constant");
        return false;
      }
      if (in_ranges(p.ranges, std::int64_t(o.imm))) return true;
      a.why = text::cat(std::int64_t(o.imm), " is not ", ranges_text(p.ranges));
      return false;
    case Kind::address:
      return address_fits(p, i, o, a);
    case Kind::pack:
      return pack_fits(o, operand_type(p, i.mods), false, a);
    case Kind::unpack:
      return pack_fits(o, operand_type(p, i.mods), true, a);
    case Kind::mask: {
      OperandPattern lanes;
      lanes.kind = Kind::reg;
      lanes.type_from = OperandPattern::Type::fixed;
      lanes.type = Mod::b32;
      if (o.kind != OperandKind::vector)
        return a.why = text::cat(describe(o), ", expected a lane mask {..}"), false;
      return vector_fits(lanes, i, o, i.has(Mod::cta_group_2) ? 8 : 4, a);
    }
    case Kind::label:
      return o.kind == OperandKind::label || (a.why = text::cat(describe(o), ", expected a label"), false);
    case Kind::table:
      if (o.kind == OperandKind::table && !f_->tables[o.label].calls) return true;
      a.why = text::cat(describe(o), ", expected a .branchtargets table");
      return false;
    case Kind::sink:
      if (o.kind == OperandKind::sink) return true;
      a.why = text::cat(describe(o), ", expected the sink _: a remote barrier returns no state");
      return false;
    case Kind::call:
    case Kind::any:
      return true;
  }
  return false;
}

bool InstVerifier::operands_fit(const Form& f, const Inst& i, std::size_t pattern, std::size_t at,
                                Attempt& best) const {
  auto fail = [&](Attempt a) {
    if (a.at > best.at || best.why.empty()) best = std::move(a);
    return false;
  };
  if (pattern == f.operands.size()) {
    if (at == i.operands.size()) return true;
    return fail({at, text::cat("there are ", i.operands.size(), " operands, expected ", at), {}});
  }
  const OperandPattern& p = f.operands[pattern];
  if (p.kind == Kind::any) return true;
  if (p.kind == Kind::call) {
    Attempt a;
    return call_fits(i, a) || fail(a);
  }
  if (p.only_with != kNoMod && !i.has(p.only_with)) return operands_fit(f, i, pattern + 1, at, best);
  if (at < i.operands.size()) {
    Attempt a{at, {}, {}};
    if (operand_fits(f, p, i, i.operands[at], a)) {
      if (operands_fit(f, i, pattern + 1, at + 1, best)) return true;
    } else if (!p.optional) {
      return fail(std::move(a));
    } else {
      fail(std::move(a));
    }
  }
  if (p.optional) return operands_fit(f, i, pattern + 1, at, best);
  if (at >= i.operands.size())
    return fail({at, text::cat("there are only ", i.operands.size(), " operands"), {}});
  return false;
}

}  // namespace cgp::ptx

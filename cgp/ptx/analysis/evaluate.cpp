// SPDX-License-Identifier: Apache-2.0
// What an instruction writes, as a form of what it reads. Numbers that are known for every thread are
// computed as the instruction does; forms with symbols follow the linear part of integer arithmetic;
// everything else is a new symbol.
#include <algorithm>
#include <bit>
#include <numeric>

#include "cgp/ptx/analysis/exact.h"
#include "cgp/ptx/analysis/values.h"

namespace cgp::ptx {
namespace {

LinearForm number(std::int64_t v) { return LinearForm{Lanes(v), {}}; }

std::int64_t shifted(std::int64_t v, int by) { return by >= 64 ? 0 : std::int64_t(std::uint64_t(v) << by); }

}  // namespace

/// Bits at the bottom of every number that no symbol can change.
int ThreadValues::known_bits(const LinearForm& f) const {
  int bits = 63;
  for (const Term& t : f.terms) {
    const SymbolInfo& s = symbols_[t.symbol];
    const std::uint64_t whole = s.kind == SymbolInfo::Kind::variable ? s.alignment : 1;
    for (std::size_t k = 0; k < t.coefficient.size(); ++k)
      if (const std::uint64_t c = std::uint64_t(t.coefficient[k]) * whole)
        bits = std::min(bits, std::countr_zero(c));
  }
  return bits;
}

LinearForm ThreadValues::named(SymbolInfo info) const {
  const std::array<std::uint64_t, 4> key = {std::uint64_t(info.kind), info.symbol, info.offset,
                                            std::uint64_t(info.sreg)};
  LinearForm out;
  out.terms.push_back({intern(key, info), Lanes(1)});
  return out;
}

LinearForm ThreadValues::special(Sreg s) const {
  const std::size_t bx = a_.block[0], by = a_.block[1];
  const auto per_thread = [&](auto value) {
    std::vector<std::int64_t> each(threads_);
    for (std::size_t t = 0; t < threads_; ++t) each[t] = std::int64_t(value(t));
    return LinearForm{Lanes::of(std::move(each)), {}};
  };
  SymbolInfo info;
  info.kind = SymbolInfo::Kind::special;
  info.sreg = s;
  const auto unknown = [&](Scope scope) {
    info.scope = scope;
    return named(info);
  };
  const auto dimension = [&](const std::optional<std::array<std::uint32_t, 3>>& d, int k, bool count,
                             Scope scope) {
    if (d && count) return number((*d)[std::size_t(k)]);
    if (d && (*d)[std::size_t(k)] == 1) return number(0);
    return unknown(scope);
  };
  const int axis = (int(s) - int(Sreg::tid_x)) % 3;
  switch (s) {
    case Sreg::tid_x:
      return per_thread([&](std::size_t t) { return t % bx; });
    case Sreg::tid_y:
      return per_thread([&](std::size_t t) { return t / bx % by; });
    case Sreg::tid_z:
      return per_thread([&](std::size_t t) { return t / (bx * by); });
    case Sreg::ntid_x:
    case Sreg::ntid_y:
    case Sreg::ntid_z:
      return number(a_.block[std::size_t(axis)]);
    case Sreg::ctaid_x:
    case Sreg::ctaid_y:
    case Sreg::ctaid_z:
      return dimension(a_.grid, axis, false, Scope::block);
    case Sreg::nctaid_x:
    case Sreg::nctaid_y:
    case Sreg::nctaid_z:
      return dimension(a_.grid, axis, true, Scope::grid);
    case Sreg::cluster_nctaid_x:
    case Sreg::cluster_nctaid_y:
    case Sreg::cluster_nctaid_z:
      return dimension(a_.cluster, axis, true, Scope::grid);
    case Sreg::cluster_ctaid_x:
    case Sreg::cluster_ctaid_y:
    case Sreg::cluster_ctaid_z:
      return dimension(a_.cluster, axis, false, Scope::block);
    case Sreg::clusterid_x:
    case Sreg::clusterid_y:
    case Sreg::clusterid_z:
      return unknown(Scope::cluster);
    case Sreg::nclusterid_x:
    case Sreg::nclusterid_y:
    case Sreg::nclusterid_z:
    case Sreg::nsmid:
    case Sreg::gridid:
    case Sreg::dynamic_smem_size:
    case Sreg::total_smem_size:
    case Sreg::aggr_smem_size:
    case Sreg::cluster_nctarank:
    case Sreg::is_explicit_cluster:
    case Sreg::current_graph_exec:
    case Sreg::reserved_smem_offset_begin:
    case Sreg::reserved_smem_offset_end:
    case Sreg::reserved_smem_offset_cap:
    case Sreg::reserved_smem_offset_0:
    case Sreg::reserved_smem_offset_1:
      return unknown(Scope::grid);
    case Sreg::cluster_ctarank:
    case Sreg::smid:
      return unknown(Scope::block);
    case Sreg::laneid:
      return per_thread([](std::size_t t) { return t % 32; });
    case Sreg::warpid:
      return per_thread([](std::size_t t) { return t / 32; });
    case Sreg::nwarpid:
      return unknown(Scope::grid);
    case Sreg::lanemask_eq:
      return per_thread([](std::size_t t) { return std::int32_t(1u << t % 32); });
    case Sreg::lanemask_lt:
      return per_thread([](std::size_t t) { return std::int32_t((1u << t % 32) - 1); });
    case Sreg::lanemask_le:
      return per_thread([](std::size_t t) { return std::int32_t((2u << t % 32) - 1); });
    case Sreg::lanemask_gt:
      return per_thread([](std::size_t t) { return std::int32_t(~((2u << t % 32) - 1)); });
    case Sreg::lanemask_ge:
      return per_thread([](std::size_t t) { return std::int32_t(~((1u << t % 32) - 1)); });
    default:
      return unknown(Scope::thread);
  }
}

LinearForm ThreadValues::operand(std::uint32_t inst, const Operand& o, int bits) const {
  switch (o.kind) {
    case OperandKind::reg: {
      const ValueId v = s_.read(inst, o.reg);
      if (v == kNone) return number(0);
      LinearForm f = read_at(v, c_.block_of[inst]);
      return o.negated ? add(number(1), f, -1) : f;
    }
    case OperandKind::imm:
    case OperandKind::f32_imm:
    case OperandKind::f64_imm:
      return narrow(number(std::int64_t(o.imm)), bits);
    case OperandKind::sreg:
      return special(o.sreg);
    case OperandKind::symbol:
    case OperandKind::address: {
      LinearForm base = number(0);
      if (o.reg != kNone) {
        base = operand(inst, Operand::of(o.reg), bits);
      } else if (o.symbol != kNone) {
        SymbolInfo info;
        info.kind = SymbolInfo::Kind::variable;
        info.symbol = o.symbol;
        info.scope = Scope::grid;
        const auto natural = [&](const std::vector<Var>& vars) {
          for (const Var& v : vars)
            if (v.name == o.symbol) {
              info.alignment = v.alignment();
              if (v.space == Space::local) info.scope = Scope::grid;  // the same offset in every thread
            }
        };
        natural(m_.vars);
        natural(f_.vars);
        base = named(info);
      }
      return add(base, number(std::int64_t(o.imm)));
    }
    default:
      return number(0);
  }
}

LinearForm ThreadValues::opaque(ValueId v, std::uint32_t inst, Scope scope, std::uint64_t divisor, int slot) {
  SymbolInfo info;
  info.kind = SymbolInfo::Kind::result;
  info.scope = scope;
  info.inst = inst;
  // A result of loop-invariant operands is loop-invariant itself, unless memory or other threads are asked.
  const Family family = ptx::family(f_.body[inst].op);
  bool varies = family != Family::integer && family != Family::floating && family != Family::half_precision &&
                family != Family::logic && family != Family::compare && family != Family::move;
  for (const Ssa::Read& r : s_.reads[inst])
    for (const Term& t : forms_[r.value].terms) varies = varies || symbols_[t.symbol].block != kNone;
  if (varies) info.block = c_.block_of[inst];
  const SymbolIndex s = intern({10, v, std::uint64_t(slot), 0}, info);
  symbols_[s].scope = scope;
  symbols_[s].block = info.block;
  LinearForm out;
  out.terms.push_back({s, Lanes(std::int64_t(divisor ? divisor : 1))});
  return out;
}

/// The least uniform of everything the instruction reads.
Scope ThreadValues::result_scope(std::uint32_t i) const {
  Scope s = Scope::grid;
  for (const Ssa::Read& r : s_.reads[i]) s = min_of(s, scope(read_at(r.value, c_.block_of[i])));
  for (const Operand& o : f_.body[i].operands)
    if (o.kind == OperandKind::sreg) s = min_of(s, scope(special(o.sreg)));
  return s;
}

LinearForm ThreadValues::evaluate(std::uint32_t i, ValueId v) {
  if (auto f = exact(i, v)) return *std::move(f);
  const Inst& inst = f_.body[i];
  switch (family(inst.op)) {
    case Family::integer:
    case Family::floating:
    case Family::half_precision:
    case Family::logic:
    case Family::compare:
    case Family::move:
    case Family::video:
      return opaque(v, i, result_scope(i));
    default:
      break;
  }
  if (inst.op == Op::ld || inst.op == Op::ldu) return load(i, v);
  if (auto f = warp_value(i, v)) return *std::move(f);
  return opaque(v, i, Scope::thread);
}

std::optional<LinearForm> ThreadValues::exact(std::uint32_t i, ValueId v) {
  const Inst& inst = f_.body[i];
  switch (inst.op) {
    case Op::mov:
    case Op::cvt:
    case Op::cvta:
      return convert(i).has_value() ? convert(i) : pack(i, v);
    case Op::setp:
      return compare(i, v);
    case Op::selp: {
      const LinearForm condition = operand(i, inst.operands[3], 1);
      const int bits = type_bits(inst.type());
      return chosen(v, i, condition, operand(i, inst.operands[1], bits), operand(i, inst.operands[2], bits));
    }
    case Op::add:
    case Op::sub:
    case Op::mul:
    case Op::mad:
    case Op::mul24:
    case Op::mad24:
    case Op::neg: {
      if (is_float(inst.type()) || inst.has(Mod::cc) || inst.has(Mod::sat)) return std::nullopt;
      if (inst.op == Op::mul || inst.op == Op::mad || inst.op == Op::mul24 || inst.op == Op::mad24) {
        if (auto f = on_numbers(i)) return f;
        if (inst.has(Mod::hi)) return std::nullopt;
        const int bits = type_bits(inst.type()), out = inst.has(Mod::wide) ? 2 * bits : bits;
        LinearForm f = product(v, i, operand(i, inst.operands[1], bits), operand(i, inst.operands[2], bits));
        if (inst.op == Op::mad || inst.op == Op::mad24) f = add(f, operand(i, inst.operands[3], out));
        return narrow(f, out);
      }
      return arithmetic(i);
    }
    case Op::and_:
    case Op::or_:
    case Op::xor_:
    case Op::not_:
    case Op::shl:
    case Op::shr:
    case Op::bfe:
    case Op::div:
    case Op::rem:
      if (is_float(inst.type())) return std::nullopt;
      if (auto f = on_numbers(i)) return f;
      return bits_of(i);
    default:
      return on_numbers(i);
  }
}

std::optional<LinearForm> ThreadValues::arithmetic(std::uint32_t i) {
  const Inst& inst = f_.body[i];
  const int bits = type_bits(inst.type());
  const Mod t = inst.type();
  if (t == Mod::u16x2 || t == Mod::s16x2) return std::nullopt;
  const LinearForm a = operand(i, inst.operands[1], bits);
  if (inst.op == Op::neg) return narrow(scale(a, Lanes(-1)), bits);
  return narrow(add(a, operand(i, inst.operands[2], bits), inst.op == Op::sub ? -1 : 1), bits);
}

/// a * b: linear where one of them is known; the rest is a symbol with the factors that are known.
LinearForm ThreadValues::product(ValueId v, std::uint32_t i, const LinearForm& a, const LinearForm& b) {
  if (b.known()) return scale(a, b.constant);
  if (a.known()) return scale(b, a.constant);
  LinearForm x = a, y = b;
  x.constant = y.constant = Lanes(0);
  const std::uint64_t g = divisor_of_terms(x), h = divisor_of_terms(y);
  LinearForm out = opaque(v, i, min_of(scope(x), scope(y)), g * h);
  out = add(out, scale(b, a.constant));
  return add(out, scale(x, b.constant));
}

LinearForm ThreadValues::chosen(ValueId v, std::uint32_t i, const LinearForm& condition,
                                const LinearForm& yes, const LinearForm& no) {
  if (condition.known()) return choose(condition.constant, yes, no);
  const LinearForm apart = add(yes, no, -1);
  if (apart.known() && apart.constant.is(0)) return yes;
  const Scope s = min_of(scope(condition), scope(apart));
  if (s == Scope::thread)
    return opaque(
        v, i, Scope::thread,
        common_divisor(yes) ? std::gcd(common_divisor(yes), common_divisor(no)) : common_divisor(no), 1);
  return add(no, opaque(v, i, s, common_divisor(apart), 1));
}

// Instructions on bits keep the part of a form above the bits that they look at.
std::optional<LinearForm> ThreadValues::bits_of(std::uint32_t i) {
  const Inst& inst = f_.body[i];
  const Mod type = inst.type();
  const int bits = type_bits(type);
  if (inst.op == Op::not_) {
    const LinearForm a = operand(i, inst.operands[1], bits);
    return add(number(bits == 1 ? 1 : -1), a, -1);
  }
  if (bits < 32) return std::nullopt;
  LinearForm a = operand(i, inst.operands[1], bits), b = operand(i, inst.operands[2], bits);
  if (inst.op == Op::and_ || inst.op == Op::or_ || inst.op == Op::xor_) {
    if (!b.known()) std::swap(a, b);
    if (!b.known()) return std::nullopt;
    const int k = known_bits(a);
    const std::int64_t low = std::int64_t((1ull << k) - 1);
    // Above the known bits the other operand must leave everything, or clear everything.
    const Lanes high = Lanes::map(b.constant, [&](std::int64_t x) { return x >> k; });
    const bool keep = inst.op == Op::and_ ? high.is(-1) : high.is(0);
    if (!keep && !(inst.op == Op::and_ && high.is(0))) return std::nullopt;
    const Lanes below = Lanes::map(a.constant, b.constant, [&](std::int64_t x, std::int64_t y) {
      const std::int64_t r = inst.op == Op::and_ ? x & y : inst.op == Op::or_ ? x | y : x ^ y;
      return r & low;
    });
    if (!keep) return LinearForm{below, {}};
    LinearForm out = a;
    out.constant =
        Lanes::map(a.constant, below, [&](std::int64_t x, std::int64_t y) { return (x & ~low) | y; });
    return out;
  }
  if (inst.op == Op::shl) {
    if (!b.known()) return std::nullopt;
    return narrow(scale(a, Lanes::map(b.constant, [](std::int64_t n) { return shifted(1, int(n & 0xff)); })),
                  bits);
  }
  if (!b.is_constant()) return std::nullopt;
  std::int64_t by = b.constant[0];
  std::int64_t keep = -1;
  if (inst.op == Op::bfe) {
    const LinearForm n = operand(i, inst.operands[3], 32);
    if (!n.is_constant() || is_signed(type) || n.constant[0] <= 0 || n.constant[0] >= 63 || by < 0)
      return std::nullopt;
    keep = std::int64_t((1ull << n.constant[0]) - 1);
  }
  const bool shift = inst.op == Op::shr || inst.op == Op::bfe;
  if (by < 0 || (shift && by > 62) || (!shift && by == 0)) return std::nullopt;
  const std::int64_t d = shift ? shifted(1, int(by)) : by;
  const std::uint64_t g = divisor_of_terms(a);
  const auto numbers = [&](auto f) { return Lanes::map(a.constant, f); };
  // For numbers that are not negative (an index) division and remainder are those of the constant part.
  if (g % std::uint64_t(d) != 0) return std::nullopt;
  for (std::size_t t = 0; t < a.constant.size(); ++t)
    if (a.constant[t] < 0 && !shift) return std::nullopt;
  if (inst.op == Op::rem) return LinearForm{numbers([d](std::int64_t x) { return x % d; }), {}};
  LinearForm out;
  out.constant = numbers([&](std::int64_t x) { return shift ? x >> by : x / d; });
  for (const Term& t : a.terms)
    out.terms.push_back({t.symbol, Lanes::map(t.coefficient, [d](std::int64_t x) { return x / d; })});
  if (inst.op != Op::bfe) return out;
  if (divisor_of_terms(out) % std::uint64_t(keep + 1) != 0) return std::nullopt;
  return LinearForm{Lanes::map(out.constant, [keep](std::int64_t x) { return x & keep; }), {}};
}

std::optional<LinearForm> ThreadValues::convert(std::uint32_t i) {
  const Inst& inst = f_.body[i];
  if (inst.operands.size() < 2) return std::nullopt;
  const Operand& from = inst.operands[1];
  if (from.kind == OperandKind::vector || inst.operands[0].kind == OperandKind::vector) return std::nullopt;
  const Mod to = inst.type(), source = inst.op == Op::cvt ? inst.type(1) : to;
  if (inst.op != Op::cvt) return operand(i, from, type_bits(to));
  if (is_float(to) || is_float(source) || inst.has(Mod::sat)) return std::nullopt;
  LinearForm a = operand(i, from, type_bits(source));
  if (a.known()) {
    a.constant =
        Lanes::map(a.constant, [&](std::int64_t x) { return exact::extend(exact::extend(x, source), to); });
    return narrow(a, std::max(32, type_bits(to)));
  }
  if (type_bits(to) < 32 || type_bits(source) < 32) return std::nullopt;
  return narrow(a, type_bits(to));
}

std::optional<LinearForm> ThreadValues::pack(std::uint32_t i, ValueId v) {
  const Inst& inst = f_.body[i];
  if (inst.op != Op::mov || inst.operands.size() < 2) return std::nullopt;
  const int bits = type_bits(inst.type());
  const Operand &to = inst.operands[0], &from = inst.operands[1];
  if (from.kind == OperandKind::vector && from.elems.size() == 2 && bits == 64) {
    const LinearForm low = operand(i, from.elems[0], 32), high = operand(i, from.elems[1], 32);
    if (low.known() && high.known())
      return LinearForm{Lanes::map(low.constant, high.constant,
                                   [](std::int64_t x, std::int64_t y) {
                                     return std::int64_t(std::uint64_t(std::uint32_t(x)) | std::uint64_t(y)
                                                                                               << 32);
                                   }),
                        {}};
    if (high.known() && high.constant.is(0)) return low;  // an index, which is not negative
    return std::nullopt;
  }
  if (to.kind != OperandKind::vector || to.elems.size() != 2 || bits != 64) return std::nullopt;
  const LinearForm a = operand(i, from, bits);
  if (!a.known()) return std::nullopt;
  const bool high = to.elems[1].kind == OperandKind::reg && to.elems[1].reg == s_.values[v].reg;
  return LinearForm{
      Lanes::map(a.constant,
                 [high](std::int64_t x) { return std::int64_t(std::int32_t(high ? x >> 32 : x)); }),
      {}};
}

std::optional<LinearForm> ThreadValues::compare(std::uint32_t i, ValueId v) {
  const Inst& inst = f_.body[i];
  const Mod type = inst.type();
  if (is_float(type) || inst.operands.size() < 3) return std::nullopt;
  const int bits = type_bits(type);
  const LinearForm a = operand(i, inst.operands[1], bits), b = operand(i, inst.operands[2], bits);
  const LinearForm apart = add(a, b, -1);
  Mod relation = kNoMod;
  for (Mod m : inst.mods)
    if (exact::is_relation(m)) relation = m;
  LinearForm result;
  if (a.known() && b.known()) {
    result.constant = Lanes::map(a.constant, b.constant, [&](std::int64_t x, std::int64_t y) {
      return std::int64_t(
          exact::relate(relation, exact::extend(x, type), exact::extend(y, type), is_signed(type)));
    });
  } else if (apart.known() && (relation == Mod::eq || relation == Mod::ne)) {
    result.constant = Lanes::map(
        apart.constant, [&](std::int64_t d) { return std::int64_t((d == 0) == (relation == Mod::eq)); });
  } else {
    // The order of two numbers depends on their difference alone.
    result = opaque(v, i, std::max(scope(apart), min_of(scope(a), scope(b))), 1);
  }
  const Operand& to = inst.operands[0];
  const bool second = to.reg2 != kNone && s_.values[v].reg == to.reg2;
  if (second) result = add(number(1), result, -1);
  if (inst.operands.size() < 4) return result;
  const LinearForm c = operand(i, inst.operands[3], 1);
  if (!result.known() || !c.known()) return opaque(v, i, min_of(scope(result), scope(c)), 1, 2);
  return LinearForm{Lanes::map(result.constant, c.constant,
                               [&](std::int64_t x, std::int64_t y) {
                                 return inst.has(Mod::and_) ? x & y : inst.has(Mod::or_) ? x | y : x ^ y;
                               }),
                    {}};
}

/// All operands known: as the instruction computes.
std::optional<LinearForm> ThreadValues::on_numbers(std::uint32_t i) {
  const Inst& inst = f_.body[i];
  if (!exact::computes(inst)) return std::nullopt;
  std::vector<LinearForm> in;
  for (std::size_t k = 1; k < inst.operands.size(); ++k) {
    in.push_back(operand(i, inst.operands[k], 64));
    if (!in.back().known()) return std::nullopt;
  }
  std::size_t n = 1;
  for (const LinearForm& f : in) n = std::max(n, f.constant.size());
  std::vector<std::int64_t> each(n), args(in.size());
  for (std::size_t t = 0; t < n; ++t) {
    for (std::size_t k = 0; k < in.size(); ++k) args[k] = in[k].constant[t];
    const auto r = exact::compute(inst, args);
    if (!r) return std::nullopt;
    each[t] = *r;
  }
  return LinearForm{Lanes::of(std::move(each)), {}};
}

LinearForm ThreadValues::load(std::uint32_t i, ValueId v) {
  const Inst& inst = f_.body[i];
  const Operand& from = inst.operands[1];
  if (inst.has(Mod::param) || inst.has(Mod::param_entry) || inst.has(Mod::param_func)) {
    const bool entry = std::any_of(f_.params.begin(), f_.params.end(), [&](const Var& p) {
      return p.name == from.symbol && p.space == Space::param;
    });
    const auto value =
        entry && from.imm == 0 ? a_.parameters.find(m_.text(from.symbol)) : a_.parameters.end();
    if (value != a_.parameters.end() && from.reg == kNone && inst.operands[0].kind == OperandKind::reg)
      return narrow(number(value->second), std::max(32, type_bits(inst.type())));
    if (entry && f_.entry && from.reg == kNone && inst.operands[0].kind == OperandKind::reg) {
      SymbolInfo info;
      info.kind = SymbolInfo::Kind::parameter;
      info.symbol = from.symbol;
      info.offset = from.imm;
      info.scope = Scope::grid;
      if (type_bits(inst.type()) == 64) info.alignment = a_.pointer_alignment;
      for (const Var& p : f_.params)
        if (p.name == from.symbol && p.ptr_align)
          info.alignment = std::max<std::uint64_t>(info.alignment, p.ptr_align);
      return named(info);
    }
    if (!f_.entry || !entry) return opaque(v, i, Scope::thread);  // arguments and results of calls
  }
  const bool strong = inst.has(Mod::volatile_) || inst.has(Mod::relaxed) || inst.has(Mod::acquire) ||
                      inst.has(Mod::mmio) || inst.has(Mod::cv);
  const bool shared_by_threads = inst.has(Mod::global) || inst.has(Mod::shared) ||
                                 inst.has(Mod::shared_cta) || inst.has(Mod::shared_cluster) ||
                                 inst.has(Mod::const_) || inst.has(Mod::param) ||
                                 inst.has(Mod::param_entry) || inst.op == Op::ldu;
  if (strong || !shared_by_threads) return opaque(v, i, Scope::thread);
  Scope s = scope(operand(i, from));
  // One offset is different memory in every block.
  if (inst.has(Mod::shared) || inst.has(Mod::shared_cta)) s = min_of(s, Scope::block);
  return opaque(v, i, s);
}

/// Instructions through which the lanes of a warp agree on something.
std::optional<LinearForm> ThreadValues::warp_value(std::uint32_t i, ValueId v) {
  const Inst& inst = f_.body[i];
  const auto full = [&](std::size_t k) {
    if (k >= inst.operands.size()) return false;
    const LinearForm m = operand(i, inst.operands[k], 32);
    return m.is_constant() && std::uint32_t(m.constant[0]) == ~0u;
  };
  const auto same = [&](Scope at_least) { return opaque(v, i, std::max(at_least, result_scope(i))); };
  switch (inst.op) {
    case Op::shfl_sync: {
      const Operand& to = inst.operands[0];
      if (to.reg2 != kNone && s_.values[v].reg == to.reg2) break;
      const LinearForm value = operand(i, inst.operands[1], 32);
      if (value.known() && value.constant.scope() >= Scope::warp) return value;
      if (scope(value) >= Scope::warp) return value;
      const LinearForm lane = operand(i, inst.operands[2], 32), clamp = operand(i, inst.operands[3], 32);
      if (inst.has(Mod::idx) && full(4) && scope(lane) >= Scope::warp && clamp.known() &&
          clamp.constant.is(31))
        return same(Scope::warp);
      break;
    }
    case Op::vote_sync:
      if (full(2)) return same(Scope::warp);
      break;
    case Op::redux_sync:
      if (full(2)) return same(Scope::warp);
      break;
    case Op::match_all_sync:
      if (full(2)) return same(Scope::warp);
      break;
    case Op::bar_red:
    case Op::barrier_red:
      return opaque(v, i, Scope::block);
    case Op::elect_sync: {
      // One lane of the warp; which one is not said: the first stands for it.
      if (!full(1)) break;
      const bool predicate = inst.operands[0].reg2 == s_.values[v].reg;
      if (!predicate) return opaque(v, i, Scope::warp);
      std::vector<std::int64_t> each(threads_);
      for (std::size_t t = 0; t < threads_; ++t) each[t] = t % 32 == 0;
      return LinearForm{Lanes::of(std::move(each)), {}};
    }
    default:
      break;
  }
  return std::nullopt;
}

}  // namespace cgp::ptx

// SPDX-License-Identifier: Apache-2.0
// What is known about single instructions. Whatever is not listed here is not touched.
#include <algorithm>

#include "cgp/ptx/passes/passes_impl.h"

namespace cgp::ptx::passes {
namespace {

bool is_pure_op(Op op) {
  using enum Op;
  switch (op) {
    case add:
    case sub:
    case mul:
    case mad:
    case mul24:
    case mad24:
    case sad:
    case div:
    case rem:
    case abs:
    case neg:
    case min:
    case max:
    case popc:
    case clz:
    case bfind:
    case fns:
    case brev:
    case bfe:
    case bfi:
    case bmsk:
    case szext:
    case dp4a:
    case dp2a:
    case fma:
    case rcp:
    case sqrt:
    case rsqrt:
    case sin:
    case cos:
    case lg2:
    case ex2:
    case tanh:
    case testp:
    case copysign:
    case and_:
    case or_:
    case xor_:
    case not_:
    case cnot:
    case lop3:
    case shf:
    case shl:
    case shr:
    case prmt:
    case set:
    case setp:
    case selp:
    case slct:
    case mov:
    case cvt:
    case cvt_pack:
    case cvta:
    case isspacep:
    case mapa:
    case getctarank:
      return true;
    default:
      return false;
  }
}

bool reads_only_stable(const Operand& o) {
  switch (o.kind) {
    case OperandKind::reg:
    case OperandKind::imm:
    case OperandKind::f32_imm:
    case OperandKind::f64_imm:
    case OperandKind::symbol:
    case OperandKind::sink:
      return true;
    case OperandKind::sreg:
      return is_stable(o.sreg);
    case OperandKind::vector:
      return std::all_of(o.elems.begin(), o.elems.end(), reads_only_stable);
    default:
      return false;
  }
}

void each_register(Operand& o, const std::function<void(Operand&)>& f) {
  switch (o.kind) {
    case OperandKind::reg:
      return f(o);
    case OperandKind::address:
      if (o.reg != kNone) f(o);
      [[fallthrough]];
    case OperandKind::vector:
    case OperandKind::list:
      for (Operand& e : o.elems) each_register(e, f);
      return;
    default:
      return;
  }
}

}  // namespace

bool is_stable(Sreg s) {
  using enum Sreg;
  if (s >= tid_x && s <= laneid) return true;
  if (s >= lanemask_eq && s <= lanemask_gt) return true;
  return s == cluster_ctarank || s == cluster_nctarank || s == dynamic_smem_size || s == total_smem_size ||
         s == gridid || s == is_explicit_cluster;
}

bool is_pure(const Inst& i) {
  return is_pure_op(i.op) && !i.has(Mod::cc) &&
         std::all_of(i.operands.begin(), i.operands.end(), reads_only_stable);
}

bool is_parameter_load(const Module&, const Function& f, const Inst& i) {
  if (i.op != Op::ld || !f.entry || !(i.has(Mod::param) || i.has(Mod::param_entry))) return false;
  if (i.operands.size() != 2 || i.operands[1].kind != OperandKind::address || i.operands[1].reg != kNone)
    return false;
  return std::any_of(f.params.begin(), f.params.end(),
                     [&](const Var& v) { return v.name == i.operands[1].symbol; });
}

bool is_constant_load(const Inst& i) {
  return i.op == Op::ld && (i.has(Mod::const_) || i.has(Mod::nc)) && i.operands.size() == 2;
}

bool is_weak_access(const Inst& i) {
  if ((i.op != Op::ld && i.op != Op::st) || i.operands.size() != 2) return false;
  for (Mod m : i.mods) switch (m) {
      case Mod::volatile_:
      case Mod::relaxed:
      case Mod::acquire:
      case Mod::release:
      case Mod::mmio:
      case Mod::cv:
      case Mod::param:
      case Mod::param_entry:
      case Mod::param_func:
        return false;
      default:
        break;
    }
  return true;
}

RegId only_destination(const Inst& i) {
  if (i.operands.empty() || !writes_operand(i, 0)) return kNone;
  const Operand& o = i.operands[0];
  if (o.kind != OperandKind::reg || o.reg == kNone || o.reg2 != kNone || o.negated) return kNone;
  for (std::size_t k = 1; k < i.operands.size(); ++k)
    if (writes_operand(i, k)) return kNone;
  return o.reg;
}

bool is_move_of_register(const Inst& i) {
  return i.op == Op::mov && i.operands.size() == 2 && i.operands[0].kind == OperandKind::reg &&
         i.operands[1].kind == OperandKind::reg && !i.operands[1].negated && i.operands[1].reg2 == kNone &&
         only_destination(i) != kNone;
}

bool is_literal(const Operand& o) {
  return o.kind == OperandKind::imm || o.kind == OperandKind::f32_imm || o.kind == OperandKind::f64_imm;
}

void for_each_read(Inst& i, const std::function<void(Operand&)>& f) {
  for (std::size_t k = 0; k < i.operands.size(); ++k)
    if (!writes_operand(i, k) || i.operands[k].kind == OperandKind::address) each_register(i.operands[k], f);
}

}  // namespace cgp::ptx::passes

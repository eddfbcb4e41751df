// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/core/derivative.h"

#include <algorithm>
#include <bit>
#include <map>

#include "cgp/base/text.h"
#include "cgp/dsl/core/arith.h"

namespace cgp::dsl::record_impl {
namespace {

using ptx::Mod;
using ptx::Op;
using ptx::OperandKind;
using text::cat;

constexpr float kLn2 = 0.6931471805599453f, kLog2e = 1.4426950408889634f;

float number(const Val<f32>& literal) { return std::bit_cast<float>(std::uint32_t(literal.bits())); }
Val<f32> product(const Val<f32>& a, const Val<f32>& b) {
  if (a.is_literal() && b.is_literal()) return number(a) * number(b);
  if (a.is_literal() && number(a) == 1) return b;
  return b.is_literal() && number(b) == 1 ? a : a * b;
}
Val<f32> inverse(const Val<f32>& v) {
  if (v.is_literal()) return 1 / number(v);
  return rcp<approx, ftz>(v);
}

class Slopes {
 public:
  Slopes(Kernel& k, const Val<f32>& x, Here at) : k_(k), at_(at) { of_.emplace(x.reg(), Val<f32>(1.0f)); }

  void follow(const ptx::Inst& i) {
    if (i.op == Op::bra) unknown("a branch at run time");
    if (!depends(i.operands)) return;
    const auto type = i.type();
    if (i.op == Op::setp || i.op == Op::set || i.op == Op::testp) return;
    const bool to_f32 = type == Mod::f32;
    if (i.op == Op::cvt && !(to_f32 && i.type(1) == Mod::f32)) {
      if (ptx::is_float(type)) unknown(cat("a conversion to ", ptx::name(type)));
      return;
    }
    const bool whole = i.has(Mod::rni) || i.has(Mod::rzi) || i.has(Mod::rmi) || i.has(Mod::rpi);
    if (i.op == Op::cvt && whole) return;
    if ((!to_f32 && !(i.op == Op::mov && type == Mod::b32)) || i.guard != ptx::kNone || i.has(Mod::sat) ||
        i.operands[0].kind != OperandKind::reg || of_.count(i.operands[0].reg))
      unknown(cat("an instruction ", ptx::name(i.op), ".", ptx::name(type)));
    const auto slope = slope_of(i);
    if (slope) of_.emplace(i.operands[0].reg, *slope);
  }
  Val<f32> of(const Val<f32>& y) const {
    if (y.is_literal()) return Val<f32>(0.0f);
    const auto found = of_.find(y.reg());
    return found == of_.end() ? Val<f32>(0.0f) : found->second;
  }

 private:
  using Slope = std::optional<Val<f32>>;  // none: 0

  [[noreturn]] void unknown(const std::string& what) const {
    throw BuildError("this function has no derivative that can be recorded", at_,
                     cat("its argument reaches ", what), "give the derivative yourself");
  }
  bool depends(const std::vector<ptx::Operand>& operands) const {
    return std::any_of(operands.begin(), operands.end(), [&](const ptx::Operand& o) {
      return (o.reg != ptx::kNone && of_.count(o.reg)) || depends(o.elems);
    });
  }
  Slope slope(const ptx::Operand& o) const {
    const auto found = o.kind == OperandKind::reg ? of_.find(o.reg) : of_.end();
    return found == of_.end() ? Slope() : Slope(found->second);
  }
  Val<f32> value(const ptx::Operand& o) const {
    if (o.kind == OperandKind::reg) return Val<f32>(Value(&k_, o.reg, Mod::f32, Uniform::thread));
    return Val<f32>(Value::literal(o.imm, Mod::f32));
  }
  static bool infinite(const ptx::Operand& o) {
    return o.kind == OperandKind::f32_imm && (o.imm & 0x7fffffffu) == 0x7f800000u;
  }
  static Slope sum(const Slope& a, const Slope& b) {
    if (!a || !b) return a ? a : b;
    if (!a->is_literal() || !b->is_literal()) return *a + *b;
    const float both = number(*a) + number(*b);
    return both == 0 ? Slope() : Slope(Val<f32>(both));
  }
  static Slope times(const Slope& a, const Val<f32>& b) { return a ? Slope(product(*a, b)) : Slope(); }
  static Slope minus(const Slope& a) {
    if (!a) return a;
    return a->is_literal() ? Val<f32>(-number(*a)) : -*a;
  }
  static Slope chosen(const Val<pred>& p, const Slope& a, const Slope& b) {
    const Val<f32> zero(0.0f);
    return select(p, a ? *a : zero, b ? *b : zero);
  }
  Slope slope_of(const ptx::Inst& i) const {
    const auto& o = i.operands;
    const auto arg = [&](std::size_t n) { return value(o[n]); };
    const auto d = [&](std::size_t n) { return slope(o[n]); };
    const auto y = value(o[0]);
    switch (i.op) {
      case Op::mov:
      case Op::cvt:
        return d(1);
      case Op::add:
        return sum(d(1), d(2));
      case Op::sub:
        return sum(d(1), minus(d(2)));
      case Op::neg:
        return minus(d(1));
      case Op::mul:
        return sum(times(d(1), arg(2)), times(d(2), arg(1)));
      case Op::fma:
        return sum(sum(times(d(1), arg(2)), times(d(2), arg(1))), d(3));
      case Op::div:
        return times(sum(d(1), minus(times(d(2), y))), inverse(arg(2)));
      case Op::abs:
        return chosen(arg(1) < 0.0f, minus(d(1)), d(1));
      case Op::min:
      case Op::max: {
        if (o.size() != 3) unknown("three-input min or max");
        return chosen(i.op == Op::min ? arg(1) <= arg(2) : arg(1) >= arg(2), d(1), d(2));
      }
      case Op::selp:
        if (infinite(o[1]) || infinite(o[2])) return d(infinite(o[1]) ? 2 : 1);
        return chosen(Val<pred>(Value(&k_, o[3].reg, Mod::pred, Uniform::thread)), d(1), d(2));
      case Op::rcp:
        return minus(times(d(1), y * y));
      case Op::sqrt:
        return times(d(1), inverse(y) * 0.5f);
      case Op::rsqrt:
        return times(d(1), y * y * y * -0.5f);
      case Op::ex2:
        return times(d(1), y * kLn2);
      case Op::lg2:
        return times(d(1), inverse(arg(1)) * kLog2e);
      case Op::sin:
        return times(d(1), cos<approx>(arg(1)));
      case Op::cos:
        return minus(times(d(1), sin<approx>(arg(1))));
      case Op::tanh:
        return times(d(1), fma(-y, y, Val<f32>(1.0f)));
      default:
        unknown(cat("an instruction ", ptx::name(i.op)));
    }
  }

  Kernel& k_;
  Here at_;
  std::map<ptx::RegId, Val<f32>> of_;  ///< where it is not 0
};

}  // namespace

Val<f32> slope_since(Kernel& k, std::size_t from, const Val<f32>& x, const Val<f32>& y, Here at) {
  Slopes slopes(k, x, at);
  const auto& body = k.function().body;
  const std::size_t to = body.size();
  for (std::size_t i = from; i < to; ++i)
    slopes.follow(ptx::Inst(body[i]));  // a copy: what follows is appended
  return slopes.of(y);
}

}  // namespace cgp::dsl::record_impl

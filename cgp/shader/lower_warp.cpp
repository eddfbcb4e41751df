// SPDX-License-Identifier: Apache-2.0
// What the threads of a warp or a block do together. A warp is 32 threads with consecutive indices in the block.
#include "cgp/base/text.h"
#include "cgp/shader/lower.h"

namespace cgp::shader {

using ptx::Inst;
using ptx::kNone;
using ptx::Mod;
using ptx::Op;
using ptx::Operand;
using ptx::OperandKind;

Value Lowering::lane() { return bin(Binary::and_, b_.builtin(Builtin::index), u(31)); }

/// Index of the warp's first thread.
Value Lowering::group() { return bin(Binary::and_, b_.builtin(Builtin::index), u(~31u)); }

/// `writes` for the threads that the instruction is for.
void Lowering::assign(const Inst& i, const Mask* mask, const std::function<void()>& writes) {
  std::optional<Value> c;
  if (mask) c = current(*mask);
  if (i.guard != kNone) {
    const Value g = predicate(Operand::of(i.guard, i.guard_negated));
    c = c ? bin(Binary::and_, *c, g) : g;
  }
  if (c) b_.begin_if(*c);
  writes();
  if (c) b_.end_if();
}

/// The words of `count` threads from index `first`, folded: step(sum, word, n) for the n-th.
Value Lowering::gathered(Value own, Value first, std::uint32_t count, Binary op, Value start) {
  const auto& block = k_.layout.shader.block;
  const std::uint32_t threads = block[0] * block[1] * block[2];
  b_.put(b_.builtin(Builtin::index), own);
  b_.barrier();
  const Variable n = temporary(Type::u32, "n"), sum = temporary(Type::u32, "sum");
  const Value from = b_.keep(first);
  const Value end = threads % count ? bin(Binary::min, bin(Binary::add, from, u(count)), u(threads))
                                    : bin(Binary::add, from, u(count));
  const Value to = b_.keep(end);
  b_.set(n, from);
  b_.set(sum, start);
  b_.begin_loop();
  b_.begin_if(b_.compare(Compare::ge, b_.get(n), to));
  b_.leave();
  b_.end_if();
  b_.set(sum, bin(op, b_.get(sum), b_.take(b_.get(n))));
  b_.set(n, bin(Binary::add, b_.get(n), u(1)));
  b_.end_loop();
  b_.barrier();
  return b_.get(sum);
}

Value Lowering::ballot(Value p, const Mask* mask) {
  const Value c = b_.keep(mask ? bin(Binary::and_, current(*mask), p) : p);
  if (k_.subgroups) return b_.keep(b_.ballot(c));
  return b_.keep(
      gathered(b_.select(c, bin(Binary::shl, u(1), lane()), u(0)), group(), 32, Binary::or_, u(0)));
}

void Lowering::together(const Inst& i, const Mask* mask) {
  const auto& o = i.operands;
  const auto& block = k_.layout.shader.block;
  const std::uint32_t threads = block[0] * block[1] * block[2];
  switch (i.op) {
    case Op::bar_sync:
    case Op::barrier_sync:
      if (i.guard != kNone) no("a shader's barrier takes every thread: it cannot have a guard");
      if (o.size() > 1 && (o[1].kind != OperandKind::imm || o[1].imm != threads))
        no("a shader's barrier takes every thread of the workgroup, not some");
      return b_.barrier();
    case Op::bar_warp_sync:
      if (i.guard != kNone) no("a shader's barrier takes every thread: it cannot have a guard");
      return b_.barrier();
    case Op::bar_red:
    case Op::barrier_red:
      return reduce_block(i, mask);
    case Op::shfl_sync:
      return shuffle(i, mask);
    case Op::vote_sync:
    case Op::match_any_sync:
      return vote(i, mask);
    case Op::redux_sync:
      return reduce_warp(i, mask);
    case Op::mma:
      return product(i, mask);
    case Op::ldmatrix:
      return load_matrices(i, mask);
    default:
      no(text::cat("a shader cannot do ", ptx::name(i.op)),
         "only the portable subset is translated (docs/shader.md)");
  }
}

Value Lowering::of_lane(Value own, Value lane) {
  if (k_.subgroups) return b_.keep(b_.shuffle(own, lane));
  b_.put(b_.builtin(Builtin::index), own);
  b_.barrier();
  const Value r = b_.keep(b_.take(bin(Binary::add, group(), lane)));
  b_.barrier();
  return r;
}

void Lowering::shuffle(const Inst& i, const Mask* mask) {
  const auto& o = i.operands;
  if (o[4].kind != OperandKind::imm || std::uint32_t(o[4].imm) != ~0u)
    no("a shader shuffles among all 32 threads: the member mask must be -1");
  if (o[3].kind != OperandKind::imm) no("a shader needs the width of a shuffle as a constant");
  const std::uint32_t clamp = std::uint32_t(o[3].imm) & 31, segment = std::uint32_t(o[3].imm) >> 8 & 31;
  const Value self = b_.keep(lane());
  const Value b = o[2].kind == OperandKind::imm ? u(std::uint32_t(o[2].imm) & 31)
                                                : b_.keep(bin(Binary::and_, read(o[2], Type::u32), u(31)));
  // The source lane, and whether it is in the segment: PTX ISA, shfl.sync.
  const Value limit =
      segment == 0 ? u(clamp)
                   : b_.keep(bin(Binary::or_, bin(Binary::and_, self, u(segment)), u(clamp & ~segment)));
  Value from, inside;
  if (i.has(Mod::up)) {
    inside = b_.compare(Compare::ge, self, bin(Binary::add, limit, b));
    from = bin(Binary::sub, self, b);
  } else if (i.has(Mod::idx)) {
    from = segment == 0 ? b
                        : b_.keep(bin(Binary::or_, bin(Binary::and_, self, u(segment)),
                                      bin(Binary::and_, b, u(31 & ~segment))));
    inside = b_.compare(Compare::le, from, limit);
  } else {
    from = b_.keep(bin(i.has(Mod::down) ? Binary::add : Binary::xor_, self, b));
    inside = b_.compare(Compare::le, from, limit);
  }
  const bool always = clamp == 31 && segment == 0 && (i.has(Mod::idx) || i.has(Mod::bfly));
  if (!always) {
    inside = b_.keep(inside);
    from = b_.select(inside, from, self);
  }
  const Value own = read(o[1], Type::u32);
  const Value r = shuffles_one_value(k_, i) ? b_.keep(own) : of_lane(own, from);
  assign(i, mask, [&] {
    write(o[0].reg, r);
    if (o[0].reg2 != kNone) write(o[0].reg2, always ? b_.boolean(true) : inside);
  });
}

void Lowering::vote(const Inst& i, const Mask* mask) {
  const auto& o = i.operands;
  const Value members = b_.keep(read(o[2], Type::u32));
  if (i.op == Op::match_any_sync) {
    if (ptx::type_bits(i.type()) != 32) no("a shader has match.any of 32-bit words");
    // Bit n: whether the value of lane n is this one's.
    const Value own = b_.keep(read(o[1], Type::u32));
    if (!k_.subgroups) {
      b_.put(b_.builtin(Builtin::index), own);
      b_.barrier();
    }
    const Variable n = temporary(Type::u32, "n"), sum = temporary(Type::u32, "sum");
    b_.set(n, u(0));
    b_.set(sum, u(0));
    const Value first = b_.keep(group());
    b_.begin_loop();
    b_.begin_if(b_.compare(Compare::ge, b_.get(n), u(32)));
    b_.leave();
    b_.end_if();
    const Value other =
        k_.subgroups ? b_.shuffle(own, b_.get(n)) : b_.take(bin(Binary::add, first, b_.get(n)));
    const Value bit = b_.select(b_.compare(Compare::eq, other, own), bin(Binary::shl, u(1), b_.get(n)), u(0));
    b_.set(sum, bin(Binary::or_, b_.get(sum), bit));
    b_.set(n, bin(Binary::add, b_.get(n), u(1)));
    b_.end_loop();
    if (!k_.subgroups) b_.barrier();
    const Value r = b_.keep(bin(Binary::and_, b_.get(sum), members));
    return assign(i, mask, [&] { write(o[0], r); });
  }
  const Value p = b_.keep(predicate(o[1]));
  Value r;
  if (i.has(Mod::ballot)) {
    r = bin(Binary::and_, ballot(p, mask), members);
  } else if (i.has(Mod::any)) {
    r = b_.compare(Compare::ne, bin(Binary::and_, ballot(p, mask), members), u(0));
  } else {
    const Value none =
        b_.compare(Compare::eq, bin(Binary::and_, ballot(b_.unary(Unary::not_, p), mask), members), u(0));
    r = i.has(Mod::all) ? none
                        : bin(Binary::or_, b_.keep(none),
                              b_.compare(Compare::eq, bin(Binary::and_, ballot(p, mask), members), u(0)));
  }
  r = b_.keep(r);
  assign(i, mask, [&] { write(o[0], r); });
}

void Lowering::reduce_block(const Inst& i, const Mask* mask) {
  const auto& o = i.operands;
  const auto& block = k_.layout.shader.block;
  const std::uint32_t threads = block[0] * block[1] * block[2];
  if (i.guard != kNone) no("a shader's barrier takes every thread: it cannot have a guard");
  if (o.size() > 3 && (o[2].kind != OperandKind::imm || o[2].imm != threads))
    no("a shader's barrier takes every thread of the workgroup, not some");
  Value p = predicate(o.back());
  const bool all = i.has(Mod::and_);
  if (all) p = b_.unary(Unary::not_, p);
  const Value word = b_.keep(b_.select(p, u(1), u(0)));
  const bool count = i.has(Mod::popc);
  const Value sum = b_.keep(gathered(word, u(0), threads, count ? Binary::add : Binary::or_, u(0)));
  const Value r = count ? sum : b_.keep(b_.compare(all ? Compare::eq : Compare::ne, sum, u(0)));
  assign(i, mask, [&] { write(o[0], r); });
}

void Lowering::reduce_warp(const Inst& i, const Mask* mask) {
  const auto& o = i.operands;
  const Mod t = i.type();
  if (ptx::is_float(t)) no("a shader has no redux of f32");
  if (o[2].kind != OperandKind::imm || std::uint32_t(o[2].imm) != ~0u)
    no("a shader reduces among all 32 threads: the member mask must be -1");
  const bool sign = ptx::is_signed(t);
  const Binary op = i.has(Mod::add)    ? Binary::add
                    : i.has(Mod::min)  ? (sign ? Binary::min_signed : Binary::min)
                    : i.has(Mod::max)  ? (sign ? Binary::max_signed : Binary::max)
                    : i.has(Mod::and_) ? Binary::and_
                    : i.has(Mod::or_)  ? Binary::or_
                                       : Binary::xor_;
  Value v = b_.keep(read(o[1], Type::u32));
  if (k_.subgroups) {
    for (std::uint32_t step = 16; step; step /= 2)
      v = b_.keep(bin(op, v, b_.shuffle(v, bin(Binary::xor_, lane(), u(step)))));
  } else {
    const std::uint32_t start = i.has(Mod::min)    ? (sign ? 0x7fffffffu : ~0u)
                                : i.has(Mod::max)  ? (sign ? 0x80000000u : 0u)
                                : i.has(Mod::and_) ? ~0u
                                                   : 0u;
    v = b_.keep(gathered(v, group(), 32, op, u(start)));
  }
  assign(i, mask, [&] { write(o[0], v); });
}

}  // namespace cgp::shader

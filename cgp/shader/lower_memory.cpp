// SPDX-License-Identifier: Apache-2.0
// Loads, stores and atomic operations.
#include "cgp/base/text.h"
#include "cgp/shader/lower.h"

namespace cgp::shader {

using ptx::Inst;
using ptx::kNone;
using ptx::Mod;
using ptx::Op;
using ptx::Operand;
using ptx::OperandKind;
using ptx::Space;

Place Lowering::place(const Inst& i, const Operand& a) { return place_in(space_of(i), i, a); }

Place Lowering::place_in(Space space, const Inst& i, const Operand& a) {
  if (a.kind != OperandKind::address) no("a shader has no address of this kind");
  Place p;
  p.strong = i.has(Mod::volatile_) || i.has(Mod::relaxed) || i.has(Mod::acquire) || i.has(Mod::release);
  p.constant = a.imm;
  if (a.symbol != kNone) {
    const auto at = facts_.address.find(a.symbol);
    if (at == facts_.address.end()) no("a shader has no such variable", "pass a buffer");
    p.constant += at->second;
  }
  switch (space) {
    case Space::param:
      if (a.reg != kNone || a.symbol == kNone) no("a shader reads its parameters at constant places");
      p.memory = Memory::params;
      if (p.constant + std::uint64_t(access_bits(i) / 8 * access_count(i)) > facts_.block_bytes)
        no("this reads behind the parameters");
      return p;
    case Space::global:
      if (a.reg != kNone && facts_.root[a.reg] != kNumber &&
          facts_.roots[std::size_t(facts_.root[a.reg])].parameter == kNone) {
        p.memory = Memory::constant;
        break;
      }
      if (a.reg == kNone && a.symbol != kNone) {
        p.memory = Memory::constant;
        break;
      }
      if (a.reg == kNone) no("a shader's address must start from a pointer parameter");
      p.memory = Memory::global;
      if (k_.layout.native64) {
        p.offset = read(Operand::of(a.reg), Type::u64);
        return p;
      }
      p.buffer = std::uint32_t(k_.binding[std::size_t(facts_.root[a.reg])]);
      break;
    case Space::shared:
      if (k_.layout.shared_words == 0)
        no("the kernel uses dynamic shared memory, and the options give none",
           "set ShaderOptions::dynamic_shared");
      p.memory = Memory::shared;
      break;
    case Space::local:
      if (k_.layout.local_words == 0) no("the kernel declares no local memory");
      p.memory = Memory::local;
      break;
    case Space::constant:
      if (k_.layout.constants.empty()) no("the kernel declares no constants");
      p.memory = Memory::constant;
      break;
    default:
      no("a shader has no generic addresses", "name the state space: ld.global, ld.shared");
  }
  p.constant &= 0xffffffffu;
  if (a.reg != kNone) p.offset = b_.keep(read(Operand::of(a.reg), Type::u32));
  return p;
}

void Lowering::load(const Inst& i) {
  const Mod t = i.type();
  const int bits = access_bits(i), count = access_count(i);
  if (t == Mod::f64 || bits > 64 || bits < 8) no(text::cat("a shader does not load ", ptx::name(t)));
  if (i.has(Mod::mmio)) no("a shader has no memory-mapped access");
  const auto& d = i.operands[0];
  Place p = place(i, i.operands[1]);
  const auto target = [&](int k) -> const Operand& {
    return d.kind == OperandKind::vector ? d.elems[std::size_t(k)] : d;
  };
  if (bits < 32) {
    std::vector<Value> parts;
    for (int k = 0; k < count; ++k) {
      parts.push_back(b_.load(p, bits, 1)[0]);
      if (count > 1) parts.back() = b_.keep(parts.back());
      p.constant += std::uint64_t(bits / 8);
    }
    for (int k = 0; k < count; ++k) {
      const Operand& o = target(k);
      if (o.kind != OperandKind::reg || o.reg == kNone) continue;
      Value v = parts[std::size_t(k)];
      const int width = ptx::type_bits(f_.regs[o.reg].type);
      if (ptx::is_signed(t)) v = small(v, t, true);
      if (ptx::is_signed(t) && width == 16) v = small(v, Mod::u16, false);
      if (ptx::is_signed(t) && facts_.type[o.reg] == Type::u64) v = b_.convert(Convert::extend_signed, v);
      write(o, v);
    }
    return;
  }
  const int words = count * bits / 32;
  std::vector<Value> v;
  for (int k = 0; k < words; k += 4) {
    const int n = words - k < 4 ? words - k : 4;
    for (Value x : b_.load(p, 32, n)) v.push_back(words > 1 && p.memory != Memory::params ? b_.keep(x) : x);
    p.constant += 16;
  }
  for (int k = 0; k < count; ++k) {
    const Operand& o = target(k);
    if (o.kind != OperandKind::reg || o.reg == kNone) continue;
    if (bits == 32) {
      const bool extend = ptx::is_signed(t) && facts_.type[o.reg] == Type::u64;
      write(o, extend ? b_.convert(Convert::extend_signed, as(Type::u32, v[std::size_t(k)]))
                      : v[std::size_t(k)]);
      continue;
    }
    const Value low = as(Type::u32, v[std::size_t(2 * k)]);
    write(o, facts_.type[o.reg] == Type::u64 ? b_.join(low, as(Type::u32, v[std::size_t(2 * k + 1)])) : low);
  }
}

void Lowering::store(const Inst& i) {
  const Mod t = i.type();
  const int bits = access_bits(i), count = access_count(i);
  if (t == Mod::f64 || bits > 64 || bits < 8) no(text::cat("a shader does not store ", ptx::name(t)));
  if (space_of(i) == Space::param || space_of(i) == Space::constant)
    no("a shader stores to buffers, shared and local memory");
  if (i.has(Mod::mmio)) no("a shader has no memory-mapped access");
  const auto& s = i.operands[1];
  const auto source = [&](int k) -> const Operand& {
    return s.kind == OperandKind::vector ? s.elems[std::size_t(k)] : s;
  };
  Place p = place(i, i.operands[0]);
  if (p.memory == Memory::constant) no("a shader's tables are constant");
  if (bits < 32) {
    for (int k = 0; k < count; ++k) {
      b_.store(p, bits, {small(read(source(k), Type::u32), t, false)});
      p.constant += std::uint64_t(bits / 8);
    }
    return;
  }
  std::vector<Value> words;
  for (int k = 0; k < count; ++k) {
    const Operand& o = source(k);
    if (bits == 32) {
      words.push_back(
          read(o, type_of(o) == Type::f32 || o.kind == OperandKind::f32_imm ? Type::f32 : Type::u32));
      continue;
    }
    if (o.kind == OperandKind::imm) {
      words.push_back(u(std::uint32_t(o.imm)));
      words.push_back(u(std::uint32_t(o.imm >> 32)));
      continue;
    }
    const Value v = b_.keep(read(o, Type::u64));
    words.push_back(b_.convert(Convert::low, v));
    words.push_back(b_.convert(Convert::high, v));
  }
  for (std::size_t k = 0; k < words.size(); k += 4) {
    const std::size_t n = std::min<std::size_t>(4, words.size() - k);
    b_.store(p, 32, {words.begin() + std::ptrdiff_t(k), words.begin() + std::ptrdiff_t(k + n)});
    p.constant += 16;
  }
}

void Lowering::atomic(const Inst& i) {
  const Mod t = i.type();
  const auto& o = i.operands;
  const bool result = i.op == Op::atom;
  const std::size_t at = result ? 1 : 0;
  if (ptx::type_bits(t) != 32 || access_count(i) != 1 || t == Mod::f16x2 || t == Mod::bf16x2)
    no("a shader has atomic operations on 32-bit words", "use a word, or reduce in shared memory first");
  if (space_of(i) != Space::global && space_of(i) != Space::shared)
    no("a shader has no generic addresses", "name the state space");
  if (o.size() > at + 2 && !i.has(Mod::cas)) no("a shader has no cache hints on atomic operations");
  Place p = place(i, o[at]);
  if (p.memory == Memory::constant) no("a shader's tables are constant");
  if (p.offset.type != Type::none) p.offset = b_.keep(p.offset);
  const bool wants = result && o[0].kind == OperandKind::reg && o[0].reg != kNone;
  const auto put = [&](Value v) {
    if (wants) write(o[0], v);
  };
  const bool sign = ptx::is_signed(t);
  const bool least = i.has(Mod::min), most = i.has(Mod::max);
  if (t == Mod::f32 && !i.has(Mod::add)) no("a shader's atomic operation on f32 is an addition");
  // What the language lacks: exchanged until nobody came between. WGSL's words are unsigned.
  if (t == Mod::f32 || (sign && (least || most) && !k_.layout.native64)) {
    const Value x = b_.keep(read(o[at + 1], t == Mod::f32 ? Type::f32 : Type::u32));
    const Variable old = temporary(Type::u32, "old"), seen = temporary(Type::u32, "seen");
    b_.set(seen, b_.atomic(p, Atomic::or_, u(0)));
    b_.begin_loop();
    b_.set(old, b_.get(seen));
    const Value now = t == Mod::f32 ? as(Type::u32, bin(Binary::add, as(Type::f32, b_.get(old)), x))
                                    : bin(least ? Binary::min_signed : Binary::max_signed, b_.get(old), x);
    b_.set(seen, b_.atomic(p, Atomic::compare_exchange, now, b_.get(old)));
    b_.begin_if(b_.compare(Compare::eq, b_.get(seen), b_.get(old)));
    b_.leave();
    b_.end_if();
    b_.end_loop();
    return put(b_.get(old));
  }
  const Value v = read(o[at + 1], Type::u32);
  if (i.has(Mod::cas)) return put(b_.atomic(p, Atomic::compare_exchange, read(o[at + 2], Type::u32), v));
  const std::pair<Mod, Atomic> known[] = {{Mod::add, Atomic::add},
                                          {Mod::and_, Atomic::and_},
                                          {Mod::or_, Atomic::or_},
                                          {Mod::xor_, Atomic::xor_},
                                          {Mod::exch, Atomic::exchange},
                                          {Mod::min, sign ? Atomic::min_signed : Atomic::min},
                                          {Mod::max, sign ? Atomic::max_signed : Atomic::max}};
  for (const auto& [mod, op] : known)
    if (i.has(mod)) return put(b_.atomic(p, op, v));
  no("a shader has no such atomic operation");
}

}  // namespace cgp::shader

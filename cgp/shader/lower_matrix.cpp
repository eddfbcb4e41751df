// SPDX-License-Identifier: Apache-2.0
// Products of matrices over a warp (mma.sync), the loads that feed them (ldmatrix), and copies into shared memory (cp.async),
// which PTX lets be done at any time up to the wait for them.
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

namespace {

Value half_of(Builder& b, Value word, bool upper) {
  return upper ? b.binary(Binary::shr, word, b.word(16)) : b.binary(Binary::and_, word, b.word(0xffff));
}
/// bf16 in the half of a word as f32.
Value wide_bf16(Builder& b, Value word, bool upper) {
  return b.convert(Convert::bits, upper ? b.binary(Binary::and_, word, b.word(0xffff0000u))
                                        : b.binary(Binary::shl, word, b.word(16)));
}

}  // namespace

/// The instruction behind this product if it is one of the same kind with the same A that does not need this one's result.
const Inst* Lowering::twin(const Inst& i) const {
  const std::uint32_t next = index_ + 1;
  if (next >= f_.body.size() || k_.cfg.block_of[next] != k_.cfg.block_of[index_]) return nullptr;
  const Inst& x = f_.body[next];
  if (x.op != Op::mma || x.guard != kNone || x.mods != i.mods || !facts_.live[next]) return nullptr;
  for (std::size_t e = 0; e < i.operands[1].elems.size(); ++e)
    if (i.operands[1].elems[e].reg != x.operands[1].elems[e].reg) return nullptr;
  for (const auto& written : i.operands[0].elems)
    for (std::size_t operand = 1; operand < 4; ++operand)
      for (const auto& e : x.operands[operand].elems)
        if (e.reg != kNone && e.reg == written.reg) return nullptr;
  return &x;
}

/// With lane = 4 g + q, a thread has of A the rows g and g + 8, of B the column g, of C the columns 2 q and 2 q + 1 of both rows;
/// of K each word has two neighbours, and the words of the lanes 4 g .. 4 g + 3 are all of a row: PTX ISA, "Matrix Fragments for
/// mma.m16n8k16".
void Lowering::product(const Inst& i, const Mask* mask) {
  const auto& o = i.operands;
  const int depth = i.has(Mod::m16n8k16) ? 16 : i.has(Mod::m16n8k8) ? 8 : 0;
  const bool bf16 = i.has(Mod::bf16);
  if (!depth || !(bf16 || i.has(Mod::f16)) || i.type(0) != Mod::f32 || i.type(3) != Mod::f32)
    no("a shader multiplies matrices of m16n8k16 and m16n8k8, of f16 or bf16 into f32");
  std::vector<Value> a, b, c;
  const auto take = [&](const Inst& x, bool with_a) {
    const auto values = [&](std::size_t operand, Type t, std::vector<Value>& to) {
      for (const auto& e : x.operands[operand].elems) to.push_back(b_.keep(read(e, t)));
    };
    if (with_a) values(1, Type::u32, a);
    values(2, Type::u32, b);
    values(3, Type::f32, c);
  };
  take(i, true);
  std::vector<Value> d;
  if (native_product(k_, i)) {
    const auto& layout = *(bf16 ? k_.layout.matrix_bf16 : k_.layout.matrix_f16);
    const Inst* also = layout.columns == 16 && i.guard == kNone ? twin(i) : nullptr;
    if (depth == 8) a.resize(4, u(0)), b.resize(2, u(0));  // the other half of K
    if (also) {
      take(*also, false);
      skip_ = index_ + 1;
    }
    if (layout.columns == 16) b.resize(4, u(0)), c.resize(8, b_.real(0));
    d = b_.multiply(bf16, a, b, c);
    for (std::size_t s = 0; also && s < 4; ++s) write(also->operands[0].elems[s], d[4 + s]);
    d.resize(4);
  } else {
    const auto& block = k_.layout.shader.block;
    const std::uint32_t threads = (block[0] * block[1] * block[2] + 31) / 32 * 32;
    const std::uint32_t words_a = std::uint32_t(a.size()), words_b = std::uint32_t(b.size());
    if (!k_.subgroups) {
      for (std::uint32_t w = 0; w < words_a + words_b; ++w)
        b_.put(bin(Binary::add, b_.builtin(Builtin::index), u(w * threads)),
               w < words_a ? a[w] : b[w - words_a]);
      b_.barrier();
    }
    const Value self = b_.keep(lane()), first = b_.keep(group());
    const Value row = b_.keep(bin(Binary::and_, self, u(28)));                            // 4 g
    const Value column = b_.keep(bin(Binary::shl, bin(Binary::and_, self, u(3)), u(3)));  // 4 (2 q)
    std::vector<Variable> sums;
    for (int s = 0; s < 4; ++s) {
      sums.push_back(temporary(Type::f32, "sum"));
      b_.set(sums.back(), c[std::size_t(s)]);
    }
    const auto wide = [&](Value word, bool upper) {
      return b_.keep(bf16 ? wide_bf16(b_, word, upper) : half_to_float(Mod::f16, half_of(b_, word, upper)));
    };
    const Variable n = temporary(Type::u32, "n");
    b_.set(n, u(0));
    b_.begin_loop();
    b_.begin_if(b_.compare(Compare::ge, b_.get(n), u(4)));
    b_.leave();
    b_.end_if();
    const auto word = [&](std::uint32_t w, Value base) {
      const Value from = b_.keep(bin(Binary::add, base, b_.get(n)));
      if (k_.subgroups) return b_.keep(b_.shuffle(w < words_a ? a[w] : b[w - words_a], from));
      return b_.keep(b_.take(bin(Binary::add, bin(Binary::add, first, from), u(w * threads))));
    };
    for (std::uint32_t step = 0; step < words_b; ++step) {  // of 8 of K
      std::vector<Value> in_a[2], in_b[2];
      for (std::uint32_t h = 0; h < 2; ++h) {
        const Value x = word(2 * step + h, row);
        const Value y = word(words_a + step, h ? bin(Binary::add, column, u(4)) : column);
        for (bool upper : {false, true}) in_a[h].push_back(wide(x, upper)), in_b[h].push_back(wide(y, upper));
      }
      for (std::size_t s = 0; s < 4; ++s)
        for (std::size_t e = 0; e < 2; ++e)
          b_.set(sums[s], b_.fma(in_a[s / 2][e], in_b[s % 2][e], b_.get(sums[s])));
    }
    b_.set(n, bin(Binary::add, b_.get(n), u(1)));
    b_.end_loop();
    if (!k_.subgroups) b_.barrier();
    for (const Variable& s : sums) d.push_back(b_.keep(b_.get(s)));
  }
  assign(i, mask, [&] {
    for (std::size_t s = 0; s < d.size(); ++s) write(o[0].elems[s], d[s]);
  });
}

/// The lanes 8 j .. 8 j + 7 name the rows of the matrix j, 16 bytes each. The lane 4 g + q gets the word q of the row g, or
/// (.trans) the halves g of the rows 2 q and 2 q + 1.
void Lowering::load_matrices(const Inst& i, const Mask* mask) {
  const auto& o = i.operands;
  if (!i.has(Mod::m8n8) || i.type() != Mod::b16) no("a shader loads matrices of 8 x 8 elements of 16 bits");
  const std::uint32_t count = i.has(Mod::x4) ? 4 : i.has(Mod::x2) ? 2 : 1;
  Place p = place_in(Space::shared, i, o[1]);
  const Value own = b_.keep(p.offset.type == Type::none ? u(std::uint32_t(p.constant))
                            : p.constant ? bin(Binary::add, p.offset, u(std::uint32_t(p.constant)))
                                         : p.offset);
  const Value self = b_.keep(lane());
  const Value g = b_.keep(bin(Binary::shr, self, u(2))), q = b_.keep(bin(Binary::and_, self, u(3)));
  std::vector<Value> words;
  if (!k_.subgroups) {
    b_.put(b_.builtin(Builtin::index), own);
    b_.barrier();
  }
  const auto address = [&](Value from) {
    return k_.subgroups ? b_.shuffle(own, from) : b_.take(bin(Binary::add, group(), from));
  };
  const auto at = [&](Value offset) {
    Place x = p;
    x.offset = b_.keep(offset);
    x.constant = 0;
    return x;
  };
  for (std::uint32_t j = 0; j < count; ++j) {
    if (!i.has(Mod::trans)) {
      const Value row = address(bin(Binary::add, g, u(8 * j)));
      words.push_back(b_.keep(b_.load(at(bin(Binary::add, row, bin(Binary::shl, q, u(2)))), 32, 1)[0]));
      continue;
    }
    Value halves[2];
    for (std::uint32_t h = 0; h < 2; ++h) {
      const Value row = address(bin(Binary::add, bin(Binary::shl, q, u(1)), u(8 * j + h)));
      halves[h] =
          b_.keep(as(Type::u32, b_.load(at(bin(Binary::add, row, bin(Binary::shl, g, u(1)))), 16, 1)[0]));
    }
    words.push_back(b_.keep(bin(Binary::or_, halves[0], bin(Binary::shl, halves[1], u(16)))));
  }
  if (!k_.subgroups) b_.barrier();
  assign(i, mask, [&] {
    if (o[0].kind != OperandKind::vector) return write(o[0], words[0]);
    for (std::size_t j = 0; j < words.size(); ++j) write(o[0].elems[j], words[j]);
  });
}

/// What is copied is loaded here and stored before the next wait or barrier, or where a loop begins or ends: the products between hide
/// the loads.
void Lowering::copy(const Inst& i) {
  const auto& o = i.operands;
  const std::uint32_t bytes = std::uint32_t(o[2].imm), words = bytes / 4;
  const Place to = place_in(Space::shared, i, o[0]), from = place_in(Space::global, i, o[1]);
  if (from.memory != Memory::global) no("a shader copies from buffers");
  const Operand* amount = o.size() > 3 ? &o[3] : nullptr;
  const bool predicate_form = amount && amount->kind == OperandKind::reg && type_of(*amount) == Type::boolean;
  if (i.has(Mod::L2_cache_hint) && o.size() < 5) amount = nullptr;  // the operand is the hint
  const ptx::BlockId block = k_.cfg.block_of[index_];
  if (copies_.empty() || copies_.back().block != block || i.guard != kNone || copies_.back().guarded)
    copies_.push_back({temporary(Type::boolean, "copies"), depth_, block, i.guard != kNone, {}});
  Copy c{to, {}, {}};
  if (to.offset.type != Type::none) {
    c.offset = temporary(Type::u32, "to");
    b_.set(*c.offset, to.offset);
  }
  for (std::uint32_t w = 0; w < words; ++w) c.words.push_back(temporary(Type::u32, "word"));
  const auto load = [&] {
    const std::vector<Value> all = b_.load(from, 32, int(words));
    for (std::uint32_t w = 0; w < words; ++w) b_.set(c.words[w], as(Type::u32, all[w]));
  };
  if (!amount || (amount->kind == OperandKind::imm && amount->imm >= bytes)) {
    load();
  } else {
    // Bytes that are read; zeros fill the others. All are loaded if any is: they lie in one aligned word.
    const Value have =
        b_.keep(predicate_form ? b_.select(predicate(*amount), u(0), u(bytes)) : read(*amount, Type::u32));
    for (const Variable& w : c.words) b_.set(w, u(0));
    b_.begin_if(b_.compare(Compare::ne, have, u(0)));
    load();
    b_.end_if();
    if (!predicate_form) {
      b_.begin_if(b_.compare(Compare::lt, bin(Binary::sub, have, u(1)), u(bytes - 1)));
      for (std::uint32_t w = 0; w < words; ++w) {
        const Value rest = b_.keep(bin(Binary::sub, bin(Binary::max, have, u(4 * w)), u(4 * w)));
        const Value shift = bin(Binary::shl, bin(Binary::and_, rest, u(3)), u(3));
        const Value low = bin(Binary::sub, bin(Binary::shl, u(1), shift), u(1));
        const Value part = b_.keep(bin(Binary::and_, b_.get(c.words[w]), low));
        b_.set(c.words[w], b_.select(b_.compare(Compare::ge, rest, u(4)), b_.get(c.words[w]), part));
      }
      b_.end_if();
    }
  }
  b_.set(copies_.back().made, b_.boolean(true));
  copies_.back().copies.push_back(std::move(c));
}

void Lowering::finish_copies() {
  for (const Copies& group : copies_) {
    b_.begin_if(b_.get(group.made));
    for (const Copy& c : group.copies) {
      Place to = c.to;
      if (c.offset) to.offset = b_.keep(b_.get(*c.offset));
      std::vector<Value> values;
      for (const Variable& w : c.words) values.push_back(b_.keep(b_.get(w)));
      b_.store(to, 32, values);
    }
    b_.set(group.made, b_.boolean(false));
    b_.end_if();
  }
  // Those of an outer statement may still be open where this one did not run.
  std::erase_if(copies_, [&](const Copies& group) { return group.depth >= depth_; });
}

}  // namespace cgp::shader

// SPDX-License-Identifier: Apache-2.0
// mov (with packing), cvta, isspacep.
#include "cgp/base/text.h"
#include "cgp/emu/core/handlers.h"
#include "cgp/emu/decode/decode_impl.h"
#include "cgp/emu/decode/decode_modifiers.h"
#include "cgp/emu/decode/families.h"

namespace cgp::emu {

using ptx::Mod;
using ptx::OperandKind;
using POp = ptx::Op;
using text::cat;

namespace {
// One element of a packing move: `bits` wide pieces, low first.
struct Pieces {
  std::vector<Loc> part;
  std::vector<bool> keep;  ///< false for _ in an unpacking move
  int bits = 0;
  int whole_bits = 0;
  Loc whole = kNoLoc;
};

std::uint64_t read_part(const Warp& w, Loc l, int bits, int lane) {
  return bits > 32 ? w.row<std::uint64_t>(l)[lane]
                   : w.row<std::uint32_t>(l)[lane] & (bits == 32 ? 0xffffffffu : (1u << bits) - 1);
}

// 128-bit values: low halves in the first 64-bit row, high halves 256 bytes later.
std::uint64_t* word(const Warp& w, Loc l, int index) { return w.row<std::uint64_t>(l) + index * kLanes; }

void pack(Warp& w, const Op& op) {
  const Pieces& p = op.data_as<Pieces>();
  for_lanes(w.active, [&](int l) {
    std::uint64_t v[2] = {0, 0};
    for (std::size_t i = 0; i < p.part.size(); ++i) {
      const int at = int(i) * p.bits;
      v[at / 64] |= read_part(w, p.part[i], p.bits, l) << (at % 64);
    }
    if (p.whole_bits <= 32)
      w.row<std::uint32_t>(p.whole)[l] = std::uint32_t(v[0]);
    else
      word(w, p.whole, 0)[l] = v[0];
    if (p.whole_bits == 128) word(w, p.whole, 1)[l] = v[1];
  });
}

void unpack(Warp& w, const Op& op) {
  const Pieces& p = op.data_as<Pieces>();
  for_lanes(w.active, [&](int l) {
    std::uint64_t v[2] = {0, 0};
    v[0] = p.whole_bits <= 32 ? w.row<std::uint32_t>(p.whole)[l] : word(w, p.whole, 0)[l];
    if (p.whole_bits == 128) v[1] = word(w, p.whole, 1)[l];
    for (std::size_t i = 0; i < p.part.size(); ++i) {
      const int at = int(i) * p.bits;
      const std::uint64_t x = v[at / 64] >> (at % 64);
      if (p.bits > 32)
        w.row<std::uint64_t>(p.part[i])[l] = x;
      else
        w.row<std::uint32_t>(p.part[i])[l] =
            std::uint32_t(x & (p.bits == 32 ? 0xffffffffu : (1ull << p.bits) - 1));
    }
  });
}

void move128(Warp& w, const Op& op) {
  for_lanes(w.active, [&](int l) {
    for (int i = 0; i < 2; ++i) word(w, op.d, i)[l] = word(w, op.a, i)[l];
  });
}

Mod bits_type(int bits) {
  return bits == 8 ? Mod::b8 : bits == 16 ? Mod::b16 : bits == 32 ? Mod::b32 : Mod::b64;
}

void decode_pieces(Decoder& d, const ptx::Inst& i, Op& op, bool packing) {
  const Mod t = i.type();
  const ptx::Operand& vector = d.operand(i, packing ? 1 : 0);
  Pieces p;
  p.whole_bits = ptx::type_bits(t);
  p.bits = p.whole_bits / int(vector.elems.size());
  if (p.bits < 8 || p.bits > 64) d.unsupported("this number of elements");
  for (const ptx::Operand& e : vector.elems)
    p.part.push_back(packing ? d.source(e, bits_type(p.bits)) : d.dest(e, bits_type(p.bits)));
  p.whole = packing ? d.dest(d.operand(i, 0), t) : d.source(d.operand(i, 1), t);
  op.data = d.keep(std::move(p));
  op.fn = packing ? pack : unpack;
}

void decode_mov(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {});
  const Mod t = i.type();
  const ptx::Operand& from = d.operand(i, 1);
  const ptx::Operand& to = d.operand(i, 0);
  if (t == Mod::pred) {
    op.kind = std::uint8_t(IntOp::copy);
    op.a = d.pred(from);
    op.d = d.pred_dest(to);
    op.fn = integer_for(d, IntOp::copy, t);
    return;
  }
  if (from.kind == OperandKind::vector || to.kind == OperandKind::vector) {
    if (from.kind == OperandKind::vector && to.kind == OperandKind::vector) {
      d.unsupported("a vector on both sides");
    }
    return decode_pieces(d, i, op, from.kind == OperandKind::vector);
  }
  if (from.kind == OperandKind::sreg) {
    op.kind = std::uint8_t(from.sreg);
    op.bytes = ptx::type_bits(t) > 32 ? 8 : 4;
    op.d = d.dest(to, t);
    op.fn = exec_read_sreg;
    return;
  }
  op.a = d.source(from, t);
  op.d = d.dest(to, t);
  op.fn = ptx::type_bits(t) == 128
              ? move128
              : integer_for(d, IntOp::copy, ptx::type_bits(t) > 32 ? Mod::b64 : Mod::b32);
}

// ---------------------------------------------------------------- windows
std::uint64_t window(Where where) {
  switch (where) {
    case Where::shared:
    case Where::shared_cluster:
      return kSharedWindow;
    case Where::local:
      return kLocalWindow;
    case Where::param_entry:
      return kParamWindow;
    case Where::param_func:
      return kLocalWindow;
    default:
      return 0;
  }
}

// d = a + imm, on cells of op.bytes
void add_window(Warp& w, const Op& op) {
  for_lanes(w.active, [&](int l) {
    if (op.bytes == 8)
      w.row<std::uint64_t>(op.d)[l] = w.row<std::uint64_t>(op.a)[l] + std::uint64_t(op.imm);
    else
      w.row<std::uint32_t>(op.d)[l] = w.row<std::uint32_t>(op.a)[l];
  });
}

void decode_cvta(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i,
        {Mod::to, Mod::global, Mod::shared, Mod::shared_cta, Mod::shared_cluster, Mod::local, Mod::const_,
         Mod::param, Mod::param_entry});
  const Mod t = i.type();
  if (t == Mod::u32) d.unsupported("32-bit generic addresses");
  Where where = d.where(i);
  const ptx::Operand& from = d.operand(i, 1);
  if (i.has(Mod::param))
    where = d.function().entry && !(from.kind == OperandKind::symbol && d.is_frame_local(from.symbol))
                ? Where::param_entry
                : Where::param_func;
  op.bytes = 8;
  op.imm = std::int64_t(window(where));
  if (i.has(Mod::to)) op.imm = -op.imm;
  // cvta of a 32-bit shared register: widen first
  op.a = d.source(from, t);
  op.d = d.dest(d.operand(i, 0), t);
  op.fn = add_window;
}

void isspacep(Warp& w, const Op& op) {
  const auto* a = w.row<std::uint64_t>(op.a);
  Mask m = 0;
  for_lanes(w.active, [&](int l) {
    const Where is = classify(w, a[l]);
    bool in = is == op.where;
    if (op.where == Where::shared)
      in = is == Where::shared_cluster && shared_owner(w, std::uint32_t(a[l])) == w.cta;
    if (op.where == Where::param_func) in = is == Where::param_entry;
    if (in) m |= lane_bit(l);
  });
  w.set_pred(op.d, m, w.active);
}

void decode_isspacep(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i,
        {Mod::global, Mod::shared, Mod::shared_cta, Mod::shared_cluster, Mod::local, Mod::const_, Mod::param,
         Mod::param_entry});
  op.where = d.where(i);
  if (i.has(Mod::param)) op.where = Where::param_entry;
  op.a = d.source(d.operand(i, 1), Mod::b64);
  op.d = d.pred_dest(d.operand(i, 0));
  op.fn = isspacep;
}
}  // namespace

void add_move(Table& t) {
  t.set(POp::mov, decode_mov);
  t.set(POp::cvta, decode_cvta);
  t.set(POp::isspacep, decode_isspacep);
}

}  // namespace cgp::emu

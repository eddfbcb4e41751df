// SPDX-License-Identifier: Apache-2.0
// multimem on the one device that is emulated: a multicast object has one copy, so ld_reduce is a load, st a
// store and red a reduction. st.async and red.async with .mmio are stores and reductions that nothing waits
// for.
#include "cgp/emu/decode/decode_rewrite.h"

#include "cgp/emu/decode/families.h"

namespace cgp::emu {

using ptx::Mod;
using POp = ptx::Op;

namespace {

Mod bits_of(Mod type) {
  switch (ptx::type_bits(type)) {
    case 8:
      return Mod::b8;
    case 16:
      return Mod::b16;
    case 32:
      return Mod::b32;
    default:
      return Mod::b64;
  }
}

// The modifiers that order, place and size an access.
void keep_order(const ptx::Inst& i, ptx::Inst& to) {
  for (Mod m : i.mods) switch (m) {
      case Mod::relaxed:
      case Mod::release:
      case Mod::cta:
      case Mod::cluster:
      case Mod::gpu:
      case Mod::sys:
        to.mods.push_back(m);
        break;
      default:
        break;
    }
  to.mods.push_back(Mod::global);
}
void keep_vector(const ptx::Inst& i, ptx::Inst& to) {
  for (Mod m : {Mod::v2, Mod::v4, Mod::v8})
    if (i.has(m)) to.mods.push_back(m);
}

void decode_as(Decoder& d, const ptx::Inst& i, Op& op) { decode_table().get(i.op)(d, i, op); }

void decode_access(Decoder& d, const ptx::Inst& i, Op& op) {
  ptx::Inst to = i;
  to.op = i.op == POp::multimem_st ? POp::st : POp::ld;
  to.mods = {};
  keep_order(i, to);
  keep_vector(i, to);
  to.mods.push_back(bits_of(i.type()));
  decode_as(d, to, op);
}

void decode_reduction(Decoder& d, const ptx::Inst& i, Op& op) {
  ptx::Inst to = i;
  to.op = POp::red;
  to.mods = {};
  keep_order(i, to);
  for (Mod m : {Mod::add, Mod::min, Mod::max, Mod::and_, Mod::or_, Mod::xor_})
    if (i.has(m)) to.mods.push_back(m);
  const Mod t = i.type();
  const int bits = ptx::type_bits(t);
  if (t == Mod::f16 || t == Mod::bf16 || (bits == 32 && (t == Mod::f16x2 || t == Mod::bf16x2)))
    to.mods.push_back(Mod::noftz);
  keep_vector(i, to);
  to.mods.push_back(t == Mod::s64 && i.has(Mod::add) ? Mod::u64 : t);
  decode_as(d, to, op);
}

}  // namespace

void decode_mmio_async(Decoder& d, const ptx::Inst& i, Op& op) {
  if (i.op == POp::red_async) return decode_reduction(d, i, op);
  ptx::Inst to = i;
  to.op = POp::st;
  to.mods = {};
  keep_order(i, to);
  to.mods.push_back(i.type());
  decode_as(d, to, op);
}

void add_rewrites(Table& t) {
  t.set(POp::multimem_ld_reduce, decode_access);
  t.set(POp::multimem_st, decode_access);
  t.set(POp::multimem_red, decode_reduction);
}

}  // namespace cgp::emu

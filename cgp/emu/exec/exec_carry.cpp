// SPDX-License-Identifier: Apache-2.0
// Multi-word arithmetic through the carry flag: add.cc addc sub.cc subc mad.cc madc.
#include "cgp/emu/core/handlers.h"

namespace cgp::emu {

namespace {
__extension__ using Uint128 = unsigned __int128;

enum class Form { add, sub, mad_lo, mad_hi };

// In: uses the flag; Out: sets it. After a subtraction the flag is the carry of a + ~b + 1, that is "no
// borrow": the ISA's text says borrow, but nvcc reads it with addc (its 128-bit division) and relies on this.
template <class T, bool Signed, Form F, bool In, bool Out>
void carry(Warp& w, const Op& op) {
  const auto* a = w.row<T>(op.a);
  const auto* b = w.row<T>(op.b);
  const auto* c = F == Form::mad_lo || F == Form::mad_hi ? w.row<T>(op.c) : nullptr;
  auto* d = w.row<T>(op.d);
  for_lanes(w.active, [&](int l) {
    const T flag = T(w.carry >> l & 1);
    const T in = !In ? T(0) : F == Form::sub ? T(!flag) : flag;
    bool out = false;
    T r = 0;
    if constexpr (F == Form::sub) {
      const Uint128 v = Uint128(a[l]) - b[l] - in;
      r = T(v);
      out = (v >> (8 * sizeof(T)) & 1) == 0;
    } else {
      T x = a[l], y = b[l];
      if constexpr (F != Form::add) {
        Uint128 product;
        if constexpr (Signed) {
          __extension__ using Int128 = __int128;
          using S = std::make_signed_t<T>;
          product = Uint128(Int128(S(a[l])) * Int128(S(b[l])));
        } else {
          product = Uint128(a[l]) * b[l];
        }
        x = T(F == Form::mad_hi ? product >> (8 * sizeof(T)) : product);
        y = c[l];
      }
      const Uint128 v = Uint128(x) + y + in;
      r = T(v);
      out = (v >> (8 * sizeof(T)) & 1) != 0;
    }
    d[l] = r;
    if (Out) w.carry = (w.carry & ~lane_bit(l)) | (out ? lane_bit(l) : 0);
  });
}

template <class T, bool S>
Handler pick(IntOp op) {
  switch (op) {
    case IntOp::add_cc:
      return carry<T, S, Form::add, false, true>;
    case IntOp::addc:
      return carry<T, S, Form::add, true, false>;
    case IntOp::addc_cc:
      return carry<T, S, Form::add, true, true>;
    case IntOp::sub_cc:
      return carry<T, S, Form::sub, false, true>;
    case IntOp::subc:
      return carry<T, S, Form::sub, true, false>;
    case IntOp::subc_cc:
      return carry<T, S, Form::sub, true, true>;
    case IntOp::mad_lo_cc:
      return carry<T, S, Form::mad_lo, false, true>;
    case IntOp::mad_hi_cc:
      return carry<T, S, Form::mad_hi, false, true>;
    case IntOp::madc_lo:
      return carry<T, S, Form::mad_lo, true, false>;
    case IntOp::madc_hi:
      return carry<T, S, Form::mad_hi, true, false>;
    case IntOp::madc_lo_cc:
      return carry<T, S, Form::mad_lo, true, true>;
    case IntOp::madc_hi_cc:
      return carry<T, S, Form::mad_hi, true, true>;
    default:
      return nullptr;
  }
}
}  // namespace

Handler carry_handler(IntOp op, ptx::Mod type) {
  switch (type) {
    case ptx::Mod::b32:
    case ptx::Mod::u32:
      return pick<std::uint32_t, false>(op);
    case ptx::Mod::s32:
      return pick<std::uint32_t, true>(op);
    case ptx::Mod::b64:
    case ptx::Mod::u64:
      return pick<std::uint64_t, false>(op);
    case ptx::Mod::s64:
      return pick<std::uint64_t, true>(op);
    default:
      return nullptr;
  }
}

}  // namespace cgp::emu

// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which handler executes which operation on which type. The handlers exist twice, compiled for any machine
// and for AVX-512; decoders ask for the set that the program was loaded with.
#include "cgp/emu/core/machine.h"

namespace cgp::emu {

/// Integer and logic operations on 16-, 32- and 64-bit types (packed u16x2/s16x2 where noted).
enum class IntOp : std::uint8_t {
  add,
  sub,
  add_sat,
  sub_sat,
  mul_lo,
  mul_hi,
  mul_wide,
  mad_lo,
  mad_hi,
  mad_wide,
  mad_hi_sat,
  mul24_lo,
  mul24_hi,
  mad24_lo,
  mad24_hi,
  mad24_hi_sat,
  sad,
  div,
  rem,
  abs,
  neg,
  min,
  max,
  min_relu,
  max_relu,
  popc,
  clz,
  bfind,
  bfind_shiftamt,
  brev,
  bfe,
  fns,
  bmsk_clamp,
  bmsk_wrap,
  szext_clamp,
  szext_wrap,
  and_,
  or_,
  xor_,
  not_,
  cnot,
  shl,
  shr,
  bfi,
  lop3,
  shf_l_clamp,
  shf_l_wrap,
  shf_r_clamp,
  shf_r_wrap,
  prmt,
  prmt_f4e,
  prmt_b4e,
  prmt_rc8,
  prmt_ecl,
  prmt_ecr,
  prmt_rc16,
  dp4a_uu,
  dp4a_us,
  dp4a_su,
  dp4a_ss,
  dp2a_lo_uu,
  dp2a_lo_us,
  dp2a_lo_su,
  dp2a_lo_ss,
  dp2a_hi_uu,
  dp2a_hi_us,
  dp2a_hi_su,
  dp2a_hi_ss,
  add_cc,
  addc,
  addc_cc,
  sub_cc,
  subc,
  subc_cc,
  mad_lo_cc,
  mad_hi_cc,
  madc_lo,
  madc_hi,
  madc_lo_cc,
  madc_hi_cc,
  copy,
  select,
  slct
};

enum class FloatOp : std::uint8_t {
  add,
  sub,
  mul,
  fma,
  div,
  div_approx,  ///< f32
  rcp_high,    ///< f64, from the high word alone
  rsqrt_high,
  min,
  max,
  min_nan,
  max_nan,
  min_xorsign,
  max_xorsign,
  min_nan_xorsign,
  max_nan_xorsign,
  abs,
  neg,
  rcp,
  sqrt,
  rsqrt,
  sin,
  cos,
  lg2,
  ex2,
  tanh,
  copysign,
  testp_finite,
  testp_infinite,
  testp_number,
  testp_notanumber,
  testp_normal,
  testp_subnormal
};

struct FloatMode {
  int rounding = 0;  ///< 0 rn, 1 rz, 2 rm, 3 rp
  bool ftz = false, sat = false, relu = false;
};

/// Bits of a comparison that give true (setp with any type).
enum CompareBits : std::uint16_t { kLess = 1, kEqual = 2, kGreater = 4, kUnordered = 8 };

#define CGP_EMU_HANDLERS                                                                                      \
  Handler integer_handler(IntOp op, ptx::Mod type);                                                           \
  Handler logic_handler(IntOp op, ptx::Mod type);                                                             \
  Handler float_handler(FloatOp op, ptx::Mod type, FloatMode m); /* f32 f64; op.small = rounding */           \
  Handler half_handler(FloatOp op, ptx::Mod type, FloatMode m);  /* f16 bf16 f16x2 bf16x2 f32x2 */            \
  /* d = p, e = q, c = r; small = CompareBits, kind = 0 none, 1 and, 2 or, 3 xor; packed halves: f = high q \
   */ \
  Handler setp_handler(ptx::Mod type, bool ftz);                                                              \
  /* natural rounding, no modifiers; nullptr: exec_convert.cpp does it */                                     \
  Handler convert_handler(ptx::Mod to, ptx::Mod from);
namespace isa_portable {
CGP_EMU_HANDLERS
}
#if defined(CGP_EMU_PORTABLE_ONLY)
namespace isa_avx512 = isa_portable;
#else
namespace isa_avx512 {
CGP_EMU_HANDLERS
}
#endif
#undef CGP_EMU_HANDLERS
Handler carry_handler(IntOp op, ptx::Mod type);  // exec_carry.cpp

/// The handler of the set that the program is decoded for; nullptr when there is none.
Handler integer_for(const Decoder& d, IntOp op, ptx::Mod type);  ///< integer_handler, then logic_handler
Handler float_for(const Decoder& d, FloatOp op, ptx::Mod type, FloatMode m);

}  // namespace cgp::emu

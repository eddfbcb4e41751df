// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arithmetic that is put together from other handlers: halves with an f32 addend, pairs of f32 with a
// rounding mode, fma.oob (decode_mixed.cpp).
#include "cgp/emu/core/handlers.h"

namespace cgp::emu {

/// add, sub and fma .f32.f16 and .f32.bf16 (sm_100).
void decode_mixed(Decoder& d, const ptx::Inst& i, Op& op, FloatOp f, FloatMode mode);
/// .f32x2 with .rz, .rm or .rp: both halves apart.
void decode_pair(Decoder& d, const ptx::Inst& i, Op& op, FloatOp f, FloatMode mode);
/// fma.rn.oob: zero where a or b is the NaN that out-of-bounds fills leave.
void decode_fma_oob(Decoder& d, const ptx::Inst& i, Op& op, FloatMode mode);

}  // namespace cgp::emu

// SPDX-License-Identifier: Apache-2.0
#pragma once
// Functions that WGSL lacks, written into a shader that uses them: 64-bit integers as vec2<u32>, minimum and maximum
// with PTX's rule for NaN, votes of a workgroup.
#include <cstdint>
#include <string>

namespace cgp::shader {

enum class Library : std::uint8_t {
  float_bits,
  min_f32,
  max_f32,
  tanh_f32,
  mul_high,
  mul_high_signed,
  add64,
  sub64,
  mul64,
  less64,
  less64_signed,
  min64,
  max64,
  min64_signed,
  max64_signed,
  shl64,
  shr64,
  shr64_signed,
  divide64,
  div64,
  rem64,
  div64_signed,
  rem64_signed,
  float64,
  any_thread,
  kCount
};

/// The functions of a set (bit n: enumerator n) and what they call, in an order that reads from simple to composed.
std::string library_text(std::uint64_t set);

}  // namespace cgp::shader

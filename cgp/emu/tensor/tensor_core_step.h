// SPDX-License-Identifier: Apache-2.0
#pragma once
// The inner loops of tensor_core.cpp, in two versions that must agree to the bit (a test compares them).
#include <cstdint>

#include "cgp/emu/tensor/tensor_core.h"

namespace cgp::emu {

/// One fused sum per output: d[row][column] = fused(a[row][0..k), b[0..k)[column], d[row][column]).
struct FusedStep {
  int rows = 0, columns = 0, k = 0;  // columns is a multiple of 16
  const float* a = nullptr;
  const std::int32_t* a_exponent = nullptr;
  int a_pitch = 0;
  const float* b = nullptr;
  const std::int16_t* b_exponent = nullptr;
  int b_pitch = 0;  // of b, b_exponent and d
  float* d = nullptr;
  FusedRule rule;
};

/// Below kSafeLow a cut-off term could be a subnormal f32, above kSafeHigh a product could overflow: such
/// outputs take the term-by-term path.
inline constexpr int kSafeLow = -100, kSafeHigh = 124;

void fused_step_portable(const FusedStep& s);
void fused_step_avx512(const FusedStep& s);
bool have_avx512();

struct DecodeJob {
  ptx::Mod type;
  const std::uint32_t* bits;
  int count;
  float* value;
  std::int16_t* exponent16;  // one of the two exponent arrays
  std::int32_t* exponent_pair;
};
/// 256 entries for e4m3 or e5m2.
const Decoded* byte_decoder(ptx::Mod type);
void decode_portable(const DecodeJob& job);
void decode_avx512(const DecodeJob& job);

/// d[row][column] += sum over k of a[row][k] * b[k][column], in wrapping 32-bit or f32 arithmetic.
struct PlainProduct {
  int rows, columns, k;
  const void *a, *b;  // int32 or float, [rows][k] and [k][columns]
  void* d;
};
void product_int_portable(const PlainProduct& p);
void product_int_avx512(const PlainProduct& p);
void product_f32_portable(const PlainProduct& p);
void product_f32_avx512(const PlainProduct& p);

}  // namespace cgp::emu

// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the sources of the instruction sets define for matmul.cpp. They use no function of the standard library, so that
// the linker keeps none of theirs for the rest of the program.
#include <cstdint>

#include "cgp/quant/formats.h"

namespace cgp::cpu::quant_versions {

using Bytes = const std::uint8_t*;

/// 256 activations, rounded to 8 bits: x = d * q. A run of 32 shares its step, which d holds twice; sums[i] is
/// d[i] * (q[16i] + ... + q[16i + 15]); run_sums has them for runs of 32. What lies beyond a vector's end is 0.
struct alignas(64) Int8Activations {
  std::int8_t q[256];
  float d[16], sums[16], run_sums[8];
};

/// The same with 16 bits: of every four, elements 0 and 2 come first, then 1 and 3.
struct alignas(64) Int16Activations {
  std::int16_t q[256];
  float d[16], sums[16], run_sums[8];
};

/// y[j] = row . vector j, for as many vectors as the function is for; they are `stride` blocks apart.
using DotInt8 = void (*)(Bytes row, std::int64_t k, const Int8Activations* x, std::int64_t stride, float* y);
/// k weights as f32, with the roundings of quant::decode().
using Decode = void (*)(Bytes row, std::int64_t k, float* out);

constexpr int kFormats = 40;  ///< more than there are values of quant::Format
struct DotsByVectors {
  DotInt8 of[3];  ///< 1, 2, 4 vectors; null for formats without integer codes
};
struct DotTable {
  DotsByVectors by[kFormats];
};
/// The same for activations as they are, `ldx` apart. sums_of_16[i] is x[16i] + ... + x[16i + 15], zeros behind the last ones up
/// to a multiple of 16; `lds` apart.
using DotF32 = void (*)(Bytes row, std::int64_t k, const float* x, std::int64_t ldx, const float* sums_of_16,
                        std::int64_t lds, float* y);
struct FloatDotsByVectors {
  DotF32 of[3];
};
struct FloatDotTable {
  FloatDotsByVectors by[kFormats];
};
struct DecodeTable {
  Decode by[kFormats];  ///< null: quant::decode_blocks()
};

/// row . x for weights that are floats of 16 bits.
float dot_f16_avx2(Bytes row, std::int64_t k, const float* x);
float dot_bf16_avx2(Bytes row, std::int64_t k, const float* x);

extern const DotTable dot_avx2, dot_avx_vnni, dot_avx512_vnni;
extern const FloatDotTable float_dot_avx512;
extern const DecodeTable decode_avx2;
/// k activations into (k + 255) / 256 blocks. False for NaN or infinity among them. Runs of 32 whose largest magnitude is
/// below 2^-100 become 0.
bool round_activations_avx2(const float* x, std::int64_t k, Int8Activations* out);
bool round_activations_avx2(const float* x, std::int64_t k, Int16Activations* out);

/// Weights in groups of 16 rows, whose sums are lanes of one register (pack_avx512_vnni.cpp has the layout).
struct PackedKernels {
  std::int64_t (*bytes)(std::int64_t k);  ///< of a group; null for formats that are not packed
  /// `rows` rows, row_bytes apart, of at most 16; the others become 0.
  void (*pack)(Bytes rows, std::int64_t row_bytes, std::int64_t count, std::int64_t k, std::uint8_t* group);
  /// y[j * ldy + r] = row r . vector j: 1, 2, 4 or 8 vectors.
  template <class A>
  using Product = void (*)(Bytes group, std::int64_t k, const A* x, std::int64_t stride, std::int64_t rows,
                           float* y, std::int64_t ldy);
  Product<Int8Activations> int8[4];
  Product<Int16Activations> int16[4];
};
struct PackedTable {
  PackedKernels by[kFormats];
};
extern const PackedTable packed_avx512_vnni;

}  // namespace cgp::cpu::quant_versions

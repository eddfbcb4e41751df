// SPDX-License-Identifier: Apache-2.0
#pragma once
// RMSNorm between the products of a decode step: f32 rows of the residual stream become rows of f16 or bf16.
//   y[i, :] = x[i, :] / sqrt(mean(x[i, :]^2) + eps) * weight
// norm.h has every other case; this one begins while the launch before ends, and lets the product after it begin.
#include <string>

#include "cgp/kernels/common/config.h"
#include "cgp/kernels/common/variant.h"

namespace cgp::kernels {

inline constexpr std::uint64_t kMostDecodeNormColumns = 16384;

struct DecodeNorm {
  DType type = DType::f16;        ///< of y: f16 or bf16
  std::uint64_t rows = 1, k = 0;  ///< k: a multiple of 4
  std::uint64_t x = 0, ldx = 0;   ///< f32 [rows, k]; elements between rows, 0: dense
  std::uint64_t weight = 0;       ///< f32 [k]
  std::uint64_t y = 0, ldy = 0;   ///< [rows, k]
  float eps = 1e-6f;
  /// Programmatic dependent launch (sm_90): begins while the work queued before ends, which must not write the weight.
  bool pdl = false;
};
/// Why it cannot run, naming the argument; empty: it can.
std::string reject(const DecodeNorm& p);
/// ArgumentError with reject()'s sentence.
void decode_norm(runtime::Stream& s, const DecodeNorm& p);

struct DecodeNormConfig {
  DType type = DType::f16;
  int k = 0;
  bool pdl = false;

  static DecodeNormConfig of(const DecodeNorm& p) { return {p.type, int(p.k), p.pdl}; }
  /// "decode_norm_f16_k4096_pdl"
  std::string name() const { return config_name("decode_norm", *this); }
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.type("type", "", c.type), v.number("k", "k", c.k), v.flag("pdl", c.pdl);
  }
};
Variant decode_norm_variant(const DecodeNormConfig& c);

}  // namespace cgp::kernels

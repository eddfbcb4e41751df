// SPDX-License-Identifier: Apache-2.0
#pragma once
// Products of 8-bit activations in vectors of 256 bits. D::dot(codes, x) has 8 sums of 4 products each; D::kAnyCode: codes
// may exceed 64 (else such formats are made signed).
#include "cgp/cpu/quant/unpack_avx2_impl.h"

namespace cgp::cpu {
namespace {

using quant_versions::Int8Activations;

inline float sum_of(__m256 v) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

template <class F, class D, int kVectors>
inline void add_unit(Bytes p, const Int8Activations* x, int64_t stride, __m256* sums) {
  constexpr bool kSigned = F::kZero == 128 && !D::kAnyCode;
  const Floats16 scales = F::scales(p);
  Floats16 both[kVectors];  // scale times step, by runs of 16
  for (int j = 0; j < kVectors; ++j) {
    const Int8Activations& a = x[j * stride];
    both[j] = {_mm256_mul_ps(scales.low, _mm256_load_ps(a.d)),
               _mm256_mul_ps(scales.high, _mm256_load_ps(a.d + 8))};
    if constexpr (F::kMins || (F::kZero != 0 && !kSigned)) {
      Floats16 mins;
      if constexpr (F::kMins) {
        mins = F::mins(p);
      } else {
        const __m256 zero = _mm256_set1_ps(F::kZero);
        mins = {_mm256_mul_ps(scales.low, zero), _mm256_mul_ps(scales.high, zero)};
      }
      sums[j] = _mm256_fnmadd_ps(mins.low, _mm256_load_ps(a.sums), sums[j]);
      sums[j] = _mm256_fnmadd_ps(mins.high, _mm256_load_ps(a.sums + 8), sums[j]);
    }
  }
#pragma GCC unroll 8
  for (int s = 0; s < 8; ++s) {
    __m256i codes = F::codes(p, s), magnitudes{};
    if constexpr (kSigned) codes = _mm256_xor_si256(codes, bytes(128)), magnitudes = _mm256_abs_epi8(codes);
    const __m256i runs = _mm256_setr_epi32(2 * s % 8, 2 * s % 8, 2 * s % 8, 2 * s % 8, 2 * s % 8 + 1,
                                           2 * s % 8 + 1, 2 * s % 8 + 1, 2 * s % 8 + 1);
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      const __m256i a = load_32(x[j * stride].q + 32 * s);
      __m256i dot;
      if constexpr (kSigned)
        dot = D::dot(magnitudes, _mm256_sign_epi8(a, codes));
      else
        dot = D::dot(codes, a);
      const __m256 scale = _mm256_permutevar8x32_ps(s < 4 ? both[j].low : both[j].high, runs);
      sums[j] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scale, sums[j]);
    }
  }
}

template <class F, class D, int kVectors>
void dot_int8(Bytes row, int64_t k, const Int8Activations* x, int64_t stride, float* y) {
  __m256 sums[kVectors];
  for (__m256& s : sums) s = _mm256_setzero_ps();
  for (; k >= 256; k -= 256, row += Unit<F>::kBytes, ++x) add_unit<F, D, kVectors>(row, x, stride, sums);
  if (k > 0) add_unit<F, D, kVectors>(Unit<F>(row, k).data(), x, stride, sums);
  for (int j = 0; j < kVectors; ++j) y[j] = sum_of(sums[j]);
}

template <class D>
struct Dots {
  template <class F>
  struct Of {
    static constexpr quant_versions::DotsByVectors value() {
      return {{dot_int8<F, D, 1>, dot_int8<F, D, 2>, dot_int8<F, D, 4>}};
    }
  };
};

}  // namespace
}  // namespace cgp::cpu

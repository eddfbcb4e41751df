// SPDX-License-Identifier: Apache-2.0
// AVX-512, activations as they are: the codes of 16 elements as floats times the activations, times the scale of the 16.
#include "cgp/cpu/quant/unpack_avx2_impl.h"

namespace cgp::cpu {
namespace {

inline __m512 all_16(const Floats16& v) {
  return _mm512_insertf32x8(_mm512_castps256_ps512(v.low), v.high, 1);
}

template <class F, int kVectors>
inline void add_unit(Bytes p, const float* x, int64_t ldx, const float* sums_of_16, int64_t lds,
                     __m512* sums) {
  const __m512 scales = all_16(F::scales(p));
  if constexpr (F::kMins) {
    const __m512 mins = all_16(F::mins(p));
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j)
      sums[j] = _mm512_fnmadd_ps(mins, _mm512_loadu_ps(sums_of_16 + j * lds), sums[j]);
  }
#pragma GCC unroll 8
  for (int s = 0; s < 8; ++s) {
    const __m256i codes = _mm256_sub_epi8(F::codes(p, s), bytes(F::kZero));  // signed from here on
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m128i run = h ? _mm256_extracti128_si256(codes, 1) : _mm256_castsi256_si128(codes);
      const __m512 values = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(run)),
                                          _mm512_permutexvar_ps(_mm512_set1_epi32(2 * s + h), scales));
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j)
        sums[j] = _mm512_fmadd_ps(values, _mm512_loadu_ps(x + j * ldx + 32 * s + 16 * h), sums[j]);
    }
  }
}

template <class F, int kVectors>
void dot_f32(Bytes row, int64_t k, const float* x, int64_t ldx, const float* sums_of_16, int64_t lds,
             float* y) {
  __m512 even[kVectors], odd[kVectors];  // units in turns: the next one need not wait for the last sum
#pragma GCC unroll 4
  for (int j = 0; j < kVectors; ++j) even[j] = odd[j] = _mm512_setzero_ps();
  for (; k >= 512; k -= 512, row += 2 * Unit<F>::kBytes, x += 512, sums_of_16 += 32) {
    add_unit<F, kVectors>(row, x, ldx, sums_of_16, lds, even);
    add_unit<F, kVectors>(row + Unit<F>::kBytes, x + 256, ldx, sums_of_16 + 16, lds, odd);
  }
  if (k >= 256) {
    add_unit<F, kVectors>(row, x, ldx, sums_of_16, lds, even);
    k -= 256, row += Unit<F>::kBytes, x += 256, sums_of_16 += 16;
  }
  if (k > 0) {
    float last[kVectors][256] = {};
    for (int j = 0; j < kVectors; ++j) __builtin_memcpy(last[j], x + j * ldx, std::size_t(k) * sizeof(float));
    add_unit<F, kVectors>(Unit<F>(row, k).data(), last[0], 256, sums_of_16, lds, odd);
  }
#pragma GCC unroll 4
  for (int j = 0; j < kVectors; ++j) y[j] = _mm512_reduce_add_ps(_mm512_add_ps(even[j], odd[j]));
}

template <class F>
struct Dots {
  static constexpr quant_versions::FloatDotsByVectors value() {
    return {{dot_f32<F, 1>, dot_f32<F, 2>, dot_f32<F, 4>}};
  }
};

constexpr quant_versions::FloatDotTable dots() {
  quant_versions::FloatDotTable t{};
  for_formats<Dots>(t.by);
  return t;
}

}  // namespace

namespace quant_versions {
constinit const FloatDotTable float_dot_avx512 = dots();
}
}  // namespace cgp::cpu

// SPDX-License-Identifier: Apache-2.0
// Built with -O3: the loops below have constant trip counts of one vector and are meant to be vectorised.
#include "cgp/emu/tensor/tensor_core_step.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "cgp/base/float16.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define CGP_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")))
#endif
#define CGP_INLINE inline __attribute__((always_inline))

namespace cgp::emu {
namespace {

constexpr int kSumLanes = 16;
constexpr int kChunk = 8;  // products per 32-bit accumulator: 8 * 2^27 + 2^26 stays below 2^31

// Decoding without branches so that it vectorises; 8-bit formats go through tables in tensor_core.cpp.
template <class Exponent>
CGP_INLINE void decode_wide(const std::uint32_t* __restrict bits, int count, float* __restrict value,
                            Exponent* __restrict exponent, int exponent_bits, int mantissa_bits,
                            std::uint32_t keep) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const std::uint32_t top = (1u << exponent_bits) - 1;
  const std::uint32_t mantissa = (1u << mantissa_bits) - 1;
  // Moves the element's exponent and mantissa to where f32 has them; the multiplication rebiases and, for
  // f16, normalises subnormals exactly.
  const float rebias = exponent_bits == 8 ? 1.0f : 0x1p112f;
  for (int i = 0; i < count; ++i) {
    const std::uint32_t u = bits[i] & keep;
    const std::uint32_t e = u >> mantissa_bits & top;
    const std::uint32_t m = u & mantissa;
    const std::uint32_t sign = u >> (exponent_bits + mantissa_bits) << 31;
    const std::uint32_t magnitude = (u & (top << mantissa_bits | mantissa)) << (23 - mantissa_bits);
    std::uint32_t v = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * rebias);
    v = e == top ? magnitude | 0x7f800000u : v;
    value[i] = std::bit_cast<float>(v | sign);
    std::int32_t x = std::int32_t(e) - bias;
    x = e == 0 ? (m == 0 ? kZeroExponent : 1 - bias) : x;
    x = e == top ? kSpecialExponent : x;
    exponent[i] = Exponent(sizeof(Exponent) == 2 ? x : x << 16 | (x & 0xffff));
  }
}

template <class Exponent>
CGP_INLINE void decode_as(const DecodeJob& job, Exponent* exponent) {
  using ptx::Mod;
  switch (job.type) {
    case Mod::f16:
      return decode_wide(job.bits, job.count, job.value, exponent, 5, 10, 0xffff);
    case Mod::bf16:
      return decode_wide(job.bits, job.count, job.value, exponent, 8, 7, 0xffff);
    case Mod::tf32:
      return decode_wide(job.bits, job.count, job.value, exponent, 8, 23, 0xffffe000);
    default: {
      const Decoded* table = byte_decoder(job.type);
      for (int i = 0; i < job.count; ++i) {
        const Decoded d = table[job.bits[i] & 0xff];
        job.value[i] = d.value;
        exponent[i] = Exponent(sizeof(Exponent) == 2 ? d.exponent : d.exponent << 16 | (d.exponent & 0xffff));
      }
    }
  }
}

CGP_INLINE void decode_body(const DecodeJob& job) {
  if (job.exponent16)
    decode_as(job, job.exponent16);
  else
    decode_as(job, job.exponent_pair);
}

CGP_INLINE void product_int_body(const PlainProduct& p) {
  const auto* a = static_cast<const std::int32_t*>(p.a);
  const auto* b = static_cast<const std::int32_t*>(p.b);
  auto* d = static_cast<std::uint32_t*>(p.d);
  for (int row = 0; row < p.rows; ++row)
    for (int j = 0; j < p.columns; j += kSumLanes) {
      std::uint32_t sum[kSumLanes];
      for (int l = 0; l < kSumLanes; ++l) sum[l] = d[row * p.columns + j + l];
      for (int k = 0; k < p.k; ++k) {
        const std::uint32_t x = std::uint32_t(a[row * p.k + k]);
        for (int l = 0; l < kSumLanes; ++l) sum[l] += x * std::uint32_t(b[k * p.columns + j + l]);
      }
      for (int l = 0; l < kSumLanes; ++l) d[row * p.columns + j + l] = sum[l];
    }
}

CGP_INLINE void product_f32_body(const PlainProduct& p) {
  const auto* a = static_cast<const float*>(p.a);
  const auto* b = static_cast<const float*>(p.b);
  auto* d = static_cast<float*>(p.d);
  for (int row = 0; row < p.rows; ++row)
    for (int j = 0; j < p.columns; j += kSumLanes) {
      float sum[kSumLanes];
      for (int l = 0; l < kSumLanes; ++l) sum[l] = d[row * p.columns + j + l];
      for (int k = 0; k < p.k; ++k) {
        const float x = a[row * p.k + k];
        // Products of two 11-bit significands are exact, so that mul+add and fma agree.
        for (int l = 0; l < kSumLanes; ++l) sum[l] += x * b[k * p.columns + j + l];
      }
      for (int l = 0; l < kSumLanes; ++l) d[row * p.columns + j + l] = sum[l];
    }
}

float finish_lane(double sum, const FusedRule& rule) {
  // A sum that rounds to zero is +0 (measured).
  if (rule.f16_result) return float(decode_float(encode_float(sum, 5, 10), 5, 10)) + 0.0f;
  // Inside the safe range a non-zero sum is a normal f32: cutting the double's mantissa is truncation.
  const int drop = 52 - rule.mantissa_bits;
  return float(std::bit_cast<double>(std::bit_cast<std::uint64_t>(sum) >> drop << drop));
}

int exponent_of_accumulator(float c) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(c) & 0x7fffffffu;
  const int e = int(u >> 23);
  return u == 0 ? kZeroExponent : e == 255 ? kSpecialExponent : e == 0 ? -126 : e - 127;
}

bool is_safe(int e) { return (e >= kSafeLow && e <= kSafeHigh) || e < kZeroExponent / 2; }

float lane_by_terms(const FusedStep& s, int row, int column, float c) {
  return fused_sum(s.a + row * s.a_pitch, s.a_exponent + row * s.a_pitch, s.b + column, s.b_exponent + column,
                   s.b_pitch, s.k, c, s.rule);
}

}  // namespace

void fused_step_portable(const FusedStep& s) {
  for (int row = 0; row < s.rows; ++row)
    for (int j = 0; j < s.columns; j += kSumLanes) {
      const float* a = s.a + row * s.a_pitch;
      const std::int32_t* ae = s.a_exponent + row * s.a_pitch;
      float* d = s.d + row * s.b_pitch + j;
      std::int16_t top[kSumLanes];
      for (int l = 0; l < kSumLanes; ++l) top[l] = std::int16_t(exponent_of_accumulator(d[l]));
      for (int k = 0; k < s.k; ++k) {
        const std::int16_t* be = s.b_exponent + k * s.b_pitch + j;
        const std::int16_t x = std::int16_t(ae[k]);
        for (int l = 0; l < kSumLanes; ++l) {
          const std::int16_t e = std::int16_t(x + be[l]);
          top[l] = e > top[l] ? e : top[l];
        }
      }
      float scale[kSumLanes];
      bool safe = true;
      for (int l = 0; l < kSumLanes; ++l) {
        safe = safe && is_safe(top[l]);
        const int e = top[l] < kSafeLow ? kSafeLow : top[l] > kSafeHigh ? kSafeHigh : top[l];
        scale[l] = std::bit_cast<float>(std::uint32_t(s.rule.fraction_bits - e + 127) << 23);
      }
      float c[kSumLanes];
      for (int l = 0; l < kSumLanes; ++l) c[l] = d[l];
      double sum[kSumLanes] = {};
      if (safe)
        for (int k0 = 0; k0 < s.k; k0 += kChunk) {
          std::int32_t part[kSumLanes] = {};
          if (k0 == 0)
            for (int l = 0; l < kSumLanes; ++l) part[l] = std::int32_t(c[l] * scale[l]);
          for (int k = k0; k < s.k && k < k0 + kChunk; ++k) {
            const float* b = s.b + k * s.b_pitch + j;
            for (int l = 0; l < kSumLanes; ++l) part[l] += std::int32_t(a[k] * b[l] * scale[l]);
          }
          for (int l = 0; l < kSumLanes; ++l) sum[l] += part[l];
        }
      for (int l = 0; l < kSumLanes; ++l) {
        if (!safe) {
          d[l] = lane_by_terms(s, row, j + l, c[l]);
        } else {
          const int e = top[l] < kSafeLow ? kSafeLow : top[l];
          d[l] = finish_lane(std::ldexp(sum[l], e - s.rule.fraction_bits), s.rule);
        }
      }
    }
}
void decode_portable(const DecodeJob& job) { decode_body(job); }
void product_int_portable(const PlainProduct& p) { product_int_body(p); }
void product_f32_portable(const PlainProduct& p) { product_f32_body(p); }

#if defined(__x86_64__)
namespace {

CGP_AVX512 CGP_INLINE __m256i accumulator_exponents(__m512 c) {
  const __m512i u = _mm512_and_si512(_mm512_castps_si512(c), _mm512_set1_epi32(0x7fffffff));
  __m512i e = _mm512_sub_epi32(_mm512_srli_epi32(u, 23), _mm512_set1_epi32(127));
  e = _mm512_max_epi32(e, _mm512_set1_epi32(-126));
  e = _mm512_mask_mov_epi32(e, _mm512_cmpge_epi32_mask(u, _mm512_set1_epi32(0x7f800000)),
                            _mm512_set1_epi32(kSpecialExponent));
  e = _mm512_mask_mov_epi32(e, _mm512_cmpeq_epi32_mask(u, _mm512_setzero_si512()),
                            _mm512_set1_epi32(kZeroExponent));
  return _mm512_cvtepi32_epi16(e);
}

CGP_AVX512 CGP_INLINE __m256 to_float(__m512d sum, bool f16_result) {
  __m256 f = _mm512_cvt_roundpd_ps(sum, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  if (f16_result) {  // to odd, then to nearest: rounding twice is harmless with 13 spare bits
    const __mmask8 inexact = _mm512_cmp_pd_mask(_mm512_cvtps_pd(f), sum, _CMP_NEQ_OQ);
    const __m256i u = _mm256_castps_si256(f);
    f = _mm256_castsi256_ps(_mm256_mask_or_epi32(u, inexact, u, _mm256_set1_epi32(1)));
    f = _mm256_cvtph_ps(_mm256_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    f = _mm256_add_ps(f, _mm256_setzero_ps());  // a sum that rounds to zero is +0 (measured)
  }
  return f;
}

CGP_AVX512 CGP_INLINE __m512d power_of_two(__m256i exponent) {
  const __m512i wide = _mm512_add_epi64(_mm512_cvtepi32_epi64(exponent), _mm512_set1_epi64(1023));
  return _mm512_castsi512_pd(_mm512_slli_epi64(wide, 52));
}

CGP_AVX512 CGP_INLINE void finish_columns(const FusedStep& s, int row, int j, __m256i top16, __m512 c) {
  const __m512i top = _mm512_cvtepi16_epi32(top16);
  const __mmask16 zero = _mm512_cmplt_epi32_mask(top, _mm512_set1_epi32(kZeroExponent / 2));
  const __mmask16 slow = __mmask16((_mm512_cmplt_epi32_mask(top, _mm512_set1_epi32(kSafeLow)) |
                                    _mm512_cmpgt_epi32_mask(top, _mm512_set1_epi32(kSafeHigh))) &
                                   ~zero);
  const __m512i e =
      _mm512_min_epi32(_mm512_max_epi32(top, _mm512_set1_epi32(kSafeLow)), _mm512_set1_epi32(kSafeHigh));
  const __m512i fraction = _mm512_set1_epi32(s.rule.fraction_bits);
  const __m512 scale = _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_add_epi32(_mm512_sub_epi32(fraction, e), _mm512_set1_epi32(127)), 23));
  const float* a = s.a + row * s.a_pitch;
  const float* b = s.b + j;
  __m512d low = _mm512_setzero_pd(), high = _mm512_setzero_pd();
  __m512i part = _mm512_cvttps_epi32(_mm512_mul_ps(c, scale));
  for (int k = 0; k < s.k;) {
    const int end = k + kChunk < s.k ? k + kChunk : s.k;
    for (; k < end; ++k) {
      const __m512 product = _mm512_mul_ps(_mm512_set1_ps(a[k]), _mm512_loadu_ps(b + k * s.b_pitch));
      part = _mm512_add_epi32(part, _mm512_cvttps_epi32(_mm512_mul_ps(product, scale)));
    }
    low = _mm512_add_pd(low, _mm512_cvtepi32_pd(_mm512_castsi512_si256(part)));
    high = _mm512_add_pd(high, _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(part, 1)));
    part = _mm512_setzero_si512();
  }
  const __m512i unit = _mm512_sub_epi32(e, fraction);
  low = _mm512_mul_pd(low, power_of_two(_mm512_castsi512_si256(unit)));
  high = _mm512_mul_pd(high, power_of_two(_mm512_extracti64x4_epi64(unit, 1)));
  __m512 f = _mm512_castps256_ps512(to_float(low, s.rule.f16_result));
  f = _mm512_insertf32x8(f, to_float(high, s.rule.f16_result), 1);
  const std::uint32_t keep = ~0u << (23 - s.rule.mantissa_bits);
  f = _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(f), _mm512_set1_epi32(int(keep))));
  float* d = s.d + row * s.b_pitch + j;
  if (slow) [[unlikely]] {
    alignas(64) float before[kSumLanes];
    _mm512_store_ps(before, c);
    _mm512_storeu_ps(d, f);
    for (int l = 0; l < kSumLanes; ++l)
      if (slow >> l & 1) d[l] = lane_by_terms(s, row, j + l, before[l]);
  } else {
    _mm512_storeu_ps(d, f);
  }
}

}  // namespace

CGP_AVX512 void fused_step_avx512(const FusedStep& s) {
  for (int row = 0; row < s.rows; ++row) {
    const std::int32_t* ae = s.a_exponent + row * s.a_pitch;
    const float* d = s.d + row * s.b_pitch;
    int j = 0;
    for (; j + 2 * kSumLanes <= s.columns; j += 2 * kSumLanes) {
      const __m512 c0 = _mm512_loadu_ps(d + j), c1 = _mm512_loadu_ps(d + j + kSumLanes);
      __m512i top =
          _mm512_inserti64x4(_mm512_castsi256_si512(accumulator_exponents(c0)), accumulator_exponents(c1), 1);
      const std::int16_t* be = s.b_exponent + j;
      for (int k = 0; k < s.k; ++k)
        top = _mm512_max_epi16(
            top, _mm512_add_epi16(_mm512_set1_epi32(ae[k]), _mm512_loadu_si512(be + k * s.b_pitch)));
      finish_columns(s, row, j, _mm512_castsi512_si256(top), c0);
      finish_columns(s, row, j + kSumLanes, _mm512_extracti64x4_epi64(top, 1), c1);
    }
    for (; j < s.columns; j += kSumLanes) {
      const __m512 c = _mm512_loadu_ps(d + j);
      __m256i top = accumulator_exponents(c);
      const std::int16_t* be = s.b_exponent + j;
      for (int k = 0; k < s.k; ++k) {
        const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(be + k * s.b_pitch));
        top = _mm256_max_epi16(top, _mm256_add_epi16(_mm256_set1_epi32(ae[k]), x));
      }
      finish_columns(s, row, j, top, c);
    }
  }
}
CGP_AVX512 void decode_avx512(const DecodeJob& job) { decode_body(job); }
CGP_AVX512 void product_int_avx512(const PlainProduct& p) { product_int_body(p); }
CGP_AVX512 void product_f32_avx512(const PlainProduct& p) { product_f32_body(p); }
bool have_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("fma");
}
#else
void fused_step_avx512(const FusedStep& s) { fused_step_portable(s); }
void decode_avx512(const DecodeJob& job) { decode_portable(job); }
void product_int_avx512(const PlainProduct& p) { product_int_portable(p); }
void product_f32_avx512(const PlainProduct& p) { product_f32_portable(p); }
bool have_avx512() { return false; }
#endif

}  // namespace cgp::emu

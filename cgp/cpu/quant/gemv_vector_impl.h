// SPDX-License-Identifier: Apache-2.0
#pragma once
// What AVX2 and AVX-512 have in common: scales, and the products with floats, written once over a vector type
// V: Reg, kLanes, load, all, zero, multiply, multiply_add, add, sum, bytes (unsigned to float), signed_bytes,
// words (16-bit signed to float), nf4 (16 values by code). A format F has Block, store_codes, scales, d,
// dmin.
#include <immintrin.h>

#include "cgp/cpu/quant/gemv_impl.h"

namespace cgp::cpu {
namespace {

using std::int64_t;

inline float wide_half(std::uint16_t bits) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits))); }

/// Scales and offsets of 16 elements each, 16-bit.
struct Scales {
  __m256i scales, offsets;
};
template <class Block>
inline Scales six_bit_scales(const Block& b) {
  const PackedScales p = scales_of(b.scales);
  const __m128i s = _mm_cvtsi64_si128(static_cast<long long>(p.scales)),
                m = _mm_cvtsi64_si128(static_cast<long long>(p.mins));
  return {_mm256_cvtepu8_epi16(_mm_unpacklo_epi8(s, s)), _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(m, m))};
}
inline Scales signed_scales(const BlockQ6K& b) {
  const __m256i s = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b.scales)));
  return {s, _mm256_slli_epi16(s, 5)};
}

/// [d, dmin, ...] as floats.
template <class Block>
inline __m128 both_scales(const Block& b) {
  int pair;
  __builtin_memcpy(&pair, &b.d, 4);
  return _mm_cvtph_ps(_mm_cvtsi32_si128(pair));
}
inline __m128 both_scales(const BlockQ6K& b) { return _mm_cvtph_ps(_mm_set1_epi16(short(b.d))); }

/// a += d * x.d * sum, b += dmin * x.d * offsets, in the lanes 0 and 1 of `into`; the sums of `sum` and
/// `offsets`.
inline __m128 add_block(__m128 into, __m128 d, float xd, __m256i sum, __m256i offsets) {
  const __m256i pairs = _mm256_hadd_epi32(sum, offsets);
  const __m128i half = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
  const __m128 ints = _mm_cvtepi32_ps(_mm_hadd_epi32(half, half));
  return _mm_add_ps(into, _mm_mul_ps(_mm_mul_ps(d, _mm_set1_ps(xd)), ints));
}
inline float difference(__m128 v) { return _mm_cvtss_f32(v) - _mm_cvtss_f32(_mm_movehdup_ps(v)); }

template <class V, class F>
float dot_f32_k(const void* row, int64_t blocks, const float* x, const float* sums) {
  const auto* w = static_cast<const typename F::Block*>(row);
  constexpr int n = V::kLanes;
  typename V::Reg total[4] = {V::zero(), V::zero(), V::zero(), V::zero()}, offsets = V::zero();
  for (int64_t b = 0; b < blocks; ++b, x += 256, sums += 16) {
    alignas(64) std::uint8_t q[256];
    alignas(64) std::int16_t words[32];
    alignas(64) float scale[16];
    F::store_codes(w[b], q);
    const Scales s = F::scales(w[b]);
    _mm256_store_si256(reinterpret_cast<__m256i*>(words), s.scales);
    _mm256_store_si256(reinterpret_cast<__m256i*>(words + 16), s.offsets);
    const __m128 d = both_scales(w[b]);
    const typename V::Reg dd = V::all(_mm_cvtss_f32(d)), dm = V::all(_mm_cvtss_f32(_mm_movehdup_ps(d)));
#pragma GCC unroll 2
    for (int i = 0; i < 16; i += n) {
      V::store(scale + i, V::multiply(dd, V::words(words + i)));
      offsets = V::multiply_add(V::multiply(dm, V::words(words + 16 + i)), V::load(sums + i), offsets);
    }
    for (int first = 0; first < 16; first += 4)
#pragma GCC unroll 4
      for (int t = 0; t < 4; ++t) {
        const int j = first + t;
        typename V::Reg v = V::multiply(V::bytes(q + 16 * j), V::load(x + 16 * j));
        if constexpr (n == 8) v = V::multiply_add(V::bytes(q + 16 * j + 8), V::load(x + 16 * j + 8), v);
        total[t] = V::multiply_add(v, V::all(scale[j]), total[t]);
      }
  }
  return V::sum(V::add(V::add(total[0], total[1]), V::add(total[2], total[3]))) - V::sum(offsets);
}

template <class V>
float dot_f32_q80(const void* row, int64_t blocks, const float* x, const float*) {
  const auto* w = static_cast<const BlockQ80*>(row);
  typename V::Reg total = V::zero();
  for (int64_t b = 0; b < blocks; ++b, x += 32) {
    typename V::Reg t = V::zero();
#pragma GCC unroll 4
    for (int i = 0; i < 32; i += V::kLanes)
      t = V::multiply_add(V::signed_bytes(w[b].qs + i), V::load(x + i), t);
    total = V::multiply_add(t, V::all(wide_half(w[b].d)), total);
  }
  return V::sum(total);
}

template <class V>
float dot_f32_nf4(const void* row, int64_t blocks, const float* x, const float*) {
  const auto* w = static_cast<const BlockNf4*>(row);
  const typename V::Table table = V::table(kNf4);
  typename V::Reg total = V::zero();
  for (int64_t b = 0; b < blocks; ++b, x += 64) {
    alignas(64) std::uint8_t q[64];
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(w[b].codes + 16 * h)),
                    four = _mm_set1_epi8(15), low = _mm_and_si128(v, four),
                    high = _mm_and_si128(_mm_srli_epi16(v, 4), four);
      _mm_store_si128(reinterpret_cast<__m128i*>(q + 32 * h), _mm_unpacklo_epi8(high, low));
      _mm_store_si128(reinterpret_cast<__m128i*>(q + 32 * h + 16), _mm_unpackhi_epi8(high, low));
    }
    typename V::Reg t[2] = {V::zero(), V::zero()};
#pragma GCC unroll 8
    for (int i = 0; i < 64; i += V::kLanes)
      t[i / V::kLanes % 2] = V::multiply_add(V::nf4(table, q + i), V::load(x + i), t[i / V::kLanes % 2]);
    total = V::multiply_add(V::add(t[0], t[1]), V::all(w[b].absmax), total);
  }
  return V::sum(total);
}

inline __m256i load_32(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

/// Products of 8 runs of 4 signed bytes; |w| <= 128, |x| <= 127.
inline __m256i products_of_four(__m256i w, __m256i x) {
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

/// The exact order of gemv_impl.h's DotQ80.
inline float dot_q80_lanes(const void* row, int64_t blocks, const BlockQ80* x) {
  const auto* w = static_cast<const BlockQ80*>(row);
  __m256 lanes = _mm256_setzero_ps();
  for (int64_t b = 0; b < blocks; ++b) {
    const __m256 d = _mm256_set1_ps(wide_half(w[b].d) * wide_half(x[b].d));
    const __m256i sums = products_of_four(load_32(w[b].qs), load_32(x[b].qs));
    lanes = _mm256_add_ps(lanes, _mm256_mul_ps(d, _mm256_cvtepi32_ps(sums)));
  }
  __m128 v = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));
  v = _mm_add_ps(v, _mm_movehl_ps(v, v));
  return _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)));
}

}  // namespace
}  // namespace cgp::cpu

// SPDX-License-Identifier: Apache-2.0
#include "cgp/cpu/quant/gemv_vector_impl.h"

namespace cgp::cpu {
namespace {

struct Avx2 {
  using Reg = __m256;
  static constexpr int kLanes = 8;
  static Reg load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Reg v) { _mm256_storeu_ps(p, v); }
  static Reg zero() { return _mm256_setzero_ps(); }
  static Reg all(float f) { return _mm256_set1_ps(f); }
  static Reg multiply(Reg a, Reg b) { return _mm256_mul_ps(a, b); }
  static Reg multiply_add(Reg a, Reg b, Reg c) { return _mm256_fmadd_ps(a, b, c); }
  static Reg add(Reg a, Reg b) { return _mm256_add_ps(a, b); }
  static float sum(Reg v) {
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
  }
  static __m128i eight(const void* p) { return _mm_loadl_epi64(static_cast<const __m128i*>(p)); }
  static Reg bytes(const std::uint8_t* p) { return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(eight(p))); }
  static Reg signed_bytes(const std::int8_t* p) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight(p))); }
  static Reg words(const std::int16_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(p))));
  }
  struct Table {
    Reg low, high;
  };
  static Table table(const float* p) { return {load(p), load(p + 8)}; }
  static Reg nf4(const Table& t, const std::uint8_t* q) {
    const __m256i i = _mm256_cvtepu8_epi32(eight(q));
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(t.low, i), _mm256_permutevar8x32_ps(t.high, i),
                            _mm256_castsi256_ps(_mm256_slli_epi32(i, 28)));  // bit 3 becomes the sign
  }
};

inline __m256i nibbles(const std::uint8_t* p, int shift) {
  return _mm256_and_si256(_mm256_srli_epi16(load_32(p), shift), _mm256_set1_epi8(15));
}

struct Q4 {
  using Block = BlockQ4K;
  static Scales scales(const Block& b) { return six_bit_scales(b); }
  /// Codes of elements 32s to 32s + 31.
  static __m256i codes(const Block& b, int s) { return nibbles(b.qs + 32 * (s / 2), 4 * (s % 2)); }
};
struct Q5 {
  using Block = BlockQ5K;
  static Scales scales(const Block& b) { return six_bit_scales(b); }
  static __m256i codes(const Block& b, int s) {
    const __m256i bit = _mm256_set1_epi8(char(1 << s)),
                  set = _mm256_cmpeq_epi8(_mm256_and_si256(load_32(b.qh), bit), bit);
    return _mm256_or_si256(nibbles(b.qs + 32 * (s / 2), 4 * (s % 2)),
                           _mm256_and_si256(set, _mm256_set1_epi8(16)));
  }
};
struct Q6 {
  using Block = BlockQ6K;
  static Scales scales(const Block& b) { return signed_scales(b); }
  static __m256i codes(const Block& b, int s) {
    const int h = s / 4, t = s % 4;
    const __m256i high =
        _mm256_and_si256(_mm256_srli_epi16(load_32(b.qh + 32 * h), 2 * t), _mm256_set1_epi8(3));
    return _mm256_or_si256(nibbles(b.ql + 64 * h + 32 * (t % 2), 4 * (t / 2)), _mm256_slli_epi16(high, 4));
  }
};

template <class F>
struct Stored : F {
  static void store_codes(const typename F::Block& b, std::uint8_t* q) {
#pragma GCC unroll 8
    for (int s = 0; s < 8; ++s) _mm256_store_si256(reinterpret_cast<__m256i*>(q + 32 * s), F::codes(b, s));
  }
};

template <class F>
float dot_q8k(const void* row, int64_t blocks, const BlockQ8K* x) {
  const auto* w = static_cast<const typename F::Block*>(row);
  __m128 total = _mm_setzero_ps();
  // even sub-blocks of 16 into the low half, odd ones into the high half
  const __m256i apart = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0, 1, 4, 5, 8,
                                         9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
  for (int64_t b = 0; b < blocks; ++b) {
    const Scales s = F::scales(w[b]);
    const __m256i scales = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(s.scales, apart), 0xd8);
    __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const __m256i pairs = _mm256_maddubs_epi16(F::codes(w[b], i), load_32(x[b].qs + 32 * i));
      const __m256i scale = _mm256_shuffle_epi8(scales, _mm256_set1_epi16(short((2 * i + 1) << 8 | 2 * i)));
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, scale));
    }
    total =
        add_block(total, both_scales(w[b]), x[b].d, sum, _mm256_madd_epi16(s.offsets, load_32(x[b].bsums)));
  }
  return difference(total);
}

}  // namespace

namespace quant_versions {
const Version avx2{{dot_f32_k<Avx2, Stored<Q4>>, dot_f32_k<Avx2, Stored<Q5>>, dot_f32_k<Avx2, Stored<Q6>>,
                    dot_f32_q80<Avx2>, dot_f32_nf4<Avx2>},
                   {dot_q8k<Q4>, dot_q8k<Q5>, dot_q8k<Q6>},
                   dot_q80_lanes};
}
}  // namespace cgp::cpu

// SPDX-License-Identifier: Apache-2.0
// The integer products use VNNI (vpdpbusd): four products of a byte and a signed byte per lane and
// instruction.
#include "cgp/cpu/quant/gemv_vector_impl.h"

namespace cgp::cpu {
namespace {

struct Avx512 {
  using Reg = __m512;
  static constexpr int kLanes = 16;
  static Reg load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Reg v) { _mm512_storeu_ps(p, v); }
  static Reg zero() { return _mm512_setzero_ps(); }
  static Reg all(float f) { return _mm512_set1_ps(f); }
  static Reg multiply(Reg a, Reg b) { return _mm512_mul_ps(a, b); }
  static Reg multiply_add(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }
  static Reg add(Reg a, Reg b) { return _mm512_add_ps(a, b); }
  static float sum(Reg v) { return _mm512_reduce_add_ps(v); }
  static __m128i sixteen(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  static Reg bytes(const std::uint8_t* p) { return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(sixteen(p))); }
  static Reg signed_bytes(const std::int8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(sixteen(p)));
  }
  static Reg words(const std::int16_t* p) { return _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(load_32(p))); }
  using Table = Reg;
  static Table table(const float* p) { return load(p); }
  static Reg nf4(const Table& t, const std::uint8_t* q) {
    return _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(sixteen(q)), t);
  }
};

inline __m512i twice(const std::uint8_t* p) { return _mm512_broadcast_i64x4(load_32(p)); }
constexpr __mmask32 kUpper = 0xffff0000u;  ///< the 16-bit lanes of the upper 32 bytes

/// Low nibbles of 32 bytes, then their high nibbles.
inline __m512i both_nibbles(const std::uint8_t* p) {
  const __m512i v = twice(p);
  return _mm512_and_si512(_mm512_mask_srli_epi16(v, kUpper, v, 4), _mm512_set1_epi8(15));
}

struct Q4 {
  using Block = BlockQ4K;
  static Scales scales(const Block& b) { return six_bit_scales(b); }
  /// Codes of elements 64c to 64c + 63.
  static __m512i codes(const Block& b, int c) { return both_nibbles(b.qs + 32 * c); }
};
struct Q5 {
  using Block = BlockQ5K;
  static Scales scales(const Block& b) { return six_bit_scales(b); }
  static __m512i codes(const Block& b, int c) {
    const __m512i bits = _mm512_mask_blend_epi16(kUpper, _mm512_set1_epi8(char(1 << (2 * c))),
                                                 _mm512_set1_epi8(char(2 << (2 * c))));
    const __m512i q = both_nibbles(b.qs + 32 * c);
    return _mm512_mask_add_epi8(q, _mm512_test_epi8_mask(twice(b.qh), bits), q, _mm512_set1_epi8(16));
  }
};
struct Q6 {
  using Block = BlockQ6K;
  static Scales scales(const Block& b) { return signed_scales(b); }
  static __m512i codes(const Block& b, int c) {
    const int h = c / 2, part = c % 2;  // bits 4 part and 4 part + 2 of qh become bits 4 and 5
    const __m512i v = _mm512_loadu_si512(b.ql + 64 * h), qh = twice(b.qh + 32 * h);
    const __m512i low = _mm512_and_si512(part ? _mm512_srli_epi16(v, 4) : v, _mm512_set1_epi8(15));
    const __m512i high = part ? _mm512_mask_srli_epi16(qh, kUpper, qh, 2)
                              : _mm512_mask_slli_epi16(_mm512_slli_epi16(qh, 4), kUpper, qh, 2);
    return _mm512_or_si512(low, _mm512_and_si512(high, _mm512_set1_epi8(0x30)));
  }
};

template <class F>
struct Stored : F {
  static void store_codes(const typename F::Block& b, std::uint8_t* q) {
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) _mm512_store_si512(q + 64 * c, F::codes(b, c));
  }
};

/// A lane of vpdpbusd holds four elements, 128 bits a sub-block of 16. Two such vectors are narrowed to 16
/// bits (at most 4 * 63 * 128) into one, and a multiply-add by the scales, permuted likewise, adds them in
/// pairs.
template <class F>
float dot_q8k(const void* row, int64_t blocks, const BlockQ8K* x) {
  const auto* w = static_cast<const typename F::Block*>(row);
  __m128 total = _mm_setzero_ps();
  alignas(64) static constexpr std::int16_t kOrder[32] = {0, 0, 0, 0, 4, 4, 4, 4, 1, 1, 1, 1, 5, 5, 5, 5,
                                                          2, 2, 2, 2, 6, 6, 6, 6, 3, 3, 3, 3, 7, 7, 7, 7};
  const __m512i first = _mm512_load_si512(kOrder), second = _mm512_add_epi16(first, _mm512_set1_epi16(8));
  const __m512i zero = _mm512_setzero_si512();
  for (int64_t b = 0; b < blocks; ++b) {
    const Scales s = F::scales(w[b]);
    const __m512i scales = _mm512_castsi256_si512(s.scales);
    __m512i dot[4];
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c)
      dot[c] = _mm512_dpbusd_epi32(zero, F::codes(w[b], c), _mm512_loadu_si512(x[b].qs + 64 * c));
    __m512i sum =
        _mm512_madd_epi16(_mm512_packs_epi32(dot[0], dot[1]), _mm512_permutexvar_epi16(first, scales));
    sum = _mm512_dpwssd_epi32(sum, _mm512_packs_epi32(dot[2], dot[3]),
                              _mm512_permutexvar_epi16(second, scales));
    const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64(sum, 1));
    total =
        add_block(total, both_scales(w[b]), x[b].d, half, _mm256_madd_epi16(s.offsets, load_32(x[b].bsums)));
  }
  return difference(total);
}

}  // namespace

namespace quant_versions {
const Version avx512{{dot_f32_k<Avx512, Stored<Q4>>, dot_f32_k<Avx512, Stored<Q5>>,
                      dot_f32_k<Avx512, Stored<Q6>>, dot_f32_q80<Avx512>, dot_f32_nf4<Avx512>},
                     {dot_q8k<Q4>, dot_q8k<Q5>, dot_q8k<Q6>},
                     dot_q80_lanes};
}
}  // namespace cgp::cpu

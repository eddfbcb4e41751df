// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "cgp/cpu/ops/ops_vector_impl.h"

namespace cgp::cpu {
namespace {

struct Avx512 {
  using Reg = __m512;
  static constexpr int64_t kLanes = 16;
  static __mmask16 lanes_below(int64_t count) { return __mmask16((1u << count) - 1); }
  static Reg load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Reg v) { _mm512_storeu_ps(p, v); }
  static Reg load_some(const float* p, int64_t count, float fill) {
    return _mm512_mask_loadu_ps(_mm512_set1_ps(fill), lanes_below(count), p);
  }
  static void store_some(float* p, int64_t count, Reg v) { _mm512_mask_storeu_ps(p, lanes_below(count), v); }
  static Reg all(float f) { return _mm512_set1_ps(f); }
  static Reg add(Reg a, Reg b) { return _mm512_add_ps(a, b); }
  static Reg subtract(Reg a, Reg b) { return _mm512_sub_ps(a, b); }
  static Reg multiply(Reg a, Reg b) { return _mm512_mul_ps(a, b); }
  static Reg divide(Reg a, Reg b) { return _mm512_div_ps(a, b); }
  static Reg multiply_add(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }
  static Reg negative_multiply_add(Reg a, Reg b, Reg c) { return _mm512_fnmadd_ps(a, b, c); }
  static Reg max(Reg a, Reg b) { return _mm512_max_ps(a, b); }
  static Reg min(Reg a, Reg b) { return _mm512_min_ps(a, b); }
  static Reg where_less(Reg a, Reg b, Reg c, Reg d) {
    return _mm512_mask_mov_ps(d, _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), c);
  }
  static Reg round(Reg a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static Reg power_of_two(Reg n) { return _mm512_scalef_ps(_mm512_set1_ps(1), n); }
  static Reg square_root(Reg a) { return _mm512_sqrt_ps(a); }
  static float sum(Reg v) { return _mm512_reduce_add_ps(v); }
  static __m256 halves(Reg v) {
    return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  }
  static void store_sums(float* p, const Reg (&v)[4]) {
    const __m256 all = _mm256_hadd_ps(_mm256_hadd_ps(halves(v[0]), halves(v[1])),
                                      _mm256_hadd_ps(halves(v[2]), halves(v[3])));
    _mm_storeu_ps(p, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
  }
  static float largest(Reg v) { return _mm512_reduce_max_ps(v); }
  static float first(Reg v) { return _mm512_cvtss_f32(v); }
  static __m256i sixteen(const std::uint16_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static void store_words(std::uint16_t* p, __m256i v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v);
  }
  static Reg load_f16(const std::uint16_t* p) { return _mm512_cvtph_ps(sixteen(p)); }
  static Reg load_bf16(const std::uint16_t* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(sixteen(p)), 16));
  }
  static void store_f16(std::uint16_t* p, Reg v) {
    store_words(p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  static void store_bf16(std::uint16_t* p, Reg v) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i last = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), last);
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    const __m512i both = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x00400000));
    store_words(p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(both, 16)));
  }
  static Reg swap_pairs(Reg v) { return _mm512_permute_ps(v, 0xb1); }
};

}  // namespace

namespace ops_versions {
constinit const Ops avx512 = ops_of<Avx512>();
}
}  // namespace cgp::cpu

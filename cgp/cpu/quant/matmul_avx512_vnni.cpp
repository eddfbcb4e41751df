// SPDX-License-Identifier: Apache-2.0
// AVX-512 VNNI: vpdpbusd of 64 bytes; each lane's sum of four products times the scale of its run of 16.
#include "cgp/cpu/quant/unpack_avx2_impl.h"

namespace cgp::cpu {
namespace {

using quant_versions::Int8Activations;

inline __m512 all_16(const Floats16& v) {
  return _mm512_insertf32x8(_mm512_castps256_ps512(v.low), v.high, 1);
}
/// Codes of elements 64c .. 64c + 63.
template <class F>
inline __m512i codes_64(Bytes p, int c) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(F::codes(p, 2 * c)), F::codes(p, 2 * c + 1), 1);
}

template <class F, int kVectors>
inline void add_unit(Bytes p, const Int8Activations* x, int64_t stride, __m512* sums) {
  const __m512 scales = all_16(F::scales(p));
  __m512 both[kVectors], mins{};  // scale times step, by runs of 16
  if constexpr (F::kMins)
    mins = all_16(F::mins(p));
  else if constexpr (F::kZero != 0)
    mins = _mm512_mul_ps(scales, _mm512_set1_ps(F::kZero));
#pragma GCC unroll 4
  for (int j = 0; j < kVectors; ++j) {
    both[j] = _mm512_mul_ps(scales, _mm512_load_ps(x[j * stride].d));
    if constexpr (F::kMins || F::kZero != 0)
      sums[j] = _mm512_fnmadd_ps(mins, _mm512_load_ps(x[j * stride].sums), sums[j]);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512i codes = codes_64<F>(p, c);
    const __m512i runs = _mm512_add_epi32(_mm512_set1_epi32(4 * c),
                                          _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3));
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      const __m512i dot =
          _mm512_dpbusd_epi32(_mm512_setzero_si512(), codes, _mm512_load_si512(x[j * stride].q + 64 * c));
      sums[j] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_permutexvar_ps(runs, both[j]), sums[j]);
    }
  }
}

template <class F, int kVectors>
void dot_int8(Bytes row, int64_t k, const Int8Activations* x, int64_t stride, float* y) {
  __m512 sums[kVectors];
  for (__m512& s : sums) s = _mm512_setzero_ps();
  for (; k >= 256; k -= 256, row += Unit<F>::kBytes, ++x) add_unit<F, kVectors>(row, x, stride, sums);
  if (k > 0) add_unit<F, kVectors>(Unit<F>(row, k).data(), x, stride, sums);
  for (int j = 0; j < kVectors; ++j) y[j] = _mm512_reduce_add_ps(sums[j]);
}

template <class F>
struct Dots {
  static constexpr quant_versions::DotsByVectors value() {
    return {{dot_int8<F, 1>, dot_int8<F, 2>, dot_int8<F, 4>}};
  }
};

constexpr quant_versions::DotTable dots() {
  quant_versions::DotTable t{};
  for_formats<Dots>(t.by);
  return t;
}

}  // namespace

namespace quant_versions {
constinit const DotTable dot_avx512_vnni = dots();
}
}  // namespace cgp::cpu

// SPDX-License-Identifier: Apache-2.0
// 6 rows x 16 columns: 12 of 16 registers hold sums, two B, one A.
#include <immintrin.h>

#include "cgp/cpu/gemm/gemm_vector_impl.h"

namespace cgp::cpu {
namespace {

struct Avx2 {
  using Reg = __m256;
  static constexpr int kLanes = 8;
  static __m256i first(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n < 8 ? int(n) : 8),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Reg load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Reg v) { _mm256_storeu_ps(p, v); }
  static Reg load_part(const float* p, int64_t n) { return _mm256_maskload_ps(p, first(n)); }
  static void store_part(float* p, int64_t n, Reg v) { _mm256_maskstore_ps(p, first(n), v); }
  static Reg zero() { return _mm256_setzero_ps(); }
  static Reg all(float f) { return _mm256_set1_ps(f); }
  static Reg multiply_add(Reg a, Reg b, Reg c) { return _mm256_fmadd_ps(a, b, c); }
  static Reg multiply(Reg a, Reg b) { return _mm256_mul_ps(a, b); }
  static void prefetch(const float* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0); }
  static void prefetch_l2(const float* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1); }
  static void transpose(Reg* r) {
    Reg t[8];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
      t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    Reg u[8];
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      u[4 * h] = _mm256_shuffle_ps(t[4 * h], t[4 * h + 2], 0x44);
      u[4 * h + 1] = _mm256_shuffle_ps(t[4 * h], t[4 * h + 2], 0xee);
      u[4 * h + 2] = _mm256_shuffle_ps(t[4 * h + 1], t[4 * h + 3], 0x44);
      u[4 * h + 3] = _mm256_shuffle_ps(t[4 * h + 1], t[4 * h + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
      r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
  }
};
template <int R>
constexpr gemm_versions::Kernel kRows = gemm_kernel<Avx2, 6, 2, R>;

}  // namespace

namespace gemm_versions {
const Version avx2{6,
                   16,
                   8,
                   16,
                   3,
                   {nullptr, kRows<1>, kRows<2>, kRows<3>, kRows<4>, kRows<5>, kRows<6>},
                   pack_panel<Avx2, 6>,
                   pack_panel<Avx2, 16>};
}
}  // namespace cgp::cpu

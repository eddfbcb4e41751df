// SPDX-License-Identifier: Apache-2.0
// 14 rows x 32 columns: 28 of 32 registers hold sums, two B, the others A. A step takes 16 loads for 28
// multiply-adds: two ports each, so that the loads are never what is waited for.
#include <immintrin.h>

#include "cgp/cpu/gemm/gemm_vector_impl.h"

namespace cgp::cpu {
namespace {

struct Avx512 {
  using Reg = __m512;
  static constexpr int kLanes = 16;
  static __mmask16 first(int64_t n) { return n < 16 ? __mmask16((1u << n) - 1) : __mmask16(0xffff); }
  static Reg load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Reg v) { _mm512_storeu_ps(p, v); }
  static Reg load_part(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(first(n), p); }
  static void store_part(float* p, int64_t n, Reg v) { _mm512_mask_storeu_ps(p, first(n), v); }
  static Reg zero() { return _mm512_setzero_ps(); }
  static Reg all(float f) { return _mm512_set1_ps(f); }
  static Reg multiply_add(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }
  static Reg multiply(Reg a, Reg b) { return _mm512_mul_ps(a, b); }
  static void prefetch(const float* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0); }
  static void prefetch_l2(const float* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1); }
  static void transpose(Reg* r) {
    Reg t[16];
    // pairs, then fours within each 128 bits
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
      t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
      r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
      r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
      r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    // r[4 g + s] holds in its 128-bit part q the steps 4 q + s of lines 4 g to 4 g + 3: parts change places
#pragma GCC unroll 4
    for (int s = 0; s < 4; ++s) {
      t[s] = _mm512_shuffle_f32x4(r[s], r[4 + s], 0x44);
      t[4 + s] = _mm512_shuffle_f32x4(r[s], r[4 + s], 0xee);
      t[8 + s] = _mm512_shuffle_f32x4(r[8 + s], r[12 + s], 0x44);
      t[12 + s] = _mm512_shuffle_f32x4(r[8 + s], r[12 + s], 0xee);
    }
#pragma GCC unroll 4
    for (int s = 0; s < 4; ++s) {
      r[s] = _mm512_shuffle_f32x4(t[s], t[8 + s], 0x88);
      r[4 + s] = _mm512_shuffle_f32x4(t[s], t[8 + s], 0xdd);
      r[8 + s] = _mm512_shuffle_f32x4(t[4 + s], t[12 + s], 0x88);
      r[12 + s] = _mm512_shuffle_f32x4(t[4 + s], t[12 + s], 0xdd);
    }
  }
};
template <int R>
constexpr gemm_versions::Kernel kRows = gemm_kernel<Avx512, 14, 2, R>;

}  // namespace

namespace gemm_versions {
const Version avx512{14,
                     32,
                     16,
                     32,
                     3,
                     {nullptr, kRows<1>, kRows<2>, kRows<3>, kRows<4>, kRows<5>, kRows<6>, kRows<7>, kRows<8>,
                      kRows<9>, kRows<10>, kRows<11>, kRows<12>, kRows<13>, kRows<14>},
                     pack_panel<Avx512, 14>,
                     pack_panel<Avx512, 32>};
}
}  // namespace cgp::cpu

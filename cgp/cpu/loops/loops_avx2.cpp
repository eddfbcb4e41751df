// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "cgp/cpu/loops/loops_vector_impl.h"

namespace cgp::cpu {
namespace {

struct Avx2 {
  using Reg = __m256;
  static constexpr std::size_t kLanes = 8;
  static Reg load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Reg v) { _mm256_storeu_ps(p, v); }
  static Reg zero() { return _mm256_setzero_ps(); }
  static Reg all(float f) { return _mm256_set1_ps(f); }
  static Reg multiply_add(Reg a, Reg b, Reg c) { return _mm256_fmadd_ps(a, b, c); }
  static float multiply_add_one(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
  static Reg add(Reg a, Reg b) { return _mm256_add_ps(a, b); }
  static Reg square_root(Reg a) { return _mm256_sqrt_ps(a); }
  static Reg divide(Reg a, Reg b) { return _mm256_div_ps(a, b); }
  static float sum(Reg v) {
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
  }
};

}  // namespace

namespace loops_versions {
const Loops avx2 = loops_of<Avx2>();
}
}  // namespace cgp::cpu

// SPDX-License-Identifier: Apache-2.0
#include <emmintrin.h>

#include "cgp/cpu/loops/loops_vector_impl.h"

namespace cgp::cpu {
namespace {

struct Sse2 {
  using Reg = __m128;
  static constexpr std::size_t kLanes = 4;
  static Reg load(const float* p) { return _mm_loadu_ps(p); }
  static void store(float* p, Reg v) { _mm_storeu_ps(p, v); }
  static Reg zero() { return _mm_setzero_ps(); }
  static Reg all(float f) { return _mm_set1_ps(f); }
  static Reg multiply_add(Reg a, Reg b, Reg c) { return _mm_add_ps(_mm_mul_ps(a, b), c); }
  static float multiply_add_one(float a, float b, float c) { return a * b + c; }
  static Reg add(Reg a, Reg b) { return _mm_add_ps(a, b); }
  static Reg square_root(Reg a) { return _mm_sqrt_ps(a); }
  static Reg divide(Reg a, Reg b) { return _mm_div_ps(a, b); }
  static float sum(Reg v) {
    v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_add_ss(v, _mm_shuffle_ps(v, v, 1)));
  }
};

}  // namespace

namespace loops_versions {
const Loops sse2 = loops_of<Sse2>();
}
}  // namespace cgp::cpu

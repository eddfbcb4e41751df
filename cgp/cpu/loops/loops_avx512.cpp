// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "cgp/cpu/loops/loops_vector_impl.h"

namespace cgp::cpu {
namespace {

struct Avx512 {
  using Reg = __m512;
  static constexpr std::size_t kLanes = 16;
  static Reg load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Reg v) { _mm512_storeu_ps(p, v); }
  static Reg zero() { return _mm512_setzero_ps(); }
  static Reg all(float f) { return _mm512_set1_ps(f); }
  static Reg multiply_add(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }
  static float multiply_add_one(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
  static Reg add(Reg a, Reg b) { return _mm512_add_ps(a, b); }
  static Reg square_root(Reg a) { return _mm512_sqrt_ps(a); }
  static Reg divide(Reg a, Reg b) { return _mm512_div_ps(a, b); }
  static float sum(Reg v) { return _mm512_reduce_add_ps(v); }
};

}  // namespace

namespace loops_versions {
const Loops avx512 = loops_of<Avx512>();
}
}  // namespace cgp::cpu

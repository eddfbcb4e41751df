// SPDX-License-Identifier: Apache-2.0
// One lane (the file is compiled so that no vectors are made).
#include "cgp/base/float16.h"
#include "cgp/cpu/ops/ops_vector_impl.h"

namespace cgp::cpu {
namespace {

struct Scalar {
  using Reg = float;
  static constexpr int64_t kLanes = 1;
  static Reg load(const float* p) { return *p; }
  static void store(float* p, Reg v) { *p = v; }
  static Reg load_some(const float* p, int64_t, float) { return *p; }
  static void store_some(float* p, int64_t, Reg v) { *p = v; }
  static Reg all(float f) { return f; }
  static Reg add(Reg a, Reg b) { return a + b; }
  static Reg subtract(Reg a, Reg b) { return a - b; }
  static Reg multiply(Reg a, Reg b) { return a * b; }
  static Reg divide(Reg a, Reg b) { return a / b; }
  static Reg multiply_add(Reg a, Reg b, Reg c) { return a * b + c; }
  static Reg negative_multiply_add(Reg a, Reg b, Reg c) { return c - a * b; }
  static Reg max(Reg a, Reg b) { return a > b ? a : b; }
  static Reg min(Reg a, Reg b) { return a < b ? a : b; }
  static Reg where_less(Reg a, Reg b, Reg c, Reg d) { return a < b ? c : d; }
  static Reg round(Reg a) { return __builtin_rintf(a); }
  static Reg power_of_two(Reg n) { return std::bit_cast<float>(int(n == n ? n + 127 : 127) << 23); }
  static Reg square_root(Reg a) { return __builtin_sqrtf(a); }
  static float sum(Reg v) { return v; }
  static void store_sums(float* p, const Reg (&v)[4]) {
    for (int k = 0; k < 4; ++k) p[k] = v[k];
  }
  static float largest(Reg v) { return v; }
  static float first(Reg v) { return v; }
  static Reg load_f16(const std::uint16_t* p) { return float(half::from_bits(*p)); }
  static Reg load_bf16(const std::uint16_t* p) { return float(bfloat16::from_bits(*p)); }
  static void store_f16(std::uint16_t* p, Reg v) { *p = half(v).bits; }
  static void store_bf16(std::uint16_t* p, Reg v) { *p = bfloat16(v).bits; }
};

}  // namespace

namespace ops_versions {
constinit const Ops scalar = ops_of<Scalar>();
}
}  // namespace cgp::cpu

// SPDX-License-Identifier: Apache-2.0
// The version without vectors: a register is one float. Compiled so that the compiler makes no vectors
// either.
#include "cgp/cpu/gemm/gemm_vector_impl.h"

namespace cgp::cpu {
namespace {

struct Scalar {
  using Reg = float;
  static constexpr int kLanes = 1;
  static Reg load(const float* p) { return *p; }
  static void store(float* p, Reg v) { *p = v; }
  static Reg load_part(const float* p, int64_t) { return *p; }
  static void store_part(float* p, int64_t, Reg v) { *p = v; }
  static Reg zero() { return 0; }
  static Reg all(float f) { return f; }
  static Reg multiply_add(Reg a, Reg b, Reg c) { return a * b + c; }
  static Reg multiply(Reg a, Reg b) { return a * b; }
  static void prefetch(const float* p) { __builtin_prefetch(p, 1); }
  static void prefetch_l2(const float* p) { __builtin_prefetch(p, 0, 2); }
  static void transpose(Reg*) {}
};
constexpr int kRows = 2, kVectors = 4;

}  // namespace

namespace gemm_versions {
const Version scalar{
    kRows,
    kVectors,
    1,
    16,
    kVectors + 1,
    {nullptr, gemm_kernel<Scalar, kRows, kVectors, 1>, gemm_kernel<Scalar, kRows, kVectors, 2>},
    pack_panel<Scalar, kRows>,
    pack_panel<Scalar, kVectors>};
}
}  // namespace cgp::cpu

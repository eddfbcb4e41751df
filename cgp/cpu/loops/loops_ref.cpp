// SPDX-License-Identifier: Apache-2.0
// Without vectors (the file is compiled so that none are made), and the choice.
#include <cmath>

#include "cgp/cpu/loops/loops.h"
#include "cgp/cpu/loops/loops_impl.h"

namespace cgp::cpu {
namespace {

float dot(const float* x, const float* y, std::size_t n) {
  float sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += x[i] * y[i];
  return sum;
}
void axpy(float f, const float* x, float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) y[i] += f * x[i];
}
void square_root(const float* x, float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) y[i] = std::sqrt(x[i]);
}
void reciprocal(const float* x, float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) y[i] = 1 / x[i];
}

}  // namespace

namespace loops_versions {
const Loops scalar{dot, axpy, square_root, reciprocal};
}

const Loops& loops(Isa isa) {
  require(isa);
#if defined(__x86_64__)
  if (isa >= Isa::avx512) return loops_versions::avx512;
  if (isa >= Isa::avx2) return loops_versions::avx2;
  if (isa >= Isa::sse2) return loops_versions::sse2;
#endif
  return loops_versions::scalar;
}

}  // namespace cgp::cpu

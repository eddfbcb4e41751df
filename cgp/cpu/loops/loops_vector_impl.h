// SPDX-License-Identifier: Apache-2.0
#pragma once
// The loops, written once over the operations of a vector type: V::Reg, V::kLanes, load, store, zero, all
// (every lane the same), multiply_add, add, square_root, divide, sum.
#include "cgp/cpu/loops/loops.h"
#include "cgp/cpu/loops/loops_impl.h"

namespace cgp::cpu {
namespace {

template <class V>
float dot_of(const float* x, const float* y, std::size_t n) {
  constexpr std::size_t w = V::kLanes;
  typename V::Reg s0 = V::zero(), s1 = s0, s2 = s0, s3 = s0;
  std::size_t i = 0;
  for (; i + 4 * w <= n; i += 4 * w) {
    s0 = V::multiply_add(V::load(x + i), V::load(y + i), s0);
    s1 = V::multiply_add(V::load(x + i + w), V::load(y + i + w), s1);
    s2 = V::multiply_add(V::load(x + i + 2 * w), V::load(y + i + 2 * w), s2);
    s3 = V::multiply_add(V::load(x + i + 3 * w), V::load(y + i + 3 * w), s3);
  }
  for (; i + w <= n; i += w) s0 = V::multiply_add(V::load(x + i), V::load(y + i), s0);
  float sum = V::sum(V::add(V::add(s0, s1), V::add(s2, s3)));
  for (; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

template <class V>
void axpy_of(float f, const float* x, float* y, std::size_t n) {
  const typename V::Reg all = V::all(f);
  std::size_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes)
    V::store(y + i, V::multiply_add(all, V::load(x + i), V::load(y + i)));
  for (; i < n; ++i) y[i] = V::multiply_add_one(f, x[i], y[i]);
}

template <class V>
void square_root_of(const float* x, float* y, std::size_t n) {
  std::size_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) V::store(y + i, V::square_root(V::load(x + i)));
  for (; i < n; ++i) y[i] = __builtin_sqrtf(x[i]);
}

template <class V>
void reciprocal_of(const float* x, float* y, std::size_t n) {
  const typename V::Reg one = V::all(1);
  std::size_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) V::store(y + i, V::divide(one, V::load(x + i)));
  for (; i < n; ++i) y[i] = 1 / x[i];
}

template <class V>
constexpr Loops loops_of() {
  return {dot_of<V>, axpy_of<V>, square_root_of<V>, reciprocal_of<V>};
}

}  // namespace
}  // namespace cgp::cpu

// SPDX-License-Identifier: Apache-2.0
#pragma once
// For tests: host types of element types, matrices of small dyadic numbers, products compared exactly.
#include <gtest/gtest.h>

#include "cgp/base/dtype.h"
#include "cgp/dsl/core/types.h"

namespace cgp::dsl {

template <class T>
struct HostType;
#define CGP_HOST_TYPE(element, host_type) \
  template <>                             \
  struct HostType<element> {              \
    using type = host_type;               \
  };
CGP_HOST_TYPE(bf16, bfloat16)
CGP_HOST_TYPE(f16, half)
CGP_HOST_TYPE(f32, float)
CGP_HOST_TYPE(tf32, float)
CGP_HOST_TYPE(f64, double)
CGP_HOST_TYPE(s8, std::int8_t)
CGP_HOST_TYPE(u8, std::uint8_t)
CGP_HOST_TYPE(s32, std::int32_t)
CGP_HOST_TYPE(e4m3, float8_e4m3)
CGP_HOST_TYPE(e5m2, float8_e5m2)
#undef CGP_HOST_TYPE
template <class T>
using HostOf = typename HostType<T>::type;

/// -2 to 2 in steps of 0.5 (0 to 8 for u8, -4 to 4 for s8): products and short sums are exact in every
/// format.
template <class T>
std::vector<HostOf<T>> small_matrix(std::uint32_t rows, std::uint32_t cols, std::uint32_t seed) {
  std::vector<HostOf<T>> v(std::size_t(rows) * cols);
  std::uint32_t s = seed * 2654435761u + 12345u;
  for (auto& x : v) {
    s = s * 1664525u + 1013904223u;
    const int i = int(s >> 24) % 9;
    if constexpr (std::is_same_v<T, u8>)
      x = std::uint8_t(i);
    else if constexpr (std::is_same_v<T, s8>)
      x = std::int8_t(i - 4);
    else
      x = HostOf<T>((i - 4) * 0.5f);
  }
  return v;
}

template <class H>
double as_double(const std::vector<H>& v, std::size_t i) {
  return load_as_double(dtype_of<H>, v.data(), i);
}

/// c[m,n] = sum over k of a[m,k] b[n,k].
template <class A, class C>
void expect_product(const std::vector<A>& a, const std::vector<A>& b, const std::vector<C>& c,
                    std::uint32_t m, std::uint32_t n, std::uint32_t k) {
  int wrong = 0;
  for (std::uint32_t i = 0; i < m; ++i)
    for (std::uint32_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::uint32_t x = 0; x < k; ++x)
        sum += as_double(a, std::size_t(i) * k + x) * as_double(b, std::size_t(j) * k + x);
      const double got = as_double(c, std::size_t(i) * n + j);
      const double want = as_double(std::vector<C>{C(sum)}, 0);  // rounded once, at the end
      if (got != want && ++wrong <= 5)
        ADD_FAILURE() << "c[" << i << "," << j << "] = " << got << ", want " << want;
    }
  EXPECT_EQ(wrong, 0) << "of " << m * n << " elements";
}

}  // namespace cgp::dsl

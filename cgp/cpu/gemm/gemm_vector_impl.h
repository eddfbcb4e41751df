// SPDX-License-Identifier: Apache-2.0
#pragma once
// The inner kernel and the packing, written once over a vector type: V::Reg, V::kLanes, load, store, zero,
// all, multiply_add, multiply, load_part and store_part of the first n lanes, prefetch, prefetch_l2,
// transpose (kLanes registers).
#include "cgp/cpu/gemm/gemm_impl.h"

namespace cgp::cpu {
namespace {

using std::int64_t;

template <class V, int Mr, int Nv, int R>
void gemm_kernel(int64_t k, const float* __restrict a, const float* __restrict b, int64_t b_stride,
                 float alpha, float beta, float* __restrict c, int64_t ldc, int64_t columns,
                 const float* ahead) {
  constexpr int w = V::kLanes;
  typename V::Reg sum[R][Nv];
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < Nv; ++j) sum[i][j] = V::zero();
    V::prefetch(c + i * ldc);
    V::prefetch(c + i * ldc + columns - 1);
  }
  for (int64_t p = 0; p < k; p += 4) {
    const int64_t end = k - p < 4 ? k - p : 4;
    V::prefetch_l2(ahead);
    ahead += 16;
#pragma GCC unroll 1
    for (int64_t s = 0; s < end; ++s) {
      typename V::Reg y[Nv];
#pragma GCC unroll 4
      for (int j = 0; j < Nv; ++j) y[j] = V::load(b + j * w);
#pragma GCC unroll 16
      for (int i = 0; i < R; ++i) {
        const typename V::Reg x = V::all(a[i]);
#pragma GCC unroll 4
        for (int j = 0; j < Nv; ++j) sum[i][j] = V::multiply_add(x, y[j], sum[i][j]);
      }
      a += Mr, b += b_stride;
    }
  }
  const typename V::Reg f = V::all(alpha), g = V::all(beta);
  const bool reads = beta != 0, whole = columns == Nv * w;
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < Nv; ++j) {
      float* at = c + i * ldc + j * w;
      const int64_t left = columns - j * w;
      if (whole) {
        V::store(at, reads ? V::multiply_add(f, sum[i][j], V::multiply(g, V::load(at)))
                           : V::multiply(f, sum[i][j]));
      } else if (left > 0) {
        V::store_part(at, left,
                      reads ? V::multiply_add(f, sum[i][j], V::multiply(g, V::load_part(at, left)))
                            : V::multiply(f, sum[i][j]));
      }
    }
  }
}

/// Lines whose steps lie side by side: blocks of lanes x lanes, transposed in registers.
template <class V, int Width>
void pack_lines(const float* source, int64_t ld, int64_t count, int64_t k, float* panel) {
  constexpr int w = V::kLanes;
  for (int64_t p = 0; p < k; p += w) {
    const int64_t steps = k - p < w ? k - p : w;
    for (int first = 0; first < Width; first += w) {
      typename V::Reg r[w];
#pragma GCC unroll 16
      for (int i = 0; i < w; ++i) {
        const float* at = source + (first + i) * ld + p;
        r[i] = first + i >= count ? V::zero() : steps == w ? V::load(at) : V::load_part(at, steps);
      }
      V::transpose(r);
#pragma GCC unroll 16
      for (int s = 0; s < w; ++s)
        if (s < steps)
          V::store_part(panel + (p + s) * Width + first, Width - first < w ? Width - first : w, r[s]);
    }
  }
}

template <class V, int Width>
void pack_panel(bool steps_contiguous, const float* source, int64_t ld, int64_t count, int64_t k,
                float* panel) {
  constexpr int w = V::kLanes;
  if (steps_contiguous) return pack_lines<V, Width>(source, ld, count, k, panel);
  for (int64_t p = 0; p < k; ++p, source += ld, panel += Width)
#pragma GCC unroll 4
    for (int j = 0; j < Width; j += w) {
      const int64_t left = count - j, room = Width - j;
      const typename V::Reg v = left >= w  ? V::load(source + j)
                                : left > 0 ? V::load_part(source + j, left)
                                           : V::zero();
      if (room >= w)
        V::store(panel + j, v);
      else
        V::store_part(panel + j, room, v);
    }
}

}  // namespace
}  // namespace cgp::cpu

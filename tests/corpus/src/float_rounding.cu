// SPDX-License-Identifier: Apache-2.0
// Directed roundings, fma, min/max with NaN and signed zeros, classification and bit casts: exact.
extern "C" __global__ void float_rounding(const float* a, const float* b, const float* c, unsigned* out) {
  int t = threadIdx.x;
  float x = a[t], y = b[t], z = c[t];
  float r[26] = {__fadd_rn(x, y), __fadd_rz(x, y), __fadd_ru(x, y), __fadd_rd(x, y), __fmul_rn(x, y), __fmul_rz(x, y), __fmul_ru(x, y),
                 __fmul_rd(x, y), __fdiv_rn(x, y), __fdiv_rz(x, y), __fdiv_ru(x, y), __fdiv_rd(x, y), __fsqrt_rn(fabsf(x)), __fsqrt_rz(fabsf(x)),
                 __fsqrt_ru(fabsf(x)), __fsqrt_rd(fabsf(x)), __frcp_rn(x), __frcp_rz(x), __frcp_ru(x), __frcp_rd(x), __fmaf_rn(x, y, z),
                 __fmaf_rz(x, y, z), __fmaf_ru(x, y, z), __fmaf_rd(x, y, z), fminf(x, y), fmaxf(x, y)};
  for (int i = 0; i < 26; ++i) out[28 * t + i] = __float_as_uint(r[i]);
  out[28 * t + 26] = isnan(x) | isinf(x) << 1 | signbit(x) << 2 | (x < y) << 3 | (x <= y) << 4 | (x == y) << 5 | (x != y) << 6 | !(x > y) << 7;
  out[28 * t + 27] = __float_as_uint(copysignf(x, y)) ^ __float_as_uint(fabsf(y)) ^ __float_as_uint(-z);
}

// SPDX-License-Identifier: Apache-2.0
// half and half2: add, mul, fma, compare, min/max with NaN, saturating forms, conversions, division, bf16 likewise.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
extern "C" __global__ void half_math(const __half2* a, const __half2* b, __half2* out, unsigned* bits) {
  int t = threadIdx.x;
  __half2 x = a[t], y = b[t], *o = out + 12 * t;
  o[0] = __hadd2(x, y);
  o[1] = __hsub2(x, y);
  o[2] = __hmul2(x, y);
  o[3] = __hfma2(x, y, x);
  o[4] = __hadd2_sat(x, y);
  o[5] = __hmin2(x, y);
  o[6] = __hmax2(x, y);
  o[7] = __hfma2_relu(x, y, __hneg2(x));
  o[8] = __floats2half2_rn(__low2float(x) * 3.f, __half2float(__high2half(y)) / 3.f);
  o[9] = __halves2half2(__float2half_rz(__low2float(x) * 1.001f), __float2half_ru(__high2float(x) * 1.001f));
  o[10] = __lowhigh2highlow(__habs2(x));
  o[11] = __halves2half2(__hadd(__low2half(x), __high2half(x)), __hmul(__low2half(y), __high2half(y)));
  unsigned m = __hlt2_mask(x, y);
  bits[4 * t] = m;
  bits[4 * t + 1] = __half2int_rn(__low2half(x)) * 65536 + (unsigned short)__half2short_rz(__high2half(y));
  bits[4 * t + 2] = __hbeq2(x, x) | __hgt(__low2half(x), __low2half(y)) << 1 | __hisnan(__high2half(x)) << 2 | __hneu(__low2half(x), __low2half(y)) << 3;
  bits[4 * t + 3] = __half_as_ushort(__int2half_rn(t * 777 - 9999)) | __half_as_ushort(__ushort2half_rd(t * 1023)) << 16;
}
extern "C" __global__ void bf16_math(const __nv_bfloat162* a, const __nv_bfloat162* b, __nv_bfloat162* out, unsigned* bits) {
  int t = threadIdx.x;
  __nv_bfloat162 x = a[t], y = b[t], *o = out + 8 * t;
  o[0] = __hadd2(x, y);
  o[1] = __hmul2(x, y);
  o[2] = __hfma2(x, y, y);
  o[3] = __hmax2_nan(x, y);
  o[4] = __hmin2(x, y);
  o[5] = __floats2bfloat162_rn(__low2float(x) * 1.7f, __high2float(y) + 0.3f);
  o[6] = __halves2bfloat162(__float2bfloat16_rz(__low2float(y) * 1.7f), __float2bfloat16_rn(__low2float(y) * -1.7f));
  o[7] = __hneg2(__habs2(x));
  bits[t] = __hge2_mask(x, y) ^ __bfloat162int_rn(__low2bfloat16(x));
}

// SPDX-License-Identifier: Apache-2.0
// fp8 conversions both ways: e4m3 and e5m2, from f32 pairs and from half2, saturating. sm_90 has the instructions.
#include <cuda_fp8.h>
extern "C" __global__ void fp8(const float2* in, unsigned* out, const unsigned char* codes, __half* h) {
  int t = threadIdx.x;
  float2 v = in[t];
  __half2 p = __float22half2_rn(v);
  out[4 * t] = __nv_cvt_float2_to_fp8x2(v, __NV_SATFINITE, __NV_E4M3);
  out[4 * t + 1] = __nv_cvt_float2_to_fp8x2(v, __NV_SATFINITE, __NV_E5M2);
  out[4 * t + 2] = __nv_cvt_halfraw2_to_fp8x2(p, __NV_SATFINITE, __NV_E4M3);
  out[4 * t + 3] = __nv_cvt_halfraw2_to_fp8x2(p, __NV_SATFINITE, __NV_E5M2);
  for (int i = t; i < 256; i += blockDim.x) {
    h[i] = __nv_cvt_fp8_to_halfraw(codes[i], __NV_E4M3);
    h[256 + i] = __nv_cvt_fp8_to_halfraw(codes[i], __NV_E5M2);
  }
}

// SPDX-License-Identifier: Apache-2.0
// Single precision math functions; built twice, with and without -use_fast_math.
extern "C" __global__ void float_funcs(const float* a, float* out) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  float x = a[t], *o = out + 16 * t, p = fabsf(x) + 0.05f;
  o[0] = sinf(x);
  o[1] = cosf(x);
  o[2] = tanf(x * 0.25f);
  o[3] = expf(x);
  o[4] = logf(p);
  o[5] = powf(p, 1.5f);
  o[6] = tanhf(x);
  o[7] = sqrtf(p);
  o[8] = rsqrtf(p);
  o[9] = 1.0f / p;
  o[10] = x / p;
  o[11] = exp2f(x);
  o[12] = log2f(p);
  o[13] = atanf(x);
  o[14] = erff(x * 0.5f);
  o[15] = hypotf(x, 2.f) + floorf(x) - ceilf(x * 2) + roundf(x * 3) + truncf(x * 5) + rintf(x * 7);
}
#ifndef __USE_FAST_MATH__
extern "C" __global__ void float_big(const float* a, float* out) {  // Payne-Hanek reduction with a local array
  int t = threadIdx.x;
  out[2 * t] = sinf(a[t]);
  out[2 * t + 1] = cosf(a[t]);
}
#endif

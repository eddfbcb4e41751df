// SPDX-License-Identifier: Apache-2.0
// The approximate instructions themselves.
extern "C" __global__ void approx(const float* a, float* out) {
  int t = threadIdx.x;
  float x = a[t], p = fabsf(x) + 0.01f, *o = out + 11 * t, r8, r9, r10;
  o[0] = __sinf(x);
  o[1] = __cosf(x);
  o[2] = __expf(x);
  o[3] = __logf(p);
  o[4] = __powf(p, 0.75f);
  o[5] = __fdividef(x, p);
  o[6] = __log2f(p);
  o[7] = __log10f(p);
  asm("tanh.approx.f32 %0, %1;" : "=f"(r8) : "f"(x));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r9) : "f"(p));
  asm("sqrt.approx.f32 %0, %1;" : "=f"(r10) : "f"(p));
  o[8] = r8;
  o[9] = r9;
  o[10] = r10;
}

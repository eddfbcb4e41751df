// SPDX-License-Identifier: Apache-2.0
// Packed integer intrinsics and dot products.
extern "C" __global__ void simd_int(const unsigned* a, const unsigned* b, unsigned* out) {
  int t = threadIdx.x;
  unsigned x = a[t], y = b[t], *o = out + 23 * t;
  o[0] = __vadd4(x, y);
  o[1] = __vsub2(x, y);
  o[2] = __vaddss4(x, y);
  o[3] = __vaddus2(x, y);
  o[4] = __vsubss2(x, y);
  o[5] = __vmaxs4(x, y);
  o[6] = __vminu2(x, y);
  o[7] = __vabsdiffu4(x, y);
  o[8] = __vabsdiffs2(x, y);
  o[9] = __vavgu4(x, y);
  o[10] = __vcmpgtu4(x, y);
  o[11] = __vcmples2(x, y);
  o[12] = __vseteq4(x & 0x0f0f0f0f, y & 0x0f0f0f0f);
  o[13] = __vsadu4(x, y);
  o[14] = __vabs4(x);
  o[15] = __vneg2(x);
  o[16] = __dp4a((int)x, (int)y, -9);
  o[17] = __dp4a(x, y, 5u);
  o[18] = __dp2a_lo((int)x, (int)y, 3);
  o[19] = __dp2a_hi(x, y, 4u);
  int m;
  asm("dp4a.s32.u32 %0, %1, %2, %3;" : "=r"(m) : "r"(x), "r"(y), "r"(t));
  o[20] = m;
  o[21] = __vimax3_s32(x, y, t);
  o[22] = __viaddmin_s32(x, y, 1000);
}

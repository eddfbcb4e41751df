// SPDX-License-Identifier: Apache-2.0
// Bit intrinsics.
extern "C" __global__ void int_bits(const unsigned* a, const unsigned* b, unsigned* out, const unsigned long long* l, unsigned long long* lout) {
  int t = threadIdx.x;
  unsigned x = a[t], y = b[t], *o = out + 20 * t;
  unsigned long long v = l[t], *p = lout + 6 * t;
  o[0] = __clz(x);
  o[1] = __popc(x);
  o[2] = __brev(x);
  o[3] = __ffs(x);
  o[4] = __funnelshift_l(x, y, t);
  o[5] = __funnelshift_r(x, y, t);
  o[6] = __funnelshift_lc(x, y, t + 5);
  o[7] = __funnelshift_rc(x, y, t + 5);
  o[8] = __byte_perm(x, y, t * 0x1357 & 0x7777);
  o[9] = __umulhi(x, y);
  o[10] = __mulhi((int)x, (int)y);
  o[11] = __mul24((int)x, (int)y);
  o[12] = __umul24(x, y);
  o[13] = __sad((int)x, (int)y, 7u);
  o[14] = __usad(x, y, 9u);
  o[15] = __hadd((int)x, (int)y);
  o[16] = __urhadd(x, y);
  unsigned r, f;
  asm("bfe.u32 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(t), "r"(t % 13));
  asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(f) : "r"(x), "r"(y), "r"(t % 29), "r"(t % 9));
  o[17] = r;
  o[18] = f;
  int sb;
  asm("bfe.s32 %0, %1, %2, %3;" : "=r"(sb) : "r"(x), "r"(t / 2), "r"(t % 17));
  asm("bfind.u32 %0, %1;" : "=r"(r) : "r"(x >> (t & 31)));
  asm("bfind.s32 %0, %1;" : "=r"(f) : "r"(x));
  o[19] = sb ^ r << 8 ^ f << 16;
  p[0] = __clzll(v);
  p[1] = __popcll(v);
  p[2] = __brevll(v);
  p[3] = __ffsll(v);
  p[4] = __umul64hi(v, v * 3 + 1);
  p[5] = __mul64hi(v, v * 5 + 1);
}

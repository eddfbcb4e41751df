// SPDX-License-Identifier: Apache-2.0
// 128-bit arithmetic by carry chains: __int128 in C++ and add.cc / madc in inline assembly; 64-bit division; shifts
// by more than the width.
extern "C" __global__ void int_wide(const unsigned long long* in, unsigned long long* out) {
  int t = threadIdx.x;
  const unsigned long long* p = in + 4 * t;
  unsigned long long* o = out + 16 * t;
  unsigned __int128 a = (unsigned __int128)p[0] << 64 | p[1], b = (unsigned __int128)p[2] << 64 | p[3];
  unsigned __int128 s = a + b, d = a - b, m = a * b, q = a / (b >> 40 | 1), r = a % (b >> 70 | 1);
  __int128 sh = (__int128)a >> (t * 4 & 127);
  o[0] = s;
  o[1] = s >> 64;
  o[2] = d;
  o[3] = d >> 64;
  o[4] = m;
  o[5] = m >> 64;
  o[6] = q;
  o[7] = q >> 64;
  o[8] = r;
  o[9] = sh;
  o[10] = (unsigned long long)(sh >> 64);
  unsigned w[4], x[4], z[8];
  for (int i = 0; i < 4; ++i) {
    w[i] = (unsigned)(p[i / 2] >> (i % 2 * 32));
    x[i] = (unsigned)(p[2 + i / 2] >> (i % 2 * 32));
  }
  asm("mul.lo.u32 %0, %8, %12;\n mul.hi.u32 %1, %8, %12;\n"
      "mad.lo.cc.u32 %1, %9, %12, %1;\n madc.hi.u32 %2, %9, %12, 0;\n"
      "mad.lo.cc.u32 %2, %10, %12, %2;\n madc.hi.u32 %3, %10, %12, 0;\n"
      "mad.lo.cc.u32 %3, %11, %12, %3;\n madc.hi.u32 %4, %11, %12, 0;\n"
      "add.cc.u32 %5, %13, %14;\n addc.cc.u32 %6, %14, %15;\n addc.u32 %7, 0, 0;\n"
      : "=&r"(z[0]), "=&r"(z[1]), "=&r"(z[2]), "=&r"(z[3]), "=&r"(z[4]), "=&r"(z[5]), "=&r"(z[6]), "=&r"(z[7])
      : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]));
  o[11] = (unsigned long long)z[1] << 32 | z[0];
  o[12] = (unsigned long long)z[3] << 32 | z[2];
  o[13] = (unsigned long long)z[5] << 32 | z[4];
  o[14] = (unsigned long long)z[7] << 32 | z[6];
  unsigned lo, hi;
  asm("sub.cc.u32 %0, %2, %4;\n subc.u32 %1, %3, %5;" : "=&r"(lo), "=r"(hi) : "r"(w[0]), "r"(w[1]), "r"(x[0]), "r"(x[1]));
  o[15] = (unsigned long long)hi << 32 | lo;
}
extern "C" __global__ void int_div(const long long* in, long long* out, int* iout) {
  int t = threadIdx.x;
  long long a = in[2 * t], b = in[2 * t + 1] >> (t % 50) | 1;
  long long* o = out + 8 * t;
  o[0] = a / b;
  o[1] = a % b;
  o[2] = (unsigned long long)a / (unsigned long long)b;
  o[3] = (unsigned long long)a % (unsigned long long)b;
  o[4] = a / 10;
  o[5] = a % -7;
  unsigned n = t * 3;
  unsigned s1, s2;
  asm("shl.b32 %0, %1, %2;" : "=r"(s1) : "r"((unsigned)a), "r"(n));
  asm("shr.s32 %0, %1, %2;" : "=r"(s2) : "r"((unsigned)a), "r"(n));
  o[6] = (unsigned long long)s1 << 32 | s2;
  unsigned long long s3;
  asm("shr.u64 %0, %1, %2;" : "=l"(s3) : "l"(a), "r"(n));
  o[7] = s3;
  int x = (int)a, y = (int)b | 1, *io = iout + 6 * t;
  io[0] = x / y;
  io[1] = x % y;
  io[2] = (unsigned)x / (unsigned)y;
  io[3] = (short)x / (short)(y | 1);
  io[4] = (signed char)x % 7 + (unsigned char)y / 3;
  io[5] = abs(x) + min(x, y) - (int)max((unsigned)x, (unsigned)y);
}

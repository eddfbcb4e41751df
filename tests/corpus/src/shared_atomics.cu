// SPDX-License-Identifier: Apache-2.0
// Every shared atomic: add min max and or xor inc dec exch cas, 32 and 64 bits, float, and a hand-made float max.
extern "C" __global__ void shared_atomics(const int* in, int* out, float* fout, unsigned long long* lout) {
  __shared__ int s[10];
  __shared__ unsigned long long l[4];
  __shared__ float f[2];
  __shared__ double d;
  int t = threadIdx.x, v = in[t];
  if (t < 10) s[t] = t == 1 ? 0x7fffffff : t == 2 ? (int)0x80000000 : t == 3 ? -1 : t == 7 ? 5 : 0;
  if (t < 4) l[t] = t == 1 ? ~0ull : 0;
  if (t < 2) f[t] = 0;
  if (t == 0) d = 0;
  __syncthreads();
  atomicAdd(&s[0], v);
  atomicMin(&s[1], v);
  atomicMax(&s[2], v);
  atomicAnd(&s[3], v | 0xf0f0f0f0);
  atomicOr(&s[4], v & 0x11111111);
  atomicXor(&s[5], v);
  atomicInc((unsigned*)&s[6], 10);
  atomicDec((unsigned*)&s[7], 12);
  atomicSub(&s[8], 3);
  atomicCAS(&s[9], 0, 1);
  atomicAdd(&l[0], (unsigned long long)(long long)v);
  atomicMin(&l[1], (unsigned long long)(unsigned)v << 8);
  atomicMax((long long*)&l[2], (long long)v << 16);
  atomicXor(&l[3], (unsigned long long)(unsigned)v << (t % 32));
  atomicAdd(&f[0], v * 0.25f);
  atomicAdd(&d, v * 0.125);
  int old = atomicAdd((int*)&f[1], 0);
  float mine = v * 0.5f;
  while (__int_as_float(old) < mine) {
    int seen = atomicCAS((int*)&f[1], old, __float_as_int(mine));
    if (seen == old) break;
    old = seen;
  }
  __syncthreads();
  if (t < 10) out[t] = s[t];
  if (t < 4) lout[t] = l[t];
  if (t < 2) fout[t] = f[t];
  if (t == 0) fout[2] = (float)d;
}

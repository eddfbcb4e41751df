// SPDX-License-Identifier: Apache-2.0
// alloca, clock and timers, isspacep, generic pointers chosen at run time, prefetch, assume, restrict, volatile shared.
extern "C" __global__ void alloca_misc(const int* in, int* out, int n) {
  __shared__ volatile int s[64];
  int t = threadIdx.x, k = 1 + t % 5;
  int* dyn = (int*)__builtin_alloca(k * sizeof(int));
  for (int i = 0; i < k; ++i) dyn[i] = in[(t + i) % n];
  s[t] = in[t];
  __syncthreads();
  int loc = t;
  const int* p = t % 3 == 0 ? (const int*)&s[(t + 1) % n] : t % 3 == 1 ? &in[t / 2] : &loc;
  int spaces = __isShared(p) | __isGlobal(p) << 1 | __isLocal(p) << 2 | __isConstant(p) << 3;
  long long c0 = clock64();
  unsigned long long g0, g1;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(g0));
  asm volatile("prefetch.global.L2 [%0];" ::"l"(in));
  int v = *p;
  for (int i = 0; i < k; ++i) v += dyn[(i + t) % k] * (i + 1);
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(g1));
  long long c1 = clock64();
  out[2 * t] = v;
  out[2 * t + 1] = spaces + (c1 >= c0 ? 16 : 0) + (g1 >= g0 ? 32 : 0);
}

// SPDX-License-Identifier: Apache-2.0
// Global atomics of each width and scope: returned values where they are unique, float, double, half2, bfloat162, system.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
extern "C" __global__ void global_atomics(const int* in, int* i32, unsigned long long* i64, float* f, double* d, __half2* h,
                                          __nv_bfloat162* b, unsigned* order, __half* h1) {
  int t = blockIdx.x * blockDim.x + threadIdx.x, v = in[t];
  atomicAdd_block(&i32[blockIdx.x], v);
  atomicMax_system(&i32[4], v);
  atomicMin(&i32[5], v);
  atomicAnd(&i32[6], ~(1 << (v & 31)));
  atomicOr(&i32[7], 1 << (v & 31));
  atomicXor_system(&i32[8], v * 77);
  order[atomicInc((unsigned*)&i32[9], 0xffffffffu)] = t;
  atomicDec((unsigned*)&i32[10], 1000);
  atomicAdd(&i64[0], (unsigned long long)v * v << 20);
  atomicMax((long long*)&i64[1], (long long)v << 20);
  atomicMin(&i64[2], (unsigned long long)(v + 2000) << 30);
  atomicOr(&i64[3], 1ull << (v & 63));
  atomicAnd(&i64[4], ~(1ull << (v & 63)));
  atomicAdd(&f[v & 3], v * 0.5f);
  atomicAdd(&d[v & 1], v * 0.25);
  atomicAdd(&h[v & 1], __floats2half2_rn((v & 7) * 0.5f, 1.f));
  atomicAdd(&b[0], __floats2bfloat162_rn((t & 3) == 0, (t & 7) == 0));
  atomicAdd(h1, __float2half(0.25f));
}
extern "C" __global__ void cas_loop(double* target, int* exch, const double* in) {
  int t = threadIdx.x;
  unsigned long long* p = (unsigned long long*)target;
  unsigned long long old = *(volatile unsigned long long*)p, seen;
  do {
    seen = old;
    old = atomicCAS(p, seen, __double_as_longlong(__longlong_as_double(seen) + in[t]));
  } while (seen != old);
  atomicExch(&exch[1], 9);
  unsigned short* us = (unsigned short*)&exch[2];
  unsigned short was = *(volatile unsigned short*)us, got;
  do {
    got = was;
    was = atomicCAS(us, got, (unsigned short)(got + 3));
  } while (got != was);
}

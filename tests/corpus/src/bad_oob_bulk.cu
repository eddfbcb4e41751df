// SPDX-License-Identifier: Apache-2.0
#include "hopper.cuh"
extern "C" __global__ void bulk_past_end(const int* in, int* out) {
  __shared__ __align__(16) int s[64];
  __shared__ u64 bar;
  if (threadIdx.x == 0) {
    mbar_init(&bar, 1);
    fence_init();
    mbar_expect(&bar, 256);
    bulk_load(s, in, 256, &bar);
  }
  __syncthreads();
  mbar_wait(&bar, 0);
  out[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) early_exit(int* out) {  // reads a block that may be gone
  __shared__ int s[32];
  unsigned r = cluster_rank();
  s[threadIdx.x] = threadIdx.x + r;
  cluster_sync();
  if (r == 1) return;
  for (int i = 0; i < 200; ++i) asm volatile("nanosleep.u32 100;");
  int v;
  ASM("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(mapa(smem(&s[threadIdx.x]), 1)) : "memory");
  out[blockIdx.x / 2 * 32 + threadIdx.x] = v;
}

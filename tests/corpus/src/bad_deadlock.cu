// SPDX-License-Identifier: Apache-2.0
#include "hopper.cuh"
extern "C" __global__ void named_count(int* out) {  // 96 threads are awaited, 64 come
  out[threadIdx.x] = 1;
  if (threadIdx.x < 64) asm volatile("bar.sync 1, 96;" ::: "memory");
  out[threadIdx.x] = 2;
}
extern "C" __global__ void missing_bytes(const int* in, int* out) {  // expects 512 bytes, 256 come
  __shared__ __align__(16) int s[128];
  __shared__ u64 bar;
  if (threadIdx.x == 0) {
    mbar_init(&bar, 1);
    fence_init();
    mbar_expect(&bar, 512);
    bulk_load(s, in, 256, &bar);
  }
  __syncthreads();
  mbar_wait(&bar, 0);
  out[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void flag_never(volatile int* flag, int* out) {  // the block that should set the flag waits too
  if (threadIdx.x) return;
  if (blockIdx.x == 0) {
    while (flag[1] == 0) {
    }
    flag[0] = 1;
  } else {
    while (flag[0] == 0) {
    }
    flag[1] = 1;
  }
  out[blockIdx.x] = 1;
}
extern "C" __global__ void two_locks(int* lock, volatile int* both) {  // lock order A B against B A, both held
  if (threadIdx.x) return;
  int a = blockIdx.x, b = 1 - a;
  while (atomicCAS(&lock[a], 0, 1)) {
  }
  both[a] = 1;
  while (both[b] == 0) {
  }
  while (atomicCAS(&lock[b], 0, 1)) {
  }
  atomicExch(&lock[b], 0);
  atomicExch(&lock[a], 0);
}

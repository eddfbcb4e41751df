// SPDX-License-Identifier: Apache-2.0
// Bulk copies: wrong parity, source overwritten early, missing proxy fence.
#include "hopper.cuh"
extern "C" __global__ void wrong_parity(const int* in, int* out) {
  __shared__ __align__(16) int s[64];
  __shared__ u64 bar;
  if (threadIdx.x == 0) {
    mbar_init(&bar, 1);
    fence_init();
    mbar_expect(&bar, 256);
    bulk_load(s, in, 256, &bar);
  }
  __syncthreads();
  mbar_wait(&bar, 1);  // true at once: the phase before the first
  out[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void store_reuse(int* out) {
  __shared__ __align__(16) int s[64];
  for (int r = 0; r < 2; ++r) {
    s[threadIdx.x] = r * 100 + threadIdx.x;  // the copy of the round before may still be reading
    fence_async();
    __syncthreads();
    if (threadIdx.x == 0) {
      bulk_store(out + 64 * r, s, 256);
      bulk_commit();
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) bulk_wait();
}
extern "C" __global__ void no_proxy_fence(int* out) {
  __shared__ __align__(16) int s[64];
  s[threadIdx.x] = threadIdx.x;
  __syncthreads();
  if (threadIdx.x == 0) {
    bulk_store(out, s, 256);
    bulk_commit();
    bulk_wait();
  }
}
extern "C" __global__ void fence_too_late(int* out) {  // the fence is before the writes that it should cover
  __shared__ __align__(16) int s[64];
  fence_async();
  s[threadIdx.x] = threadIdx.x;
  __syncthreads();
  if (threadIdx.x == 0) {
    bulk_store(out, s, 256);
    bulk_commit();
    bulk_wait();
  }
}

// SPDX-License-Identifier: Apache-2.0
// wgmma misuse: accumulators read before the wait, operands overwritten before it, missing proxy fence.
#include "hopper.cuh"
#define MMA(d, da, db) \
  ASM("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(da), "l"(db))
#define TILES                                                           \
  __shared__ __align__(128) unsigned as[64 * 8], bs[8 * 8];             \
  for (int i = threadIdx.x; i < 512; i += 128) as[i] = a[i];            \
  if (threadIdx.x < 64) bs[threadIdx.x] = b[threadIdx.x];               \
  u64 da = descriptor(as, 128, 256, 0), db = descriptor(bs, 128, 256, 0); \
  float d[4] = {};
extern "C" __global__ void read_early(const unsigned* a, const unsigned* b, float* c) {
  TILES;
  fence_async();
  __syncthreads();
  wgmma_fence();
  MMA(d, da, db);
  wgmma_commit();
  for (int i = 0; i < 4; ++i) c[threadIdx.x * 4 + i] = d[i] + 1.f;
  wgmma_wait();
}
extern "C" __global__ void overwrite_early(const unsigned* a, const unsigned* b, float* c) {
  TILES;
  fence_async();
  __syncthreads();
  wgmma_fence();
  MMA(d, da, db);
  wgmma_commit();
  as[threadIdx.x] = 0;
  wgmma_wait();
  for (int i = 0; i < 4; ++i) c[threadIdx.x * 4 + i] = d[i];
}
extern "C" __global__ void no_fence(const unsigned* a, const unsigned* b, float* c) {
  TILES;
  __syncthreads();
  wgmma_fence();
  MMA(d, da, db);
  wgmma_commit();
  wgmma_wait();
  for (int i = 0; i < 4; ++i) c[threadIdx.x * 4 + i] = d[i];
}

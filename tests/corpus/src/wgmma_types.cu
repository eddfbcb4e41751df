// SPDX-License-Identifier: Apache-2.0
// wgmma m64n8 of the other types: bf16 with A in registers, tf32, s8 and e4m3; f16 accumulators.
#include <cuda_bf16.h>
#include "hopper.cuh"
__device__ __forceinline__ void stage(const unsigned* src, unsigned* dst, int rows) {
  // rows of 32 bytes into core matrices: 8 rows x 16 bytes; LBO 128 (the two halves of a row), SBO 256
  for (int i = threadIdx.x; i < rows * 8; i += 128) {
    int r = i / 8, k = i % 8;
    dst[r / 8 * 64 + k / 4 * 32 + r % 8 * 4 + k % 4] = src[i];
  }
}
#define SETUP                                                           \
  __shared__ __align__(128) unsigned as[64 * 8], bs[8 * 8];             \
  stage(a, as, 64);                                                     \
  stage(b, bs, 8);                                                      \
  fence_async();                                                        \
  __syncthreads();                                                      \
  u64 da = descriptor(as, 128, 256, 0), db = descriptor(bs, 128, 256, 0); \
  int w = threadIdx.x / 32, g = threadIdx.x % 32 / 4, q = threadIdx.x % 4; \
  (void)da;
#define PUT(c, d) \
  for (int i = 0; i < 4; ++i) c[(16 * w + g + 8 * (i >> 1)) * 8 + 2 * q + (i & 1)] = d[i];
extern "C" __global__ void wgmma_bf16_rs(const unsigned* a, const unsigned* b, float* c) {
  SETUP;
  float d[4] = {1, 2, 3, 4};
  unsigned f[4];
  for (int v = 0; v < 4; ++v) f[v] = a[(16 * w + g + 8 * (v & 1)) * 8 + q + 4 * (v >> 1)];
  wgmma_fence();
  ASM("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, 1, 1, 1, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(f[0]), "r"(f[1]), "r"(f[2]), "r"(f[3]), "l"(db));
  wgmma_commit();
  wgmma_wait();
  PUT(c, d);
}
extern "C" __global__ void wgmma_tf32(const unsigned* a, const unsigned* b, float* c) {
  SETUP;
  float d[4] = {};
  wgmma_fence();
  ASM("wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%0,%1,%2,%3}, %4, %5, 1, 1, -1;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(da), "l"(db));
  wgmma_commit();
  wgmma_wait();
  PUT(c, d);
}
extern "C" __global__ void wgmma_s8(const unsigned* a, const unsigned* b, int* c) {
  SETUP;
  int d[4] = {10, 20, 30, 40};
  ASM("" : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]));
  wgmma_fence();
  ASM("wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.u8 {%0,%1,%2,%3}, %4, %5, 1;" : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "l"(da), "l"(db));
  wgmma_commit();
  wgmma_wait();
  PUT(c, d);
}
extern "C" __global__ void wgmma_e4m3(const unsigned* a, const unsigned* b, float* c) {
  SETUP;
  float d[4] = {};
  wgmma_fence();
  ASM("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e5m2 {%0,%1,%2,%3}, %4, %5, 1, 1, 1;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(da), "l"(db));
  wgmma_commit();
  wgmma_wait();
  PUT(c, d);
}
extern "C" __global__ void wgmma_f16_acc(const unsigned* a, const unsigned* b, unsigned* c) {
  SETUP;
  unsigned d[2] = {0x3c003c00, 0x40004000};
  ASM("" : "+r"(d[0]), "+r"(d[1]));
  wgmma_fence();
  ASM("wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {%0,%1}, %2, %3, 1, 1, 1, 0, 0;" : "+r"(d[0]), "+r"(d[1]) : "l"(da), "l"(db));
  wgmma_commit();
  wgmma_wait();
  c[(16 * w + g) * 4 + q] = d[0];
  c[(16 * w + g + 8) * 4 + q] = d[1];
}

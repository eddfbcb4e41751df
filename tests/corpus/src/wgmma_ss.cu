// SPDX-License-Identifier: Apache-2.0
// wgmma with both operands in shared memory: no swizzle (K major), 128B swizzle, transposed B, scale-d 0, negated A.
#include <cuda_fp16.h>
#include "hopper.cuh"
#define D16 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}"
#define OUT16(d)                                                                                                                              \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), \
      "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
__device__ void put(float* c, const float* d) {
  int w = threadIdx.x / 32, g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
  for (int i = 0; i < 16; ++i) c[(16 * w + g + 8 * (i >> 1 & 1)) * 32 + 8 * (i >> 2) + 2 * q + (i & 1)] = d[i];
}
// C[64][32] = A[64][32] B[32 n][32 k]^T, core matrices of 8 rows x 16 bytes
extern "C" __global__ void wgmma_plain(const half* a, const half* b, float* c) {
  __shared__ __align__(128) half as[64 * 32], bs[32 * 32];
  for (int i = threadIdx.x; i < 64 * 32; i += 128) {
    int r = i / 32, k = i % 32;
    as[(k / 8) * 512 + r / 8 * 64 + r % 8 * 8 + k % 8] = a[i];  // LBO 1024 bytes along k, SBO 128 bytes along m
    if (r < 32) bs[r / 8 * 256 + k / 8 * 64 + r % 8 * 8 + k % 8] = b[i];  // LBO 128 along k, SBO 512 along n
  }
  fence_async();
  __syncthreads();
  float d[16];
  for (int i = 0; i < 16; ++i) d[i] = 99.f;
  wgmma_fence();
  for (int k = 0; k < 2; ++k) {
    u64 da = descriptor(as + k * 1024, 1024, 128, 0), db = descriptor(bs + k * 128, 128, 512, 0);
    ASM("{ .reg .pred p; setp.ne.b32 p, %18, 0; wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 " D16 ", %16, %17, p, 1, 1, 0, 0; }" : OUT16(d) : "l"(da), "l"(db), "r"(k));
  }
  wgmma_commit();
  wgmma_wait();
  put(c, d);
}
// 128B swizzle: A[64][64] K major; B[64 k][64 n] row major (transposed operand), half of its columns
extern "C" __global__ void wgmma_swizzled(const half* a, const half* b, float* c) {
  __shared__ __align__(1024) half as[64 * 64], bs[64 * 64];
  for (int i = threadIdx.x; i < 64 * 64; i += 128) {
    int r = i / 64, k = i % 64, at = r * 64 + ((k / 8 ^ r % 8) * 8 + k % 8);
    as[at] = a[i];
    bs[at] = b[i];
  }
  fence_async();
  __syncthreads();
  float d[16] = {};
  wgmma_fence();
  for (int k = 0; k < 4; ++k) {
    u64 da = descriptor(as + k * 16, 16, 1024, 1), db = descriptor(bs + k * 16 * 64, 8192, 1024, 1);
    ASM("wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 " D16 ", %16, %17, 1, -1, 1, 0, 1;" : OUT16(d) : "l"(da), "l"(db));
  }
  wgmma_commit();
  wgmma_wait();
  put(c, d);
}

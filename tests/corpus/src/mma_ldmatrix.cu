// SPDX-License-Identifier: Apache-2.0
// 32x16 = (32x32)(32x16) per warp: ldmatrix x4, ldmatrix x2.trans and mma.sync m16n8k16, swizzled shared tiles.
#include <cuda_fp16.h>
__device__ __forceinline__ unsigned smem(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
extern "C" __global__ void mma_ldmatrix(const half* a, const half* b, float* c) {
  __shared__ __align__(128) half as[32 * 32], bs[32 * 16];
  int lane = threadIdx.x;
  for (int i = lane; i < 128; i += 32) {  // 16-byte chunks, chunk index XORed with row bits
    int r = i / 4, q = i % 4;
    *(uint4*)&as[r * 32 + ((q ^ (r >> 1 & 3)) * 8)] = ((const uint4*)a)[i];
  }
  for (int i = lane; i < 64; i += 32) ((uint4*)bs)[i] = ((const uint4*)b)[i];
  __syncwarp();
  float acc[2][2][4] = {};
  for (int k = 0; k < 32; k += 16) {
    unsigned fb[2][2];
    for (int n = 0; n < 2; ++n)
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                   : "=r"(fb[n][0]), "=r"(fb[n][1]) : "r"(smem(&bs[(k + (lane & 15)) * 16 + n * 8])));
    for (int m = 0; m < 2; ++m) {
      unsigned f0, f1, f2, f3;
      int r = m * 16 + (lane & 15), q = k / 8 + (lane >> 4);
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                   : "=r"(f0), "=r"(f1), "=r"(f2), "=r"(f3) : "r"(smem(&as[r * 32 + ((q ^ (r >> 1 & 3)) * 8)])));
      for (int n = 0; n < 2; ++n)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(acc[m][n][0]), "+f"(acc[m][n][1]), "+f"(acc[m][n][2]), "+f"(acc[m][n][3])
                     : "r"(f0), "r"(f1), "r"(f2), "r"(f3), "r"(fb[n][0]), "r"(fb[n][1]));
    }
  }
  for (int m = 0; m < 2; ++m)
    for (int n = 0; n < 2; ++n)
      for (int e = 0; e < 4; ++e)
        c[(m * 16 + lane / 4 + (e / 2) * 8) * 16 + n * 8 + lane % 4 * 2 + e % 2] = acc[m][n][e];
}

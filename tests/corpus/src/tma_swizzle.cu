// SPDX-License-Identifier: Apache-2.0
// The raw shared-memory image of boxes loaded with each swizzle.
#include "hopper.cuh"
struct __align__(64) TensorMap {
  unsigned long long opaque[16];
};
extern "C" __global__ void tma_swizzle(const __grid_constant__ TensorMap m128, const __grid_constant__ TensorMap m64, const __grid_constant__ TensorMap m32,
                                       const __grid_constant__ TensorMap m0, unsigned short* out, int x, int y) {
  __shared__ __align__(1024) unsigned short t[4][1024];
  __shared__ u64 bar;
  if (threadIdx.x == 0) {
    mbar_init(&bar, 1);
    fence_init();
    mbar_expect(&bar, 2048 + 1024 + 512 + 512);
    tma_load2(t[0], &m128, x, y, &bar);
    tma_load2(t[1], &m64, x, y, &bar);
    tma_load2(t[2], &m32, x, y, &bar);
    tma_load2(t[3], &m0, x, y, &bar);
  }
  __syncthreads();
  mbar_wait(&bar, 0);
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) out[i] = t[0][i];
  for (int i = threadIdx.x; i < 512; i += blockDim.x) out[1024 + i] = t[1][i];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) {
    out[1536 + i] = t[2][i];
    out[1792 + i] = t[3][i];
  }
}

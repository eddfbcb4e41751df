// SPDX-License-Identifier: Apache-2.0
// A ragged matrix through tensor maps: tiles load with zero fill, are scaled, and store clipped; then a reduction.
#include "hopper.cuh"
struct __align__(64) TensorMap {
  unsigned long long opaque[16];
};
extern "C" __global__ void tma_2d(const __grid_constant__ TensorMap in, const __grid_constant__ TensorMap out, const __grid_constant__ TensorMap acc) {
  __shared__ __align__(128) float t[8][16], u[8][16];
  __shared__ u64 bar;
  if (threadIdx.x == 0) {
    mbar_init(&bar, 1);
    fence_init();
    ASM("prefetch.tensormap [%0];" ::"l"(&in) : "memory");
  }
  __syncthreads();
  int x = blockIdx.x * 16, y = blockIdx.y * 8;
  if (threadIdx.x == 0) {
    mbar_expect(&bar, sizeof(t));
    tma_load2(t, &in, x, y, &bar);
  }
  mbar_wait(&bar, 0);
  for (int i = threadIdx.x; i < 128; i += 32) u[i / 16][i % 16] = t[i / 16][i % 16] * 2.f + 1.f;
  fence_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    tma_store2(&out, x, y, u);
    ASM("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&acc), "r"(0), "r"(0), "r"(smem(u)) : "memory");
    bulk_commit();
    bulk_wait();
  }
}

// SPDX-License-Identifier: Apache-2.0
// Three dimensions with negative coordinates (zero fill), one dimension past its end, and a clipped 4D store.
#include "hopper.cuh"
struct __align__(64) TensorMap {
  unsigned long long opaque[16];
};
extern "C" __global__ void tma_3d(const __grid_constant__ TensorMap m3, const __grid_constant__ TensorMap m1, const __grid_constant__ TensorMap m4, int* o3, int* o1) {
  __shared__ __align__(128) int a[3 * 4 * 8], b[64], c[2 * 2 * 2 * 8];
  __shared__ u64 bar[2];
  int t = threadIdx.x;
  if (t == 0) {
    mbar_init(&bar[0], 1);
    mbar_init(&bar[1], 1);
    fence_init();
  }
  __syncthreads();
  if (t == 0) {
    mbar_expect(&bar[0], sizeof(a));
    ASM("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(smem(a)), "l"(&m3), "r"(-4),
        "r"(2), "r"(-1), "r"(smem(&bar[0]))
        : "memory");
    mbar_expect(&bar[1], sizeof(b));
    ASM("cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2}], [%3];" ::"r"(smem(b)), "l"(&m1), "r"(60),
        "r"(smem(&bar[1]))
        : "memory");
  }
  mbar_wait(&bar[1], 0);
  o1[t] = b[t];
  o1[t + 32] = b[t + 32];
  mbar_wait(&bar[0], 0);
  for (int i = t; i < 96; i += 32) o3[i] = a[i];
  for (int i = t; i < 64; i += 32) c[i] = 1000 + i;
  fence_async();
  __syncwarp();
  if (t == 0) {
    ASM("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(&m4), "r"(4), "r"(1), "r"(2), "r"(0), "r"(smem(c)) : "memory");
    bulk_commit();
    bulk_wait();
  }
}

// SPDX-License-Identifier: Apache-2.0
// Two blocks of a cluster each load half a tile and multicast it to both.
#include "hopper.cuh"
struct __align__(64) TensorMap {
  unsigned long long opaque[16];
};
extern "C" __global__ void __cluster_dims__(2, 1, 1) tma_multicast(const __grid_constant__ TensorMap in, unsigned* out) {
  __shared__ __align__(128) unsigned t[16 * 32];
  __shared__ u64 bar;
  unsigned r = cluster_rank();
  if (threadIdx.x == 0) {
    mbar_init(&bar, 1);
    fence_init();
  }
  cluster_sync();
  if (threadIdx.x == 0) {
    mbar_expect(&bar, sizeof(t));
    ASM("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(
            smem(t + r * 256)),
        "l"(&in), "r"(0), "r"((int)(blockIdx.x / 2 * 16 + r * 8)), "r"(smem(&bar)), "h"((unsigned short)3)
        : "memory");
  }
  mbar_wait(&bar, 0);
  for (int i = threadIdx.x; i < 512; i += blockDim.x) out[blockIdx.x * 512 + i] = t[i] + r;
  cluster_sync();
}

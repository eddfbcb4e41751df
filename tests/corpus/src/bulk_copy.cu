// SPDX-License-Identifier: Apache-2.0
// cp.async.bulk both ways with a two-stage ring of full/empty barriers, and bulk reductions (add u32, max s32, add f16).
#include <cuda_fp16.h>
#include "hopper.cuh"
extern "C" __global__ void bulk_copy(const int* in, int* out, int tiles) {
  __shared__ __align__(128) int buf[2][128], res[2][128];
  __shared__ u64 full[2], empty[2];
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      mbar_init(&full[i], 1);
      mbar_init(&empty[i], 64);
    }
    fence_init();
  }
  __syncthreads();
  const int* x = in + blockIdx.x * tiles * 128;
  int* y = out + blockIdx.x * tiles * 128;
  if (threadIdx.x == 64) {
    for (int i = 0; i < tiles; ++i) {
      int s = i & 1, ph = i >> 1 & 1;
      mbar_wait(&empty[s], ph ^ 1);
      mbar_expect(&full[s], 512);
      bulk_load(buf[s], x + i * 128, 512, &full[s]);
    }
  } else if (threadIdx.x < 64) {
    for (int i = 0; i < tiles; ++i) {
      int s = i & 1, ph = i >> 1 & 1;
      mbar_wait(&full[s], ph);
      if (threadIdx.x == 0) ASM("cp.async.bulk.wait_group.read 1;" ::: "memory");
      ASM("bar.sync 1, 64;" ::: "memory");
      for (int k = threadIdx.x; k < 128; k += 64) res[s][k] = buf[s][127 - k] * 3;
      mbar_arrive(&empty[s]);
      fence_async();
      ASM("bar.sync 1, 64;" ::: "memory");
      if (threadIdx.x == 0) {
        bulk_store(y + i * 128, res[s], 512);
        bulk_commit();
      }
    }
    if (threadIdx.x == 0) bulk_wait();
  }
}
extern "C" __global__ void bulk_reduce(unsigned* sum, int* top, __half* h, unsigned long long* l) {
  __shared__ __align__(16) unsigned a[32];
  __shared__ __align__(16) int b[32];
  __shared__ __align__(16) __half c[32];
  __shared__ __align__(16) unsigned long long d[32];
  int t = threadIdx.x, k = blockIdx.x + 1;
  a[t] = t * k;
  b[t] = (t - 16) * (k % 2 ? 5 : -7);
  c[t] = __float2half(t * 0.5f + k);
  d[t] = (unsigned long long)t << (8 * k);
  fence_async();
  __syncthreads();
  if (t == 0) {
    ASM("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], 128;" ::"l"(sum), "r"(smem(a)) : "memory");
    ASM("cp.reduce.async.bulk.global.shared::cta.bulk_group.max.s32 [%0], [%1], 64;" ::"l"(top + 4), "r"(smem(b + 4)) : "memory");
    bulk_commit();
    ASM("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16 [%0], [%1], 64;" ::"l"(h), "r"(smem(c)) : "memory");
    ASM("cp.reduce.async.bulk.global.shared::cta.bulk_group.or.b64 [%0], [%1], 256;" ::"l"(l), "r"(smem(d)) : "memory");
    bulk_commit();
    bulk_wait();
  }
}

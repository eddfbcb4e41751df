// SPDX-License-Identifier: Apache-2.0
// sm_90 and later by inline assembly: bulk copies in rings, clusters that push, reductions on the way out, tcgen05.
#include <cuda_fp16.h>
#include "hopper.cuh"
#define KERNEL extern "C" __global__ void
__device__ __forceinline__ bool elect() {
  unsigned p;
  ASM("{.reg .pred q; elect.sync _|q, 0xffffffff; selp.u32 %0, 1, 0, q;}" : "=r"(p));
  return p;
}
// A producer warp and three consumer warps, four stages; the results leave by a bulk reduction.
KERNEL bulk_roles(const float* in, float* sum, int rounds) {
  __shared__ __align__(128) float s[4][96];
  __shared__ __align__(128) float o[96];
  __shared__ u64 full[4], empty[4];
  int w = threadIdx.x / 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 4; ++i) {
      mbar_init(&full[i], 1);
      mbar_init(&empty[i], 3);
    }
    fence_init();
  }
  __syncthreads();
  if (w == 3) {
    if (elect())
      for (int r = 0; r < rounds; ++r) {
        if (r >= 4) mbar_wait(&empty[r % 4], (r / 4 - 1) & 1);
        mbar_expect(&full[r % 4], 384);
        bulk_load(s[r % 4], in + (blockIdx.x * rounds + r) * 96, 384, &full[r % 4]);
      }
  } else {
    float acc = 0;
    for (int r = 0; r < rounds; ++r) {
      mbar_wait(&full[r % 4], r / 4 & 1);
      acc += s[r % 4][95 - threadIdx.x];
      __syncwarp();
      if (elect()) mbar_arrive(&empty[r % 4]);
    }
    o[threadIdx.x] = acc;
    fence_async();
    ASM("bar.sync 1, 96;" ::: "memory");
    if (threadIdx.x == 0) {
      ASM("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], 384;" ::"l"(sum), "r"(smem(o)) : "memory");
      bulk_commit();
      ASM("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
  }
}
// One block loads, the hardware gives the rows to every block of the cluster; each says when it has read.
KERNEL __cluster_dims__(4, 1, 1) multicast_rows(const int* in, int* out, int rounds) {
  __shared__ __align__(128) int s[2][64];
  __shared__ u64 full[2], empty[2];
  unsigned rank = cluster_rank();
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      mbar_init(&full[i], 1);
      mbar_init(&empty[i], 4);
    }
    fence_init();
  }
  cluster_sync();
  int acc = 0;
  for (int r = 0; r < rounds; ++r) {
    int b = r & 1;
    if (threadIdx.x == 0) {
      mbar_expect(&full[b], 256);
      if (r >= 2) mbar_wait(&empty[b], (r / 2 - 1) & 1);  // the leader's counts all four
      if (rank == 0)
        ASM("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], 256, [%2], %3;" ::"r"(smem(s[b])), "l"(in + r * 64), "r"(smem(&full[b])), "h"((short)15) : "memory");
    }
    mbar_wait(&full[b], r / 2 & 1);
    acc = acc * 3 + s[b][threadIdx.x ^ rank];
    __syncthreads();
    if (threadIdx.x < 4) ASM("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(mapa(smem(&empty[b]), threadIdx.x)) : "memory");
  }
  out[blockIdx.x * 64 + threadIdx.x] = acc;
  cluster_sync();
}
// All-to-all in a cluster: st.async into the neighbours' memory, with red.async on a counter.
KERNEL __cluster_dims__(2, 1, 1) push_rows(const int* in, int* out) {
  __shared__ __align__(16) int got[2][64];
  __shared__ __align__(8) int count;
  __shared__ u64 bar;
  unsigned rank = cluster_rank();
  if (threadIdx.x == 0) {
    count = 0;
    mbar_init(&bar, 1);
    fence_init();
    mbar_expect(&bar, 2 * 64 * 4 + 2 * 4);
  }
  cluster_sync();
  int v = in[blockIdx.x * 64 + threadIdx.x];
  for (unsigned to = 0; to < 2; ++to) {
    unsigned dst = mapa(smem(&got[rank][threadIdx.x ^ 1]), to), b = mapa(smem(&bar), to);
    ASM("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(dst), "r"(v + (int)to), "r"(b) : "memory");
    if (threadIdx.x == 0)
      ASM("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, [%2];" ::"r"(mapa(smem(&count), to)), "r"(10 + rank), "r"(b) : "memory");
  }
  mbar_wait(&bar, 0);
  out[blockIdx.x * 64 + threadIdx.x] = got[0][threadIdx.x] * 2 + got[1][threadIdx.x] + count;
  cluster_sync();
}
// Tiles stored with an addition by the tensor unit; two blocks hit the same tile.
struct alignas(64) Map {
  char b[128];
};
KERNEL tensor_add(const __grid_constant__ Map map, int blocks_per_tile) {
  __shared__ __align__(128) int s[16 * 16];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) s[i] = i + (int)blockIdx.x;
  fence_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    int tile = blockIdx.x / blocks_per_tile;
    ASM("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(tile % 2 * 16), "r"(tile / 2 * 16), "r"(smem(s)) : "memory");
    bulk_commit();
    bulk_wait();
  }
}
// Work handed over through a flag after a bulk store: the other block reduces onto the same bytes.
KERNEL store_then_reduce(const int* in, int* out, int* flag) {
  __shared__ __align__(128) int s[64];
  s[threadIdx.x] = in[blockIdx.x * 64 + threadIdx.x];
  fence_async();
  __syncthreads();
  if (threadIdx.x) return;
  if (blockIdx.x == 0) {
    bulk_store(out, s, 256);
    bulk_commit();
    bulk_wait();
    fence_async();
    ASM("st.release.gpu.global.u32 [%0], 1;" ::"l"(flag) : "memory");
  } else {
    int v;
    do ASM("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(flag) : "memory");
    while (v != 1);
    fence_async();
    ASM("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.s32 [%0], [%1], 256;" ::"l"(out), "r"(smem(s)) : "memory");
    bulk_commit();
    bulk_wait();
  }
}
// The same with an ordinary read on the other side, and with copies of threads in shared memory: a flag instead of a barrier.
KERNEL store_then_read(const int* in, int* out, int* flag, int* copy) {
  __shared__ __align__(128) int s[64];
  if (blockIdx.x == 0) {
    s[threadIdx.x] = in[threadIdx.x];
    fence_async();
    __syncthreads();
    if (threadIdx.x == 0) {
      bulk_store(out, s, 256);
      bulk_commit();
      bulk_wait();
      fence_async();
      __threadfence();
      *(volatile int*)flag = 1;
    }
  } else {
    while (*(volatile int*)flag == 0) {
    }
    __threadfence();
    copy[threadIdx.x] = out[threadIdx.x];
  }
}
KERNEL copy_then_flag(const int* in, int* out, int rounds) {
  __shared__ __align__(16) int s[4][32];
  __shared__ int full[32], empty[32];
  int lane = threadIdx.x % 32, acc = 0;
  if (threadIdx.x < 32) full[lane] = empty[lane] = 0;
  __syncthreads();
  for (int r = 0; r < rounds; ++r) {
    if (threadIdx.x < 32) {  // each lane copies a word for its partner, four rounds ahead at most
      int seen;
      do ASM("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(seen) : "r"(smem(&empty[lane])) : "memory");
      while (seen < r - 3);
      ASM("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(smem(&s[r % 4][lane])), "l"(in + r * 32 + lane) : "memory");
      ASM("cp.async.wait_all;" ::: "memory");
      ASM("st.release.cta.shared.u32 [%0], %1;" ::"r"(smem(&full[lane])), "r"(r + 1) : "memory");
    } else {
      int seen;
      do ASM("ld.relaxed.cta.shared.u32 %0, [%1];" : "=r"(seen) : "r"(smem(&full[lane])) : "memory");
      while (seen < r + 1);
      ASM("fence.acq_rel.cta;" ::: "memory");
      acc = acc * 3 + s[r % 4][lane];
      ASM("fence.acq_rel.cta; st.relaxed.cta.shared.u32 [%0], %1;" ::"r"(smem(&empty[lane])), "r"(r + 1) : "memory");
    }
  }
  if (threadIdx.x >= 32) out[lane] = acc;
}
// Programmatic dependent launch: a wait that returns at once here.
KERNEL dependent(const int* in, int* out) {
  ASM("griddepcontrol.wait;" ::: "memory");
  int v = in[threadIdx.x];
  ASM("griddepcontrol.launch_dependents;");
  out[threadIdx.x] = v * 2;
}
// Copies by all threads counted on one mbarrier, rows of 48 bytes, no group.
KERNEL copy_arrive(const int4* in, int* out) {
  __shared__ __align__(16) int4 s[96];
  __shared__ u64 bar;
  if (threadIdx.x == 0) {
    mbar_init(&bar, 64);
    ASM("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 96; i += 64) ASM("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(smem(s + i)), "l"(in + i) : "memory");
  ASM("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(smem(&bar)) : "memory");
  mbar_wait(&bar, 0);
  const int* v = (const int*)s;
  for (int i = threadIdx.x; i < 384; i += 64) out[i] = v[(i * 7) % 384];
}
#if defined(__CUDA_ARCH_FEAT_SM100_ALL)
// D[128][64] = A[128][64] B[64][64]^T in f16 by the fifth-generation tensor cores: K-major tiles without a swizzle.
KERNEL tcgen05_tile(const half* a, const half* b, float* d) {
  __shared__ __align__(128) half as[128 * 64], bs[64 * 64];
  __shared__ u64 bar;
  __shared__ unsigned base;
  int t = threadIdx.x, w = t / 32;
  if (w == 0) ASM("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 64;" ::"r"(smem(&base)) : "memory");
  if (t == 0) {
    mbar_init(&bar, 1);
    fence_init();
  }
  for (int i = t; i < 128 * 64; i += 128) {
    int r = i / 64, k = i % 64;  // 8x8 core matrices: 128 bytes each, along k 2048 (A) and 1024 (B) bytes apart
    as[k / 8 * 1024 + r * 8 + k % 8] = a[i];
    if (r < 64) bs[k / 8 * 512 + r * 8 + k % 8] = b[i];
  }
  fence_async();
  ASM("tcgen05.fence::before_thread_sync;" ::: "memory");
  __syncthreads();
  ASM("tcgen05.fence::after_thread_sync;" ::: "memory");
  unsigned tmem = base;
  if (w == 0 && elect()) {
    unsigned idesc = 1u << 4 | 64 / 8 << 17 | 128 / 16 << 24;
    for (int k = 0; k < 4; ++k) {
      u64 da = descriptor((char*)as + k * 4096, 2048, 128, 0) | 1ull << 46, db = descriptor((char*)bs + k * 2048, 1024, 128, 0) | 1ull << 46;
      ASM("{.reg .pred p; setp.ne.u32 p, %4, 0; tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p;}" ::"r"(tmem), "l"(da), "l"(db), "r"(idesc), "r"(k) : "memory");
    }
    ASM("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(smem(&bar)) : "memory");
  }
  __syncwarp();
  mbar_wait(&bar, 0);
  ASM("tcgen05.fence::after_thread_sync;" ::: "memory");
  for (int n = 0; n < 64; n += 8) {
    unsigned r[8];
    ASM("tcgen05.ld.sync.aligned.32x32b.x8.b32 {%0,%1,%2,%3,%4,%5,%6,%7}, [%8];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]), "=r"(r[4]), "=r"(r[5]), "=r"(r[6]), "=r"(r[7])
        : "r"(tmem + (w * 32 << 16) + n));
    ASM("tcgen05.wait::ld.sync.aligned;" ::: "memory");
    for (int i = 0; i < 8; ++i) d[t * 64 + n + i] = __uint_as_float(r[i]);
  }
  ASM("tcgen05.fence::before_thread_sync;" ::: "memory");
  __syncthreads();
  if (w == 0) {
    ASM("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
    ASM("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 64;" ::"r"(tmem));
  }
}
#endif
#if __CUDA_ARCH__ >= 1000
// A persistent kernel that takes over blocks which have not started.
KERNEL take_over(const int* in, int* out) {
  __shared__ __align__(16) uint4 reply;
  __shared__ u64 bar;
  if (threadIdx.x == 0) {
    mbar_init(&bar, 1);
    fence_init();
  }
  __syncthreads();
  int block = blockIdx.x;
  for (int phase = 0;; phase ^= 1) {
    if (threadIdx.x == 0) {
      fence_async();
      ASM("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];" ::"r"(smem(&reply)), "r"(smem(&bar)) : "memory");
      mbar_expect(&bar, 16);
    }
    out[block * 32 + threadIdx.x] = in[block * 32 + threadIdx.x] * 3;
    mbar_wait(&bar, phase);
    int again, next;
    ASM("{.reg .b128 q; .reg .pred p; ld.shared.b128 q, [%2]; clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, q; selp.s32 %0, 1, 0, p; mov.s32 %1, 0;"
        " @p clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %1, q;}"
        : "=r"(again), "=r"(next) : "r"(smem(&reply)) : "memory");
    __syncthreads();
    if (!again) break;
    block = next;
  }
}
#endif

// SPDX-License-Identifier: Apache-2.0
// Mistakes of textbook kernels: reductions, scans, histograms, locks, scopes, copies, clusters, ends of
// blocks.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>

#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>

#include "hopper.cuh"
#pragma nv_diag_suppress 20054
namespace cg = cooperative_groups;
#define KERNEL extern "C" __global__ void

// ---- shared memory
KERNEL warp_tail(const int* in, int* out) {  // the last steps rely on warps in step
  __shared__ int s[64];
  int t = threadIdx.x;
  s[t] = in[t];
  __syncthreads();
  if (t < 32) {
    s[t] += s[t + 32];
    s[t] += s[t + 16];
    s[t] += s[t + 8];
    s[t] += s[t + 4];
    s[t] += s[t + 2];
    s[t] += s[t + 1];
  }
  if (t == 0) out[0] = s[0];
}
KERNEL scan_in_place(const int* in, int* out) {  // one barrier a step, one buffer
  __shared__ int s[128];
  int t = threadIdx.x;
  s[t] = in[t];
  __syncthreads();
  for (int d = 1; d < 128; d *= 2) {
    if (t >= d) s[t] += s[t - d];
    __syncthreads();
  }
  out[t] = s[t];
}
KERNEL shared_count(const int* in, int* out) {
  __shared__ int h[16];
  if (threadIdx.x < 16) h[threadIdx.x] = 0;
  __syncthreads();
  ++h[in[threadIdx.x] & 15];
  __syncthreads();
  if (threadIdx.x < 16) out[threadIdx.x] = h[threadIdx.x];
}
__device__ int block_sum(int v, int* scratch) {
  for (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, v, d);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
  __syncthreads();
  int s = 0;
  for (unsigned i = 0; i < blockDim.x / 32; ++i) s += scratch[i];
  return s;  // no barrier: the next call overwrites what others still read
}
KERNEL scratch_reuse(const int* in, int* out) {
  __shared__ int scratch[4];
  int a = block_sum(in[threadIdx.x], scratch);
  int b = block_sum(in[threadIdx.x] * a, scratch);
  out[threadIdx.x] = a + b;
}
// ---- global memory
__device__ unsigned done_blocks;
KERNEL last_block_no_fence(const int* in, int* part, int* out) {
  __shared__ bool last;
  int v = in[blockIdx.x * 32 + threadIdx.x];
  for (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, v, d);
  if (threadIdx.x == 0) {
    part[blockIdx.x] = v;
    last = atomicInc(&done_blocks, gridDim.x - 1) == gridDim.x - 1;  // __threadfence is missing before it
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    int s = 0;
    for (unsigned b = 0; b < gridDim.x; ++b) s += ((volatile int*)part)[b];
    out[0] = s;
  }
}
KERNEL lock_no_fence(int* lock, int* data) {  // the protected word is plain, the lock relaxed
  if (threadIdx.x) return;
  while (atomicCAS(lock, 0, 1)) {
  }
  data[0] += 1;
  atomicExch(lock, 0);
}
KERNEL no_grid_sync(const int* in, int* tmp, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  tmp[i] = in[i] * 2;
  __syncthreads();  // of the block, where the grid is meant
  out[i] = tmp[n - 1 - i];
}
KERNEL relaxed_flag(int* data, int* flag, int* out) {
  cuda::atomic_ref<int, cuda::thread_scope_device> f(*flag);
  if (threadIdx.x) return;
  if (blockIdx.x == 0) {
    data[0] = 42;
    f.store(1, cuda::memory_order_relaxed);
  } else {
    while (!f.load(cuda::memory_order_relaxed)) {
    }
    out[0] = data[0];
  }
}
// ---- scopes
KERNEL block_atomic(int* counter) { atomicAdd_block(counter, 1); }
KERNEL block_ref(int* data, int* flag, int* out) {
  cuda::atomic_ref<int, cuda::thread_scope_block> f(*flag);
  if (threadIdx.x) return;
  if (blockIdx.x == 0) {
    data[0] = 42;
    f.fetch_add(1, cuda::memory_order_release);
  } else {
    while (!f.load(cuda::memory_order_acquire)) {
    }
    out[0] = data[0];
  }
}
// ---- asynchronous copies
KERNEL no_consumer_wait(const int* in, int* out) {
  __shared__ alignas(16) int s[2][64];
  auto pipe = cuda::make_pipeline();
  for (int b = 0; b < 2; ++b) {
    pipe.producer_acquire();
    cuda::memcpy_async(&s[b][threadIdx.x], in + b * 64 + threadIdx.x, cuda::aligned_size_t<4>(4), pipe);
    pipe.producer_commit();
  }
  out[threadIdx.x] = s[0][threadIdx.x] + s[1][threadIdx.x];
  pipe.consumer_wait();
  pipe.consumer_release();
  pipe.consumer_wait();
  pipe.consumer_release();
}
KERNEL group_copy_no_wait(const int* in, int* out) {
  __shared__ alignas(16) int s[64];
  auto block = cg::this_thread_block();
  cg::memcpy_async(block, s, in, sizeof s);
  block.sync();  // is no wait
  out[threadIdx.x] = s[63 - threadIdx.x];
  cg::wait(block);
}
KERNEL source_rewritten(int* in, int* out) {  // the source changes while the copy may still read it
  __shared__ alignas(16) int s[32];
  int t = threadIdx.x;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\ncp.async.commit_group;" ::"r"(smem(s + t)),
               "l"(in + t)
               : "memory");
  in[t] = -1;
  asm volatile("cp.async.wait_all;" ::: "memory");
  out[t] = s[t];
}
KERNEL stage_overwritten(const int* in, int* out) {  // nobody tells the producer that the stage is free
  __shared__ alignas(128) int s[64];
  __shared__ u64 full;
  if (threadIdx.x == 0) {
    mbar_init(&full, 1);
    fence_init();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    mbar_expect(&full, 256);
    bulk_load(s, in, 256, &full);
    mbar_wait(&full, 0);
    mbar_expect(&full, 256);
    bulk_load(s, in + 64, 256, &full);
  }
  if (threadIdx.x >= 32) {
    mbar_wait(&full, 0);
    out[threadIdx.x] = s[threadIdx.x];
  }
  __syncthreads();
  mbar_wait(&full, 1);
  out[64 + threadIdx.x] = s[threadIdx.x];
}
KERNEL store_no_wait(int* out) {  // the block ends before the copy has read its memory
  __shared__ alignas(16) int s[64];
  s[threadIdx.x] = threadIdx.x;
  fence_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    bulk_store(out, s, 256);
    bulk_commit();
  }
}
KERNEL load_into_used(const int* in, int* out) {  // ordinary accesses, then a copy into the same bytes
  __shared__ alignas(128) int s[64];
  __shared__ u64 full;
  if (threadIdx.x == 0) {
    mbar_init(&full, 1);
    fence_init();
  }
  s[threadIdx.x] = in[threadIdx.x] * 2;
  __syncthreads();
  int v = s[63 - threadIdx.x];
  if (threadIdx.x == 0) {  // no barrier since the reads
    mbar_expect(&full, 256);
    bulk_load(s, in, 256, &full);
  }
  mbar_wait(&full, 0);
  out[threadIdx.x] = v + s[threadIdx.x];
}
// ---- clusters
KERNEL cluster_no_sync(int* out) {
  __shared__ int s[32];
  auto cluster = cg::this_cluster();
  s[threadIdx.x] = cluster.block_rank() * 100 + threadIdx.x;
  __syncthreads();  // of this block only
  int* peer = cluster.map_shared_rank(s, cluster.block_rank() ^ 1);
  out[blockIdx.x * 32 + threadIdx.x] = peer[threadIdx.x];
  cluster.sync();
}
// ---- bounds, alignment, nothing written
KERNEL stencil_edge(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i - 1] + in[i] + in[i + 1];
}
KERNEL negative_shared(const int* in, int* out) {
  __shared__ int s[32];
  s[threadIdx.x] = in[threadIdx.x];
  __syncwarp();
  out[threadIdx.x] = s[(int)threadIdx.x - 1];
}
KERNEL copy_misaligned(const char* in, int* out) {
  __shared__ alignas(16) char s[512];
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16;\ncp.async.wait_all;" ::"r"(smem(s + threadIdx.x * 16)),
      "l"(in + 8 + threadIdx.x * 16)
      : "memory");
  __syncwarp();
  out[threadIdx.x] = *(int*)(s + threadIdx.x * 4);
}
KERNEL matrix_misaligned(const int* in, int* out) {
  __shared__ alignas(16) int s[64];
  s[threadIdx.x] = in[threadIdx.x];
  s[threadIdx.x + 32] = in[threadIdx.x];
  __syncwarp();
  int r;
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
               : "=r"(r)
               : "r"(smem((char*)s + threadIdx.x % 8 * 18))
               : "memory");
  out[threadIdx.x] = r;
}
KERNEL max_uninit(const int* in, int* out) {  // the first comparison reads what nobody wrote
  __shared__ int best;
  atomicMax(&best, in[threadIdx.x]);
  __syncthreads();
  out[threadIdx.x] = best;
}
// ---- masks, ends
KERNEL reduce_wrong_mask(const int* in, int* out) {
  int v = in[threadIdx.x];
  if (v & 1) v += __reduce_add_sync(0xffffffffu, v);
  out[threadIdx.x] = v;
}
KERNEL vote_in_branch(const int* in, int* out) {  // a vote has no source lanes to be missed
  int v = in[threadIdx.x];
  if (threadIdx.x < 16) v += __ballot_sync(0xffffffffu, v > 3);
  out[threadIdx.x] = v;
}
KERNEL syncwarp_partial(const int* in, int* out) {  // lane 31 leaves, the rest waits for it
  if (in[threadIdx.x] < 0) return;
  __syncwarp();
  out[threadIdx.x] = __shfl_down_sync(~0u, in[threadIdx.x], 1);
}
KERNEL barrier_count(int* out) {  // 64 are expected, 32 arrive
  __shared__ cuda::barrier<cuda::thread_scope_block> b;
  if (threadIdx.x == 0) init(&b, blockDim.x);
  __syncthreads();
  if (threadIdx.x < 32) b.arrive_and_wait();
  out[threadIdx.x] = 1;
}
KERNEL grid_barrier_early(unsigned* arrived, int* out) {  // a block that returns never arrives
  if (blockIdx.x == 2) return;
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(arrived, 1);
    while (*(volatile unsigned*)arrived < gridDim.x) {
    }
    __threadfence();
  }
  __syncthreads();
  out[blockIdx.x * 32 + threadIdx.x] = 1;
}

// SPDX-License-Identifier: Apache-2.0
// Kernels that are nearly right: one defect each.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda_pipeline.h>
#include <mma.h>
#include <cassert>
#include "hopper.cuh"
#pragma nv_diag_suppress 20054
namespace cg = cooperative_groups;
#define KERNEL extern "C" __global__ void

// --- races in shared memory
KERNEL partial_barrier(const int* in, int* out) {  // the barrier stands inside the if: the other warps run ahead
  __shared__ int s[128];
  int t = threadIdx.x;
  s[t] = in[t];
  __syncthreads();
  for (int d = 64; d >= 32; d /= 2)
    if (t < d) {
      s[t] += s[t + d];
      __syncthreads();
    }
  __syncthreads();
  out[t] = s[t % 32];
}
KERNEL histogram_flush(const int* in, int* out) {  // the barrier between counting and the flush is missing
  __shared__ int bins[32];
  int t = threadIdx.x;
  if (t < 32) bins[t] = 0;
  __syncthreads();
  atomicAdd(&bins[in[t] & 31], 1);
  if (t < 32) out[t] = bins[t];
}
KERNEL bit_flags(const int* in, unsigned* out) {  // a read-modify-write of a byte that eight threads share
  __shared__ unsigned char f[16];
  int t = threadIdx.x;
  if (t < 16) f[t] = 0;
  __syncthreads();
  if (in[t] > 4) f[t / 8] |= 1 << t % 8;
  __syncthreads();
  if (t < 16) out[t] = f[t];
}
KERNEL flag_in_shared(const int* in, int* out) {  // a warp publishes for the other by a flag, without a fence
  __shared__ int data[32];
  __shared__ volatile int ready;
  if (threadIdx.x == 0) ready = 0;
  __syncthreads();
  if (threadIdx.x < 32) {
    data[threadIdx.x] = in[threadIdx.x];
    __syncwarp();
    if (threadIdx.x == 0) ready = 1;
  } else {
    while (!ready) {
    }
    out[threadIdx.x - 32] = data[63 - threadIdx.x];
  }
}
KERNEL tile_sync_too_small(const int* in, int* out) {  // tiles of 16 are synchronised, data cross them
  __shared__ int s[64];
  auto t = cg::tiled_partition<16>(cg::this_thread_block());
  s[threadIdx.x] = in[threadIdx.x];
  t.sync();
  out[threadIdx.x] = s[threadIdx.x ^ 16];
}
// --- races in global memory
KERNEL half_the_index(const int* in, int* out) { out[threadIdx.x / 2] = in[threadIdx.x]; }  // lane pairs write one word
KERNEL fence_before_store(int* part, int* count, int* out) {  // the fence stands before what it should publish
  __shared__ bool last;
  if (threadIdx.x == 0) {
    __threadfence();
    part[blockIdx.x] = (int)blockIdx.x + 5;
    last = atomicAdd(count, 1) == (int)gridDim.x - 1;
    if (last) {
      __threadfence();
      int s = 0;
      for (unsigned b = 0; b < gridDim.x; ++b) s += part[b];
      *out = s;
    }
  }
}
KERNEL no_barrier_before_flag(const int* in, int* part, int* flag, int* out) {  // only one thread's store is surely done
  int t = threadIdx.x;
  if (blockIdx.x == 0) {
    part[t] = in[t] * 2;
    __threadfence();
    if (t == 0) atomicExch(flag, 1);
  } else {
    if (t == 0)
      while (atomicAdd(flag, 0) == 0) {
      }
    __syncthreads();
    __threadfence();
    out[t] = part[t];
  }
}
KERNEL lock_without_acquire(int* lock, int* data) {  // nothing orders the reads behind the lock that was taken
  if (threadIdx.x == 0) {
    while (atomicCAS(lock, 0, 1) != 0) {
    }
    data[0] += blockIdx.x + 1;
    __threadfence();
    atomicExch(lock, 0);
  }
}
KERNEL next_row_too_soon(const int* row, int* x, int n) {  // a triangular solve that polls only the row before last
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  volatile int* v = x;
  int a = row[i];
  if (i >= 2) a += v[i - 2];
  if (i >= 1) a += x[i - 1];
  v[i] = a;
}
// --- asynchronous copies
KERNEL tail_wait(const int* in, int* out, int tiles) {  // the last tile has no successor, so one group may stay in flight
  __shared__ __align__(16) int s[2][64];
  int t = threadIdx.x;
  auto fetch = [&](int k) {
    if (t < 16) __pipeline_memcpy_async(&s[k & 1][t * 4], in + k * 64 + t * 4, 16);
    __pipeline_commit();
  };
  fetch(0);
  int acc = 0;
  for (int k = 0; k < tiles; ++k) {
    if (k + 1 < tiles) fetch(k + 1);
    __pipeline_wait_prior(1);
    __syncthreads();
    acc += s[k & 1][63 - t];
    __syncthreads();
  }
  out[t] = acc;
}
KERNEL release_before_read(const int* in, int* out, int rounds) {  // the stage is handed back before it was read
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  __shared__ alignas(16) int s[2][64];
  auto block = cg::this_thread_block();
  auto pipe = cuda::make_pipeline(block, &state);
  int acc = 0;
  for (int r = 0; r < rounds + 1; ++r) {
    if (r < rounds) {
      pipe.producer_acquire();
      cuda::memcpy_async(block, s[r & 1], in + r * 64, 256, pipe);
      pipe.producer_commit();
    }
    if (r) {
      pipe.consumer_wait();
      pipe.consumer_release();
      acc = acc * 3 + s[(r - 1) & 1][63 - threadIdx.x];
    }
  }
  out[threadIdx.x] = acc;
}
#if __CUDA_ARCH__ >= 900
KERNEL ring_parity(const int* in, int* out, int rounds) {  // the parity does not flip when the ring wraps around
  __shared__ __align__(128) int s[2][64];
  __shared__ u64 full[2];
  if (threadIdx.x == 0) {
    mbar_init(&full[0], 1);
    mbar_init(&full[1], 1);
    fence_init();
  }
  __syncthreads();
  int acc = 0;
  for (int r = 0; r < rounds; ++r) {
    if (threadIdx.x == 0) {
      mbar_expect(&full[r & 1], 256);
      bulk_load(s[r & 1], in + r * 64, 256, &full[r & 1]);
    }
    mbar_wait(&full[r & 1], 0);
    acc += s[r & 1][63 - threadIdx.x] * (r + 1);
    __syncthreads();
  }
  out[threadIdx.x] = acc;
}
KERNEL too_few_bytes(const int* in, int* out) {  // two copies, the bytes of one are expected
  __shared__ __align__(128) int s[128];
  __shared__ u64 full;
  if (threadIdx.x == 0) {
    mbar_init(&full, 1);
    fence_init();
    mbar_expect(&full, 256);
    bulk_load(s, in, 256, &full);
    bulk_load(s + 64, in + 64, 256, &full);
  }
  __syncthreads();
  mbar_wait(&full, 0);
  out[threadIdx.x] = s[threadIdx.x] + s[127 - threadIdx.x];
}
KERNEL read_wait_only(const int* in, int* out, int* flag, int* copy) {  // .read frees the source, it does not finish the store
  __shared__ __align__(128) int s[64];
  if (blockIdx.x == 0) {
    s[threadIdx.x] = in[threadIdx.x];
    fence_async();
    __syncthreads();
    if (threadIdx.x == 0) {
      bulk_store(out, s, 256);
      bulk_commit();
      ASM("cp.async.bulk.wait_group.read 0;" ::: "memory");
      ASM("fence.proxy.async; st.release.gpu.global.u32 [%0], 1;" ::"l"(flag) : "memory");
    }
  } else {
    int v;
    do ASM("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(flag) : "memory");
    while (!v);
    copy[threadIdx.x] = out[threadIdx.x];
  }
}
KERNEL fence_before_copy(const int* in, int* out, int* flag, int* copy) {  // the fence stands before the copy that the flag announces
  __shared__ __align__(128) int s[64];
  if (blockIdx.x == 0) {
    s[threadIdx.x] = in[threadIdx.x];
    fence_async();
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      bulk_store(out, s, 256);
      bulk_commit();
      bulk_wait();
      *(volatile int*)flag = 1;
    }
  } else {
    while (*(volatile int*)flag == 0) {
    }
    __threadfence();
    copy[threadIdx.x] = out[threadIdx.x];
  }
}
KERNEL generic_then_bulk(const int* in, int* tmp, int* out) {  // global memory written by stores, read by a bulk copy
  __shared__ __align__(128) int s[64];
  __shared__ u64 full;
  tmp[threadIdx.x] = in[threadIdx.x] + 1;
  if (threadIdx.x == 0) {
    mbar_init(&full, 1);
    fence_init();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    mbar_expect(&full, 256);
    bulk_load(s, tmp, 256, &full);
  }
  mbar_wait(&full, 0);
  out[threadIdx.x] = s[threadIdx.x ^ 7];
}
KERNEL __cluster_dims__(2, 1, 1) relaxed_cluster(const int* in, int* out) {  // the arrival publishes nothing
  __shared__ int s[32];
  unsigned r = mapa(smem(&s[threadIdx.x]), cluster_rank() ^ 1);
  ASM("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
  ASM("st.shared::cluster.u32 [%0], %1;" ::"r"(r), "r"(in[blockIdx.x * 32 + threadIdx.x]) : "memory");
  ASM("barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;" ::: "memory");
  out[blockIdx.x * 32 + threadIdx.x] = s[31 - threadIdx.x];
  cluster_sync();
}
KERNEL __cluster_dims__(2, 1, 1) cluster_scope_flag(int* data, int* flag, int* out) {  // the reader is in another cluster
  if (threadIdx.x) return;
  if (blockIdx.x == 0) {
    data[0] = 42;
    ASM("st.release.cluster.global.u32 [%0], 1;" ::"l"(flag) : "memory");
  } else if (blockIdx.x == 2) {
    int v;
    do ASM("ld.acquire.cluster.global.u32 %0, [%1];" : "=r"(v) : "l"(flag) : "memory");
    while (!v);
    out[0] = data[0];
  }
}
KERNEL bulk_odd_size(const int* in, int* out, int n) {  // a bulk copy of 248 bytes
  __shared__ __align__(128) int s[64];
  __shared__ u64 full;
  if (threadIdx.x == 0) {
    mbar_init(&full, 1);
    fence_init();
    mbar_expect(&full, n * 4);
    bulk_load(s, in, n * 4, &full);
  }
  __syncthreads();
  mbar_wait(&full, 0);
  if (threadIdx.x < n) out[threadIdx.x] = s[threadIdx.x];
}
KERNEL empty_parity(const int* in, int* out, int rounds) {  // the producer first waits for a phase that nobody completes
  __shared__ __align__(128) int s[64];
  __shared__ u64 full, empty;
  if (threadIdx.x == 0) {
    mbar_init(&full, 1);
    mbar_init(&empty, 64);
    fence_init();
  }
  __syncthreads();
  if (threadIdx.x >= 64) {
    if (threadIdx.x == 64)
      for (int r = 0; r < rounds; ++r) {
        mbar_wait(&empty, r & 1);
        mbar_expect(&full, 256);
        bulk_load(s, in + r * 64, 256, &full);
      }
  } else {
    int acc = 0;
    for (int r = 0; r < rounds; ++r) {
      mbar_wait(&full, r & 1);
      acc += s[threadIdx.x];
      mbar_arrive(&empty);
    }
    out[threadIdx.x] = acc;
  }
}
#endif
// --- out of bounds
KERNEL wrong_pitch(const float* in, float* out, int w, int h, int pitch) {  // the row is multiplied by the wrong width
  int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
  if (x < w && y < h) out[y * w + x] = in[y * (pitch + 1) + x] * 2;
}
KERNEL swapped_guard(const int* in, int* out, int w, int h) {  // x is compared with the height
  int x = blockIdx.x * 8 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
  if (x < h && y < w) out[y * w + x] = in[y * w + x];
}
KERNEL unsigned_wrap(const int* in, int* out, unsigned n) {  // i - 1 of 0 is a very large number
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] - in[min(i - 1, n)];
}
KERNEL const_table(const int* in, int* out);
__constant__ int limits[6] = {1, 2, 4, 8, 16, 32};
KERNEL const_table(const int* in, int* out) { out[threadIdx.x] = limits[in[threadIdx.x]]; }  // an index of 6
KERNEL freed(const int* in, int* out) {  // memory of the device's heap after it was given back
  int* p = (int*)malloc(16);
  p[0] = in[threadIdx.x];
  int* q = p;
  free(p);
  out[threadIdx.x] = *(volatile int*)q;
}
KERNEL deep_stack(int* out, int n) {  // a local array that is too short for the last element
  int a[12];
  for (int i = 0; i < n; ++i) a[i] = i * (int)threadIdx.x;
  int s = 0;
  for (int i = n - 1; i >= 0; --i) s += a[(i * 5) % n];
  out[threadIdx.x] = s;
}
// --- memory never written
KERNEL bins_not_cleared(const int* in, int* out) {  // half of the bins are cleared
  __shared__ int bins[64];
  int t = threadIdx.x;
  if (t < 32) bins[t] = 0;
  __syncthreads();
  atomicAdd(&bins[in[t] & 63], 1);
  __syncthreads();
  if (t < 64) out[t] = bins[t];
}
KERNEL ragged_tile(const float* a, const float* b, float* c, int k) {  // columns beyond k are left as they were
  __shared__ float s[8][16];
  int r = threadIdx.x / 16, q = threadIdx.x % 16;
  if (q < k) s[r][q] = a[r * k + q];
  __syncthreads();
  float acc = 0;
  for (int i = 0; i < 16; ++i) acc += s[r][i] * (i < k ? b[i] : 0.f);
  c[threadIdx.x] = acc;
}
KERNEL sum_not_cleared(const float* in, float* sum) {  // an accumulator from cudaMalloc
  float v = in[blockIdx.x * 32 + threadIdx.x];
  for (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, v, d);
  if (threadIdx.x == 0) atomicAdd(sum, v);
}
// --- alignment
KERNEL odd_float2(const float* in, float2* out) {  // rows of 33 floats, read in pairs
  __shared__ __align__(16) float s[4][33];
  for (int i = threadIdx.x; i < 132; i += 64) s[i / 33][i % 33] = in[i];
  __syncthreads();
  out[threadIdx.x] = *(float2*)&s[threadIdx.x / 16][threadIdx.x % 16 * 2];
}
KERNEL packed_record(const unsigned char* in, int* out) { out[threadIdx.x] = *(const int*)(in + threadIdx.x * 6 + 2); }
// --- divergence, masks
__device__ __noinline__ int block_sum(int v) {
  __shared__ int s[64];
  s[threadIdx.x] = v;
  __syncthreads();
  int r = 0;
  for (int i = 0; i < 64; ++i) r += s[i];
  __syncthreads();
  return r;
}
KERNEL barrier_in_call(const int* in, int* out) {  // the function with barriers is called by the odd ones apart
  int t = threadIdx.x, v = in[t];
  if (v & 1)
    out[t] = block_sum(v);
  else
    out[t] = -block_sum(v);
}
KERNEL leaving_lanes(const int* in, int* out, int n) {  // lanes leave the loop, the full mask stays
  int s = 0;
  for (int i = threadIdx.x; i < n; i += 32) {
    int v = in[i];
    s += __shfl_xor_sync(0xffffffff, v, 1);
  }
  out[threadIdx.x] = s;
}
KERNEL stale_mask(const int* in, int* out) {  // the mask was taken before a second condition
  int v = in[threadIdx.x];
  if (v > 10) {
    unsigned m = __activemask();
    if (v < 90) v = __reduce_add_sync(m, v);
  }
  out[threadIdx.x] = v;
}
KERNEL group_of_fewer(const int* in, int* out) {  // a coalesced group meets again where part of it is
  int v = in[threadIdx.x];
  if (v & 1) {
    auto g = cg::coalesced_threads();
    if (g.thread_rank() & 1) {
      v = cg::reduce(g, v, cg::plus<int>());
    }
  }
  out[threadIdx.x] = v;
}
// --- deadlocks
KERNEL grid_too_large(int* count, int* out) {  // blocks wait for blocks that cannot start
  extern __shared__ int s[];
  if (threadIdx.x == 0) {
    s[0] = 1;
    atomicAdd(count, 1);
    while (*(volatile int*)count < (int)gridDim.x) __nanosleep(200);
    out[blockIdx.x] = s[0];
  }
}
KERNEL plain_poll(int* flag, const int* in, int* out) {  // the compiler may read the flag once, and does
  if (blockIdx.x == 0) {
    if (threadIdx.x == 0) {
      __threadfence();
      atomicExch(flag, 1);
    }
  } else {
    while (*flag == 0) {
    }
    out[threadIdx.x] = in[threadIdx.x];
  }
}
KERNEL flag_behind_barrier(int* out) {  // thread 0 waits for what is set after the barrier
  __shared__ volatile int go;
  if (threadIdx.x == 0) go = 0;
  __syncthreads();
  if (threadIdx.x == 0)
    while (go == 0) {
    }
  __syncthreads();
  if (threadIdx.x == 33) go = 1;
  out[threadIdx.x] = go;
}
KERNEL warp_out_of_turn(const int* in, int* out) {  // a warp skips one of two named barriers
  __shared__ int s[96];
  int w = threadIdx.x / 32;
  s[threadIdx.x] = in[threadIdx.x];
  asm volatile("bar.sync 2, 96;" ::: "memory");
  int v = s[95 - threadIdx.x];
  if (w != 1 || v > 1000) asm volatile("bar.sync 3, 96;" ::: "memory");
  out[threadIdx.x] = v;
}
KERNEL lost_arrival(const int* in, int* out) {  // the barrier of libcu++ counts threads that have returned
  using barrier = cuda::barrier<cuda::thread_scope_block>;
  __shared__ barrier b;
  if (threadIdx.x == 0) init(&b, blockDim.x);
  __syncthreads();
  if (in[threadIdx.x] == 77) return;
  b.arrive_and_wait();
  out[threadIdx.x] = in[threadIdx.x];
}
KERNEL failing_assert(const int* in, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  assert(in[i] < n && "index in range");
  out[i] = in[i];
}
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// A ring of two stages for wgmma: the stage is refilled while the last multiplication may still read it.
KERNEL refill_under_wgmma(const unsigned* a, const unsigned* b, float* c, int rounds) {
  __shared__ __align__(128) unsigned as[2][512], bs[2][64];
  float d[4] = {};
  for (int r = 0; r < rounds; ++r) {
    unsigned *x = as[r & 1], *y = bs[r & 1];
    for (int i = threadIdx.x; i < 512; i += 128) x[i] = a[i];
    if (threadIdx.x < 64) y[threadIdx.x] = b[threadIdx.x];
    fence_async();
    __syncthreads();
    wgmma_fence();
    u64 da = descriptor(x, 1024, 128, 0), db = descriptor(y, 128, 128, 0);
    ASM("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(da), "l"(db));
    wgmma_commit();
    ASM("wgmma.wait_group.sync.aligned 2;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])::"memory");
  }
  ASM("wgmma.wait_group.sync.aligned 0;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])::"memory");
  for (int i = 0; i < 4; ++i) c[threadIdx.x * 4 + i] = d[i];
}
#endif
#if defined(__CUDA_ARCH_FEAT_SM100_ALL)
__device__ __forceinline__ unsigned tmem_tile(const unsigned* a, const unsigned* b, unsigned* as, unsigned* bs, u64* bar, unsigned* base, bool fence) {
  int t = threadIdx.x;
  if (t < 32) ASM("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;" ::"r"(smem(base)) : "memory");
  if (t == 0) {
    mbar_init(bar, 1);
    fence_init();
  }
  for (int i = t; i < 1024; i += 128) as[i] = a[i];
  if (t < 64) bs[t] = b[t];
  if (fence) fence_async();
  ASM("tcgen05.fence::before_thread_sync;" ::: "memory");
  __syncthreads();
  ASM("tcgen05.fence::after_thread_sync;" ::: "memory");
  if (t == 0) {
    u64 da = descriptor(as, 2048, 128, 0) | 1ull << 46, db = descriptor(bs, 128, 128, 0) | 1ull << 46;
    unsigned idesc = 1u << 4 | 8 / 8 << 17 | 128 / 16 << 24;
    ASM("tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, 0;" ::"r"(*base), "l"(da), "l"(db), "r"(idesc) : "memory");
    ASM("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(smem(bar)) : "memory");
  }
  __syncwarp();
  return *base;
}
__device__ __forceinline__ void tmem_out(unsigned tmem, float* d, bool wait) {
  unsigned r[2];
  ASM("tcgen05.ld.sync.aligned.32x32b.x2.b32 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(tmem + (threadIdx.x / 32 * 32 << 16)));
  if (wait) ASM("tcgen05.wait::ld.sync.aligned;" : "+r"(r[0]), "+r"(r[1])::"memory");
  d[threadIdx.x * 2] = __uint_as_float(r[0]);
  d[threadIdx.x * 2 + 1] = __uint_as_float(r[1]);
  if (!wait) ASM("tcgen05.wait::ld.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void tmem_free(unsigned tmem) {
  ASM("tcgen05.fence::before_thread_sync;" ::: "memory");
  __syncthreads();
  if (threadIdx.x < 32) ASM("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 32;" ::"r"(tmem));
}
#define TILE                                          \
  __shared__ __align__(128) unsigned as[1024], bs[64]; \
  __shared__ u64 bar;                                  \
  __shared__ unsigned base
KERNEL tmem_no_commit_wait(const unsigned* a, const unsigned* b, float* d) {  // nobody waits for the commit
  TILE;
  unsigned tmem = tmem_tile(a, b, as, bs, &bar, &base, true);
  tmem_out(tmem, d, true);
  mbar_wait(&bar, 0);
  tmem_free(tmem);
}
KERNEL tmem_no_wait_ld(const unsigned* a, const unsigned* b, float* d) {  // registers are used before wait::ld
  TILE;
  unsigned tmem = tmem_tile(a, b, as, bs, &bar, &base, true);
  mbar_wait(&bar, 0);
  ASM("tcgen05.fence::after_thread_sync;" ::: "memory");
  tmem_out(tmem, d, false);
  tmem_free(tmem);
}
KERNEL tmem_no_proxy_fence(const unsigned* a, const unsigned* b, float* d) {  // operands written by ordinary stores
  TILE;
  unsigned tmem = tmem_tile(a, b, as, bs, &bar, &base, false);
  mbar_wait(&bar, 0);
  ASM("tcgen05.fence::after_thread_sync;" ::: "memory");
  tmem_out(tmem, d, true);
  tmem_free(tmem);
}
KERNEL tmem_leak(const unsigned* a, const unsigned* b, float* d) {  // the columns are never given back
  TILE;
  unsigned tmem = tmem_tile(a, b, as, bs, &bar, &base, true);
  mbar_wait(&bar, 0);
  ASM("tcgen05.fence::after_thread_sync;" ::: "memory");
  tmem_out(tmem, d, true);
}
KERNEL tmem_no_fence_after(const unsigned* a, const unsigned* b, float* d) {  // the wait alone does not order the loads
  TILE;
  unsigned tmem = tmem_tile(a, b, as, bs, &bar, &base, true);
  mbar_wait(&bar, 0);
  tmem_out(tmem, d, true);
  tmem_free(tmem);
}
// Two tiles into the same columns: the second multiplication overwrites what the four warps have loaded.
template <bool Before, bool After>
__device__ __forceinline__ void tmem_twice(const unsigned* a, const unsigned* b, float* d) {
  TILE;
  unsigned tmem = tmem_tile(a, b, as, bs, &bar, &base, true);
  mbar_wait(&bar, 0);
  ASM("tcgen05.fence::after_thread_sync;" ::: "memory");
  tmem_out(tmem, d, true);
  if (Before) ASM("tcgen05.fence::before_thread_sync;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    if (After) ASM("tcgen05.fence::after_thread_sync;" ::: "memory");
    u64 da = descriptor(as, 2048, 128, 0) | 1ull << 46, db = descriptor(bs, 128, 128, 0) | 1ull << 46;
    unsigned idesc = 1u << 4 | 8 / 8 << 17 | 128 / 16 << 24;
    ASM("tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, 0;" ::"r"(tmem), "l"(da), "l"(db), "r"(idesc) : "memory");
    ASM("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(smem(&bar)) : "memory");
  }
  __syncwarp();
  mbar_wait(&bar, 1);
  ASM("tcgen05.fence::after_thread_sync;" ::: "memory");
  tmem_out(tmem, d + 256, true);
  tmem_free(tmem);
}
KERNEL tmem_reused(const unsigned* a, const unsigned* b, float* d) { tmem_twice<true, true>(a, b, d); }
KERNEL tmem_no_fence_before(const unsigned* a, const unsigned* b, float* d) { tmem_twice<false, true>(a, b, d); }
KERNEL tmem_no_fence_reuse(const unsigned* a, const unsigned* b, float* d) { tmem_twice<true, false>(a, b, d); }
#endif

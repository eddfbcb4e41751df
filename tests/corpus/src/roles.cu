// SPDX-License-Identifier: Apache-2.0
// Warps and blocks with roles, by what CUDA C++ offers for them: each kernel right, and with one thing left out.
#include <cooperative_groups.h>
#include <cuda_pipeline.h>

#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>
namespace cg = cooperative_groups;
#define KERNEL extern "C" __global__ void
template <class T, cuda::thread_scope S>
using ref = cuda::atomic_ref<T, S>;

// Half of the block fills one of two buffers while the other half adds up the other.
template <bool Right>
__device__ void two_buffers(const int* in, int* out, int rounds) {
  using barrier = cuda::barrier<cuda::thread_scope_block>;
  __shared__ alignas(8) unsigned char room[4 * sizeof(barrier)];
  __shared__ int buffer[2][64];
  barrier* bar = reinterpret_cast<barrier*>(room);  // ready 0, 1; filled 2, 3
  if (threadIdx.x < 4) init(bar + threadIdx.x, blockDim.x);
  __syncthreads();
  const int lane = threadIdx.x % 64;
  if (threadIdx.x < 64) {
    for (int r = 0; r < rounds; ++r) {
      bar[r % 2].arrive_and_wait();
      buffer[r % 2][lane] = in[r * 64 + lane];
      (void)bar[2 + r % 2].arrive();
    }
  } else {
    int sum = 0;
    (void)bar[0].arrive();
    (void)bar[1].arrive();
    for (int r = 0; r < rounds; ++r) {
      if (Right) bar[2 + r % 2].arrive_and_wait();
      else (void)bar[2 + r % 2].arrive();
      sum += buffer[r % 2][63 - lane];
      (void)bar[r % 2].arrive();
    }
    out[lane] = sum;
  }
}
KERNEL two_buffers_good(const int* in, int* out, int rounds) { two_buffers<true>(in, out, rounds); }
KERNEL filled_not_awaited(const int* in, int* out, int rounds) { two_buffers<false>(in, out, rounds); }

// Each thread copies its own elements and reads its neighbour's.
template <bool Right>
__device__ void neighbours(const int* in, int* out) {
  __shared__ int tile[2][128];
  auto pipe = cuda::make_pipeline();
  const int t = threadIdx.x;
  for (int r = 0; r < 2; ++r) {
    pipe.producer_acquire();
    cuda::memcpy_async(&tile[r][t], &in[r * 128 + t], sizeof(int), pipe);
    pipe.producer_commit();
  }
  for (int r = 0; r < 2; ++r) {
    pipe.consumer_wait();
    if (Right) __syncthreads();
    out[r * 128 + t] = tile[r][(t + 1) % 128] - tile[r][t];
    pipe.consumer_release();
  }
}
KERNEL neighbours_good(const int* in, int* out) { neighbours<true>(in, out); }
KERNEL neighbour_not_there(const int* in, int* out) { neighbours<false>(in, out); }

// Three stages of copies in flight; the last wait leaves one too many.
template <int Left>
__device__ void three_stages(const int* in, int* out, int rounds) {
  __shared__ __align__(16) int stage[3][128];
  const auto fetch = [&](int r) {
    if (r < rounds && threadIdx.x < 32)
      __pipeline_memcpy_async(&stage[r % 3][threadIdx.x * 4], &in[r * 128 + threadIdx.x * 4], 16);
    __pipeline_commit();
  };
  fetch(0);
  fetch(1);
  int sum = 0;
  for (int r = 0; r < rounds; ++r) {
    __pipeline_wait_prior(Left);
    __syncthreads();
    sum += stage[r % 3][threadIdx.x ^ 5];
    fetch(r + 2);
  }
  out[threadIdx.x] = sum;
}
KERNEL three_stages_good(const int* in, int* out, int rounds) { three_stages<1>(in, out, rounds); }
KERNEL one_group_too_many(const int* in, int* out, int rounds) { three_stages<2>(in, out, rounds); }

// Tiles by a counter; the tile's number travels through shared memory.
template <bool Right>
__device__ void by_counter(const int* in, int* out, int* next, int tiles) {
  __shared__ int mine;
  for (;;) {
    if (threadIdx.x == 0) mine = atomicAdd(next, 1);
    __syncthreads();
    const int tile = mine;
    if (Right) __syncthreads();
    if (tile >= tiles) return;
    out[tile * 64 + threadIdx.x] = in[tile * 64 + (threadIdx.x ^ 1)] * 2;
  }
}
KERNEL by_counter_good(const int* in, int* out, int* next, int tiles) { by_counter<true>(in, out, next, tiles); }
KERNEL number_overwritten(const int* in, int* out, int* next, int tiles) { by_counter<false>(in, out, next, tiles); }

// A ring between two blocks: one produces, the other consumes.
template <cuda::thread_scope S, cuda::memory_order Publish>
__device__ void block_to_block(int* ring, int* head, int* tail, int* out, int n) {
  ref<int, S> h(*head), t(*tail);
  if (threadIdx.x) return;
  if (blockIdx.x == 0) {
    for (int i = 0; i < n; ++i) {
      while (i - t.load(cuda::memory_order_acquire) >= 4) __nanosleep(20);
      ring[i % 4] = i * i;
      h.store(i + 1, Publish);
    }
  } else {
    for (int i = 0; i < n; ++i) {
      while (h.load(cuda::memory_order_acquire) <= i) __nanosleep(20);
      out[i] = ring[i % 4] + 1;
      t.store(i + 1, cuda::memory_order_release);
    }
  }
}
KERNEL block_to_block_good(int* ring, int* head, int* tail, int* out, int n) {
  block_to_block<cuda::thread_scope_device, cuda::memory_order_release>(ring, head, tail, out, n);
}
KERNEL published_relaxed(int* ring, int* head, int* tail, int* out, int n) {
  block_to_block<cuda::thread_scope_device, cuda::memory_order_relaxed>(ring, head, tail, out, n);
}
KERNEL published_to_the_block(int* ring, int* head, int* tail, int* out, int n) {
  block_to_block<cuda::thread_scope_block, cuda::memory_order_release>(ring, head, tail, out, n);
}

// A barrier of the grid made of one counter.
template <bool Right>
__device__ void own_grid_barrier(int* a, int* b, unsigned* count) {
  const int n = gridDim.x * blockDim.x, i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int step = 0; step < 3; ++step) {
    b[i] = a[(i + 1) % n] + a[(i + n - 1) % n];
    if (Right) __syncthreads();
    if (threadIdx.x == 0) {
      ref<unsigned, cuda::thread_scope_device> c(*count);
      c.fetch_add(1, cuda::memory_order_acq_rel);
      while (c.load(cuda::memory_order_acquire) < (step + 1) * gridDim.x) __nanosleep(50);
    }
    __syncthreads();
    int* swap = a;
    a = b;
    b = swap;
  }
}
KERNEL own_grid_barrier_good(int* a, int* b, unsigned* count) { own_grid_barrier<true>(a, b, count); }
KERNEL arrives_for_others(int* a, int* b, unsigned* count) { own_grid_barrier<false>(a, b, count); }

// Sums in two buffers need one barrier a step; in one buffer they need two.
template <bool Right>
__device__ void one_barrier_a_step(const int* in, int* out) {
  __shared__ int s[2][256];
  const int t = threadIdx.x;
  int at = 0;
  s[0][t] = in[t];
  __syncthreads();
  for (int d = 1; d < 256; d *= 2) {
    const int v = s[at][t] + (t >= d ? s[at][t - d] : 0);
    if (Right) at ^= 1;
    s[at][t] = v;
    __syncthreads();
  }
  out[t] = s[at][t];
}
KERNEL one_barrier_good(const int* in, int* out) { one_barrier_a_step<true>(in, out); }
KERNEL one_buffer(const int* in, int* out) { one_barrier_a_step<false>(in, out); }

// The lanes that found something append it, one atomic for all of them.
template <bool Right>
__device__ void append(const int* in, int* out, int* count) {
  __shared__ int kept[128], n;
  if (threadIdx.x == 0) n = 0;
  __syncthreads();
  const int v = in[threadIdx.x];
  if (v > 0) {
    auto g = cg::coalesced_threads();
    int base = 0;
    if (g.thread_rank() == 0) base = atomicAdd(&n, int(g.size()));
    kept[g.shfl(base, 0) + g.thread_rank()] = v;
  }
  if (Right) __syncthreads();
  int sum = 0;
  for (int i = threadIdx.x; i < n; i += 128) sum += kept[i];
  atomicAdd(out, sum);
  if (threadIdx.x == 0) *count = n;
}
KERNEL append_good(const int* in, int* out, int* count) { append<true>(in, out, count); }
KERNEL counted_too_early(const int* in, int* out, int* count) { append<false>(in, out, count); }

// Two barriers that the halves of the block pass in the same order, or not.
template <bool Right>
__device__ void two_doors(const int* in, int* out) {
  using barrier = cuda::barrier<cuda::thread_scope_block>;
  __shared__ alignas(8) unsigned char room[2 * sizeof(barrier)];
  __shared__ int s[64];
  barrier* bar = reinterpret_cast<barrier*>(room);
  if (threadIdx.x < 2) init(bar + threadIdx.x, 64);
  __syncthreads();
  const bool other = !Right && threadIdx.x >= 32;
  s[threadIdx.x] = in[threadIdx.x];
  bar[other ? 1 : 0].arrive_and_wait();
  const int v = s[63 - threadIdx.x];
  bar[other ? 0 : 1].arrive_and_wait();
  s[threadIdx.x] = v + 1;
  out[threadIdx.x] = s[threadIdx.x];
}
KERNEL two_doors_good(const int* in, int* out) { two_doors<true>(in, out); }
KERNEL doors_crossed(const int* in, int* out) { two_doors<false>(in, out); }

// Rows of four at a time; the last block's tail is cut off, or not.
template <bool Right>
__device__ void vector_tail(const float* in, float* out, int n) {
  const int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
  if (i + (Right ? 3 : 0) < n) {
    float4 v = *reinterpret_cast<const float4*>(in + i);
    v.x += 1, v.y += 1, v.z += 1, v.w += 1;
    *reinterpret_cast<float4*>(out + i) = v;
  } else if (Right) {
    for (int k = i; k < n; ++k) out[k] = in[k] + 1;
  }
}
KERNEL vector_tail_good(const float* in, float* out, int n) { vector_tail<true>(in, out, n); }
KERNEL tail_in_one_piece(const float* in, float* out, int n) { vector_tail<false>(in, out, n); }

// A header of bytes in front of the numbers.
template <int Header>
__device__ void behind_header(const unsigned char* in, int* out) {
  extern __shared__ unsigned char raw[];
  for (int i = threadIdx.x; i < Header + 128; i += 32) raw[i] = in[i];
  __syncthreads();
  out[threadIdx.x] = reinterpret_cast<const int*>(raw + Header)[threadIdx.x];
}
KERNEL behind_header_good(const unsigned char* in, int* out) { behind_header<8>(in, out); }
KERNEL header_of_six(const unsigned char* in, int* out) { behind_header<6>(in, out); }

// Keys of a warp counted by the lanes that hold the same one.
template <bool Right>
__device__ void by_key(const int* in, int* out) {
  __shared__ int bins[16];
  if (threadIdx.x < 16) bins[threadIdx.x] = 0;
  __syncthreads();
  const int key = in[threadIdx.x] & 15;
  const unsigned same = __match_any_sync(~0u, key);
  if (Right) {
    if (__ffs(same) - 1 == int(threadIdx.x % 32)) atomicAdd(&bins[key], __popc(same));
  } else {
    if (__ffs(same) - 1 == int(threadIdx.x % 32)) bins[key] += __popc(same);
  }
  __syncthreads();
  if (threadIdx.x < 16) out[threadIdx.x] = bins[threadIdx.x];
}
KERNEL by_key_good(const int* in, int* out) { by_key<true>(in, out); }
KERNEL two_warps_count(const int* in, int* out) { by_key<false>(in, out); }

#if __CUDA_ARCH__ >= 900
// Each block of a cluster keeps a strip; the neighbours' edges are read where they are.
template <bool Right>
__device__ void strips(const int* in, int* out, int steps) {
  __shared__ int strip[2][64];
  auto cluster = cg::this_cluster();
  const int t = threadIdx.x, rank = cluster.block_rank(), blocks = cluster.num_blocks();
  const int* left[2];
  const int* right[2];
  for (int k = 0; k < 2; ++k) {
    left[k] = cluster.map_shared_rank(strip[k], (rank + blocks - 1) % blocks);
    right[k] = cluster.map_shared_rank(strip[k], (rank + 1) % blocks);
  }
  strip[0][t] = in[blockIdx.x * 64 + t];
  cluster.sync();
  for (int s = 0; s < steps; ++s) {
    const int at = s & 1;
    const int a = t ? strip[at][t - 1] : left[at][63], b = t < 63 ? strip[at][t + 1] : right[at][0];
    strip[at ^ 1][t] = a + b;
    if (Right) cluster.sync();
    else __syncthreads();
  }
  out[blockIdx.x * 64 + t] = strip[steps & 1][t];
  cluster.sync();
}
KERNEL __cluster_dims__(4) strips_good(const int* in, int* out, int steps) { strips<true>(in, out, steps); }
KERNEL __cluster_dims__(4) strips_apart(const int* in, int* out, int steps) { strips<false>(in, out, steps); }

// All blocks add into the first one's counters, which adds up and leaves.
template <bool Right>
__device__ void into_the_first(const int* in, int* out) {
  __shared__ int bins[32];
  auto cluster = cg::this_cluster();
  if (threadIdx.x < 32) bins[threadIdx.x] = 0;
  cluster.sync();
  int* first = cluster.map_shared_rank(bins, 0);
  if (!Right && cluster.block_rank() == 0) {
    atomicAdd(&bins[in[threadIdx.x] & 31], 1);
    return;
  }
  atomicAdd(&first[in[blockIdx.x * 64 + threadIdx.x] & 31], 1);
  cluster.sync();
  if (cluster.block_rank() == 0 && threadIdx.x < 32) out[threadIdx.x] = bins[threadIdx.x];
}
KERNEL __cluster_dims__(2) into_the_first_good(const int* in, int* out) { into_the_first<true>(in, out); }
KERNEL __cluster_dims__(2) first_has_left(const int* in, int* out) { into_the_first<false>(in, out); }

// A bulk copy whose bytes the barrier expects, or is told nothing of.
template <bool Right>
__device__ void told_bytes(const int* in, int* out) {
  using barrier = cuda::barrier<cuda::thread_scope_block>;
  __shared__ alignas(128) int tile[256];
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ barrier bar;
  if (threadIdx.x == 0) {
    init(&bar, blockDim.x);
    cuda::device::experimental::fence_proxy_async_shared_cta();
  }
  __syncthreads();
  barrier::arrival_token token;
  if (threadIdx.x == 0) {
    cuda::device::experimental::cp_async_bulk_global_to_shared(tile, in + blockIdx.x * 256, sizeof(tile), bar);
    token = Right ? cuda::device::barrier_arrive_tx(bar, 1, sizeof(tile)) : bar.arrive();
  } else {
    token = bar.arrive();
  }
  bar.wait(std::move(token));
  out[blockIdx.x * 128 + threadIdx.x] = tile[threadIdx.x] + tile[255 - threadIdx.x];
}
KERNEL told_bytes_good(const int* in, int* out) { told_bytes<true>(in, out); }
KERNEL told_no_bytes(const int* in, int* out) { told_bytes<false>(in, out); }

// The cluster barrier in two parts, with work of the block's own between them.
template <bool Right>
__device__ void parted_barrier(const int* in, int* out) {
  __shared__ int mine[64];
  auto cluster = cg::this_cluster();
  const int t = threadIdx.x, i = blockIdx.x * 64 + t;
  const int* next = cluster.map_shared_rank(mine, (cluster.block_rank() + 1) % cluster.num_blocks());
  mine[t] = in[i];
  auto token = cluster.barrier_arrive();
  int v = in[i] * 3;
  if (!Right) v += next[63 - t];
  cluster.barrier_wait(std::move(token));
  if (Right) v += next[63 - t];
  out[i] = v;
  cluster.sync();
}
KERNEL __cluster_dims__(2) parted_barrier_good(const int* in, int* out) { parted_barrier<true>(in, out); }
KERNEL __cluster_dims__(2) before_the_wait(const int* in, int* out) { parted_barrier<false>(in, out); }

// A lock in the first block's shared memory, for the whole cluster.
template <cuda::memory_order Unlock>
__device__ void cluster_lock(const int* in, int* out) {
  __shared__ int lock, sum;
  auto cluster = cg::this_cluster();
  if (threadIdx.x == 0) lock = sum = 0;
  cluster.sync();
  if (threadIdx.x == 0) {
    ref<int, cuda::thread_scope_device> l(*cluster.map_shared_rank(&lock, 0));
    int* total = cluster.map_shared_rank(&sum, 0);
    for (int expected = 0; !l.compare_exchange_strong(expected, 1, cuda::memory_order_acquire); expected = 0) __nanosleep(20);
    *total += in[blockIdx.x];
    l.store(0, Unlock);
  }
  cluster.sync();
  if (cluster.block_rank() == 0 && threadIdx.x == 0) *out = sum;
}
KERNEL __cluster_dims__(4) cluster_lock_good(const int* in, int* out) { cluster_lock<cuda::memory_order_release>(in, out); }
KERNEL __cluster_dims__(4) unlocked_relaxed(const int* in, int* out) { cluster_lock<cuda::memory_order_relaxed>(in, out); }
#endif

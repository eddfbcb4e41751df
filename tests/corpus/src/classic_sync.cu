// SPDX-License-Identifier: Apache-2.0
// Textbook ways of synchronising, done right.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/latch>
#include <cuda/pipeline>
#include <cuda/semaphore>

#include "hopper.cuh"
#pragma nv_diag_suppress 20054
namespace cg = cooperative_groups;
#define KERNEL extern "C" __global__ void

// The reduction of the CUDA samples: partial sums, a fence, a wrapping ticket, the last block finishes.
__device__ unsigned ticket;
KERNEL last_block(const int* in, volatile int* part, int* out, int n) {
  __shared__ int s[64];
  __shared__ bool last;
  int t = threadIdx.x, v = 0;
  for (int i = blockIdx.x * 64 + t; i < n; i += gridDim.x * 64) v += in[i];
  s[t] = v;
  __syncthreads();
  for (int d = 32; d; d /= 2) {
    if (t < d) s[t] += s[t + d];
    __syncthreads();
  }
  if (t == 0) {
    part[blockIdx.x] = s[0];
    __threadfence();
    last = atomicInc(&ticket, gridDim.x) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  v = 0;
  for (int i = t; i < (int)gridDim.x; i += 64) v += part[i];
  s[t] = v;
  __syncthreads();
  for (int d = 32; d; d /= 2) {
    if (t < d) s[t] += s[t + d];
    __syncthreads();
  }
  if (t == 0) {
    out[0] = s[0];
    ticket = 0;
  }
}
// The same with a release and an acquire instead of the fences, all threads writing.
KERNEL last_block_ref(const int* in, int* part, int* count, int* out) {
  __shared__ int last;
  part[blockIdx.x * 64 + threadIdx.x] = in[blockIdx.x * 64 + threadIdx.x] * 3;
  __syncthreads();
  if (threadIdx.x == 0) {
    cuda::atomic_ref<int, cuda::thread_scope_device> c(*count);
    last = c.fetch_add(1, cuda::memory_order_acq_rel) == (int)gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  int s = 0;
  for (unsigned b = 0; b < gridDim.x; ++b) s += part[b * 64 + (threadIdx.x + b) % 64];
  out[threadIdx.x] = s;
}
// Look-back over two arrays: the status is a word of its own.
KERNEL lookback_words(const int* in, int* aggregate, int* prefix, int* status, unsigned* next, int* out) {
  __shared__ int tile, base, sums[2];
  if (threadIdx.x == 0) tile = atomicAdd(next, 1);
  __syncthreads();
  int i = tile * 64 + threadIdx.x, lane = threadIdx.x % 32, w = threadIdx.x / 32, v = in[i];
  v = cg::inclusive_scan(cg::tiled_partition<32>(cg::this_thread_block()), v);
  if (lane == 31) sums[w] = v;
  __syncthreads();
  if (w) v += sums[0];
  if (w == 0) {  // a warp looks back, one earlier tile per lane
    int total = sums[0] + sums[1];
    if (lane == 0) {
      cuda::atomic_ref<int, cuda::thread_scope_device> s(status[tile]);
      if (tile == 0) {
        prefix[0] = total;
        s.store(2, cuda::memory_order_release);
      } else {
        aggregate[tile] = total;
        s.store(1, cuda::memory_order_release);
      }
    }
    int before = 0;
    for (int at = tile - 1; tile && at >= -31; at -= 32) {
      int k = at - lane, st = 2, add = 0;
      if (k >= 0) {
        cuda::atomic_ref<int, cuda::thread_scope_device> s(status[k]);
        while ((st = s.load(cuda::memory_order_acquire)) == 0) {
        }
        add = st == 2 ? prefix[k] : aggregate[k];
      }
      unsigned whole = __ballot_sync(~0u, st == 2);
      int first = whole ? __ffs(whole) - 1 : 31;
      before += __reduce_add_sync(~0u, lane <= first ? add : 0);
      if (whole) break;
    }
    if (lane == 0) {
      base = before;
      if (tile) {
        prefix[tile] = before + total;
        cuda::atomic_ref<int, cuda::thread_scope_device>(status[tile]).store(2, cuda::memory_order_release);
      }
    }
  }
  __syncthreads();
  out[i] = v + base;
}
// A lock of acquire and release around plain data, taken by a leader per warp; then a test-and-set flag.
KERNEL lock_ref(int* lock, int* data) {
  cuda::atomic_ref<int, cuda::thread_scope_device> l(*lock);
  if (threadIdx.x % 32 == 0) {
    int expected = 0;
    while (!l.compare_exchange_weak(expected, 1, cuda::memory_order_acquire, cuda::memory_order_relaxed))
      expected = 0;
    data[0] += 1;
    data[1] = data[1] + data[0];
    l.store(0, cuda::memory_order_release);
  }
  __syncwarp();
}
KERNEL semaphores(int* data, int* out) {
  using Mutex = cuda::binary_semaphore<cuda::thread_scope_block>;
  using Latch = cuda::latch<cuda::thread_scope_block>;
  __shared__ alignas(16) char space[2][64];
  Mutex& mutex = *reinterpret_cast<Mutex*>(space[0]);
  Latch& latch = *reinterpret_cast<Latch*>(space[1]);
  __shared__ int sum;
  if (threadIdx.x == 0) {
    new (&mutex) Mutex(1);
    new (&latch) Latch(blockDim.x / 32);
    sum = 0;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    mutex.acquire();
    sum += data[threadIdx.x / 32];
    mutex.release();
    latch.count_down();
  }
  latch.wait();
  out[threadIdx.x] = sum;
}
// A queue of one producer block and one consumer block: head and tail, eight places.
KERNEL block_queue(const int* in, int* ring, int* head, int* tail, int* out, int n) {
  cuda::atomic_ref<int, cuda::thread_scope_device> h(*head), t(*tail);
  int lane = threadIdx.x;
  for (int i = 0; i < n; ++i) {
    if (blockIdx.x == 0) {
      if (lane == 0)
        while (i - t.load(cuda::memory_order_acquire) >= 4) {
        }
      __syncwarp();
      ring[i % 4 * 32 + lane] = in[i * 32 + lane] + 1;
      __syncwarp();
      if (lane == 0) h.store(i + 1, cuda::memory_order_release);
    } else {
      if (lane == 0)
        while (h.load(cuda::memory_order_acquire) <= i) {
        }
      __syncwarp();
      out[i * 32 + lane] = ring[i % 4 * 32 + (lane ^ 5)];
      __syncwarp();
      if (lane == 0) t.store(i + 1, cuda::memory_order_release);
    }
  }
}
// Two phases of a cooperative grid.
KERNEL grid_phases(int* a, int* b, int n) {
  auto grid = cg::this_grid();
  for (int round = 0; round < 3; ++round) {
    for (int i = grid.thread_rank(); i < n; i += grid.num_threads()) b[i] = a[(i + 1) % n] + a[i];
    grid.sync();
    for (int i = grid.thread_rank(); i < n; i += grid.num_threads()) a[i] = b[(i + n - 1) % n];
    grid.sync();
  }
}
// A pipeline of two stages whose producers and consumers are different warps.
KERNEL pipeline_roles(const int* in, int* out, int rounds) {
  constexpr int stages = 2;
  __shared__ alignas(16) int s[stages][32];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, stages> state;
  auto block = cg::this_thread_block();
  auto role = threadIdx.x < 32 ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
  auto pipe = cuda::make_pipeline(block, &state, role);
  int lane = threadIdx.x % 32, acc = 0;
  for (int r = 0; r < rounds; ++r) {
    if (threadIdx.x < 32) {
      pipe.producer_acquire();
      cuda::memcpy_async(&s[r % stages][lane], in + r * 32 + lane, cuda::aligned_size_t<4>(4), pipe);
      pipe.producer_commit();
    } else {
      pipe.consumer_wait();
      acc = acc * 5 + s[r % stages][31 - lane];
      pipe.consumer_release();
    }
  }
  if (threadIdx.x >= 32) out[lane] = acc;
}
// A group copies its rows asynchronously, one batch ahead.
KERNEL group_copy(const int* in, int* out, int rounds) {
  __shared__ alignas(16) int s[2][64];
  auto block = cg::this_thread_block();
  cg::memcpy_async(block, s[0], in, sizeof s[0]);
  int acc = 0;
  for (int r = 0; r < rounds; ++r) {
    if (r + 1 < rounds) {
      cg::memcpy_async(block, s[(r + 1) % 2], in + (r + 1) * 64, sizeof s[0]);
      cg::wait_prior<1>(block);
    } else {
      cg::wait(block);
    }
    acc = acc * 3 + s[r % 2][63 - threadIdx.x];
    block.sync();
  }
  out[threadIdx.x] = acc;
}
// Threads leave a barrier for good.
KERNEL barrier_drop(int* out) {
  __shared__ cuda::barrier<cuda::thread_scope_block> b;
  __shared__ int s[64];
  if (threadIdx.x == 0) init(&b, blockDim.x);
  __syncthreads();
  s[threadIdx.x] = threadIdx.x;
  if (threadIdx.x >= 48) {
    (void)b.arrive_and_drop();
    return;
  }
  b.arrive_and_wait();
  int v = s[63 - threadIdx.x];
  b.arrive_and_wait();
  s[threadIdx.x] = v;
  auto token = b.arrive();
  v *= 2;
  b.wait(std::move(token));
  out[threadIdx.x] = v + s[(threadIdx.x + 1) % 48];
}
// Persistent blocks take rows from a counter until none is left.
KERNEL work_counter(const int* in, int* next, int* out, int rows) {
  __shared__ int row;
  for (;;) {
    if (threadIdx.x == 0) row = atomicAdd(next, 1);
    __syncthreads();
    int r = row;
    __syncthreads();
    if (r >= rows) return;
    int v = __reduce_add_sync(~0u, in[r * 32 + threadIdx.x % 32]);
    if (threadIdx.x == 0) out[r] = v;
  }
}
// A histogram over the blocks of a cluster: each block owns a part of the bins.
KERNEL cluster_bins(const int* in, int* out) {
  __shared__ int bins[8];
  auto cluster = cg::this_cluster();
  if (threadIdx.x < 8) bins[threadIdx.x] = 0;
  cluster.sync();
  int v = in[blockIdx.x * 64 + threadIdx.x] & 15;
  atomicAdd(cluster.map_shared_rank(bins, v / 8) + v % 8, 1);
  cluster.sync();
  if (threadIdx.x < 8) out[cluster.block_rank() * 8 + threadIdx.x] = bins[threadIdx.x];
}
// Ordinary work in a ring that bulk copies fill and empty: full and empty barriers, stores waited for.
KERNEL bulk_ring(const int* in, int* out, int rounds) {
  __shared__ alignas(128) int s[2][64], t[2][64];
  __shared__ u64 full[2], empty[2];
  int id = threadIdx.x;
  if (id == 0) {
    for (int i = 0; i < 2; ++i) mbar_init(&full[i], 1), mbar_init(&empty[i], 64);
    fence_init();
  }
  __syncthreads();
  if (id >= 64) {
    if (id == 64)
      for (int r = 0; r < rounds; ++r) {
        if (r >= 2) mbar_wait(&empty[r % 2], (r / 2 - 1) & 1);
        mbar_expect(&full[r % 2], 256);
        bulk_load(s[r % 2], in + r * 64, 256, &full[r % 2]);
      }
    return;
  }
  for (int r = 0; r < rounds; ++r) {
    mbar_wait(&full[r % 2], r / 2 & 1);
    int v = s[r % 2][id ^ 1];
    mbar_arrive(&empty[r % 2]);
    if (id == 0) ASM("cp.async.bulk.wait_group.read 1;" ::: "memory");
    ASM("bar.sync 1, 64;" ::: "memory");
    t[r % 2][id] = v * 2;
    fence_async();
    ASM("bar.sync 1, 64;" ::: "memory");
    if (id == 0) {
      bulk_store(out + r * 64, t[r % 2], 256);
      bulk_commit();
    }
  }
  if (id == 0) ASM("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

// SPDX-License-Identifier: Apache-2.0
// Cooperative groups and libcu++: grids, labels, coalesced groups, pipelines of one thread, barriers in global memory, references.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda/annotated_ptr>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>
namespace cg = cooperative_groups;

// Power steps of the second difference: every step needs its neighbours' values of the step before and the norm of all.
template <bool kSecondSync>
__device__ void power(double* x, double* y, double* norm, int n, int steps) {
  cg::grid_group grid = cg::this_grid();
  auto tile = cg::tiled_partition<32>(cg::this_thread_block());
  for (int s = 0; s < steps; ++s) {
    double mine = 0;
    for (int i = grid.thread_rank(); i < n; i += grid.size()) {
      const double left = i ? x[i - 1] : 0, right = i + 1 < n ? x[i + 1] : 0;
      y[i] = 2 * x[i] - left - right;
      mine += y[i] * y[i];
    }
    mine = cg::reduce(tile, mine, cg::plus<double>());
    if (tile.thread_rank() == 0) atomicAdd(norm + s, mine);
    grid.sync();
    const double scale = norm[s] > 1000 ? 0.25 : 0.5;
    for (int i = grid.thread_rank(); i < n; i += grid.size()) x[i] = y[i] * scale;
    if (kSecondSync) grid.sync();
  }
}
extern "C" __global__ void power_good(double* x, double* y, double* norm, int n, int steps) { power<true>(x, y, norm, n, steps); }
extern "C" __global__ void power_one_sync(double* x, double* y, double* norm, int n, int steps) { power<false>(x, y, norm, n, steps); }

// Tiles of eight: some work, some do not; each votes, matches and shuffles among its own.
extern "C" __global__ void tiles_of_eight(const int* in, int* out) {
  auto block = cg::this_thread_block();
  auto tile = cg::tiled_partition<8>(block);
  int v = in[block.thread_rank()];
  if (tile.meta_group_rank() % 3 == 1) {
    for (int d = 1; d < 8; d *= 2) v = max(v, tile.shfl_xor(v, d));
    if (tile.any(v > 90)) v += 1000;
  } else if (tile.meta_group_rank() % 3 == 2) {
    const unsigned same = tile.match_any(v % 3);
    v = __popc(same) * 100 + int(tile.ballot(v & 1));
  } else {
    v = cg::inclusive_scan(tile, v, cg::plus<int>());
    tile.sync();
    v += tile.shfl_up(v, 2);
  }
  out[block.thread_rank()] = v;
}

// Lanes that found something append it: one atomic of the coalesced group per turn; counts by label.
extern "C" __global__ void found_by_groups(const int* in, int n, int* out, int* many, int* sums) {
  cuda::atomic_ref<int, cuda::thread_scope_device> total(*many);
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    const int v = in[i];
    if (v % 3 == 0) {
      auto g = cg::coalesced_threads();
      const int at = cg::exclusive_scan_update(g, total, 1, cg::plus<int>());
      out[at] = v;
      auto same = cg::labeled_partition(g, v & 3);
      cuda::atomic_ref<int, cuda::thread_scope_device> sum(sums[v & 3]);
      cg::reduce_update_async(same, sum, v, cg::plus<int>());
    }
  }
}

// One lane of whoever is there takes numbers for all.
extern "C" __global__ void numbers_for_all(unsigned* next, unsigned* out, const unsigned char* want) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int k = 0; k < want[i]; ++k) {
    auto g = cg::coalesced_threads();
    const unsigned first = cg::invoke_one_broadcast(g, [&] { return atomicAdd(next, g.size()); });
    out[first + g.thread_rank()] = i * 8 + k;
  }
}

// A barrier of the blocks' first threads in global memory.
using GlobalBarrier = cuda::barrier<cuda::thread_scope_device>;
__device__ GlobalBarrier meeting;
__device__ cuda::atomic<int, cuda::thread_scope_device> made;
extern "C" __global__ void meet_in_global(int* board, int* out, int rounds) {
  if (threadIdx.x == 0) {
    if (blockIdx.x == 0) {
      init(&meeting, gridDim.x);
      made.store(1, cuda::std::memory_order_release);
    } else {
      while (!made.load(cuda::std::memory_order_acquire)) __nanosleep(40);
    }
  }
  int sum = 0;
  for (int r = 0; r < rounds; ++r) {
    board[(r & 1) * gridDim.x * blockDim.x + blockIdx.x * blockDim.x + threadIdx.x] = blockIdx.x * 100 + threadIdx.x + r;
    __syncthreads();
    if (threadIdx.x == 0) meeting.arrive_and_wait();
    __syncthreads();
    for (int b = 0; b < gridDim.x; ++b) sum += board[(r & 1) * gridDim.x * blockDim.x + b * blockDim.x + (threadIdx.x ^ 1)];
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// Each thread has its own pipeline of three stages; nobody else reads what it copied.
template <int kPrior>
__device__ void own_pipeline(const float4* in, float* out, int steps) {
  __shared__ float4 stage[3][64];
  auto pipe = cuda::make_pipeline();
  const int t = threadIdx.x;
  auto fetch = [&](int s) {
    pipe.producer_acquire();
    if (s < steps) cuda::memcpy_async(&stage[s % 3][t], in + (blockIdx.x * steps + s) * 64 + t, cuda::aligned_size_t<16>(16), pipe);
    pipe.producer_commit();
  };
  fetch(0);
  fetch(1);
  float sum = 0;
  for (int s = 0; s < steps; ++s) {
    cuda::pipeline_consumer_wait_prior<kPrior>(pipe);
    const float4 v = stage[s % 3][t];
    sum = sum * 0.5f + v.x + v.y * v.z - v.w;
    pipe.consumer_release();
    fetch(s + 2);
  }
  out[blockIdx.x * 64 + t] = sum;
}
extern "C" __global__ void own_pipeline_good(const float4* in, float* out, int steps) { own_pipeline<1>(in, out, steps); }
extern "C" __global__ void own_pipeline_short(const float4* in, float* out, int steps) { own_pipeline<2>(in, out, steps); }

// Two stages that the block fills together, each with a barrier.
extern "C" __global__ void block_copies(const int* in, int* out, int tiles) {
  using B = cuda::barrier<cuda::thread_scope_block>;
  __shared__ alignas(16) int tile[2][256];
  __shared__ B full[2];
  auto block = cg::this_thread_block();
  if (threadIdx.x < 2) init(&full[threadIdx.x], blockDim.x);
  __syncthreads();
  auto fetch = [&](int k) {
    cuda::memcpy_async(block, tile[k & 1], in + (blockIdx.x * tiles + k) * 256, cuda::aligned_size_t<16>(1024), full[k & 1]);
  };
  fetch(0);
  int sum = 0;
  for (int k = 0; k < tiles; ++k) {
    if (k + 1 < tiles) fetch(k + 1);
    full[k & 1].arrive_and_wait();
    for (int j = 0; j < 4; ++j) sum += tile[k & 1][(threadIdx.x * 4 + j * 37) % 256] * (j + 1);
    __syncthreads();
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// Products by compare and swap, greatest and least by references, in shared memory first.
extern "C" __global__ void by_reference(const int* in, int n, int* great, int* least, float* product) {
  __shared__ int high, low;
  if (threadIdx.x == 0) high = -1000000, low = 1000000;
  __syncthreads();
  cuda::atomic_ref<int, cuda::thread_scope_block> h(high), l(low);
  cuda::atomic_ref<float, cuda::thread_scope_device> p(*product);
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    h.fetch_max(in[i], cuda::std::memory_order_relaxed);
    l.fetch_min(in[i], cuda::std::memory_order_relaxed);
    float was = p.load(cuda::std::memory_order_relaxed);
    while (!p.compare_exchange_weak(was, in[i] & 1 ? was * 2.0f : was * 0.5f, cuda::std::memory_order_relaxed)) {}
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    cuda::atomic_ref<int, cuda::thread_scope_device>(*great).fetch_max(high);
    cuda::atomic_ref<int, cuda::thread_scope_device>(*least).fetch_min(low);
  }
}

// One warp fills a ring, another empties it; head and tail are atomics of the block.
template <cuda::std::memory_order kRelease>
__device__ void ring_of_warps(const int* in, int* out, int n) {
  __shared__ int ring[8][32];
  __shared__ cuda::atomic<unsigned, cuda::thread_scope_block> head, tail;
  if (threadIdx.x == 0) new (&head) cuda::atomic<unsigned, cuda::thread_scope_block>(0), new (&tail) cuda::atomic<unsigned, cuda::thread_scope_block>(0);
  __syncthreads();
  const int lane = threadIdx.x % 32;
  if (threadIdx.x < 32) {
    for (unsigned k = 0; k < n; ++k) {
      while (k - tail.load(cuda::std::memory_order_acquire) >= 8) {}
      ring[k % 8][lane] = in[k * 32 + lane] + k;
      __syncwarp();
      if (lane == 0) head.store(k + 1, kRelease);
    }
  } else {
    for (unsigned k = 0; k < n; ++k) {
      while (head.load(cuda::std::memory_order_acquire) <= k) {}
      out[k * 32 + lane] = ring[k % 8][31 - lane];
      __syncwarp();
      if (lane == 0) tail.store(k + 1, cuda::std::memory_order_release);
    }
  }
}
extern "C" __global__ void ring_of_warps_good(const int* in, int* out, int n) { ring_of_warps<cuda::std::memory_order_release>(in, out, n); }
extern "C" __global__ void ring_head_relaxed(const int* in, int* out, int n) { ring_of_warps<cuda::std::memory_order_relaxed>(in, out, n); }

// Block b continues what block b-1 left, told by a fence and a relaxed flag.
template <cuda::thread_scope kScope>
__device__ void chain(int* state, int* flag, int* out) {
  __shared__ int seen[64];
  cuda::atomic_ref<int, cuda::thread_scope_system> f(*flag);
  if (threadIdx.x == 0) {
    while (f.load(cuda::std::memory_order_relaxed) != blockIdx.x) __nanosleep(20);
    cuda::atomic_thread_fence(cuda::std::memory_order_acquire, kScope);
  }
  __syncthreads();
  seen[threadIdx.x] = state[(threadIdx.x + 1) % 64];
  __syncthreads();
  state[threadIdx.x] = seen[threadIdx.x] * 3 + blockIdx.x;
  out[blockIdx.x * 64 + threadIdx.x] = seen[63 - threadIdx.x];
  __syncthreads();
  if (threadIdx.x == 0) {
    cuda::atomic_thread_fence(cuda::std::memory_order_release, kScope);
    f.store(blockIdx.x + 1, cuda::std::memory_order_relaxed);
  }
}
extern "C" __global__ void chain_good(int* state, int* flag, int* out) { chain<cuda::thread_scope_system>(state, flag, out); }
extern "C" __global__ void chain_of_block_fences(int* state, int* flag, int* out) { chain<cuda::thread_scope_block>(state, flag, out); }

// Annotated pointers and every kind of cached access.
extern "C" __global__ void cached(const float* a, const float* b, float* c, float* d, int n) {
  cuda::annotated_ptr<const float, cuda::access_property::persisting> keep(a);
  cuda::annotated_ptr<const float, cuda::access_property::streaming> once(b);
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i == 0) cuda::apply_access_property(a, cuda::aligned_size_t<128>(128), cuda::access_property::persisting{});
  if (i >= n) return;
  const float x = keep[i] + once[i];
  const float y = __ldg(a + n - 1 - i) + __ldcs(b + n - 1 - i) + __ldcg(a + i / 2) + __ldca(b + i / 3) + __ldlu(a + i);
  __stcg(c + i, x);
  __stcs(d + i, y);
  __stwt(d + n + i, x - y);
}

// A lock of one block's atomics is none between blocks.
template <cuda::thread_scope kScope>
__device__ void locked(int* lock, int* sum, const int* in) {
  if (threadIdx.x == 0) {
    cuda::atomic_ref<int, kScope> l(*lock);
    while (l.exchange(1, cuda::std::memory_order_acquire)) {}
    *sum += in[blockIdx.x];
    l.store(0, cuda::std::memory_order_release);
  }
}
extern "C" __global__ void locked_good(int* lock, int* sum, const int* in) { locked<cuda::thread_scope_device>(lock, sum, in); }
extern "C" __global__ void locked_by_block(int* lock, int* sum, const int* in) { locked<cuda::thread_scope_block>(lock, sum, in); }

// Stages of a block's pipeline: released before they are read.
template <bool kEarly>
__device__ void staged(const int* in, int* out, int tiles) {
  __shared__ alignas(16) int tile[2][128];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  auto block = cg::this_thread_block();
  auto pipe = cuda::make_pipeline(block, &state);
  auto fetch = [&](int k) {
    pipe.producer_acquire();
    if (k < tiles) cuda::memcpy_async(block, tile[k & 1], in + k * 128, cuda::aligned_size_t<16>(512), pipe);
    pipe.producer_commit();
  };
  fetch(0);
  fetch(1);
  int sum = 0;
  for (int k = 0; k < tiles; ++k) {
    pipe.consumer_wait();
    if (kEarly) pipe.consumer_release();
    sum = sum * 3 + tile[k & 1][127 - threadIdx.x];
    if (!kEarly) pipe.consumer_release();
    fetch(k + 2);
  }
  out[threadIdx.x] = sum;
}
extern "C" __global__ void staged_good(const int* in, int* out, int tiles) { staged<false>(in, out, tiles); }
extern "C" __global__ void staged_released_early(const int* in, int* out, int tiles) { staged<true>(in, out, tiles); }

// Some leave without telling the barrier.
extern "C" __global__ void left_untold(const int* in, int* out, int n) {
  using B = cuda::barrier<cuda::thread_scope_block>;
  __shared__ B bar;
  __shared__ int s[64];
  if (threadIdx.x == 0) init(&bar, blockDim.x);
  __syncthreads();
  if (threadIdx.x >= n) return;
  s[threadIdx.x] = in[threadIdx.x];
  bar.arrive_and_wait();
  out[threadIdx.x] = s[n - 1 - threadIdx.x];
}

// Words go through shared memory across the warp, synchronised within half of it.
template <int kTile>
__device__ void through_tiles(const int* in, int* out) {
  __shared__ int s[64];
  auto tile = cg::tiled_partition<kTile>(cg::this_thread_block());
  s[threadIdx.x] = in[threadIdx.x];
  tile.sync();
  out[threadIdx.x] = s[threadIdx.x ^ 31];
}
extern "C" __global__ void through_tiles_good(const int* in, int* out) { through_tiles<32>(in, out); }
extern "C" __global__ void through_halves(const int* in, int* out) { through_tiles<16>(in, out); }

// SPDX-License-Identifier: Apache-2.0
// Idioms of libcu++, CUB and cooperative groups that the other files do not have.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda_pipeline.h>

#include <cub/block/block_adjacent_difference.cuh>
#include <cub/block/block_discontinuity.cuh>
#include <cub/block/block_exchange.cuh>
#include <cub/block/block_histogram.cuh>
#include <cub/block/block_run_length_decode.cuh>
#include <cub/block/block_shuffle.cuh>
#include <cuda/annotated_ptr>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/latch>
#include <cuda/std/complex>
#include <cuda/std/optional>
#include <cuda/std/variant>
namespace cg = cooperative_groups;
#define KERNEL extern "C" __global__ void

// A barrier whose completion step adds up what the arrivals left and clears it.
struct Sum {
  int *slots, *total;
  int n;
  __device__ void operator()() noexcept {
    int s = 0;
    for (int i = 0; i < n; ++i) s += slots[i];
    *total += s;
  }
};
KERNEL completion(const int* in, int* out, int rounds) {
  using barrier = cuda::barrier<cuda::thread_scope_block, Sum>;
  __shared__ alignas(barrier) unsigned char room[sizeof(barrier)];
  __shared__ int slots[64], total;
  barrier* bar = reinterpret_cast<barrier*>(room);
  if (threadIdx.x == 0) {
    total = 0;
    new (bar) barrier(blockDim.x, Sum{slots, &total, (int)blockDim.x});
  }
  __syncthreads();
  for (int r = 0; r < rounds; ++r) {
    slots[threadIdx.x] = in[r * blockDim.x + threadIdx.x];
    bar->arrive_and_wait();
    out[r * blockDim.x + threadIdx.x] = total + threadIdx.x;
    bar->arrive_and_wait();
  }
}

// A window moves over a row: two stages by the pipeline primitives, the tail filled with zeros.
template <bool Right>
__device__ void moving(const int4* in, int* out, int vectors) {
  __shared__ int4 stage[2][64];
  const int t = threadIdx.x, tiles = (vectors + 63) / 64;
  const auto load = [&](int tile) {
    const int left = vectors - tile * 64;
    __pipeline_memcpy_async(&stage[tile % 2][t], in + (t < left ? tile * 64 + t : 0), 16, t < left ? 0 : 16);
    __pipeline_commit();
  };
  load(0);
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile + 1 < tiles) load(tile + 1);
    if (Right && tile + 1 == tiles) __pipeline_wait_prior(0);
    else __pipeline_wait_prior(1);
    __syncthreads();
    const int4 v = stage[tile % 2][63 - t];
    out[tile * 64 + t] = v.x + v.y * 2 + v.z * 3 + v.w * 4;
    __syncthreads();
  }
}
KERNEL moving_good(const int4* in, int* out, int vectors) { moving<true>(in, out, vectors); }
KERNEL last_tile_unawaited(const int4* in, int* out, int vectors) { moving<false>(in, out, vectors); }

// Managed and constant variables, pointers between them, system-wide atomics.
__managed__ int tickets = 5;
__managed__ long long sums[4];
__constant__ short weights[8] = {1, -2, 3, -4, 5, -6, 7, -8};
__device__ const short* chosen = weights + 2;
KERNEL managed(const int* in, int* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    const int mine = atomicAdd_system(&tickets, 1);
    atomicMax_system(&sums[3], (long long)mine);
    atomicAdd_system((unsigned long long*)&sums[i % 3], (unsigned long long)(long long)in[i]);
    out[i] = in[i] * weights[i & 7] + chosen[i % 6];
  }
}
KERNEL managed_read(long long* out) {
  if (threadIdx.x < 4) out[threadIdx.x] = sums[threadIdx.x];
  if (threadIdx.x == 4) out[4] = tickets;
}

// CUB: run lengths decoded, differences, heads, an exchange and a histogram.
KERNEL runs(const int* values, const int* lengths, int* decoded, int* total, int* diffs, int* heads, unsigned* bins) {
  using Decode = cub::BlockRunLengthDecode<int, 64, 2, 4>;
  using Difference = cub::BlockAdjacentDifference<int, 64>;
  using Heads = cub::BlockDiscontinuity<int, 64>;
  using Exchange = cub::BlockExchange<int, 64, 4>;
  using Histogram = cub::BlockHistogram<unsigned char, 64, 4, 16>;
  using Shuffle = cub::BlockShuffle<int, 64>;
  __shared__ union {
    typename Decode::TempStorage decode;
    typename Difference::TempStorage difference;
    typename Heads::TempStorage heads;
    typename Exchange::TempStorage exchange;
    typename Histogram::TempStorage histogram;
    typename Shuffle::TempStorage shuffle;
  } temp;
  __shared__ unsigned counted[16];
  const int t = threadIdx.x;
  int v[2] = {values[2 * t], values[2 * t + 1]}, n[2] = {lengths[2 * t], lengths[2 * t + 1]}, size = 0;
  Decode decode(temp.decode, v, n, size);
  int items[4] = {};
  for (int at = 0; at < size; at += 256) {
    decode.RunLengthDecode(items, at);
    for (int k = 0; k < 4; ++k)
      if (at + t * 4 + k < size) decoded[at + t * 4 + k] = items[k];
    __syncthreads();
  }
  if (t == 0) *total = size;
  int mine[4], d[4], h[4];
  for (int k = 0; k < 4; ++k) mine[k] = decoded[t * 4 + k];
  __syncthreads();
  Difference(temp.difference).SubtractLeft(mine, d, [](int a, int b) { return a - b; });
  __syncthreads();
  Heads(temp.heads).FlagHeads(h, mine, [](int a, int b) { return a != b; });
  __syncthreads();
  Exchange(temp.exchange).BlockedToStriped(d, d);
  __syncthreads();
  for (int k = 0; k < 4; ++k) diffs[k * 64 + t] = d[k], heads[t * 4 + k] = h[k];
  unsigned char keys[4];
  for (int k = 0; k < 4; ++k) keys[k] = mine[k] & 15;
  Histogram(temp.histogram).Histogram(keys, counted);
  __syncthreads();
  int from;
  Shuffle(temp.shuffle).Offset(mine[0], from, 1);
  __syncthreads();
  if (t < 16) bins[t] = counted[t];
  if (t < 63) bins[16 + t] = from;
}

// Warps count down a latch when their part of a table is there; all of them then read all of it.
template <bool Right>
__device__ void latched(const int* in, int* out) {
  __shared__ alignas(cuda::latch<cuda::thread_scope_block>) unsigned char room[sizeof(cuda::latch<cuda::thread_scope_block>)];
  __shared__ int table[128];
  auto* done = reinterpret_cast<cuda::latch<cuda::thread_scope_block>*>(room);
  if (threadIdx.x == 0) new (done) cuda::latch<cuda::thread_scope_block>(4);
  __syncthreads();
  table[threadIdx.x] = in[threadIdx.x] * 5;
  __syncwarp();
  if (threadIdx.x % 32 == 0 && (Right || threadIdx.x != 96)) done->count_down();
  done->wait();
  out[threadIdx.x] = table[(threadIdx.x * 37 + 11) % 128];
}
KERNEL latched_good(const int* in, int* out) { latched<true>(in, out); }
KERNEL one_count_short(const int* in, int* out) { latched<false>(in, out); }

// Grid barrier in two halves: the work between them needs nobody.
template <bool Right>
__device__ void halves_of_sync(const int* in, int* mid, int* out, int n) {
  auto grid = cg::this_grid();
  const int i = grid.thread_rank();
  mid[i] = in[i] * 2;
  auto token = grid.barrier_arrive();
  int local = 0;
  for (int k = 0; k < 4; ++k) local += in[(i + k) % n];
  if (!Right) local += mid[(i + 64) % n];
  grid.barrier_wait(cuda::std::move(token));
  out[i] = local + (Right ? mid[(i + 64) % n] : 0);
}
KERNEL halves_good(const int* in, int* mid, int* out, int n) { halves_of_sync<true>(in, mid, out, n); }
KERNEL read_between(const int* in, int* mid, int* out, int n) { halves_of_sync<false>(in, mid, out, n); }

// Variants, optionals and complex numbers in device code; access properties on the pointers.
struct Square { float side; };
struct Circle { float radius; };
struct Box { short w, h; };
using Shape = cuda::std::variant<Square, Circle, Box>;
__device__ __noinline__ Shape shape(int kind, float size) {
  if (kind == 0) return Square{size};
  if (kind == 1) return Circle{size};
  return Box{(short)size, 3};
}
__device__ __noinline__ cuda::std::optional<float> root(float v) { return v < 0 ? cuda::std::optional<float>() : sqrtf(v); }
KERNEL shapes(const int* kinds, const float* sizes, float* areas, cuda::std::complex<float>* powers, int n) {
  cuda::annotated_ptr<const float, cuda::access_property::persisting> kept(sizes);
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const Shape s = shape(kinds[i], kept[i]);
  float area = 0;
  if (auto* q = cuda::std::get_if<Square>(&s)) area = q->side * q->side;
  else if (auto* c = cuda::std::get_if<Circle>(&s)) area = 3.f * c->radius * c->radius;
  else area = cuda::std::get<Box>(s).w * cuda::std::get<Box>(s).h;
  areas[i] = root(sizes[i]).value_or(-1.f) + area;
  cuda::std::complex<float> z(sizes[i], 1.f), p(1.f, 0.f);
  for (int k = 0; k <= kinds[i]; ++k) p *= z;
  powers[i] = p;
}

// A queue between blocks (Michael and Scott's shape, nodes from an array): each block appends and takes.
template <bool Right>
__device__ void append(int2* nodes, int* next, int* tail, int* head, int* log, int per) {
  // block 0 consumes, the others append lists of their own
  constexpr auto relaxed = cuda::memory_order_relaxed;
  using ref = cuda::atomic_ref<int, cuda::thread_scope_device>;
  if (threadIdx.x) return;
  if (blockIdx.x > 0) {
    for (int k = 0; k < per; ++k) {
      const int id = (blockIdx.x - 1) * per + k + 1;
      nodes[id] = make_int2(blockIdx.x, k);
      const int before = ref(*tail).exchange(id, Right ? cuda::memory_order_acq_rel : relaxed);
      ref(next[before]).store(id, Right ? cuda::memory_order_release : relaxed);
    }
  } else {
    int at = 0;
    const int all = (gridDim.x - 1) * per;
    for (int k = 0; k < all; ++k) {
      int id;
      while ((id = ref(next[at]).load(cuda::memory_order_acquire)) == 0) __nanosleep(10);
      log[k] = nodes[id].x * 100 + nodes[id].y;
      at = id;
    }
    *head = at;
  }
}
KERNEL append_list_good(int2* nodes, int* next, int* tail, int* head, int* log, int per) { append<true>(nodes, next, tail, head, log, per); }
KERNEL append_list_relaxed(int2* nodes, int* next, int* tail, int* head, int* log, int per) { append<false>(nodes, next, tail, head, log, per); }

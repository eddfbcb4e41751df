// SPDX-License-Identifier: Apache-2.0
// The idioms of public projects in kernels of our own, beside twins with one slip each.
#include <cuda_pipeline.h>

#include "hopper.cuh"
#define KERNEL extern "C" __global__ void
#define TWINS(good, bad, f, params, args) \
  KERNEL good params { f<true> args; }   \
  KERNEL bad params { f<false> args; }

// Rows of 8-bit quants with a scale for each 32: products by dp4a, one warp a row.
template <bool Right>
__device__ void quant_row(const int* a, const int* b, const float* scale, float* out) {
  const int lane = threadIdx.x, row = blockIdx.x;
  float sum = 0;
  for (int block = lane / 8; block < 8; block += 4) {
    const int at = row * 64 + block * 8 + lane % 8;
    sum += scale[row * 8 + block] * float(__dp4a(a[at], b[block * 8 + lane % 8], 0));
  }
  if (Right)
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  else
    for (int step = 16; step; step /= 2)
      if (lane < step) sum += __shfl_down_sync(~0u, sum, step);
  if (lane == 0) out[row] = sum;
}
TWINS(quant_row_good, quant_row_half_a_warp, quant_row, (const int* a, const int* b, const float* s, float* o), (a, b, s, o))

// Single-pass sums: each block publishes its total past the L1 cache, and looks back to the block before it.
template <int Fences>
__device__ void looked_back(const int* in, int* value, int* flag, int* out) {
  int sum = __reduce_add_sync(~0u, in[blockIdx.x * 32 + threadIdx.x]);
  if (threadIdx.x) return;
  if (blockIdx.x) {
    while (__ldcg(flag + blockIdx.x - 1) == 0) __nanosleep(20);
    if (Fences > 1) __threadfence();
    sum += __ldcg(value + blockIdx.x - 1);
  }
  __stcg(value + blockIdx.x, sum);
  if (Fences > 0) __threadfence();
  __stcg(flag + blockIdx.x, 1);
  out[blockIdx.x] = sum;
}
KERNEL looked_back_good(const int* in, int* v, int* f, int* out) { looked_back<2>(in, v, f, out); }
KERNEL looked_back_no_fence(const int* in, int* v, int* f, int* out) { looked_back<0>(in, v, f, out); }
KERNEL looked_back_half_a_fence(const int* in, int* v, int* f, int* out) { looked_back<1>(in, v, f, out); }

// Mean and deviation of a row by two sums through the same words of shared memory.
template <bool Right>
__device__ float summed(float x, float* part) {
  for (int step = 16; step; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  if (Right) __syncthreads();  // the words may still be read by the sum before
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
  __syncthreads();
  x = 0;
  for (int i = 0; i < 4; ++i) x += part[i];
  return x;
}
template <bool Right>
__device__ void row_moments(const float* in, float* out) {
  __shared__ float part[4];
  const float x = in[blockIdx.x * 128 + threadIdx.x], mean = summed<Right>(x, part) / 128;
  const float square = summed<Right>((x - mean) * (x - mean), part) / 128;
  if (threadIdx.x == 0) out[2 * blockIdx.x] = mean, out[2 * blockIdx.x + 1] = square;
}
TWINS(row_moments_good, row_moments_one_barrier, row_moments, (const float* in, float* out), (in, out))

// One step of a stencil on tiles of 14x14 with a halo.
template <bool Right>
__device__ void stencil_tile(const int* in, int* out, int n) {
  __shared__ int s[16][17];
  const int tx = threadIdx.x, ty = threadIdx.y, x = blockIdx.x * 14 + tx - 1, y = blockIdx.y * 14 + ty - 1;
  const bool inside = x >= 0 && y >= 0 && x < n && y < n;
  if (Right)
    s[ty][tx] = inside ? in[y * n + x] : 0;
  else if (inside)
    s[ty][tx] = in[y * n + x];
  __syncthreads();
  if (inside && tx > 0 && tx < 15 && ty > 0 && ty < 15)
    out[y * n + x] = s[ty][tx] * 4 - s[ty][tx - 1] - s[ty][tx + 1] - s[ty - 1][tx] - s[ty + 1][tx];
}
TWINS(stencil_tile_good, stencil_tile_open_edge, stencil_tile, (const int* in, int* out, int n), (in, out, n))

// Counts per bin in shared memory, then one atomic per bin and block.
template <bool Right>
__device__ void binned(const unsigned char* in, unsigned* out, int n) {
  __shared__ unsigned bins[64];
  if (threadIdx.x < 64) bins[threadIdx.x] = 0;
  if (Right) __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(bins + in[i] % 64, 1);
  __syncthreads();
  if (threadIdx.x < 64) atomicAdd(out + threadIdx.x, bins[threadIdx.x]);
}
TWINS(binned_good, binned_uncleared, binned, (const unsigned char* in, unsigned* out, int n), (in, out, n))

// A grid-stride loop over pairs.
template <bool Right>
__device__ void pairs_added(const int2* in, int* out, long long n) {
  for (long long i = blockIdx.x * 1ll * blockDim.x + threadIdx.x; Right ? i < n : i <= n; i += 1ll * gridDim.x * blockDim.x)
    out[i] = in[i].x + in[i].y;
}
TWINS(pairs_added_good, pairs_added_and_one, pairs_added, (const int2* in, int* out, long long n), (in, out, n))

// Two stages of asynchronous copies; the last tile has no younger copy behind it.
template <bool Right>
__device__ void two_stages(const int* in, int* out, int tiles) {
  __shared__ int s[2][64];
  const int t = threadIdx.x;
  int sum = 0;
  __pipeline_memcpy_async(&s[0][t], in + t, 4);
  __pipeline_commit();
  for (int i = 0; i < tiles; ++i) {
    if (i + 1 < tiles) __pipeline_memcpy_async(&s[(i + 1) % 2][t], in + (i + 1) * 64 + t, 4);
    if (Right || i + 1 < tiles) __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    sum += s[i % 2][t ^ 1] * (i + 1);
    __syncthreads();
  }
  out[t] = sum;
}
TWINS(two_stages_good, two_stages_last_unwaited, two_stages, (const int* in, int* out, int tiles), (in, out, tiles))

// A list guarded by a lock that one thread of each block takes.
template <bool Right>
__device__ void locked_list(int* lock, int* list) {
  if (threadIdx.x) return;
  while (atomicCAS(lock, 0, 1) != 0) __nanosleep(20);
  __threadfence();
  const int n = list[0];
  list[1 + n] = 100 + n;
  list[0] = n + 1;
  if (Right) __threadfence();
  atomicExch(lock, 0);
}
TWINS(locked_list_good, locked_list_unfenced, locked_list, (int* lock, int* list), (lock, list))

// Transposed tiles, rows of four read as one vector.
template <int Pitch>
__device__ void transposed_vectors(const float* in, float* out) {
  __shared__ alignas(16) float s[32 * Pitch];
  const int t = threadIdx.x;
  for (int i = 0; i < 32; ++i) s[t * Pitch + i] = in[i * 32 + t];
  __syncthreads();
  for (int i = t; i < 256; i += 32) reinterpret_cast<float4*>(out)[i] = *reinterpret_cast<float4*>(s + i / 8 * Pitch + i % 8 * 4);
}
KERNEL transposed_vectors_good(const float* in, float* out) { transposed_vectors<36>(in, out); }
KERNEL transposed_vectors_odd_pitch(const float* in, float* out) { transposed_vectors<33>(in, out); }

// What passes a test, packed: one atomic a warp.
template <bool Right>
__device__ void packed(const int* in, int* count, int* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
  const bool keep = i < n && in[i] > 0;
  const unsigned all = __ballot_sync(~0u, keep);
  int base = 0;
  if (lane == 0) base = atomicAdd(count, Right ? __popc(all) : 32);
  base = __shfl_sync(~0u, base, 0);
  if (keep) out[base + __popc(all & ((1u << lane) - 1))] = in[i];
}
TWINS(packed_good, packed_with_gaps, packed, (const int* in, int* count, int* out, int n), (in, count, out, n))

// A tile leaves by a bulk store.
template <int What>
__device__ void bulk_tile(const int* in, int* out) {
  __shared__ alignas(128) int s[64];
  if (What != 3 || threadIdx.x < 60) s[threadIdx.x] = 2 * in[blockIdx.x * 64 + threadIdx.x];
  if (What != 1) fence_async();
  __syncthreads();
  if (threadIdx.x) return;
  bulk_store(out + blockIdx.x * 64, s, 256);
  bulk_commit();
  if (What != 2) bulk_wait();
}
KERNEL bulk_tile_good(const int* in, int* out) { bulk_tile<0>(in, out); }
KERNEL bulk_tile_unfenced(const int* in, int* out) { bulk_tile<1>(in, out); }
KERNEL bulk_tile_left(const int* in, int* out) { bulk_tile<2>(in, out); }
KERNEL bulk_tile_part(const int* in, int* out) { bulk_tile<3>(in, out); }

// A ring of two stages: thread 0 loads, everybody reads and says so.
template <int What>
__device__ void ring(const int* in, int* out, int tiles) {
  __shared__ alignas(128) int s[2][32];
  __shared__ u64 full[2], empty[2];
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) mbar_init(full + i, 1), mbar_init(empty + i, 32);
    fence_init();
  }
  __syncthreads();
  if (threadIdx.x >= 32) {
    if (threadIdx.x != 32) return;
    for (int i = 0; i < tiles; ++i) {
      if (i > 1 && What != 1) mbar_wait(empty + i % 2, (i / 2 - 1) & 1);
      mbar_expect(full + i % 2, 128);
      bulk_load(s[i % 2], in + i * 32, 128, full + i % 2);
    }
    return;
  }
  int sum = 0;
  for (int i = 0; i < tiles; ++i) {
    mbar_wait(full + i % 2, What == 2 ? 0 : i / 2 & 1);
    sum += s[i % 2][31 - threadIdx.x];
    if (What != 3 || i) mbar_arrive(empty + i % 2);
  }
  out[threadIdx.x] = sum;
}
KERNEL ring_good(const int* in, int* out, int tiles) { ring<0>(in, out, tiles); }
KERNEL ring_never_empty(const int* in, int* out, int tiles) { ring<1>(in, out, tiles); }
KERNEL ring_one_parity(const int* in, int* out, int tiles) { ring<2>(in, out, tiles); }
KERNEL ring_short_of_one(const int* in, int* out, int tiles) { ring<3>(in, out, tiles); }

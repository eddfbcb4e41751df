// SPDX-License-Identifier: Apache-2.0
// Attention in tiles as it was first written: a thread per query, tiles of queries, keys and values in shared memory, whose
// sizes a launch names. f32 tiles of 64 x 64 (48 KB), f16 tiles of 64 x 64 (24 KB), f16 tiles of 32 and 64 x 128 (40 KB).
#include <cuda_fp16.h>
#define KERNEL extern "C" __global__ void

__device__ __forceinline__ float wide(float x) { return x; }
__device__ __forceinline__ float wide(__half x) { return __half2float(x); }
__device__ __forceinline__ void narrow(float* to, float x) { *to = x; }
__device__ __forceinline__ void narrow(__half* to, float x) { *to = __float2half_rn(x); }

// o [n, D] of one head and its log-sum-exp; `Part` of a tile of keys and values is loaded: all of it, or (a defect) half.
template <class T, int D, int Br, int Bc, int Part>
__device__ void attention(const T* q, const T* k, const T* v, T* o, float* lse, int n, int causal, float scale) {
  extern __shared__ __align__(16) unsigned char room[];
  T *qs = reinterpret_cast<T*>(room), *ks = qs + Br * D, *vs = ks + Bc * D;
  const int t = threadIdx.x, row0 = blockIdx.x * Br, row = row0 + t;
  for (int i = t; i < Br * D; i += Br) qs[i] = row0 + i / D < n ? q[row0 * D + i] : T(0.0f);
  float acc[D] = {}, high = -INFINITY, sum = 0;
  const int tiles = (n + Bc - 1) / Bc, last = causal ? min(tiles, (row0 + Br - 1) / Bc + 1) : tiles;
  for (int tile = 0; tile < last; ++tile) {
    __syncthreads();
    for (int i = t; i < Bc * D / Part; i += Br) {
      const bool there = tile * Bc + i / D < n;
      ks[i] = there ? k[tile * Bc * D + i] : T(0.0f), vs[i] = there ? v[tile * Bc * D + i] : T(0.0f);
    }
    __syncthreads();
    const int keys = min(Bc, min(n, causal ? row + 1 : n) - tile * Bc);
    for (int j = 0; j < keys; ++j) {
      float s = 0;
#pragma unroll 8
      for (int c = 0; c < D; ++c) s = fmaf(wide(qs[t * D + c]), wide(ks[j * D + c]), s);
      s *= scale;
      const float m = fmaxf(high, s), shrink = __expf(high - m), p = __expf(s - m);
      high = m, sum = sum * shrink + p;
#pragma unroll
      for (int c = 0; c < D; ++c) acc[c] = fmaf(acc[c], shrink, p * wide(vs[j * D + c]));
    }
  }
  if (row >= n) return;  // behind the last barrier
#pragma unroll
  for (int c = 0; c < D; ++c) narrow(o + row * D + c, acc[c] / sum);
  lse[row] = high + logf(sum);
}
#define ENTRY(NAME, T, D, BR, BC, PART)                                                                                 \
  KERNEL NAME(const T* q, const T* k, const T* v, T* o, float* lse, int n, int causal, float scale) {                   \
    attention<T, D, BR, BC, PART>(q, k, v, o, lse, n, causal, scale);                                                   \
  }
ENTRY(attention_f32_64, float, 64, 64, 64, 1)
ENTRY(attention_f16_64, __half, 64, 64, 64, 1)
ENTRY(attention_f16_128, __half, 128, 32, 64, 1)
ENTRY(attention_half_a_tile, __half, 128, 32, 64, 2)

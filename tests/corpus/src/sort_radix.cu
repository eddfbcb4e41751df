// SPDX-License-Identifier: Apache-2.0
// LSD radix sort, 4 bits a pass: per-block histogram, one-block scan, stable scatter ranked with match_any.
extern "C" __global__ void radix_hist(const unsigned* in, unsigned* hist, int n, int shift) {
  __shared__ unsigned h[16];
  if (threadIdx.x < 16) h[threadIdx.x] = 0;
  __syncthreads();
  int i = blockIdx.x * 128 + threadIdx.x;
  if (i < n) atomicAdd(&h[in[i] >> shift & 15], 1u);
  __syncthreads();
  if (threadIdx.x < 16) hist[threadIdx.x * gridDim.x + blockIdx.x] = h[threadIdx.x];
}
extern "C" __global__ void radix_scan(unsigned* hist, int n) {
  __shared__ unsigned carry;
  if (threadIdx.x == 0) carry = 0;
  __syncthreads();
  for (int base = 0; base < n; base += 32) {
    int i = base + threadIdx.x;
    unsigned v = i < n ? hist[i] : 0, x = v;
    for (int d = 1; d < 32; d *= 2) {
      unsigned o = __shfl_up_sync(~0u, x, d);
      if (threadIdx.x >= d) x += o;
    }
    unsigned c = carry;
    if (i < n) hist[i] = c + x - v;
    __syncwarp();
    if (threadIdx.x == 31) carry = c + x;
    __syncwarp();
  }
}
extern "C" __global__ void radix_scatter(const unsigned* in, unsigned* out, const unsigned* hist, int n, int shift) {
  __shared__ unsigned wcount[4][16];
  int lane = threadIdx.x & 31, w = threadIdx.x >> 5, i = blockIdx.x * 128 + threadIdx.x;
  if (lane < 16) wcount[w][lane] = 0;
  __syncwarp();
  unsigned v = i < n ? in[i] : 0, d = i < n ? v >> shift & 15 : 16;
  unsigned peers = __match_any_sync(~0u, d), rank = __popc(peers & ((1u << lane) - 1));
  if (d < 16 && rank == 0) wcount[w][d] = __popc(peers);
  __syncthreads();
  if (d < 16) {
    unsigned at = hist[d * gridDim.x + blockIdx.x] + rank;
    for (int k = 0; k < w; ++k) at += wcount[k][d];
    out[at] = v;
  }
}

// SPDX-License-Identifier: Apache-2.0
// Single-pass scan with decoupled look-back: a tile publishes its aggregate, then its inclusive prefix.
// state: bits 0..31 value, bits 32..33 status (0 nothing, 1 aggregate, 2 prefix): one 64-bit word, so that
// value and status change together.
extern "C" __global__ void scan_lookback(const int* in, int* out, unsigned long long* state, unsigned* ticket, int n) {
  __shared__ unsigned tile_id;
  __shared__ int warp_sum[4], prefix;
  if (threadIdx.x == 0) tile_id = atomicAdd(ticket, 1u);
  __syncthreads();
  int tile = tile_id, i = tile * 128 + threadIdx.x, lane = threadIdx.x & 31, w = threadIdx.x >> 5;
  int v = i < n ? in[i] : 0;
  for (int d = 1; d < 32; d *= 2) {
    int o = __shfl_up_sync(~0u, v, d);
    if (lane >= d) v += o;
  }
  if (lane == 31) warp_sum[w] = v;
  __syncthreads();
  for (int k = 0; k < w; ++k) v += warp_sum[k];
  if (threadIdx.x == 0) {
    int total = warp_sum[0] + warp_sum[1] + warp_sum[2] + warp_sum[3];
    volatile unsigned long long* st = state;
    int before = 0;
    if (tile > 0) {
      st[tile] = (1ull << 32) | (unsigned)total;
      for (int k = tile - 1;; --k) {
        unsigned long long s;
        do s = st[k];
        while ((s >> 32) == 0);
        before += (int)(unsigned)s;
        if ((s >> 32) == 2) break;
      }
    }
    st[tile] = (2ull << 32) | (unsigned)(before + total);
    prefix = before;
  }
  __syncthreads();
  if (i < n) out[i] = v + prefix;
}

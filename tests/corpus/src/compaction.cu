// SPDX-License-Identifier: Apache-2.0
// Stream compaction: stable within a block by ballot prefixes, blocks in any order (multiset).
extern "C" __global__ void compaction(const int* in, int* out, int* count, int n) {
  __shared__ int wsum[8], base;
  int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32, w = threadIdx.x / 32;
  int v = i < n ? in[i] : 0;
  bool keep = i < n && v % 3 == 0;
  unsigned b = __ballot_sync(~0u, keep), lt;
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(lt));
  if (lane == 0) wsum[w] = __popc(b);
  __syncthreads();
  if (threadIdx.x == 0) {
    int s = 0;
    for (int k = 0; k < blockDim.x / 32; ++k) {
      int t = wsum[k];
      wsum[k] = s;
      s += t;
    }
    base = atomicAdd(count, s);
  }
  __syncthreads();
  if (keep) out[base + wsum[w] + __popc(b & lt)] = v;
}

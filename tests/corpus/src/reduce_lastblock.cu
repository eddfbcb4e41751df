// SPDX-License-Identifier: Apache-2.0
// The block that finishes last adds up the partial sums; atomicInc wraps the counter for the next launch.
extern "C" __global__ void reduce_lastblock(const int* in, volatile int* part, unsigned* count, int* out, int n) {
  __shared__ int s[128];
  __shared__ bool last;
  int k = threadIdx.x, acc = 0;
  for (int i = blockIdx.x * 128 + k; i < n; i += 128 * gridDim.x) acc = max(acc, in[i]);
  s[k] = acc;
  __syncthreads();
  for (int d = 64; d > 0; d /= 2) {
    if (k < d) s[k] = max(s[k], s[k + d]);
    __syncthreads();
  }
  if (k == 0) {
    part[blockIdx.x] = s[0];
    __threadfence();
    last = atomicInc(count, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last) {
    __threadfence();
    int m = k < gridDim.x ? part[k] : 0;
    for (int d = 16; d; d /= 2) m = max(m, __shfl_xor_sync(~0u, m, d));
    if (k == 0) out[0] += m;
  }
}

// SPDX-License-Identifier: Apache-2.0
// Inclusive Hillis-Steele scan of each block's tile, double buffered in shared memory.
extern "C" __global__ void scan_hillis(const unsigned* in, unsigned* out, int n) {
  __shared__ unsigned t[2][256];
  int i = blockIdx.x * blockDim.x + threadIdx.x, k = threadIdx.x, cur = 0;
  t[0][k] = i < n ? in[i] : 0;
  __syncthreads();
  for (int d = 1; d < blockDim.x; d *= 2) {
    t[cur ^ 1][k] = k >= d ? t[cur][k] + t[cur][k - d] : t[cur][k];
    cur ^= 1;
    __syncthreads();
  }
  if (i < n) out[i] = t[cur][k];
}

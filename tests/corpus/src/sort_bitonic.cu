// SPDX-License-Identifier: Apache-2.0
// Bitonic sort of 512 (key, value) pairs in one block.
extern "C" __global__ void sort_bitonic(const unsigned* key, const unsigned short* val, unsigned* ok, unsigned short* ov) {
  __shared__ unsigned k[512];
  __shared__ unsigned short v[512];
  for (int i = threadIdx.x; i < 512; i += blockDim.x) {
    k[i] = key[blockIdx.x * 512 + i];
    v[i] = val[blockIdx.x * 512 + i];
  }
  for (int size = 2; size <= 512; size *= 2)
    for (int d = size / 2; d > 0; d /= 2) {
      __syncthreads();
      int t = threadIdx.x, i = 2 * t - (t & (d - 1)), j = i + d;
      bool up = (i & size) == 0;
      if ((k[i] > k[j]) == up) {
        unsigned a = k[i];
        k[i] = k[j];
        k[j] = a;
        unsigned short b = v[i];
        v[i] = v[j];
        v[j] = b;
      }
    }
  __syncthreads();
  for (int i = threadIdx.x; i < 512; i += blockDim.x) {
    ok[blockIdx.x * 512 + i] = k[i];
    ov[blockIdx.x * 512 + i] = v[i];
  }
}

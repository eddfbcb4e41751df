// SPDX-License-Identifier: Apache-2.0
// Odd-even transposition sort in shared memory until a pass changes nothing (__syncthreads_or).
extern "C" __global__ void sort_odd_even(short* data, int n, int* passes) {
  extern __shared__ short sh[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) sh[i] = data[i];
  __syncthreads();
  int pass = 0, changed;
  do {
    changed = 0;
    for (int phase = 0; phase < 2; ++phase) {
      int i = 2 * threadIdx.x + phase;
      if (i + 1 < n && sh[i] > sh[i + 1]) {
        short t = sh[i];
        sh[i] = sh[i + 1];
        sh[i + 1] = t;
        changed = 1;
      }
      __syncthreads();
    }
    ++pass;
  } while (__syncthreads_or(changed));
  for (int i = threadIdx.x; i < n; i += blockDim.x) data[i] = sh[i];
  if (threadIdx.x == 0) *passes = pass;
}

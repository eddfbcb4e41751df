// SPDX-License-Identifier: Apache-2.0
// Even blocks produce, odd blocks consume, through a ring of 4 slots in global memory with full and empty flags.
extern "C" __global__ void producer_consumer(const int* in, int* ring, int* full, int* empty, int* out, int rounds) {
  int pair = blockIdx.x / 2, t = threadIdx.x;
  int* slot0 = ring + pair * 4 * 64;
  volatile int* f = full + pair;
  volatile int* e = empty + pair;
  if (blockIdx.x % 2 == 0) {
    for (int r = 0; r < rounds; ++r) {
      if (t == 0) {
        while (r - *e >= 4) __nanosleep(40);
        __threadfence();
      }
      __syncthreads();
      slot0[(r % 4) * 64 + t] = in[(pair * rounds + r) * 64 + t] * 2 + r;
      __syncthreads();
      if (t == 0) {
        __threadfence();
        *f = r + 1;
      }
    }
  } else {
    int acc = 0;
    for (int r = 0; r < rounds; ++r) {
      if (t == 0) {
        while (*f <= r) {
        }
        __threadfence();
      }
      __syncthreads();
      acc = acc * 5 + slot0[(r % 4) * 64 + (t ^ 1)];
      __syncthreads();
      if (t == 0) {
        __threadfence();
        *e = r + 1;
      }
    }
    out[pair * 64 + t] = acc;
  }
}

// SPDX-License-Identifier: Apache-2.0
// printf with several conversions, and assertions that hold.
#include <assert.h>
#include <stdio.h>
extern "C" __global__ void print_assert(const int* in, int* out) {
  int v = in[threadIdx.x];
  assert(v >= 0 && "inputs are not negative");
  if (threadIdx.x % 16 == 0) printf("thread %d of block %u: %5.2f %s %c %lld\n", threadIdx.x, blockIdx.x, v * 0.5, v & 1 ? "odd" : "even", 'a' + v % 26, (long long)v << 33);
  if (v > 1000000) __trap();
  out[threadIdx.x] = v + 1;
}

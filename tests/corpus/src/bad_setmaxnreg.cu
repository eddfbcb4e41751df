// SPDX-License-Identifier: Apache-2.0
// Both warpgroups ask for more registers than the block was given: the second never gets them.
#include "hopper.cuh"
extern "C" __global__ void __launch_bounds__(256, 1) greedy(int* out) {
  __shared__ int s[256];
  s[threadIdx.x] = threadIdx.x;
  __syncthreads();
  ASM("setmaxnreg.inc.sync.aligned.u32 240;");
  out[threadIdx.x] = s[threadIdx.x ^ 128];
}

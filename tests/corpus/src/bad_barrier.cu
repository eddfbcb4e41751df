// SPDX-License-Identifier: Apache-2.0
extern "C" __global__ void in_branch(const int* in, int* out) {
  __shared__ int s[64];
  s[threadIdx.x] = in[threadIdx.x];
  if (threadIdx.x % 32 < 16) {
    asm volatile("bar.sync 0;" ::: "memory");
    out[threadIdx.x] = s[threadIdx.x ^ 1];
  } else {
    asm volatile("bar.sync 0;" ::: "memory");
    out[threadIdx.x] = s[threadIdx.x ^ 2] + 1;
  }
}
extern "C" __global__ void in_loop(const int* in, int* out) {  // trip counts differ inside a warp
  __shared__ int s[64];
  int acc = 0;
  for (int i = 0; i < in[threadIdx.x]; ++i) {
    s[threadIdx.x] = i;
    __syncthreads();
    acc += s[threadIdx.x ^ 32];
  }
  __syncthreads();
  out[threadIdx.x] = acc + s[63 - threadIdx.x];
}
extern "C" __global__ void half_a_warp(const int* in, int* out) {  // the other lanes never come to it
  __shared__ int s[64];
  s[threadIdx.x] = in[threadIdx.x];
  if (threadIdx.x < 48) __syncthreads();
  out[threadIdx.x] = s[threadIdx.x ^ 33];
}

// SPDX-License-Identifier: Apache-2.0
extern "C" __global__ void shared_tail(const int* in, int* out, int n) {  // only n of 64 words are written
  __shared__ int s[64];
  if (threadIdx.x < n) s[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x] * 2;
}
extern "C" __global__ void global_scratch(float* acc, float* out, int n) {  // accumulates into memory never cleared
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    acc[i] += 1.f;
    out[i] = acc[i];
  }
}
extern "C" __global__ void global_hole(const int* in, int* tmp, int* out) {  // one element is skipped by the first phase
  if (threadIdx.x != 17) tmp[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  if (tmp[threadIdx.x ^ 1] > 0) out[threadIdx.x] = 1;
}

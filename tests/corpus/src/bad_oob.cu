// SPDX-License-Identifier: Apache-2.0
#include "hopper.cuh"
extern "C" __global__ void global_read(const int* in, int* out, int n) {  // guards <= instead of <
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) out[i] = in[i];
}
extern "C" __global__ void global_write(int* out, int n) {
  int i = threadIdx.x - 1;
  out[i] = n;
}
extern "C" __global__ void global_vector(const float4* in, float4* out, int n4) {  // the last float4 straddles the end
  if (threadIdx.x < n4) out[threadIdx.x] = in[threadIdx.x];
}
extern "C" __global__ void global_atomic(const unsigned char* in, unsigned* hist, int n) {  // 200 bins, value 255
  for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&hist[in[i]], 1u);
}
extern "C" __global__ void wild(int** table, int* out) { out[threadIdx.x] = *table[threadIdx.x]; }
extern "C" __global__ void shared_static(const int* in, int* out, int k) {
  __shared__ int s[32];
  s[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x + k];
}
extern "C" __global__ void shared_dynamic(const int* in, int* out) {
  extern __shared__ int d[];
  d[threadIdx.x * 2] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = d[threadIdx.x * 2];
}
extern "C" __global__ void local_index(const int* in, int* out) {
  int a[8];
  for (int i = 0; i < 8; ++i) a[i] = in[i];
  a[in[8 + threadIdx.x]] = 5;
  int s = 0;
  for (int i = 0; i < 8; ++i) s = s * 3 + a[(i + threadIdx.x) & 7];
  out[threadIdx.x] = s;
}

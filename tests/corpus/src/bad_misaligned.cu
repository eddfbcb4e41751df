// SPDX-License-Identifier: Apache-2.0
extern "C" __global__ void vector_global(const float* in, float4* out) { out[threadIdx.x] = *(const float4*)(in + 4 * threadIdx.x + 1); }
extern "C" __global__ void word_shared(const char* in, int* out) {
  __shared__ __align__(8) char s[136];
  for (int i = threadIdx.x; i < 136; i += 32) s[i] = in[i];
  __syncthreads();
  out[threadIdx.x] = *(int*)(s + 4 * threadIdx.x + (threadIdx.x == 9 ? 2 : 0));
}
extern "C" __global__ void atomic_global(char* p) { atomicAdd((unsigned long long*)(p + 8 * threadIdx.x + 4), 1ull); }

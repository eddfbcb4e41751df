// SPDX-License-Identifier: Apache-2.0
// Missing synchronisation between plain accesses to shared memory.
extern "C" __global__ void no_barrier(const int* in, int* out) {  // read after write, across warps
  __shared__ int s[128];
  s[threadIdx.x] = in[threadIdx.x];
  out[threadIdx.x] = s[127 - threadIdx.x];
}
extern "C" __global__ void write_write(const int* in, int* out) {  // warps write the same word, different values
  __shared__ int s[32];
  s[threadIdx.x % 32] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x % 32];
}
extern "C" __global__ void loop_reuse(const int* in, int* out, int n) {  // no barrier before the buffer is overwritten
  __shared__ int s[64];
  int acc = 0;
  for (int i = 0; i < n; ++i) {
    s[threadIdx.x] = in[i * 64 + threadIdx.x];
    __syncthreads();
    acc += s[63 - threadIdx.x];
  }
  out[threadIdx.x] = acc;
}
extern "C" __global__ void no_syncwarp(const int* in, int* out) {  // warp-synchronous code without __syncwarp
  __shared__ volatile int v[1];
  __shared__ int s[32];
  int t = threadIdx.x;
  s[t] = in[t];
  v[0] = 0;
  if (t < 16) s[t] += s[t + 16];
  if (t < 8) s[t] += s[t + 8];
  out[t] = s[t] + v[0];
}
extern "C" __global__ void named_wrong_id(const int* in, int* out) {  // the two sides use different barriers
  __shared__ int s[64];
  s[threadIdx.x] = in[threadIdx.x];
  if (threadIdx.x < 32)
    asm volatile("bar.sync 1, 32;" ::: "memory");
  else
    asm volatile("bar.sync 2, 32;" ::: "memory");
  out[threadIdx.x] = s[threadIdx.x ^ 32];
}

// SPDX-License-Identifier: Apache-2.0
// Naive, padded tile, and XOR-swizzled tile transposes; dimensions are multiples of 32.
extern "C" __global__ void transpose_naive(const float* in, float* out, int w, int h) {
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
  out[x * h + y] = in[y * w + x];
}
extern "C" __global__ void transpose_tiled(const float* in, float* out, int w, int h) {
  __shared__ float t[32][33];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) t[threadIdx.y + j][threadIdx.x] = in[(y + j) * w + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x;
  y = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) out[(y + j) * h + x] = t[threadIdx.x][threadIdx.y + j];
}
extern "C" __global__ void transpose_conflicts(const float* in, float* out, int w, int h) {
  __shared__ float t[32][32];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) t[threadIdx.y + j][threadIdx.x] = in[(y + j) * w + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x;
  y = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) out[(y + j) * h + x] = t[threadIdx.x][threadIdx.y + j];
}
extern "C" __global__ void transpose_swizzled(const float* in, float* out, int w, int h) {
  __shared__ float t[32 * 32];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) t[(threadIdx.y + j) * 32 + (threadIdx.x ^ (threadIdx.y + j))] = in[(y + j) * w + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x;
  y = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) out[(y + j) * h + x] = t[threadIdx.x * 32 + ((threadIdx.y + j) ^ threadIdx.x)];
}

// SPDX-License-Identifier: Apache-2.0
// Two Jacobi steps on a ragged 2D grid, 16x8 blocks, zero outside; and Conway's life on bits of bytes.
extern "C" __global__ void jacobi(const double* in, double* out, int w, int h) {
  __shared__ double t[10][18];
  int x0 = blockIdx.x * 16 - 1, y0 = blockIdx.y * 8 - 1;
  for (int k = threadIdx.y * 16 + threadIdx.x; k < 180; k += 128) {
    int x = x0 + k % 18, y = y0 + k / 18;
    t[k / 18][k % 18] = x >= 0 && x < w && y >= 0 && y < h ? in[(size_t)y * w + x] : 0.0;
  }
  __syncthreads();
  int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y, tx = threadIdx.x + 1, ty = threadIdx.y + 1;
  if (x < w && y < h) out[(size_t)y * w + x] = 0.25 * (t[ty - 1][tx] + t[ty + 1][tx] + t[ty][tx - 1] + t[ty][tx + 1]);
}
extern "C" __global__ void life(const unsigned char* in, unsigned char* out, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= w || y >= h) return;
  int c = 0;
  for (int dy = -1; dy <= 1; ++dy)
    for (int dx = -1; dx <= 1; ++dx)
      if (dx || dy) c += in[(y + dy + h) % h * w + (x + dx + w) % w];
  out[y * w + x] = c == 3 || (c == 2 && in[y * w + x]);
}

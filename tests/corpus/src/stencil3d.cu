// SPDX-License-Identifier: Apache-2.0
// 7-point 3D stencil marching along z with a register queue; 3D grid of blocks for the second entry.
extern "C" __global__ void stencil3d_march(const float* in, float* out, int nx, int ny, int nz) {
  __shared__ float s[8][32];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
  bool ok = x < nx && y < ny;
  size_t plane = (size_t)nx * ny, at = (size_t)y * nx + x;
  float below = 0, mid = ok ? in[at] : 0;
  for (int z = 0; z < nz; ++z) {
    float above = ok && z + 1 < nz ? in[at + (z + 1) * plane] : 0;
    s[threadIdx.y][threadIdx.x] = mid;
    __syncthreads();
    if (ok) {
      float l = x > 0 ? (threadIdx.x > 0 ? s[threadIdx.y][threadIdx.x - 1] : in[at + z * plane - 1]) : 0;
      float r = x + 1 < nx ? (threadIdx.x < 31 ? s[threadIdx.y][threadIdx.x + 1] : in[at + z * plane + 1]) : 0;
      float u = y > 0 ? (threadIdx.y > 0 ? s[threadIdx.y - 1][threadIdx.x] : in[at + z * plane - nx]) : 0;
      float d = y + 1 < ny ? (threadIdx.y < 7 ? s[threadIdx.y + 1][threadIdx.x] : in[at + z * plane + nx]) : 0;
      out[at + z * plane] = l + r + u + d + below + above - 6.f * mid;
    }
    __syncthreads();
    below = mid;
    mid = above;
  }
}
extern "C" __global__ void index3d(unsigned* out) {
  unsigned b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  unsigned t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  unsigned i = b * (blockDim.x * blockDim.y * blockDim.z) + t;
  out[i] = blockIdx.x | blockIdx.y << 4 | blockIdx.z << 8 | threadIdx.x << 12 | threadIdx.y << 16 | threadIdx.z << 20 |
           (t % 32 == (threadIdx.x + 3 * (threadIdx.y + 5 * threadIdx.z)) % 32) << 31;
}

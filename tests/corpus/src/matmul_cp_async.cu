// SPDX-License-Identifier: Apache-2.0
// Double-buffered tiles through cp.async (__pipeline_memcpy_async), 16- and 4-byte copies, zero fill at the edge.
#include <cuda_pipeline.h>
#define T 16
extern "C" __global__ void matmul_cp_async(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ __align__(16) float as[2][T][T], bs[2][T][T];
  int tx = threadIdx.x, ty = threadIdx.y, i = blockIdx.y * T + ty, j = blockIdx.x * T + tx, tiles = (k + T - 1) / T;
  auto load = [&](int t, int s) {
    int kk = t * T + tx;
    __pipeline_memcpy_async(&as[s][ty][tx], &a[i * k + min(kk, k - 1)], 4, kk < k ? 0 : 4);
    if (tx % 4 == 0) {
      int kr = t * T + ty;
      __pipeline_memcpy_async(&bs[s][ty][tx], &b[min(kr, k - 1) * n + j], 16, kr < k ? 0 : 16);
    }
    __pipeline_commit();
  };
  load(0, 0);
  float acc = 0;
  for (int t = 0; t < tiles; ++t) {
    if (t + 1 < tiles) load(t + 1, (t + 1) & 1);
    else __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    for (int p = 0; p < T; ++p) acc += as[t & 1][ty][p] * bs[t & 1][p][tx];
    __syncthreads();
  }
  c[i * n + j] = acc;
}

// SPDX-License-Identifier: Apache-2.0
// 32x32 output tile, each thread a 4x4 register block (float4 shared loads), ragged edges.
extern "C" __global__ void __launch_bounds__(64) matmul_tiled(const float* a, const float* b, float* c, int m, int n, int k,
                                                              float alpha, float beta) {
  __shared__ __align__(16) float as[16][32], bs[16][32];
  int t = threadIdx.x, ti = t / 8 * 4, tj = t % 8 * 4, i0 = blockIdx.y * 32, j0 = blockIdx.x * 32;
  float acc[4][4] = {};
  for (int k0 = 0; k0 < k; k0 += 16) {
    for (int e = t; e < 512; e += 64) {
      int r = e / 16, q = e % 16;
      as[q][r] = i0 + r < m && k0 + q < k ? a[(i0 + r) * k + k0 + q] : 0.f;
      int p = e / 32, s = e % 32;
      bs[p][s] = k0 + p < k && j0 + s < n ? b[(k0 + p) * n + j0 + s] : 0.f;
    }
    __syncthreads();
#pragma unroll
    for (int p = 0; p < 16; ++p) {
      float4 x = *(float4*)&as[p][ti], y = *(float4*)&bs[p][tj];
      float xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) acc[i][j] += xs[i] * ys[j];
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j)
      if (i0 + ti + i < m && j0 + tj + j < n) {
        float* o = &c[(i0 + ti + i) * n + j0 + tj + j];
        *o = alpha * acc[i][j] + beta * *o;
      }
}

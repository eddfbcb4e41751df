// SPDX-License-Identifier: Apache-2.0
extern "C" __global__ void matmul_naive(const float* a, const float* b, float* c, int m, int n, int k) {
  int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
  if (i >= m || j >= n) return;
  float s = 0;
  for (int p = 0; p < k; ++p) s += a[i * k + p] * b[p * n + j];
  c[i * n + j] = s;
}

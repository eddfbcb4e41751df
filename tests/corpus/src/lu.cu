// SPDX-License-Identifier: Apache-2.0
// In-place LU with partial pivoting of one 24x24 double matrix per block.
extern "C" __global__ void lu(double* mats, int* piv, int n) {
  extern __shared__ double a[];
  __shared__ int p;
  double* g = mats + blockIdx.x * n * n;
  for (int i = threadIdx.x; i < n * n; i += blockDim.x) a[i] = g[i];
  for (int k = 0; k < n; ++k) {
    __syncthreads();
    if (threadIdx.x == 0) {
      int best = k;
      for (int i = k + 1; i < n; ++i)
        if (fabs(a[i * n + k]) > fabs(a[best * n + k])) best = i;
      p = best;
      piv[blockIdx.x * n + k] = best;
    }
    __syncthreads();
    if (p != k && threadIdx.x < n) {
      double t = a[k * n + threadIdx.x];
      a[k * n + threadIdx.x] = a[p * n + threadIdx.x];
      a[p * n + threadIdx.x] = t;
    }
    __syncthreads();
    for (int i = k + 1 + threadIdx.x; i < n; i += blockDim.x) a[i * n + k] = __ddiv_rn(a[i * n + k], a[k * n + k]);
    __syncthreads();
    for (int e = threadIdx.x; e < (n - k - 1) * (n - k - 1); e += blockDim.x) {
      int i = k + 1 + e / (n - k - 1), j = k + 1 + e % (n - k - 1);
      a[i * n + j] = __dadd_rn(a[i * n + j], -__dmul_rn(a[i * n + k], a[k * n + j]));
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < n * n; i += blockDim.x) g[i] = a[i];
}

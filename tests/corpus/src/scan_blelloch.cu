// SPDX-License-Identifier: Apache-2.0
// Exclusive work-efficient scan, two elements per thread, padded against bank conflicts.
#define PAD(i) ((i) + ((i) >> 5))
extern "C" __global__ void scan_blelloch(const long long* in, long long* out, long long* sums) {
  extern __shared__ long long s[];
  int n = 2 * blockDim.x, k = threadIdx.x;
  const long long* x = in + (size_t)blockIdx.x * n;
  s[PAD(k)] = x[k];
  s[PAD(k + n / 2)] = x[k + n / 2];
  int stride = 1;
  for (int d = n / 2; d > 0; d /= 2, stride *= 2) {
    __syncthreads();
    if (k < d) s[PAD(stride * (2 * k + 2) - 1)] += s[PAD(stride * (2 * k + 1) - 1)];
  }
  if (k == 0) {
    sums[blockIdx.x] = s[PAD(n - 1)];
    s[PAD(n - 1)] = 0;
  }
  for (int d = 1; d < n; d *= 2) {
    stride /= 2;
    __syncthreads();
    if (k < d) {
      int a = PAD(stride * (2 * k + 1) - 1), b = PAD(stride * (2 * k + 2) - 1);
      long long t = s[a];
      s[a] = s[b];
      s[b] += t;
    }
  }
  __syncthreads();
  out[(size_t)blockIdx.x * n + k] = s[PAD(k)];
  out[(size_t)blockIdx.x * n + k + n / 2] = s[PAD(k + n / 2)];
}

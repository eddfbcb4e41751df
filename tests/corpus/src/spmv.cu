// SPDX-License-Identifier: Apache-2.0
// y = A x for CSR (a thread per row, a warp per row) and ELL (column major, -1 padded).
extern "C" __global__ void spmv_csr_scalar(const int* ptr, const int* col, const float* val, const float* x, float* y, int rows) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  float s = 0;
  for (int k = ptr[r]; k < ptr[r + 1]; ++k) s += val[k] * x[col[k]];
  y[r] = s;
}
extern "C" __global__ void spmv_csr_vector(const int* __restrict__ ptr, const int* __restrict__ col, const float* __restrict__ val,
                                           const float* __restrict__ x, float* __restrict__ y, int rows) {
  int r = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (r >= rows) return;
  float s = 0;
  for (int k = ptr[r] + lane; k < ptr[r + 1]; k += 32) s += val[k] * x[col[k]];
  for (int d = 16; d; d /= 2) s += __shfl_xor_sync(~0u, s, d);
  if (lane == 0) y[r] = s;
}
extern "C" __global__ void spmv_ell(const int* col, const float* val, const float* x, float* y, int rows, int width) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  float s = 0;
  for (int k = 0; k < width; ++k) {
    int c = col[k * rows + r];
    if (c < 0) continue;
    s += val[k * rows + r] * x[c];
  }
  y[r] = s;
}

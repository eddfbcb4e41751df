// SPDX-License-Identifier: Apache-2.0
// wmma: f16 inputs with f32 accumulators, row and column major; and an f16 accumulator stored to shared memory.
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void wmma_f16(const half* a, const half* b, const float* c, float* d, int k) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
  int w = threadIdx.x / 32;
  wmma::load_matrix_sync(fc, c + w * 16, 32, wmma::mem_row_major);
  for (int i = 0; i < fc.num_elements; ++i) fc.x[i] *= 2.f;
  for (int p = 0; p < k; p += 16) {
    wmma::load_matrix_sync(fa, a + p, k);
    wmma::load_matrix_sync(fb, b + w * 16 * k + p, k);
    wmma::mma_sync(fc, fa, fb, fc);
  }
  wmma::store_matrix_sync(d + w * 16, fc, 32, wmma::mem_row_major);
}
extern "C" __global__ void wmma_f16_acc(const half* a, const half* b, half* d) {
  __shared__ half s[32 * 8];
  wmma::fragment<wmma::matrix_a, 32, 8, 16, half, wmma::col_major> fa;
  wmma::fragment<wmma::matrix_b, 32, 8, 16, half, wmma::row_major> fb;
  wmma::fragment<wmma::accumulator, 32, 8, 16, half> fc;
  wmma::fill_fragment(fc, __float2half(0.25f));
  wmma::load_matrix_sync(fa, a, 32);
  wmma::load_matrix_sync(fb, b, 8);
  wmma::mma_sync(fc, fa, fb, fc);
  wmma::store_matrix_sync(s, fc, 32, wmma::mem_col_major);
  __syncwarp();
  for (int i = threadIdx.x; i < 256; i += 32) d[i] = s[i];
}

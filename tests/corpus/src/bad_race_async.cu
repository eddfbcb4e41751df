// SPDX-License-Identifier: Apache-2.0
// cp.async without the wait or the barrier that it needs.
#include <cuda_pipeline.h>
extern "C" __global__ void no_wait(const int4* in, int* out) {
  __shared__ __align__(16) int s[128];
  __pipeline_memcpy_async(&s[4 * threadIdx.x], &in[threadIdx.x], 16);
  __pipeline_commit();
  __syncthreads();
  for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = s[4 * threadIdx.x + i];
}
extern "C" __global__ void wait_too_few(const int4* in, int* out) {
  __shared__ __align__(16) int s[2][128];
  for (int i = 0; i < 2; ++i) {
    __pipeline_memcpy_async(&s[i][4 * threadIdx.x], &in[32 * i + threadIdx.x], 16);
    __pipeline_commit();
  }
  __pipeline_wait_prior(1);
  __syncthreads();
  out[threadIdx.x] = s[0][threadIdx.x] + s[1][threadIdx.x];
}
extern "C" __global__ void wait_no_barrier(const int4* in, int* out) {
  __shared__ __align__(16) int s[256];
  __pipeline_memcpy_async(&s[4 * threadIdx.x], &in[threadIdx.x], 16);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  out[threadIdx.x] = s[255 - threadIdx.x];
}

// SPDX-License-Identifier: Apache-2.0
// cuda::pipeline with block scope and two stages (libcu++: mbarriers in shared memory).
#include <cooperative_groups.h>
#include <cuda/pipeline>
extern "C" __global__ void cuda_pipeline(const int* in, int* out, int batches) {
  namespace cg = cooperative_groups;
  auto block = cg::this_thread_block();
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  __shared__ __align__(16) int buf[2][128];
  auto pipe = cuda::make_pipeline(block, &state);
  const int* x = in + blockIdx.x * batches * 128;
  auto fetch = [&](int b) {
    pipe.producer_acquire();
    cuda::memcpy_async(block, buf[b & 1], x + b * 128, cuda::aligned_size_t<16>(512), pipe);
    pipe.producer_commit();
  };
  fetch(0);
  int acc = 0;
  for (int b = 0; b < batches; ++b) {
    if (b + 1 < batches) fetch(b + 1);
    pipe.consumer_wait();
    acc = acc * 3 + buf[b & 1][127 - threadIdx.x];
    pipe.consumer_release();
  }
  out[blockIdx.x * 128 + threadIdx.x] = acc;
}

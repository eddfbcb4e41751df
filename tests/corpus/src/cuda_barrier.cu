// SPDX-License-Identifier: Apache-2.0
// cuda::barrier: producer and consumer halves of a block, split arrive/wait, memcpy_async onto a barrier.
#include <cooperative_groups.h>
#include <cuda/barrier>
using Bar = cuda::barrier<cuda::thread_scope_block>;
#pragma nv_diag_suppress static_var_with_dynamic_init
extern "C" __global__ void cuda_barrier(const int* in, int* out, int rounds) {
  __shared__ Bar full[2], empty[2];
  __shared__ __align__(16) int buf[2][64];
  if (threadIdx.x == 0)
    for (int i = 0; i < 2; ++i) {
      init(&full[i], 128);
      init(&empty[i], 128);
    }
  __syncthreads();
  int t = threadIdx.x;
  if (t < 64) {
    for (int r = 0; r < rounds; ++r) {
      if (r >= 2) empty[r & 1].arrive_and_wait();
      buf[r & 1][t] = in[r * 64 + t] * 2;
      (void)full[r & 1].arrive();
    }
  } else {
    int acc = 0;
    for (int r = 0; r < rounds; ++r) {
      full[r & 1].arrive_and_wait();
      acc = acc * 7 + buf[r & 1][127 - t];
      if (r + 2 < rounds) (void)empty[r & 1].arrive();
    }
    out[t - 64] = acc;
  }
}
extern "C" __global__ void barrier_copy(const int* in, int* out) {
  __shared__ Bar bar;
  __shared__ __align__(16) int buf[96];
  auto block = cooperative_groups::this_thread_block();
  if (threadIdx.x == 0) init(&bar, 32);
  __syncthreads();
  for (int r = 0; r < 3; ++r) {
    cuda::memcpy_async(block, buf, in + r * 96, sizeof(buf), bar);
    auto token = bar.arrive();
    bar.wait(cuda::std::move(token));
    for (int i = threadIdx.x; i < 96; i += 32) out[r * 96 + i] = buf[95 - i];
    __syncthreads();
  }
}

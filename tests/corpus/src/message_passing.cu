// SPDX-License-Identifier: Apache-2.0
// Message passing with volatile + __threadfence, with inline release/acquire at gpu and cta scope, with
// cuda::atomic_ref, and with st.relaxed/ld.relaxed plus fence.sc.
#include <cuda/atomic>
extern "C" __global__ void mp_fence(int* data, volatile int* flag, int* out) {
  if (blockIdx.x == 0) {
    data[threadIdx.x] = threadIdx.x * 7 + 1;
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      *flag = 1;
    }
  } else {
    if (threadIdx.x == 0) {
      while (*flag == 0) {
      }
      __threadfence();
    }
    __syncthreads();
    out[threadIdx.x] = data[threadIdx.x ^ 3];
  }
}
extern "C" __global__ void mp_release(int* data, int* flag, int* out) {
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    data[0] = 42;
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(1) : "memory");
  } else if (blockIdx.x == 1) {
    int v;
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(flag) : "memory");
    while (v == 0);
    int x = data[0];
    data[1] = x + 1;
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(flag), "r"(1) : "memory");
  } else {
    int v;
    do asm volatile("atom.acquire.gpu.global.add.u32 %0, [%1], 0;" : "=r"(v) : "l"(flag) : "memory");
    while (v != 2);
    out[0] = data[0] + 100 * data[1];
  }
}
extern "C" __global__ void mp_atomic_ref(int* data, int* flag, int* out) {
  cuda::atomic_ref<int, cuda::thread_scope_device> f(*flag);
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    for (int i = 0; i < 5; ++i) data[i] = i * i;
    f.store(1, cuda::memory_order_release);
  } else {
    while (f.load(cuda::memory_order_acquire) == 0) {
    }
    int s = 0;
    for (int i = 0; i < 5; ++i) s += data[i];
    int expected = 1;
    while (!f.compare_exchange_weak(expected, 9, cuda::memory_order_acq_rel)) expected = 1;
    out[0] = s;
  }
}
extern "C" __global__ void mp_shared(int* out) {
  __shared__ int data[32];
  __shared__ int flag;
  if (threadIdx.x == 0) flag = 0;
  __syncthreads();
  if (threadIdx.x < 32) {
    data[threadIdx.x] = threadIdx.x + 500;
    __syncwarp();
    if (threadIdx.x == 0) asm volatile("fence.acq_rel.cta; st.relaxed.cta.shared.u32 [%0], 1;" ::"r"((unsigned)__cvta_generic_to_shared(&flag)) : "memory");
  } else {
    int v;
    do asm volatile("ld.relaxed.cta.shared.u32 %0, [%1]; fence.sc.cta;" : "=r"(v) : "r"((unsigned)__cvta_generic_to_shared(&flag)) : "memory");
    while (v == 0);
    out[threadIdx.x - 32] = data[63 - threadIdx.x];
  }
}

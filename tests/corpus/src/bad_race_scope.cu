// SPDX-License-Identifier: Apache-2.0
extern "C" __global__ void cta_release(int* data, int* flag, int* out) {  // release and acquire of .cta scope between blocks
  if (threadIdx.x) return;
  if (blockIdx.x == 0) {
    data[0] = 7;
    asm volatile("st.release.cta.global.u32 [%0], 1;" ::"l"(flag) : "memory");
  } else {
    int v;
    do asm volatile("ld.acquire.cta.global.u32 %0, [%1];" : "=r"(v) : "l"(flag) : "memory");
    while (v == 0);
    out[0] = data[0];
  }
}
extern "C" __global__ void block_fence(int* data, volatile int* flag, int* out) {  // __threadfence_block between blocks
  if (threadIdx.x) return;
  if (blockIdx.x == 0) {
    data[0] = 7;
    __threadfence_block();
    *flag = 1;
  } else {
    while (*flag == 0) {
    }
    __threadfence_block();
    out[0] = data[0];
  }
}

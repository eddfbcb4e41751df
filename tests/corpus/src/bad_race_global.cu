// SPDX-License-Identifier: Apache-2.0
extern "C" __global__ void blocks_overlap(const int* in, int* out, int n) {  // halo written by two blocks
  int i = blockIdx.x * 60 + threadIdx.x;
  if (i < n) out[i] = in[i] + (int)blockIdx.x;
}
extern "C" __global__ void in_place_shift(int* x, int n) {  // neighbours read what others overwrite
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i + 1 < n) x[i] = x[i + 1];
}
extern "C" __global__ void flag_without_fence(int* data, volatile int* flag, int* out) {
  if (threadIdx.x) return;
  if (blockIdx.x == 0) {
    data[0] = 7;
    *flag = 1;
  } else {
    while (*flag == 0) {
    }
    out[0] = data[0];
  }
}
extern "C" __global__ void lost_update(int* counter) { counter[0] = counter[0] + 1; }
extern "C" __global__ void plain_and_atomic(int* counter, int* out) {
  atomicAdd(counter, 1);
  if (threadIdx.x == 40) out[0] = *counter;
}

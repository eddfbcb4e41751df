// SPDX-License-Identifier: Apache-2.0
extern "C" __global__ void full_mask_in_branch(const int* in, int* out) {  // lanes 16..31 never come
  int v = in[threadIdx.x];
  if (threadIdx.x < 16) {
    v += __shfl_down_sync(0xffffffff, v, 1);
    out[threadIdx.x] = v;
  } else {
    out[threadIdx.x] = -v;
  }
}
extern "C" __global__ void not_in_mask(const int* in, int* out) {  // callers that their own mask does not name
  out[threadIdx.x] = __ballot_sync(0x0000ffff, in[threadIdx.x] > 0);
}
extern "C" __global__ void exited_source(const int* in, int* out) {  // reads a register of lanes that have returned
  int v = in[threadIdx.x];
  if (threadIdx.x >= 24) return;
  out[threadIdx.x] = __shfl_sync(0xffffffff, v, threadIdx.x + 8);
}

// SPDX-License-Identifier: Apache-2.0
// Grid-stride sum: shuffles inside a warp, shared memory across warps, atomics across blocks.
extern "C" __global__ void reduce_shfl(const float* in, float* sum, double* dsum, int n) {
  __shared__ float part[32];
  float v = 0;
  double d = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    v += in[i];
    d += in[i];
  }
  for (int o = 16; o > 0; o >>= 1) {
    v += __shfl_down_sync(0xffffffff, v, o);
    d += __shfl_xor_sync(0xffffffff, d, o);
  }
  if (threadIdx.x % 32 == 0) {
    part[threadIdx.x / 32] = v;
    atomicAdd(dsum, d);
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    v = threadIdx.x < (blockDim.x + 31) / 32 ? part[threadIdx.x] : 0.f;
    for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffff, v, o);
    if (threadIdx.x == 0) atomicAdd(sum, v);
  }
}

// SPDX-License-Identifier: Apache-2.0
// 64-bit index arithmetic that wraps a naive 32-bit version, on an offset base pointer; odd block and grid sizes.
extern "C" __global__ void grid_stride(const unsigned char* base, unsigned* out, long long first, long long step, int n) {
  long long stride = (long long)gridDim.x * gridDim.y * blockDim.x;
  for (long long i = ((long long)blockIdx.y * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
    long long pos = first + i * step;
    out[i] = base[pos - 5000000000LL] + (unsigned)(pos >> 20) + (unsigned)(pos % 1000003) + (unsigned)(-pos / 77);
  }
}

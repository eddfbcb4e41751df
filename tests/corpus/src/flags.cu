// SPDX-License-Identifier: Apache-2.0
// Data behind flags that a relaxed load or an atomic polls, and grids that meet: twins with and without the fence.
#define KERNEL extern "C" __global__ void

// Block 0 writes a row and raises a flag, the others wait for it.
__device__ bool wrote_row(int* flag, int* row) {
  if (blockIdx.x) return false;
  row[threadIdx.x] = 3 * threadIdx.x + 1;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicExch(flag, 1);
  }
  return true;
}
__device__ int relaxed(const int* p) {
  int v;
  asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(__cvta_generic_to_global(p)) : "memory");
  return v;
}

// Every thread polls an atomic, then reads.
template <bool Right>
__device__ void each_polls(int* flag, int* row, int* out) {
  if (wrote_row(flag, row)) return;
  while (atomicAdd(flag, 0) == 0) {
  }
  if (Right) __threadfence();
  out[(blockIdx.x - 1) * blockDim.x + threadIdx.x] = row[threadIdx.x];
}
KERNEL each_polls_good(int* flag, int* row, int* out) { each_polls<true>(flag, row, out); }
KERNEL each_polls_unfenced(int* flag, int* row, int* out) { each_polls<false>(flag, row, out); }

// One thread polls for its block.
template <int Way>
__device__ void one_polls(int* flag, int* row, int* out) {
  if (wrote_row(flag, row)) return;
  if (threadIdx.x == 0) {
    if (Way == 2)
      while (relaxed(flag) == 0) {
      }
    else
      while (atomicCAS(flag, 1, 1) == 0) __nanosleep(20);
    if (Way == 0) __threadfence();
  }
  __syncthreads();
  out[(blockIdx.x - 1) * blockDim.x + threadIdx.x] = row[threadIdx.x];
}
KERNEL one_polls_good(int* flag, int* row, int* out) { one_polls<0>(flag, row, out); }
KERNEL one_polls_unfenced(int* flag, int* row, int* out) { one_polls<1>(flag, row, out); }
KERNEL one_loads_unfenced(int* flag, int* row, int* out) { one_polls<2>(flag, row, out); }

// One lane polls for its warp.
template <bool Right>
__device__ void lane_polls(int* flag, int* row, int* out) {
  if (wrote_row(flag, row)) return;
  if (threadIdx.x % 32 == 0) {
    while (atomicOr(flag, 0) == 0) {
    }
    if (Right) __threadfence();
  }
  __syncwarp();
  out[(blockIdx.x - 1) * blockDim.x + threadIdx.x] = row[threadIdx.x];
}
KERNEL lane_polls_good(int* flag, int* row, int* out) { lane_polls<true>(flag, row, out); }
KERNEL lane_polls_unfenced(int* flag, int* row, int* out) { lane_polls<false>(flag, row, out); }

// The block that arrives last sums what all have left.
template <bool Right>
__device__ void last_adds(const int* in, int* part, int* count, int* out) {
  __shared__ bool last;
  part[blockIdx.x * blockDim.x + threadIdx.x] = 2 * in[blockIdx.x * blockDim.x + threadIdx.x];
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(count, 1) == gridDim.x - 1;
    if (Right) __threadfence();
  }
  __syncthreads();
  if (!last) return;
  int s = 0;
  for (int b = 0; b < gridDim.x; ++b) s += part[b * blockDim.x + threadIdx.x];
  out[threadIdx.x] = s;
}
KERNEL last_adds_good(const int* in, int* part, int* count, int* out) { last_adds<true>(in, part, count, out); }
KERNEL last_adds_unfenced(const int* in, int* part, int* count, int* out) { last_adds<false>(in, part, count, out); }

// A barrier of the grid that counts how long it takes.
KERNEL meets_and_counts(unsigned* count, int* row, int* out) {
  row[blockIdx.x] = blockIdx.x + 5;
  __threadfence();
  atomicAdd(count, 1);
  unsigned polls = 0;
  while (*(volatile unsigned*)count < gridDim.x) ++polls;
  __threadfence();
  out[blockIdx.x] = row[(blockIdx.x + 1) % gridDim.x] + (polls == ~0u);
}

// SPDX-License-Identifier: Apache-2.0
// A spin lock taken by one thread per block; one taken by every lane of a warp (needs independent thread
// scheduling); a ticket lock. The protected data are volatile: the lock orders them.
__device__ int mutex = 0;
__device__ unsigned next_ticket, now_serving;
extern "C" __global__ void lock_block(volatile int* data) {
  __syncthreads();
  if (threadIdx.x == 0) {
    while (atomicCAS(&mutex, 0, 1) != 0) __nanosleep(20);
    __threadfence();
    data[0] = data[0] + 1;
    data[1] = data[1] * 3 + 1;
    __threadfence();
    atomicExch(&mutex, 0);
  }
}
extern "C" __global__ void lock_lane(int* lock, volatile int* data) {
  bool done = false;
  while (!done) {
    if (atomicExch(lock, 1) == 0) {
      __threadfence();
      *data += 1 + (threadIdx.x & 3);
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }
}
extern "C" __global__ void lock_lane_nested(int* lock, volatile int* data) {
  while (atomicCAS(lock, 0, 1) != 0) {
  }
  __threadfence();
  *data = *data + 1;
  __threadfence();
  *(volatile int*)lock = 0;
}
extern "C" __global__ void lock_ticket(volatile int* order, volatile int* at) {
  if (threadIdx.x % 8) return;
  unsigned mine = atomicAdd(&next_ticket, 1);
  while (*(volatile unsigned*)&now_serving != mine) {
  }
  __threadfence();
  order[*at] = mine;
  *at = *at + 1;
  __threadfence();
  *(volatile unsigned*)&now_serving = mine + 1;
}

// SPDX-License-Identifier: Apache-2.0
// mbarrier by hand: state tokens with test_wait, pending_count, noComplete and drop, cp.async arriving on a barrier.
#include "hopper.cuh"
extern "C" __global__ void mbarrier_raw(const int* in, int* out) {
  __shared__ u64 bar, copy;
  __shared__ __align__(16) int data[64], buf[256];
  int t = threadIdx.x;
  if (t == 0) {
    mbar_init(&bar, 64);
    mbar_init(&copy, 64);
  }
  __syncthreads();
  u64 st;
  unsigned pending, done;
  data[t] = in[t];
  ASM("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(st) : "r"(smem(&bar)) : "memory");
  ASM("mbarrier.pending_count.b64 %0, %1;" : "=r"(pending) : "l"(st));
  do ASM("{ .reg .pred p; mbarrier.test_wait.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(smem(&bar)), "l"(st) : "memory");
  while (!done);
  int v = data[63 - t];
  // second phase: one thread arrives for two and one drops out for ever
  if (t == 0)
    ASM("{ .reg .b64 s; mbarrier.arrive.noComplete.shared.b64 s, [%0], 1; mbarrier.arrive.shared.b64 s, [%0]; }" ::"r"(smem(&bar)) : "memory");
  else if (t == 5)
    ASM("{ .reg .b64 s; mbarrier.arrive_drop.shared.b64 s, [%0]; }" ::"r"(smem(&bar)) : "memory");
  else if (t != 9)
    mbar_arrive(&bar);
  mbar_wait(&bar, 1);
  __syncthreads();  // thread 5 takes no part in the next phase: it must not be left one behind
  // third phase: 63 arrivals
  if (t != 5) mbar_arrive(&bar);
  mbar_wait(&bar, 0);
  for (int i = 0; i < 4; ++i) ASM("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(smem(&buf[i * 64 + t])), "l"(in + 64 + i * 64 + t) : "memory");
  ASM("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(smem(&copy)) : "memory");
  mbar_wait(&copy, 0);
  int s = 0;
  for (int i = 0; i < 4; ++i) s = s * 3 + buf[i * 64 + (t ^ 7)];
  out[2 * t] = v + (pending >= 1 && pending <= 64 ? 0 : 1000000);
  out[2 * t + 1] = s;
}

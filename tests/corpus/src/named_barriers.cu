// SPDX-License-Identifier: Apache-2.0
// Producer and consumer warps over named barriers: bar.arrive / bar.sync with counts, two slots, and bar.red.
extern "C" __global__ void named_barriers(const int* in, int* out, int rounds) {
  __shared__ int slot[2][32];
  int w = threadIdx.x / 32, lane = threadIdx.x % 32;
  // barriers 1,2: slot full; 3,4: slot empty
  if (w == 0) {
    for (int r = 0; r < rounds; ++r) {
      if (r >= 2) asm volatile("bar.sync %0, 64;" ::"r"(3 + (r & 1)) : "memory");
      slot[r & 1][lane] = in[r * 32 + lane] + 1;
      asm volatile("bar.arrive %0, 64;" ::"r"(1 + (r & 1)) : "memory");
    }
  } else if (w == 1) {
    int acc = 0;
    for (int r = 0; r < rounds; ++r) {
      asm volatile("bar.sync %0, 64;" ::"r"(1 + (r & 1)) : "memory");
      acc = acc * 3 + slot[r & 1][31 - lane];
      if (r + 2 < rounds) asm volatile("bar.arrive %0, 64;" ::"r"(3 + (r & 1)) : "memory");
    }
    out[lane] = acc;
  } else {
    int n, all;
    asm volatile("{ .reg .pred p; setp.gt.s32 p, %1, 10; bar.red.popc.u32 %0, 7, 64, p; }" : "=r"(n) : "r"(in[threadIdx.x]) : "memory");
    asm volatile("{ .reg .pred p, q; setp.ge.s32 p, %1, -100; barrier.cta.red.and.pred q, 8, 64, p; selp.s32 %0, 1, 0, q; }" : "=r"(all) : "r"(in[threadIdx.x]) : "memory");
    out[32 + threadIdx.x - 64] = n * 2 + all;
  }
}

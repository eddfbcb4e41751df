// SPDX-License-Identifier: Apache-2.0
// __syncthreads_count/and/or, ballot/any/all, match_any and match_all with 32- and 64-bit values, shuffles of every kind.
extern "C" __global__ void block_votes(const int* in, int* out) {
  int t = threadIdx.x, v = in[t], *o = out + 16 * t;
  o[0] = __syncthreads_count(v > 0);
  o[1] = __syncthreads_and(v != 12345);
  o[2] = __syncthreads_or(v == in[5]);
  o[3] = __ballot_sync(~0u, v & 1);
  o[4] = __any_sync(~0u, v > 90) * 2 + __all_sync(~0u, v > -101);
  o[5] = __match_any_sync(~0u, v & 3);
  int pred;
  o[6] = __match_all_sync(~0u, (long long)(t / 32 == 0 ? 7 : v), &pred);
  o[7] = pred;
  o[8] = __shfl_sync(~0u, v, t + 3, 8);
  o[9] = __shfl_up_sync(~0u, v, 3, 16);
  o[10] = __shfl_down_sync(~0u, v, 5, 8);
  o[11] = __shfl_xor_sync(~0u, v, 9, 16);
  long long w = __shfl_sync(~0u, (long long)v << 33 | t, 31 - t % 32);
  o[12] = (int)(w >> 33) ^ (int)w;
  int p, q;
  asm("{ .reg .pred p; shfl.sync.down.b32 %0|p, %2, 4, 0x0c1f, -1; selp.s32 %1, 1, 0, p; }" : "=r"(q), "=r"(p) : "r"(v));
  o[13] = p * 1000 + q;
  o[14] = 0;
  if (t % 32 >= 20) {
    unsigned m = __activemask();
    o[14] = __popc(__match_any_sync(0xfff00000, v >> 4)) + (m & 0xfff ? 100 : 0);
  }
  unsigned lo, hi, eq, wid, nw;
  asm volatile("mov.u32 %0, %%lanemask_le; mov.u32 %1, %%lanemask_gt; mov.u32 %2, %%lanemask_eq; mov.u32 %3, %%laneid;" : "=r"(lo), "=r"(hi), "=r"(eq), "=r"(wid));
  asm volatile("mov.u32 %0, %%nwarpid;" : "=r"(nw));
  o[15] = (int)(lo ^ hi ^ eq ^ wid) + (nw >= 2 ? 1 : 0);
}

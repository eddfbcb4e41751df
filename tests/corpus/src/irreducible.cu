// SPDX-License-Identifier: Apache-2.0
// goto into a loop (irreducible flow), loops with different trip counts and breaks, early return before a warp sync.
extern "C" __global__ void irreducible(const int* in, int* out) {
  int t = threadIdx.x, x = in[t], n = 0;
  if (x & 1) goto middle;
top:
  x = x * 3 + 1;
  ++n;
middle:
  x >>= 1;
  if (x > 1 && n < 50) {
    if (x & 2) goto middle;
    goto top;
  }
  out[3 * t] = x * 100 + n;
  unsigned y = in[t] & 0xffff | 1;
  int steps = 0;
  for (;;) {
    if (y == 1) break;
    if (++steps > 60) break;
    if (y & 1) {
      y = 3 * y + 1;
      continue;
    }
    y /= 2;
  }
  out[3 * t + 1] = steps;
  out[3 * t + 2] = -1;
  if (t % 4 == 3) return;
  __syncwarp(0x77777777);
  int sum = 0;
  for (int i = 0; i <= t % 7; ++i)
    for (int j = i; j < 5; ++j) {
      if ((i ^ j) == 3) continue;
      sum += i * j + __popc(__ballot_sync(__activemask(), 0));
    }
  out[3 * t + 2] = sum + __shfl_sync(0x77777777, t, 5 * (t & 1));
}

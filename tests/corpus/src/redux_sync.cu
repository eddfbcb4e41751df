// SPDX-License-Identifier: Apache-2.0
extern "C" __global__ void redux_sync(const unsigned* in, unsigned* out) {
  unsigned v = in[threadIdx.x], lane = threadIdx.x & 31;
  unsigned* o = out + 9 * threadIdx.x;
  o[0] = __reduce_add_sync(~0u, v);
  o[1] = __reduce_min_sync(~0u, v);
  o[2] = __reduce_max_sync(~0u, v);
  o[3] = __reduce_min_sync(~0u, (int)v);
  o[4] = __reduce_max_sync(~0u, (int)v);
  o[5] = __reduce_and_sync(~0u, v | 0xff);
  o[6] = __reduce_or_sync(~0u, v & 0xff00ff);
  o[7] = __reduce_xor_sync(~0u, v);
  if (lane % 3 == 1)
    o[8] = __reduce_add_sync(0x92492492u, v);
  else
    o[8] = __reduce_add_sync(~0x92492492u, v);
}

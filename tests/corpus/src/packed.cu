// SPDX-License-Identifier: Apache-2.0
// A packed struct (byte loads), bit fields, unions, short3/char3, and sign extension of narrow loads.
struct __attribute__((packed)) Rec {
  char tag;
  int value;
  short s;
  long long big;
};
struct Bits {
  unsigned a : 3, b : 11, c : 18;
  int d : 7, e : 25;
};
extern "C" __global__ void packed(const Rec* in, long long* out, Bits* bits, const char3* c3, short3* s3) {
  int t = threadIdx.x;
  Rec r = in[t];
  out[t] = r.tag + (long long)r.value * 3 + r.s + (r.big >> 5);
  Bits b = bits[t];
  b.a += 5;
  b.b ^= r.s;
  b.d = b.e >> 3;
  b.e = -(int)b.c;
  bits[t] = b;
  char3 c = c3[t];
  s3[t] = make_short3(c.x * c.y, c.y - c.z, c.z << 4);
}

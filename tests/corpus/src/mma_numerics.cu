// SPDX-License-Identifier: Apache-2.0
// A value that the tensor core's truncated sum loses and one that it keeps: m16n8k16, wide exponents.
extern "C" __global__ void mma_numerics(const unsigned* a, const unsigned* b, const float* cin, float* d) {
  int g = threadIdx.x / 4, t = threadIdx.x % 4;
  float c[4];
  for (int e = 0; e < 4; ++e) c[e] = cin[(g + e / 2 * 8) * 8 + 2 * t + e % 2];
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[g * 8 + t]), "r"(a[(g + 8) * 8 + t]), "r"(a[g * 8 + t + 4]), "r"(a[(g + 8) * 8 + t + 4]), "r"(b[g * 8 + t]),
        "r"(b[g * 8 + t + 4]));
  for (int e = 0; e < 4; ++e) d[(g + e / 2 * 8) * 8 + 2 * t + e % 2] = c[e];
}

// SPDX-License-Identifier: Apache-2.0
// One mma.sync of each operand type, fragments loaded by hand from row-major A and column-major B.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define LANE int g = threadIdx.x / 4, t = threadIdx.x % 4
extern "C" __global__ void mma_bf16(const unsigned* a, const unsigned* b, float* d) {  // 16x8x16, 2 values a word
  LANE;
  float c[4] = {1, 2, 3, 4};
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[g * 8 + t]), "r"(a[(g + 8) * 8 + t]), "r"(a[g * 8 + t + 4]), "r"(a[(g + 8) * 8 + t + 4]), "r"(b[g * 8 + t]),
        "r"(b[g * 8 + t + 4]));
  for (int e = 0; e < 4; ++e) d[(g + e / 2 * 8) * 8 + 2 * t + e % 2] = c[e];
}
extern "C" __global__ void mma_f16acc(const unsigned* a, const unsigned* b, unsigned* d) {  // 16x8x8, f16 accumulators
  LANE;
  unsigned r0, r1;
  asm("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3}, {%4}, {%5,%5};"
      : "=r"(r0), "=r"(r1) : "r"(a[g * 4 + t]), "r"(a[(g + 8) * 4 + t]), "r"(b[g * 4 + t]), "r"(0x3c003c00));
  d[g * 4 + t] = r0;
  d[(g + 8) * 4 + t] = r1;
}
extern "C" __global__ void mma_tf32(const float* a, const float* b, float* d) {  // 16x8x8
  LANE;
  float c[4] = {};
  unsigned x[4], y[2];
  float ax[4] = {a[g * 8 + t], a[(g + 8) * 8 + t], a[g * 8 + t + 4], a[(g + 8) * 8 + t + 4]};
  float bx[2] = {b[g * 8 + t], b[g * 8 + t + 4]};
  for (int i = 0; i < 4; ++i) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(x[i]) : "f"(ax[i]));
  for (int i = 0; i < 2; ++i) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y[i]) : "f"(bx[i]));
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
  for (int e = 0; e < 4; ++e) d[(g + e / 2 * 8) * 8 + 2 * t + e % 2] = c[e];
}
extern "C" __global__ void mma_s8(const unsigned* a, const unsigned* b, int* d) {  // 16x8x32, 4 values a word
  LANE;
  int c[4] = {-5, 6, -7, 8};
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[g * 8 + t]), "r"(a[(g + 8) * 8 + t]), "r"(a[g * 8 + t + 4]), "r"(a[(g + 8) * 8 + t + 4]), "r"(b[g * 8 + t]),
        "r"(b[g * 8 + t + 4]));
  for (int e = 0; e < 4; ++e) d[(g + e / 2 * 8) * 8 + 2 * t + e % 2] = c[e];
}
extern "C" __global__ void mma_u8s8(const unsigned* a, const unsigned* b, int* d) {  // 16x8x16, unsigned times signed
  LANE;
  int c[4] = {};
  asm("mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[g * 4 + t]), "r"(a[(g + 8) * 4 + t]), "r"(b[g * 4 + t]));
  for (int e = 0; e < 4; ++e) d[(g + e / 2 * 8) * 8 + 2 * t + e % 2] = c[e];
}
extern "C" __global__ void mma_f64(const double* a, const double* b, double* d) {  // 8x8x4
  LANE;
  double c0 = 0.5, c1 = -0.5;
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};" : "+d"(c0), "+d"(c1) : "d"(a[g * 4 + t]), "d"(b[g * 4 + t]));
  d[g * 8 + 2 * t] = c0;
  d[g * 8 + 2 * t + 1] = c1;
}
extern "C" __global__ void mma_s4(const unsigned* a, const unsigned* b, int* d) {  // 16x8x32, 8 values a word
  LANE;
  int c[4] = {};
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s4.s4.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[g * 4 + t]), "r"(a[(g + 8) * 4 + t]), "r"(b[g * 4 + t]));
  for (int e = 0; e < 4; ++e) d[(g + e / 2 * 8) * 8 + 2 * t + e % 2] = c[e];
}
extern "C" __global__ void mma_b1(const unsigned* a, const unsigned* b, int* d) {  // 16x8x128, and + popc
  LANE;
  int c[4] = {};
  asm("mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.and.popc {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[g * 4 + t]), "r"(a[(g + 8) * 4 + t]), "r"(b[g * 4 + t]));
  for (int e = 0; e < 4; ++e) d[(g + e / 2 * 8) * 8 + 2 * t + e % 2] = c[e];
}

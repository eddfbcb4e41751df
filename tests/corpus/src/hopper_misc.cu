// SPDX-License-Identifier: Apache-2.0
// elect.sync, stmatrix with transposition, 128-bit atomics, vector atomics, fp8 mma.sync, griddepcontrol, bulk prefetch.
#include "hopper.cuh"
extern "C" __global__ void hopper_misc(const unsigned* in, unsigned* out, u64* wide, float4* vec, unsigned short* mat) {
  __shared__ __align__(128) unsigned short s[64];
  ASM("griddepcontrol.wait;" ::: "memory");
  ASM("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(in), "r"(128));
  int t = threadIdx.x;
  unsigned who, won;
  ASM("{ .reg .pred p; elect.sync %0|p, 0xffffffff; selp.u32 %1, 1, 0, p; }" : "=r"(who), "=r"(won));
  out[t] = __popc(__ballot_sync(~0u, won)) + 16 * (won ? who == t % 32 : 1);
  u64 lo, hi;
  ASM("{ .reg .b128 v, r; mov.b128 v, {%2, %3}; atom.global.exch.b128 r, [%4], v; mov.b128 {%0, %1}, r; }"
      : "=l"(lo), "=l"(hi) : "l"((u64)t), "l"((u64)t * 3), "l"(wide) : "memory");
  if (lo * 3 != hi) out[t] = 0xdead;
  atomicAdd(&vec[0], make_float4(t, 1.f, 0.5f * t, -t));
  if (t < 32) {
    ASM("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(smem(&s[t % 8 * 8])), "r"(in[t]) : "memory");
    __syncwarp();
    mat[t] = s[t];
    mat[32 + t] = s[32 + t];
  }
  ASM("griddepcontrol.launch_dependents;" ::: "memory");
}
extern "C" __global__ void mma_fp8(const unsigned* a, const unsigned* b, float* d) {
  int g = threadIdx.x / 4, t = threadIdx.x % 4;
  float c[4] = {};
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[g * 8 + t]), "r"(a[(g + 8) * 8 + t]), "r"(a[g * 8 + t + 4]), "r"(a[(g + 8) * 8 + t + 4]), "r"(b[g * 8 + t]), "r"(b[g * 8 + t + 4]));
  for (int e = 0; e < 4; ++e) d[(g + e / 2 * 8) * 8 + 2 * t + e % 2] = c[e];
}

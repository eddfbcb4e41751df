// SPDX-License-Identifier: Apache-2.0
// Warp-specialised GEMM: a TMA producer warpgroup that gives registers away, a wgmma consumer warpgroup, a ring of three
// stages, an f16 epilogue through shared memory and a TMA store. C[M][N] = A[M][K] B[N][K]^T.
#include <cuda_fp16.h>
#include "hopper.cuh"
struct __align__(64) TensorMap {
  unsigned long long opaque[16];
};
#define STAGES 3
extern "C" __global__ void __launch_bounds__(256, 1)
    ws_gemm(const __grid_constant__ TensorMap ma, const __grid_constant__ TensorMap mb, const __grid_constant__ TensorMap mc, int ktiles) {
  extern __shared__ __align__(1024) unsigned char raw[];
  __shared__ u64 full[STAGES], empty[STAGES];
  half* as = (half*)raw;
  half* bs = (half*)(raw + STAGES * 8192);
  half* cs = (half*)(raw + STAGES * (8192 + 4096));
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; ++i) {
      mbar_init(&full[i], 1);
      mbar_init(&empty[i], 128);
    }
    fence_init();
  }
  __syncthreads();
  int m0 = blockIdx.y * 64, n0 = blockIdx.x * 32;
  if (threadIdx.x >= 128) {
    ASM("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 128)
      for (int k = 0; k < ktiles; ++k) {
        int s = k % STAGES, ph = k / STAGES & 1;
        mbar_wait(&empty[s], ph ^ 1);
        mbar_expect(&full[s], 8192 + 4096);
        tma_load2(as + s * 4096, &ma, k * 64, m0, &full[s]);
        tma_load2(bs + s * 2048, &mb, k * 64, n0, &full[s]);
      }
  } else {
    ASM("setmaxnreg.inc.sync.aligned.u32 232;");
    float d[16];
    for (int i = 0; i < 16; ++i) d[i] = 0;
    for (int k = 0; k < ktiles; ++k) {
      int s = k % STAGES, ph = k / STAGES & 1;
      mbar_wait(&full[s], ph);
      wgmma_fence();
      for (int kk = 0; kk < 4; ++kk) {
        u64 da = descriptor(as + s * 4096 + kk * 16, 16, 1024, 1), db = descriptor(bs + s * 2048 + kk * 16, 16, 1024, 1);
        ASM("wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, %16, %17, 1, 1, 1, 0, 0;"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]),
              "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
            : "l"(da), "l"(db));
      }
      wgmma_commit();
      wgmma_wait();
      mbar_arrive(&empty[s]);
    }
    int w = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int j = 0; j < 2; ++j) {  // stmatrix x4: rows lane%16 of the warp's 16, 8 columns each
      unsigned v[4];
      for (int e = 0; e < 4; ++e) {
        __half2 h = __floats2half2_rn(d[8 * j + 2 * e], d[8 * j + 2 * e + 1]);
        v[e] = *(unsigned*)&h;
      }
      half* row = cs + (16 * w + lane % 8 + (lane / 8 % 2) * 8) * 32 + 16 * j + lane / 16 * 8;
      ASM("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(smem(row)), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
    }
    fence_async();
    ASM("bar.sync 1, 128;" ::: "memory");
    if (threadIdx.x == 0) {
      tma_store2(&mc, n0, m0, cs);
      bulk_commit();
      bulk_wait();
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
// Matrix kernels written by hand for sm_80 to sm_89.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
#define KERNEL extern "C" __global__ void
#define ASM asm volatile
__device__ __forceinline__ unsigned smem(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void mma16816(float* c, const unsigned* a, const unsigned* b) {
  ASM("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// C[64][64] += A[64][K] B[K][64], four stages of K = 32, XOR swizzle, ldmatrix, four warps of 32 x 32.
KERNEL gemm_stages(const half* a, const half* b, float* c, int k, int ldb) {
  extern __shared__ __align__(128) half s[];
  half* as = s;
  half* bs = s + 4 * 64 * 32;
  int t = threadIdx.x, lane = t % 32, w = t / 32, wm = w / 2 * 32, wn = w % 2 * 32, tiles = k / 32;
  auto fetch = [&](int tile) {
    if (tile < tiles) {
      half* sa = as + tile % 4 * 64 * 32;
      half* sb = bs + tile % 4 * 32 * 64;
      for (int i = t; i < 256; i += 128) {
        int r = i / 4, q = i % 4;
        ASM("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(smem(sa + r * 32 + (q ^ (r / 2 % 4)) * 8)), "l"(a + r * k + tile * 32 + q * 8));
        r = i / 8, q = i % 8;
        ASM("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(smem(sb + r * 64 + (q ^ r % 8) * 8)), "l"(b + (tile * 32 + r) * ldb + q * 8));
      }
    }
    ASM("cp.async.commit_group;");
  };
  float acc[2][4][4] = {};
  for (int i = 0; i < 3; ++i) fetch(i);
  for (int tile = 0; tile < tiles; ++tile) {
    ASM("cp.async.wait_group 2;" ::: "memory");
    __syncthreads();
    fetch(tile + 3);
    half* sa = as + tile % 4 * 64 * 32;
    half* sb = bs + tile % 4 * 32 * 64;
#pragma unroll
    for (int kk = 0; kk < 2; ++kk) {
      unsigned fa[2][4], fb[4][2];
      for (int m = 0; m < 2; ++m) {
        int r = wm + m * 16 + lane % 16, q = kk * 2 + lane / 16;
        ASM("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(fa[m][0]), "=r"(fa[m][1]), "=r"(fa[m][2]), "=r"(fa[m][3]) : "r"(smem(sa + r * 32 + (q ^ (r / 2 % 4)) * 8)));
      }
      for (int n = 0; n < 4; n += 2) {
        int r = kk * 16 + lane % 16, q = (wn + n * 8) / 8 + lane / 16;
        ASM("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(fb[n][0]), "=r"(fb[n][1]), "=r"(fb[n + 1][0]), "=r"(fb[n + 1][1]) : "r"(smem(sb + r * 64 + (q ^ r % 8) * 8)));
      }
      for (int m = 0; m < 2; ++m)
        for (int n = 0; n < 4; ++n) mma16816(acc[m][n], fa[m], fb[n]);
    }
  }
  ASM("cp.async.wait_all;" ::: "memory");
  for (int m = 0; m < 2; ++m)
    for (int n = 0; n < 4; ++n)
      for (int h = 0; h < 2; ++h)
        *(float2*)(c + (wm + m * 16 + lane / 4 + h * 8) * 64 + wn + n * 8 + lane % 4 * 2) = make_float2(acc[m][n][2 * h], acc[m][n][2 * h + 1]);
}
// Attention of one head, one warp per 16 queries, keys in steps of 8, softmax on line.
KERNEL attention(const half* q, const half* k, const half* v, half* out, int keys) {
  int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, row = (blockIdx.x * 2 + threadIdx.x / 32) * 16;
  unsigned fq[4];
  for (int i = 0; i < 4; ++i) fq[i] = *(const unsigned*)(q + (row + g + i % 2 * 8) * 16 + i / 2 * 8 + t * 2);
  float o[2][4] = {}, m[2] = {-1e30f, -1e30f}, l[2] = {};
  for (int j = 0; j < keys; j += 16) {
    float s[2][4] = {};
    for (int h = 0; h < 2; ++h) {
      unsigned fk[2];
      for (int i = 0; i < 2; ++i) fk[i] = *(const unsigned*)(k + (j + h * 8 + g) * 16 + i * 8 + t * 2);
      mma16816(s[h], fq, fk);
    }
    unsigned fp[4];
    for (int r = 0; r < 2; ++r) {
      float top = fmaxf(fmaxf(s[0][2 * r], s[0][2 * r + 1]), fmaxf(s[1][2 * r], s[1][2 * r + 1]));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(fmaxf(top, __shfl_xor_sync(~0u, top, 2)), m[r]);
      float scale = __expf((m[r] - top) * 0.25f), sum = 0;
      for (int h = 0; h < 2; ++h) {
        float p0 = __expf((s[h][2 * r] - top) * 0.25f), p1 = __expf((s[h][2 * r + 1] - top) * 0.25f);
        half2 p = __floats2half2_rn(p0, p1);
        fp[h * 2 + r] = *(unsigned*)&p;
        sum += p0 + p1;
      }
      l[r] = l[r] * scale + sum;
      m[r] = top;
      for (int n = 0; n < 2; ++n) o[n][2 * r] *= scale, o[n][2 * r + 1] *= scale;
    }
    for (int n = 0; n < 2; ++n) {
      unsigned fv[2];
      for (int i = 0; i < 2; ++i) {
        half2 x = __halves2half2(v[(j + i * 8 + t * 2) * 16 + n * 8 + g], v[(j + i * 8 + t * 2 + 1) * 16 + n * 8 + g]);
        fv[i] = *(unsigned*)&x;
      }
      mma16816(o[n], fp, fv);
    }
  }
  for (int r = 0; r < 2; ++r) {
    float sum = l[r] + __shfl_xor_sync(~0u, l[r], 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    for (int n = 0; n < 2; ++n)
      *(half2*)(out + (row + g + r * 8) * 16 + n * 8 + t * 2) = __floats2half2_rn(o[n][2 * r] / sum, o[n][2 * r + 1] / sum);
  }
}
// wmma with bf16 and tf32 fragments, element access, stores in both orders.
KERNEL wmma_kinds(const __nv_bfloat16* a, const __nv_bfloat16* b, const float* x, const float* y, float* c, float* d) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 32, 8, 16, __nv_bfloat16, row_major> fa;
  fragment<matrix_b, 32, 8, 16, __nv_bfloat16, col_major> fb;
  fragment<accumulator, 32, 8, 16, float> fc;
  fill_fragment(fc, 0.5f);
  for (int k = 0; k < 32; k += 16) {
    load_matrix_sync(fa, a + k, 32);
    load_matrix_sync(fb, b + k, 32);
    mma_sync(fc, fa, fb, fc);
  }
  for (int i = 0; i < fc.num_elements; ++i) fc.x[i] = fmaxf(fc.x[i], 0);
  store_matrix_sync(c, fc, 32, mem_col_major);
  fragment<matrix_a, 16, 16, 8, precision::tf32, row_major> fx;
  fragment<matrix_b, 16, 16, 8, precision::tf32, row_major> fy;
  fragment<accumulator, 16, 16, 8, float> fd;
  fill_fragment(fd, 0);
  load_matrix_sync(fx, x, 8);
  load_matrix_sync(fy, y, 16);
  for (int i = 0; i < fx.num_elements; ++i) fx.x[i] = __float_to_tf32(fx.x[i]);
  for (int i = 0; i < fy.num_elements; ++i) fy.x[i] = __float_to_tf32(fy.x[i]);
  mma_sync(fd, fx, fy, fd);
  store_matrix_sync(d, fd, 16, mem_row_major);
}
// Split over K: every block writes partial sums, the last one for a tile adds them in order (a semaphore per tile).
KERNEL split_k(const float* a, const float* b, float* part, int* sem, float* c, int k) {
  int tile = blockIdx.x, slice = blockIdx.y, slices = gridDim.y, r = threadIdx.x / 8, q = threadIdx.x % 8;
  float s = 0;
  for (int i = slice * k / slices; i < (slice + 1) * k / slices; ++i) s += a[(tile * 8 + r) * k + i] * b[i * 8 + q];
  if (slice) {
    if (threadIdx.x == 0)
      while (*(volatile int*)&sem[tile] != slice) {
      }
    __syncthreads();
    __threadfence();
    s += part[tile * 64 + threadIdx.x];
  }
  if (slice < slices - 1)
    part[tile * 64 + threadIdx.x] = s;
  else
    c[tile * 64 + threadIdx.x] = s;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) *(volatile int*)&sem[tile] = slice + 1;
}
// Sparse A (2:4) by mma.sp; metadata from the host.
KERNEL sparse_mma(const half* a, const half* b, const unsigned* meta, float* c) {
  int lane = threadIdx.x, g = lane / 4, t = lane % 4;
  unsigned fa[4], fb[4];
  for (int i = 0; i < 4; ++i) fa[i] = *(const unsigned*)(a + (g + i % 2 * 8) * 16 + i / 2 * 8 + t * 2);
  for (int i = 0; i < 4; ++i) fb[i] = *(const unsigned*)(b + g * 32 + i * 8 + t * 2);
  float d[4] = {};
  ASM("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9,%10,%11},{%0,%1,%2,%3}, %12, 0x0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]), "r"(fb[2]), "r"(fb[3]), "r"(meta[lane]));
  for (int i = 0; i < 4; ++i) c[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = d[i];
}
#if __CUDA_ARCH__ >= 890
KERNEL fp8_mma(const unsigned* a, const unsigned* b, float* c) {  // 16x8x32, e4m3 by e5m2
  int g = threadIdx.x / 4, t = threadIdx.x % 4;
  float d[4] = {};
  ASM("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[g * 8 + t]), "r"(a[(g + 8) * 8 + t]), "r"(a[g * 8 + t + 4]), "r"(a[(g + 8) * 8 + t + 4]), "r"(b[g * 8 + t]), "r"(b[g * 8 + t + 4]));
  for (int i = 0; i < 4; ++i) c[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = d[i];
}
#endif
#ifdef __CUDA_ARCH_FEAT_SM120_ALL
KERNEL scaled_mma(const unsigned* a, const unsigned* b, const unsigned char* sa, const unsigned char* sb, float* c) {
  int g = threadIdx.x / 4, t = threadIdx.x % 4;
  float d[4] = {};
  unsigned x = sa[t % 2 * 8 + g], y = sb[g];
  unsigned short zero = 0;
  ASM("mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e5m2.f32.ue8m0 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3}, %10, {%12,%12}, %11, {%12,%12};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[g * 8 + t]), "r"(a[(g + 8) * 8 + t]), "r"(a[g * 8 + t + 4]), "r"(a[(g + 8) * 8 + t + 4]), "r"(b[g * 8 + t]), "r"(b[g * 8 + t + 4]), "r"(x), "r"(y), "h"(zero));
  for (int i = 0; i < 4; ++i) c[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = d[i];
}
#endif

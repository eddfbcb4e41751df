// SPDX-License-Identifier: Apache-2.0
// Tensor cores of Ampere: a ragged product with ldmatrix and staged copies, requantised bytes, double precision and tf32 by wmma; and
// what later architectures add for plain numbers.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

__device__ __forceinline__ unsigned smem(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

// C = A B^T, 32 by 32 tiles of four warps, K in steps of 16 with two stages; what lies outside is filled with zeros by the copy.
extern "C" __global__ void ragged_product(const __half* a, const __half* b, float* c, int m, int n, int k, int ld) {
  __shared__ alignas(16) __half sa[2][32][24], sb[2][32][24];
  const int t = threadIdx.x, lane = t % 32, warp = t / 32, m0 = blockIdx.y * 32, n0 = blockIdx.x * 32;
  auto bring = [&](int s, int k0) {
    const int row = t % 64 / 2, col = t % 2 * 8;
    const bool first = t < 64;
    const int global_row = (first ? m0 : n0) + row, limit = first ? m : n;
    const __half* from = (first ? a : b) + (global_row < limit ? global_row * ld : 0) + (k0 + col < k ? k0 + col : 0);
    const int bytes = global_row < limit ? max(0, min(8, k - k0 - col)) * 2 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(smem(first ? &sa[s][row][col] : &sb[s][row][col])), "l"(from), "r"(bytes) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  float d[2][4] = {};
  const int steps = (k + 15) / 16;
  bring(0, 0);
  for (int s = 0; s < steps; ++s) {
    if (s + 1 < steps) bring((s + 1) & 1, (s + 1) * 16);
    else asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    unsigned fa[4], fb[4];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(fa[0]), "=r"(fa[1]), "=r"(fa[2]), "=r"(fa[3])
                 : "r"(smem(&sa[s & 1][warp / 2 * 16 + lane % 16][lane / 16 * 8]))
                 : "memory");
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(fb[0]), "=r"(fb[1]), "=r"(fb[2]), "=r"(fb[3])
                 : "r"(smem(&sb[s & 1][warp % 2 * 16 + lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8]))
                 : "memory");
    for (int j = 0; j < 2; ++j)
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                   : "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])
                   : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[2 * j]), "r"(fb[2 * j + 1]));
    __syncthreads();
  }
  for (int j = 0; j < 2; ++j)
    for (int e = 0; e < 4; ++e) {
      const int row = m0 + warp / 2 * 16 + lane / 4 + e / 2 * 8, col = n0 + warp % 2 * 16 + j * 8 + lane % 4 * 2 + e % 2;
      if (row < m && col < n) c[row * n + col] = d[j][e];
    }
}

// Bytes times bytes, relu, scaled back to bytes, packed and written by words.
extern "C" __global__ void requantised(const signed char* a, const signed char* b, signed char* c, int k) {
  const int lane = threadIdx.x % 32, row = lane / 4, n0 = blockIdx.x * 8;
  int d[4] = {};
  for (int k0 = 0; k0 < k; k0 += 32) {
    unsigned fa[4], fb[2];
    for (int j = 0; j < 4; ++j) fa[j] = *reinterpret_cast<const unsigned*>(a + (row + j % 2 * 8) * k + k0 + lane % 4 * 4 + j / 2 * 16);
    for (int j = 0; j < 2; ++j) fb[j] = *reinterpret_cast<const unsigned*>(b + (n0 + row) * k + k0 + lane % 4 * 4 + j * 16);
    asm volatile("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]));
  }
  for (int h = 0; h < 2; ++h) {
    char2 v = make_char2(min(127, max(0, d[2 * h]) >> 6), min(127, max(0, d[2 * h + 1]) >> 6));
    *reinterpret_cast<char2*>(c + (row + h * 8) * (gridDim.x * 8) + n0 + lane % 4 * 2) = v;
  }
}

extern "C" __global__ void doubles_and_tf32(const double* a, const double* b, double* c, const float* x, const float* y, float* z, int k) {
  using namespace nvcuda;
  wmma::fragment<wmma::matrix_a, 8, 8, 4, double, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 8, 8, 4, double, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 8, 8, 4, double> fc;
  wmma::fill_fragment(fc, 0.5);
  for (int i = 0; i < k; i += 4) {
    wmma::load_matrix_sync(fa, a + i, k);
    wmma::load_matrix_sync(fb, b + i, k);
    wmma::mma_sync(fc, fa, fb, fc);
  }
  wmma::store_matrix_sync(c, fc, 8, wmma::mem_col_major);
  wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> ta;
  wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> tb;
  wmma::fragment<wmma::accumulator, 16, 16, 8, float> tc;
  wmma::fill_fragment(tc, 0);
  for (int i = 0; i < k; i += 8) {
    wmma::load_matrix_sync(ta, x + i, k);
    wmma::load_matrix_sync(tb, y + i * 16, 16);
    for (float& v : ta.x) v = wmma::__float_to_tf32(v);
    for (float& v : tb.x) v = wmma::__float_to_tf32(v);
    wmma::mma_sync(tc, ta, tb, tc);
  }
  wmma::store_matrix_sync(z, tc, 16, wmma::mem_row_major);
}

// Atomics on halves, pairs of halves and single 16-bit words.
extern "C" __global__ void half_sums(const float* in, __half2* h2, __nv_bfloat162* b2, __half* h, unsigned short* top) {
  const int i = threadIdx.x, k = i % 4;
  atomicAdd(h2 + k, __floats2half2_rn(in[i], -in[i]));
  atomicAdd(b2 + k, __floats2bfloat162_rn(in[i] * 0.5f, 1));
  atomicAdd(h + k, __float2half(in[i] * 2));
  unsigned short was = *(volatile unsigned short*)(top + k);
  const unsigned short mine = (unsigned short)(in[i] + 100);
  while (was < mine) {
    const unsigned short now = atomicCAS(top + k, was, mine);
    if (now == was) break;
    was = now;
  }
}

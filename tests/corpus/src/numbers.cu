// SPDX-License-Identifier: Apache-2.0
// Numbers: generators, packed halves, small formats, error-free transformations, atomics on every type.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <curand_kernel.h>
#define KERNEL extern "C" __global__ void

// Pi by curand's Philox in double precision; the count is exact.
KERNEL monte_carlo(unsigned long long* hits, unsigned* first, int per) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  curandStatePhilox4_32_10_t st;
  curand_init(1234567ull, i, 5, &st);
  unsigned long long n = 0;
  for (int k = 0; k < per; ++k) {
    uint4 r = curand4(&st);
    if (k == 0) first[i] = r.x ^ r.y ^ r.z ^ r.w;
    double x = (r.x + 0.5) * 2.3283064365386963e-10, y = (r.z + 0.5) * 2.3283064365386963e-10;
    n += fma(x, x, y * y) <= 1.0;
  }
  for (int d = 16; d; d >>= 1) n += __shfl_down_sync(~0u, n, d);
  if (threadIdx.x % 32 == 0) atomicAdd(hits, n);
}
#if __CUDA_ARCH__ >= 800
// Packed half arithmetic of both kinds.
KERNEL packed_halves(const __half2* a, const __nv_bfloat162* b, __half2* x, __nv_bfloat162* y, unsigned* m) {
  int i = threadIdx.x;
  __half2 p = a[i], q = a[i ^ 1];
  x[4 * i] = __hfma2(p, q, __float2half2_rn(0.5f));
  x[4 * i + 1] = __hfma2_relu(p, q, p);
  x[4 * i + 2] = __hadd2_sat(p, q);
  x[4 * i + 3] = __hmax2(__habs2(p), __hneg2(q));
  __nv_bfloat162 r = b[i], s = b[i ^ 1];
  y[3 * i] = __hfma2(r, s, r);
  y[3 * i + 1] = __hsub2(r, s);
  y[3 * i + 2] = __hmin2(__hmul2(r, s), __halves2bfloat162(__low2bfloat16(r), __low2bfloat16(s)));
  m[i] = __hgt2_mask(p, q) ^ __heq2_mask(r, s) ^ (unsigned)__hbeq2(p, p) ^ (__half2ushort_rn(hceil(__low2half(p)) * __float2half(0.f)) << 4);
}
#endif
// Dot products with twice the precision by error-free transformations (double), and by Kahan's sum (float).
KERNEL compensated(const double* x, const double* y, double* dot, const float* z, float* sum, int n) {
  double s = 0, c = 0;
  for (int i = threadIdx.x; i < n; i += 32) {
    double p = __dmul_rn(x[i], y[i]), e = __fma_rn(x[i], y[i], -p), t = __dadd_rn(s, p), b = __dsub_rn(t, s);
    c += e + ((s - (t - b)) + (p - b));
    s = t;
  }
  for (int d = 16; d; d /= 2) {
    double o = __shfl_xor_sync(~0u, s, d), oc = __shfl_xor_sync(~0u, c, d), hi = s > o || (s == o) ? s : o, lo = hi == s ? o : s;
    double t = __dadd_rn(hi, lo), b = __dsub_rn(t, hi);
    c = (c + oc) + ((hi - __dsub_rn(t, b)) + (lo - b));
    s = t;
  }
  if (threadIdx.x == 0) *dot = s + c;
  float k = 0, comp = 0;
  if (threadIdx.x == 0) {
    for (int i = 0; i < n; ++i) {
      float v = __fsub_rn(z[i], comp), t = __fadd_rn(k, v);
      comp = __fsub_rn(__fsub_rn(t, k), v);
      k = t;
    }
    *sum = k;
  }
}
#if __CUDA_ARCH__ >= 800
// Atomics on every type that has one.
KERNEL all_atomics(const int* in, int* i32, unsigned* u32, long long* s64, unsigned long long* u64, float* f, double* d, __half2* h, __nv_bfloat16* b, unsigned short* us) {
  int v = in[blockIdx.x * blockDim.x + threadIdx.x];
  atomicMin(&i32[0], v);
  atomicMax_system(&i32[1], v);
  atomicXor_block(&i32[2 + blockIdx.x], v);
  atomicInc(&u32[0], 9);
  atomicDec(&u32[1], 12);
  atomicAnd(&u32[2], ~(1u << (v & 31)));
  atomicMin(&s64[0], (long long)v << 33);
  atomicMax(&s64[1], (long long)v << 33);
  atomicAdd(&u64[0], (unsigned long long)(long long)v);
  atomicOr(&u64[1], 1ull << (v & 63));
  atomicAdd(&f[0], v * 0.5f);
  if (v >= 0) atomicMax((int*)&f[1], __float_as_int((float)v));
  else atomicMin((unsigned*)&f[1], __float_as_uint((float)v));
  atomicAdd(&d[0], v * 0.25);
  unsigned long long* raw = (unsigned long long*)&d[1], old = *(volatile unsigned long long*)raw, seen;
  do {
    seen = old;
    old = atomicCAS(raw, seen, __double_as_longlong(fmax(__longlong_as_double(seen), v + 0.125)));
  } while (old != seen);
  atomicAdd(h, __floats2half2_rn(1.f, (float)(v & 3)));
  atomicAdd(b, __float2bfloat16((float)(v & 1)));
  unsigned short was = *(volatile unsigned short*)us, expect;
  do {
    expect = was;
    was = atomicCAS(us, expect, (unsigned short)(expect + 3));
  } while (was != expect);
}
#endif
// Vectors of atomics (sm_90) and the small formats that convert two at a time.
#if __CUDA_ARCH__ >= 900
KERNEL vector_atomics(const float4* in, float4* sum, __nv_fp8x2_storage_t* e4, __half2* back, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float4 v = in[i];
  atomicAdd(sum, v);
  atomicAdd((float2*)(sum + 1), make_float2(v.z, v.w));
  __nv_fp8x2_storage_t p = __nv_cvt_float2_to_fp8x2(make_float2(v.x, v.y), __NV_SATFINITE, __NV_E4M3);
  e4[i] = p;
  __half2_raw r = __nv_cvt_fp8x2_to_halfraw2(p, __NV_E4M3);
  back[i] = __half2(r);
}
#endif
// Integers: roots, quotients by constants and variables, high products, Gray codes, Morton order.
KERNEL integers(const unsigned long long* in, unsigned long long* out) {
  int i = threadIdx.x;
  unsigned long long a = in[i], b = in[i ^ 1] | 1;
  unsigned long long r = 0, rem = a;
  for (unsigned long long bit = 1ull << 62; bit; bit >>= 2) {
    if (rem >= r + bit) {
      rem -= r + bit;
      r = (r >> 1) + bit;
    } else {
      r >>= 1;
    }
  }
  out[8 * i] = r;
  out[8 * i + 1] = a / 1000000007ull + a % 97;
  out[8 * i + 2] = a / (b >> 40 | 1) ^ a % b;
  out[8 * i + 3] = __umul64hi(a, b) + (unsigned long long)__mul64hi((long long)a, (long long)b);
  out[8 * i + 4] = __brevll(a) ^ (a ^ a >> 1);
  out[8 * i + 5] = __clzll((long long)a) * 100 + __ffsll((long long)a) + __popcll(a) * 10000;
  unsigned x = (unsigned)a & 0xffff, m = 0;
#pragma unroll
  for (int k = 0; k < 16; ++k) m |= (x >> k & 1) << 2 * k;
  out[8 * i + 6] = m | (unsigned long long)__umulhi((unsigned)a, (unsigned)b) << 32;
  long long s = (long long)a, t = (long long)b >> 20 | 1;
  out[8 * i + 7] = (unsigned long long)(s / t) + (unsigned long long)(s % 1000) + (unsigned long long)((int)s / ((int)t | 1));
}

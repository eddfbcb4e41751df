// SPDX-License-Identifier: Apache-2.0
// What C++ in a kernel compiles to: objects on the heap, tables of functions, 128-bit integers, generated code.
#include <cuda_runtime.h>
#include <cstdint>
#include <cstdio>
#include <cassert>
#include <new>
#define KERNEL extern "C" __global__ void

// Objects of three classes on the device's heap, called through the base, deleted through it.
struct Shape {
  __device__ virtual float area() const = 0;
  __device__ virtual ~Shape() {}
};
struct Square : Shape {
  float a;
  __device__ Square(float a) : a(a) {}
  __device__ float area() const override { return a * a; }
};
struct Box : Shape {
  float a, b, c;
  __device__ Box(float a, float b) : a(a), b(b), c(0) {}
  __device__ float area() const override { return a * b + c; }
};
struct Padded : Box {
  double extra[3];
  __device__ Padded(float a) : Box(a, 2) {
    for (int i = 0; i < 3; ++i) extra[i] = a + i;
  }
  __device__ float area() const override { return Box::area() + (float)(extra[0] + extra[2]); }
};
KERNEL heap_objects(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  Shape* s;
  switch (i % 3) {
    case 0: s = new Square(in[i]); break;
    case 1: s = new Box(in[i], 3); break;
    default: s = new Padded(in[i]);
  }
  int* list = (int*)malloc((i % 5 + 1) * sizeof(int));
  assert(list && s);
  for (int k = 0; k <= i % 5; ++k) list[k] = k * i;
  out[i] = s->area() + list[i % 5];
  free(list);
  delete s;
}
// Tables of functions in constant memory and in a struct passed by value; a lambda as a template argument.
typedef int (*Op)(int, int);
__device__ int op_add(int a, int b) { return a + b; }
__device__ int op_mul(int a, int b) { return a * b; }
__device__ int op_shift(int a, int b) { return a << (b & 7); }
__device__ __noinline__ int op_gcd(int a, int b) { return b ? op_gcd(b, a % b) : a; }
__constant__ Op ops[4] = {op_add, op_mul, op_shift, op_gcd};
__constant__ short weights[3][4] = {{1, -2, 3, 4}, {5, 6, -7, 8}, {9, 10, 11, -12}};
template <class F>
__device__ __noinline__ int fold(const int* x, int n, F f) {
  int a = x[0];
  for (int i = 1; i < n; ++i) a = f(a, x[i]);
  return a;
}
KERNEL function_table(const int* in, int* out) {
  int i = threadIdx.x, a = in[i] + 1, b = in[i ^ 1] + 1;
  Op f = ops[in[i] & 3];
  int base = fold(in, 5, [=](int p, int q) { return p * 3 + q * a; });
  out[i] = f(a, b) + weights[i % 3][in[i] & 3] + base;
}
// 128-bit products, quotients and remainders; a Montgomery multiplication.
typedef unsigned __int128 u128;
KERNEL wide_integers(const uint64_t* x, uint64_t* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  uint64_t a = x[i], b = x[(i + 1) % n] | 1, m = x[(i + 2) % n] | 1;
  u128 p = (u128)a * b;
  out[4 * i] = (uint64_t)(p % m);
  out[4 * i + 1] = (uint64_t)((p + a) / b);
  __int128 s = (__int128)(int64_t)a * (int64_t)b;
  out[4 * i + 2] = (uint64_t)(s >> 67) ^ (uint64_t)(s % 1000003);
  uint64_t inv = m;
  for (int k = 0; k < 5; ++k) inv *= 2 - m * inv;
  uint64_t q = (uint64_t)p * (0 - inv);
  u128 t = (u128)q * m;
  uint64_t carry = (uint64_t)p != 0, hi = (uint64_t)(p >> 64), th = (uint64_t)(t >> 64);
  u128 r = (u128)hi + th + carry;
  out[4 * i + 3] = (uint64_t)(r >= m ? r - m : r);
}
// Bit fields, unions, packed members, memcpy and memset of local objects.
struct __attribute__((packed)) Record {
  uint8_t tag;
  uint32_t word;
  uint16_t half;
};
union Word {
  float f;
  uint32_t u;
  struct {
    uint32_t mantissa : 23, exponent : 8, sign : 1;
  };
};
KERNEL odd_layouts(const uint8_t* in, uint32_t* out, uint8_t* bytes) {
  int i = threadIdx.x;
  const Record* r = (const Record*)in + i;
  Record copy = *r;
  copy.word ^= copy.half;
  Word w;
  w.u = r->word;
  out[2 * i] = w.exponent * 2 + w.sign + (w.mantissa >> 20);
  out[2 * i + 1] = copy.word + copy.tag;
  Record local[3];
  memset(local, i, sizeof local);
  memcpy(&local[i % 3], &copy, sizeof copy);
  for (int k = 0; k < 7; ++k) bytes[i * 7 + k] = ((uint8_t*)&local[1])[k];
}
// A virtual machine: the dispatch of a switch in a loop, a stack in local memory.
KERNEL bytecode(const unsigned char* code, const int* start, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  long long stack[16];
  int top = 0, pc = start[i], steps = 0;
  for (;; ++steps) {
    switch (code[pc++]) {
      case 0: stack[top++] = (signed char)code[pc++]; break;
      case 1: --top; stack[top - 1] += stack[top]; break;
      case 2: --top; stack[top - 1] *= stack[top]; break;
      case 3: --top; stack[top - 1] -= stack[top]; break;
      case 4: stack[top] = stack[top - 1]; ++top; break;
      case 5: { long long t = stack[top - 1]; stack[top - 1] = stack[top - 2]; stack[top - 2] = t; break; }
      case 6: { int to = (signed char)code[pc++]; if (stack[--top] > 0) pc += to; break; }
      case 7: stack[top++] = i; break;
      default: out[2 * i] = (int)stack[top - 1]; out[2 * i + 1] = steps; return;
    }
  }
}
// Shared memory carved by hand: doubles, floats, bytes, a bit set, more than 48 KiB.
KERNEL carved(const float* in, double* out, int n) {
  extern __shared__ unsigned char arena[];
  double* d = (double*)arena;
  float* f = (float*)(d + n);
  unsigned* set = (unsigned*)(f + 8 * n);
  unsigned char* b = (unsigned char*)(set + (n + 31) / 32);
  for (int i = threadIdx.x; i < 8 * n; i += blockDim.x) f[i] = in[i % n] + i;
  for (int i = threadIdx.x; i < (n + 31) / 32; i += blockDim.x) set[i] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    double a = 0;
    for (int k = 0; k < 8; ++k) a += f[k * n + i];
    d[i] = a;
    if (in[i] > 0) atomicOr(set + i / 32, 1u << i % 32);
    b[i] = (unsigned char)i;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    out[i] = d[n - 1 - i] + (set[(n - 1 - i) / 32] >> (n - 1 - i) % 32 & 1) + b[(i + 7) % n];
}
// Bits: population counts, the n-th set bit, funnel shifts, any function of three words.
KERNEL bits(const unsigned* in, unsigned* out) {
  unsigned a = in[3 * threadIdx.x], b = in[3 * threadIdx.x + 1], c = in[3 * threadIdx.x + 2], l, p;
  unsigned* o = out + 8 * threadIdx.x;
  o[0] = __fns(a, b & 31, (int)(c % 9) - 4);
  o[1] = __funnelshift_lc(a, b, c & 63) ^ __funnelshift_r(a, b, c);
  asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(l) : "r"(a), "r"(b), "r"(c));
  asm("{.reg .pred q, r; setp.lt.u32 r, %1, %2; lop3.or.b32 %0|q, %1, %2, %3, 0x96, r; @q xor.b32 %0, %0, 1; }" : "=r"(p) : "r"(a), "r"(b), "r"(c));
  o[2] = l;
  o[3] = p;
  o[4] = __byte_perm(a, b, c & 0x7777) + __brev(c);
  o[5] = (unsigned)__dp2a_lo((int)a, (int)b, 5) + __dp2a_hi(a, b, c);
  o[6] = __vabsdiffu4(a, b) ^ __vavgs2(b, c) ^ __viaddmax_s32_relu((int)a, (int)b, (int)c);
  o[7] = __usad(a, b, c) + __umul24(a, b) + (unsigned)__rhadd((int)a, (int)b);
}
// Hints that change nothing: caches, prefetches, policies, assumptions, unrolled loops that bail out.
KERNEL hints(const float4* __restrict__ in, float4* __restrict__ out, int n) {
  unsigned long long policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    float4 v, w = __ldcg(in + (i ^ 1));
    asm volatile("prefetch.global.L2 [%0];" ::"l"(in + i));
    asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.f32 {%0,%1,%2,%3}, [%4], %5;" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(in + i), "l"(policy));
    __builtin_assume(n > 0);
    v.x += w.w;
    v.y = __ldlu(&in[i].y) * 2;
    __stwt(out + i, v);
    if (v.z < -30) __stcs(&out[i].z, 0.f);
  }
}
// Formatted output of every kind of argument.
KERNEL chatter(const int* in, int* out) {
  int i = threadIdx.x;
  if (i % 16 == 0) printf("%d of %u: %5.2f %lld %c %s %p %%\n", i, blockDim.x, in[i] * 0.5, (long long)in[i] << 33, 'a' + i / 16, in[i] > 0 ? "plus" : "minus", (void*)0);
  out[i] = printf("x") == 0 ? in[i] : 0;
}
// A launch bound, a grid constant of some size, and an array member indexed by a variable.
struct Big {
  int shift[32];
  float scale[8][8];
  const float* data;
  short tail;
};
KERNEL __launch_bounds__(64, 2) big_parameter(const __grid_constant__ Big p, float* out) {
  const Big* q = &p;
  int i = threadIdx.x;
  out[i] = q->data[(i + q->shift[i & 31]) & 63] * p.scale[i & 7][(i >> 3) & 7] + p.tail;
}

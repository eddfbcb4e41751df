// SPDX-License-Identifier: Apache-2.0
// Real calls: noinline functions with structs by value and by return, recursion, function pointers, a barrier and
// shuffles inside a callee, calls under divergence, more than eight arguments.
struct Pair {
  int a;
  double b;
  short c[3];
};
__device__ __noinline__ Pair twist(Pair p, int k) {
  Pair r;
  r.a = p.a * k;
  r.b = p.b + p.a;
  for (int i = 0; i < 3; ++i) r.c[i] = p.c[2 - i] + k;
  return r;
}
__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__device__ __noinline__ unsigned ackermann(unsigned m, unsigned n) {
  if (m == 0) return n + 1;
  if (n == 0) return ackermann(m - 1, 1);
  return ackermann(m - 1, ackermann(m, n - 1));
}
__device__ __noinline__ bool is_even(int n);
__device__ __noinline__ bool is_odd(int n) { return n == 0 ? false : is_even(n - 1); }
__device__ __noinline__ bool is_even(int n) { return n == 0 ? true : is_odd(n - 1); }
__device__ __noinline__ int block_sum(int v, int* s) {
  s[threadIdx.x] = v;
  __syncthreads();
  for (int d = blockDim.x / 2; d > 0; d /= 2) {
    if (threadIdx.x < d) s[threadIdx.x] += s[threadIdx.x + d];
    __syncthreads();
  }
  int r = s[0];
  __syncthreads();
  return r;
}
__device__ __noinline__ long long many(char a, short b, int c, long long d, float e, double f, unsigned char g, unsigned short h,
                                       const int* p, bool q) {
  return a + b + c + d + (long long)e + (long long)f + g + h + *p + q;
}
__device__ __noinline__ int add(int a, int b) { return a + b; }
__device__ __noinline__ int sub(int a, int b) { return a - b; }
__device__ __noinline__ int mul(int a, int b) { return a * b; }
__device__ __noinline__ int mix(int a, int b) { return __shfl_xor_sync(0xffffffff, a, 1) ^ b; }
typedef int (*Op)(int, int);
__device__ Op ops[4] = {add, sub, mul, mix};
extern "C" __global__ void functions(const int* in, int* out, double* dout) {
  __shared__ int s[64];
  int t = threadIdx.x, v = in[t];
  Pair p = {v, v * 0.5, {(short)v, (short)(v + 1), (short)(v + 2)}};
  p = twist(p, t % 5);
  if (t % 2) p = twist(p, 3);
  int* o = out + 8 * t;
  dout[t] = p.b;
  o[0] = p.a + p.c[0] + 10 * p.c[1] + 100 * p.c[2];
  o[1] = fib(t % 11);
  o[2] = ackermann(t % 3, t % 4);
  o[3] = is_even(t % 13);
  o[4] = block_sum(v, s) + block_sum(v * t, s);
  o[5] = ops[t % 3](v, t);
  o[6] = ops[t / 32 ? 3 : 1](v, t);
  o[7] = (int)many((char)v, (short)(v * 3), v, 1ll << 20, v + 0.25f, v - 0.5, (unsigned char)v, (unsigned short)v, in + t, v > 0);
}

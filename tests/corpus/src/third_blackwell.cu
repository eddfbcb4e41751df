// SPDX-License-Identifier: Apache-2.0
// What sm_100 adds for plain numbers: packed single precision, loads of 32 bytes, sums of three, minima of three.
extern "C" __global__ void packed_singles(const float* a, const float* b, float* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i * 8 >= n) return;
  unsigned long long x[4], y[4];
  asm volatile("ld.global.v4.b64 {%0,%1,%2,%3}, [%4];" : "=l"(x[0]), "=l"(x[1]), "=l"(x[2]), "=l"(x[3]) : "l"(a + i * 8));
  asm volatile("ld.global.v4.b64 {%0,%1,%2,%3}, [%4];" : "=l"(y[0]), "=l"(y[1]), "=l"(y[2]), "=l"(y[3]) : "l"(b + i * 8));
  for (int j = 0; j < 4; ++j) {
    unsigned long long s, p;
    asm("add.rn.f32x2 %0, %1, %2;" : "=l"(s) : "l"(x[j]), "l"(y[j]));
    asm("mul.rn.f32x2 %0, %1, %2;" : "=l"(p) : "l"(x[j]), "l"(s));
    asm("fma.rn.f32x2 %0, %1, %2, %3;" : "=l"(x[j]) : "l"(p), "l"(y[j]), "l"(s));
  }
  asm volatile("st.global.v4.b64 [%0], {%1,%2,%3,%4};" ::"l"(c + i * 8), "l"(x[0]), "l"(x[1]), "l"(x[2]), "l"(x[3]) : "memory");
}
extern "C" __global__ void of_three(const float* a, float* c) {
  const int i = threadIdx.x;
  float low, high;
  asm("min.f32 %0, %1, %2, %3;" : "=f"(low) : "f"(a[i]), "f"(a[i ^ 1]), "f"(a[i ^ 2]));
  asm("max.NaN.f32 %0, %1, %2, %3;" : "=f"(high) : "f"(a[i]), "f"(a[i ^ 1]), "f"(a[i ^ 4]));
  float top;
  asm("redux.sync.max.f32 %0, %1, 0xffffffff;" : "=f"(top) : "f"(low));
  c[i] = low + high * 256 + top * 65536;
}

#include <cuda_bf16.h>
#include <cuda_fp16.h>
extern "C" __global__ void half_math(__nv_bfloat16* a, __half2* h, double* d, long long n) {
  a[threadIdx.x] = __float2bfloat16(__bfloat162float(a[threadIdx.x]) * 2.f);
  h[threadIdx.x] = __hfma2(h[threadIdx.x], h[threadIdx.x], h[0]);
  d[n % 7] = fma(d[0], d[1], (double)n);
  __nanosleep(10);
  if (n == 5) __trap();
}

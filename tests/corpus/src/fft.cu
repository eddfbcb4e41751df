// SPDX-License-Identifier: Apache-2.0
// 256-point radix-2 FFT in shared memory; twiddles from sincospif.
extern "C" __global__ void fft(const float2* in, float2* out) {
  __shared__ float2 s[256];
  int t = threadIdx.x;
  for (int i = t; i < 256; i += 128) s[__brev(i) >> 24] = in[blockIdx.x * 256 + i];
  for (int len = 2; len <= 256; len *= 2) {
    __syncthreads();
    int half = len / 2, k = t % half, i = t / half * len + k;
    float sn, cs;
    sincospif(-2.f * k / len, &sn, &cs);
    float2 a = s[i], b = s[i + half];
    float2 m = make_float2(b.x * cs - b.y * sn, b.x * sn + b.y * cs);
    s[i] = make_float2(a.x + m.x, a.y + m.y);
    s[i + half] = make_float2(a.x - m.x, a.y - m.y);
  }
  __syncthreads();
  for (int i = t; i < 256; i += 128) out[blockIdx.x * 256 + i] = s[i];
}

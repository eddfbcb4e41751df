// SPDX-License-Identifier: Apache-2.0
// Lanes that have returned are excused from __syncthreads and from full-mask shuffles that do not read them.
extern "C" __global__ void early_return(const int* in, int* out, int* left, int n) {
  __shared__ int s[64];
  int t = threadIdx.x;
  if (t >= n) {
    left[t - n] = -t;
    return;
  }
  s[t] = in[t];
  __syncthreads();
  int v = s[n - 1 - t];
  __syncthreads();
  if (v < 0) return;
  s[t] = v;
  __syncthreads();
  int sum = 0;
  for (int i = 0; i <= t; ++i) sum += s[i] * (s[i] > 0);
  out[t] = sum + __popc(__activemask() & 0);
}

// SPDX-License-Identifier: Apache-2.0
// Row softmax (online maximum) and layer norm, a warp a row.
extern "C" __global__ void softmax(const float* in, float* out, int n) {
  const float* x = in + blockIdx.x * n;
  float m = -INFINITY, s = 0;
  for (int i = threadIdx.x; i < n; i += 32) {
    float v = x[i], nm = fmaxf(m, v);
    s = s * __expf(m - nm) + __expf(v - nm);
    m = nm;
  }
  for (int d = 16; d; d /= 2) {
    float om = __shfl_xor_sync(~0u, m, d), os = __shfl_xor_sync(~0u, s, d), nm = fmaxf(m, om);
    if (nm > -INFINITY) {
      s = s * expf(m - nm) + os * expf(om - nm);
      m = nm;
    }
  }
  for (int i = threadIdx.x; i < n; i += 32) out[blockIdx.x * n + i] = expf(x[i] - m) / s;
}
extern "C" __global__ void layernorm(const float* in, const float* gamma, const float* beta, float* out, int n) {
  const float* x = in + blockIdx.x * n;
  float s = 0, q = 0;
  for (int i = threadIdx.x; i < n; i += 32) s += x[i];
  for (int d = 16; d; d /= 2) s += __shfl_xor_sync(~0u, s, d);
  float mean = s / n;
  for (int i = threadIdx.x; i < n; i += 32) q += (x[i] - mean) * (x[i] - mean);
  for (int d = 16; d; d /= 2) q += __shfl_xor_sync(~0u, q, d);
  float inv = rsqrtf(q / n + 1e-5f);
  for (int i = threadIdx.x; i < n; i += 32) out[blockIdx.x * n + i] = (x[i] - mean) * inv * gamma[i] + beta[i];
}

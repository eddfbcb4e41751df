// SPDX-License-Identifier: Apache-2.0
// 5x5 convolution with the filter in __constant__ memory (set by the host through `symbols`), and a depthwise
// 3x3 over NHWC channels with vector loads.
__constant__ float filt[25];
extern "C" __global__ void conv2d(const float* in, float* out, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= w || y >= h) return;
  float s = 0;
#pragma unroll
  for (int dy = -2; dy <= 2; ++dy)
    for (int dx = -2; dx <= 2; ++dx) {
      int xx = x + dx, yy = y + dy;
      if (xx >= 0 && xx < w && yy >= 0 && yy < h) s = fmaf(filt[(dy + 2) * 5 + dx + 2], in[yy * w + xx], s);
    }
  out[y * w + x] = s;
}
extern "C" __global__ void depthwise(const float4* in, const float4* k, float4* out, int w, int h, int c4) {
  int c = threadIdx.x, x = blockIdx.x, y = blockIdx.y;
  float4 s = make_float4(0, 0, 0, 0);
  for (int dy = 0; dy < 3; ++dy)
    for (int dx = 0; dx < 3; ++dx) {
      float4 v = in[((y + dy) * (w + 2) + x + dx) * c4 + c], f = k[(dy * 3 + dx) * c4 + c];
      s.x += v.x * f.x;
      s.y += v.y * f.y;
      s.z += v.z * f.z;
      s.w += v.w * f.w;
    }
  out[(y * w + x) * c4 + c] = s;
}

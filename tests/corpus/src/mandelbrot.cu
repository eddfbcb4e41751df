// SPDX-License-Identifier: Apache-2.0
// Divergent loop; every rounding is explicit so that counts are exact.
extern "C" __global__ void mandelbrot(unsigned short* out, int w, int h, float x0, float y0, float step) {
  int px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y;
  if (px >= w || py >= h) return;
  float cx = __fadd_rn(x0, __fmul_rn(px, step)), cy = __fadd_rn(y0, __fmul_rn(py, step)), x = 0, y = 0;
  int it = 0;
  while (it < 200) {
    float xx = __fmul_rn(x, x), yy = __fmul_rn(y, y);
    if (__fadd_rn(xx, yy) > 4.f) break;
    y = __fadd_rn(__fmul_rn(2.f, __fmul_rn(x, y)), cy);
    x = __fadd_rn(__fsub_rn(xx, yy), cx);
    ++it;
  }
  out[py * w + px] = it;
}

// SPDX-License-Identifier: Apache-2.0
// fp64: division, square root, directed rounding, fma, compensated sum, floor/ceil/rint/trunc, fmod, frexp/ldexp.
extern "C" __global__ void double_math(const double* a, const double* b, double* out) {
  int t = threadIdx.x;
  double x = a[t], y = b[t], *o = out + 16 * t;
  o[0] = x / y;
  o[1] = sqrt(fabs(x));
  o[2] = __dadd_ru(x, y);
  o[3] = __dmul_rd(x, y);
  o[4] = fma(x, y, -x);
  o[5] = __drcp_rn(y);
  o[6] = __ddiv_rz(x, y);
  o[7] = __dsqrt_ru(fabs(y));
  o[8] = floor(x) + ceil(y);
  o[9] = rint(x) - trunc(y);
  o[10] = fmod(x, y);
  int e;
  o[11] = frexp(x, &e);
  o[12] = ldexp(y, e);
  o[13] = __dadd_rn(round(x), __dmul_rn(fmin(x, y), fmax(x, y)));
  double s = 0, c = 0;
  for (int i = 0; i < 50; ++i) {
    double v = __dadd_rn(x, -c), n = __dadd_rn(s, v);
    c = __dadd_rn(__dadd_rn(n, -s), -v);
    s = n;
  }
  o[14] = s;
  o[15] = __longlong_as_double(__double_as_longlong(x) ^ 1) + __hiloint2double(__double2hiint(y), __double2loint(x));
}
extern "C" __global__ void double_funcs(const double* a, double* out) {
  int t = threadIdx.x;
  double x = a[t], *o = out + 10 * t;
  o[0] = sin(x);
  o[1] = cos(x * 1000);
  o[2] = exp(x);
  o[3] = log(fabs(x) + 0.1);
  o[4] = pow(fabs(x), 1.7);
  o[5] = tanh(x);
  o[6] = atan2(x, 0.3);
  o[7] = erf(x);
  o[8] = cbrt(x);
  o[9] = rsqrt(fabs(x) + 1e-3);
}

// SPDX-License-Identifier: Apache-2.0
// Parameters by value: a struct of pointers and scalars with padding, a nested array, a template functor, small types.
struct Args {
  const float* x;
  float* y;
  int n;
  short shift;
  char flag;
  double scale;
  float table[5];
};
struct Affine {
  float a, b;
  __device__ float operator()(float x) const { return a * x + b; }
};
template <typename F, int N>
__device__ void apply(const Args& g, F f) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < g.n; i += gridDim.x * blockDim.x) {
    float v = f(g.x[i]);
    for (int k = 0; k < N; ++k) v += g.table[(i + k) % 5];
    g.y[i] = g.flag == 'k' ? v * (float)g.scale + g.shift : -1;
  }
}
extern "C" __global__ void struct_params(Args g, Affine f, bool two, unsigned char add, unsigned long long big, short neg) {
  if (two)
    apply<Affine, 2>(g, f);
  else
    apply<Affine, 3>(g, f);
  if (blockIdx.x == 0 && threadIdx.x == 0) g.y[g.n] = add + (float)(big >> 40) + neg;
}

__device__ int helper(int x) { int y = x * 3; return y + 1; }
extern "C" __global__ void debug_me(int* p, int n) {
  int local[4] = {1, 2, 3, n};
  for (int i = 0; i < 4; ++i) p[i] = helper(local[i]);
}

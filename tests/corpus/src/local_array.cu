// SPDX-License-Identifier: Apache-2.0
// Local memory: dynamic indices, insertion sort, byte and 64-bit views of one array, address of a local passed on.
__device__ __noinline__ void bump(int* p, int i) { p[i] += 1000 * i; }
extern "C" __global__ void local_array(const int* in, int* out, unsigned long long* words) {
  int a[16], t = threadIdx.x;
  for (int i = 0; i < 16; ++i) a[i] = in[t * 16 + i];
  for (int i = 1; i < 16; ++i) {
    int v = a[i], j = i - 1;
    while (j >= 0 && a[j] > v) {
      a[j + 1] = a[j];
      --j;
    }
    a[j + 1] = v;
  }
  bump(a, in[t] & 15);
  for (int i = 0; i < 16; ++i) out[t * 16 + i] = a[(i + t) & 15];
  unsigned char b[24];
  for (int i = 0; i < 24; ++i) b[i] = (unsigned char)(in[t] >> (i % 4 * 8)) + i;
  b[in[t + 1] & 7] = 0xee;
  unsigned long long w;
  memcpy(&w, b + (t & 1) * 8, 8);
  words[t] = w ^ (unsigned long long)b[16 + (t & 7)] << 32;
}

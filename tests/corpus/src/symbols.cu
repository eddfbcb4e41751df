// SPDX-License-Identifier: Apache-2.0
// Initialised __constant__ and __device__ variables, among them pointers to symbols and to elements, strings,
// structs, and symbols that the host overwrites.
struct Entry {
  const int* p;
  char tag;
  float w;
};
__constant__ int primes[8] = {2, 3, 5, 7, 11, 13, 17, 19};
__device__ int squares[6] = {0, 1, 4, 9, 16, 25};
__device__ int other[3] = {-7, -8, -9};
__device__ const int* where[3] = {&squares[2], other, squares + 1};
__device__ Entry table[3] = {{&other[1], 'x', 0.5f}, {squares, 'y', -2.f}, {nullptr, 'z', 8.f}};
__device__ double precise[2] = {0.1, -1e300};
__device__ const char* names[2] = {"alpha", "be"};
__device__ signed char bytes[5] = {-1, 2, -3, 4, -5};
__device__ unsigned counter = 40;
__constant__ float scale;       // written by the host
__device__ long long limits[2];  // written by the host
__device__ int untouched[4];     // zero
extern "C" __global__ void symbols(int* out, double* dout) {
  int t = threadIdx.x;
  int v = primes[t] + where[t % 3][t % 2];
  const Entry& e = table[t % 3];
  v = v * 10 + (e.p ? e.p[0] : 77);
  v += e.tag + names[t & 1][t & 1] + bytes[t % 5] + untouched[t & 3];
  out[t] = v;
  out[8 + t] = atomicAdd(&counter, 0) + (int)(limits[t & 1] >> 4);
  dout[t] = precise[t & 1] * e.w + scale;
}
extern "C" __global__ void symbols_change(int* out) {
  if (threadIdx.x == 0) counter += 2;
  squares[threadIdx.x] += 100;
  __syncthreads();
  out[threadIdx.x] = *where[threadIdx.x % 3] + counter;
}

// SPDX-License-Identifier: Apache-2.0
// Connected components: hook the larger root under the smaller with CAS, then flatten.
__device__ int find(volatile int* p, int x) {
  while (p[x] != x) x = p[x];
  return x;
}
extern "C" __global__ void uf_init(int* parent, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) parent[i] = i;
}
extern "C" __global__ void uf_hook(int* parent, const int2* edges, int m) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= m) return;
  int a = find(parent, edges[i].x), b = find(parent, edges[i].y);
  while (a != b) {
    if (a < b) {
      int t = a;
      a = b;
      b = t;
    }
    int old = atomicCAS(&parent[a], a, b);
    if (old == a) break;
    a = find(parent, old);
    b = find(parent, b);
  }
}
extern "C" __global__ void uf_flatten(const int* parent, int* label, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int x = i;
  while (parent[x] != x) x = parent[x];
  label[i] = x;
}

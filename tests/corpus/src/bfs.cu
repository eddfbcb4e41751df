// SPDX-License-Identifier: Apache-2.0
// Level-synchronous BFS with a frontier queue; every level is a launch. sizes[level] is the frontier's length.
extern "C" __global__ void bfs_level(const int* ptr, const int* adj, int* dist, const int* frontier, int* next, int* sizes, int level) {
  int n = sizes[level];
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    int u = frontier[i];
    for (int e = ptr[u]; e < ptr[u + 1]; ++e) {
      int v = adj[e];
      if (atomicCAS(&dist[v], -1, level + 1) == -1) next[atomicAdd(&sizes[level + 1], 1)] = v;
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
// A 2x2 cluster: ranks and ids, a ring exchange through ld/st.shared::cluster, getctarank, split cluster barrier.
#include "hopper.cuh"
extern "C" __global__ void __cluster_dims__(2, 2, 1) cluster_ring(unsigned* ids, int* out) {
  __shared__ int mine[32], from[32];
  unsigned r = cluster_rank(), n, x, y, nx, ny, cx, cy, rank_of;
  ASM("mov.u32 %0, %%cluster_nctarank;" : "=r"(n));
  ASM("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(x));
  ASM("mov.u32 %0, %%cluster_ctaid.y;" : "=r"(y));
  ASM("mov.u32 %0, %%nclusterid.x;" : "=r"(nx));
  ASM("mov.u32 %0, %%nclusterid.y;" : "=r"(ny));
  ASM("mov.u32 %0, %%clusterid.x;" : "=r"(cx));
  ASM("mov.u32 %0, %%clusterid.y;" : "=r"(cy));
  int t = threadIdx.x, b = blockIdx.y * gridDim.x + blockIdx.x;
  mine[t] = b * 100 + t;
  cluster_sync();
  unsigned next = mapa(smem(&from[t]), (r + 1) % n), prev = mapa(smem(&mine[31 - t]), (r + 3) % n);
  int v;
  ASM("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(prev) : "memory");
  ASM("st.shared::cluster.u32 [%0], %1;" ::"r"(next), "r"(mine[t] * 2) : "memory");
  ASM("getctarank.shared::cluster.u32 %0, %1;" : "=r"(rank_of) : "r"(next));
  ASM("barrier.cluster.arrive.release.aligned;" ::: "memory");
  ids[b * 32 + t] = r | n << 4 | x << 8 | y << 12 | nx << 16 | ny << 20 | cx << 24 | cy << 26 | rank_of << 28;
  ASM("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  out[b * 64 + t] = v;
  out[b * 64 + 32 + t] = from[t];
}

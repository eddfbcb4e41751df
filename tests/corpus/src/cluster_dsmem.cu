// SPDX-License-Identifier: Apache-2.0
// A histogram spread over the shared memory of 4 blocks, through cooperative groups.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void __cluster_dims__(4, 1, 1) cluster_dsmem(const unsigned char* in, unsigned* out, int n) {
  __shared__ unsigned bins[64];
  auto cl = cg::this_cluster();
  for (int i = threadIdx.x; i < 64; i += blockDim.x) bins[i] = 0;
  cl.sync();
  int per = n / (gridDim.x / 4), base = blockIdx.x / 4 * per;
  for (int i = cl.thread_rank(); i < per; i += cl.num_threads()) {
    int v = in[base + i];
    atomicAdd(cl.map_shared_rank(&bins[v % 64], v / 64), 1u);
  }
  cl.sync();
  for (int i = threadIdx.x; i < 64; i += blockDim.x) atomicAdd(&out[cl.block_rank() * 64 + i], bins[i]);
}

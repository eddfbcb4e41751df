// SPDX-License-Identifier: Apache-2.0
// Cooperative groups without reduce: group ranks, nested tiles, shuffles in tiles, coalesced group shuffles, block sync,
// and an elected leader doing an aggregated atomic.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void cg_groups(const int* in, int* out, int* counter) {
  auto block = cg::this_thread_block();
  auto w = cg::tiled_partition<32>(block);
  auto t = cg::tiled_partition<8>(w);
  int i = blockIdx.x * block.num_threads() + block.thread_rank(), v = in[i], *o = out + 6 * i;
  o[0] = t.shfl(v, 3) + t.meta_group_rank() * 1000 + w.meta_group_size() * 100000;
  o[1] = t.shfl_down(v, 2) + t.ballot(v > 0) * 4096;
  o[2] = t.any(v > 95) * 2 + t.all(v > -90) + t.match_any(v & 1) * 16;
  o[3] = -1;
  o[4] = -1;
  if (v % 3 == 0) {
    auto g = cg::coalesced_threads();
    o[3] = g.shfl(v, g.size() - 1) * 64 + g.thread_rank();
    int base;
    if (g.thread_rank() == 0) base = atomicAdd(counter, g.size());
    base = g.shfl(base, 0);
    o[4] = g.shfl_up(v, 1) - (g.thread_rank() == 0 ? v : 0);
    g.sync();
    if (base < 0) o[4] = 0;
  }
  block.sync();
  int acc = 0;
  if (block.thread_rank() < 16) {
    auto g = cg::coalesced_threads();
    acc = g.num_threads();
    for (int k = g.num_threads() / 2; k > 0; k /= 2) v += g.shfl_down(v, k);
  }
  o[5] = block.thread_rank() == 0 ? v : acc;
}

// SPDX-License-Identifier: Apache-2.0
// Cooperative groups: tiles of 4, 16 and 32, cg::reduce with several operators, coalesced groups, labelled partitions.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;
extern "C" __global__ void reduce_cg(const int* in, int* out, unsigned* meta) {
  cg::thread_block block = cg::this_thread_block();
  int i = block.group_index().x * block.size() + block.thread_rank();
  int v = in[i];
  auto t4 = cg::tiled_partition<4>(block);
  auto t16 = cg::tiled_partition<16>(block);
  auto t32 = cg::tiled_partition<32>(block);
  int r0 = cg::reduce(t4, v, cg::plus<int>());
  int r1 = cg::reduce(t16, v, cg::less<int>());
  int r2 = cg::reduce(t32, v, cg::greater<int>());
  int r3 = cg::reduce(t32, v, cg::bit_xor<int>());
  int r4 = cg::inclusive_scan(t16, v, cg::plus<int>());
  int r5 = 0;
  if (v & 1) {
    cg::coalesced_group g = cg::coalesced_threads();
    r5 = cg::reduce(g, v, cg::plus<int>()) * 64 + g.thread_rank();
  }
  auto lab = cg::labeled_partition(t32, (unsigned)v % 3u);
  meta[i] = lab.size() * 256 + lab.thread_rank() * 8 + t4.meta_group_rank() % 8;
  out[i * 6 + 0] = r0;
  out[i * 6 + 1] = r1;
  out[i * 6 + 2] = r2;
  out[i * 6 + 3] = r3;
  out[i * 6 + 4] = r4;
  out[i * 6 + 5] = r5;
}

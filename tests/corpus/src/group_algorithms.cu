// SPDX-License-Identifier: Apache-2.0
// Cooperative groups beyond the tile of a warp: labels, scans, large tiles, grids, clusters, copies.
#define _CG_ABI_EXPERIMENTAL
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

#include <cuda/barrier>
namespace cg = cooperative_groups;
#define KERNEL extern "C" __global__ void

// Per label: the sum of its lanes, the rank among them, and a running maximum.
KERNEL label_groups(const int* in, int* out) {
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  int i = blockIdx.x * blockDim.x + threadIdx.x, v = in[i];
  auto g = cg::labeled_partition(warp, v % 5);
  out[4 * i] = cg::reduce(g, v, cg::plus<int>());
  out[4 * i + 1] = g.thread_rank() * 100 + g.size();
  auto b = cg::binary_partition(warp, v > 40);
  out[4 * i + 2] = cg::reduce(b, v, cg::greater<int>());
  out[4 * i + 3] = cg::inclusive_scan(b, v, cg::less<int>());
}
// Tiles of 8 and 16 under a tile of 32: reductions with bit operations and doubles, exclusive scans.
KERNEL tile_algorithms(const int* in, double* sums, int* out) {
  auto block = cg::this_thread_block();
  auto t16 = cg::tiled_partition<16>(block);
  auto t8 = cg::tiled_partition<8>(t16);
  int i = block.group_index().x * block.size() + block.thread_rank(), v = in[i];
  double s = cg::reduce(t16, v * 0.25, cg::plus<double>());
  if (t16.thread_rank() == 0) sums[i / 16] = s;
  int x = cg::exclusive_scan(t8, v, cg::plus<int>());
  int y = cg::reduce(t8, v, cg::bit_xor<int>());
  out[i] = x * 7 + (y & 15) + t8.meta_group_rank();
}
// Heat on a ring, one step per grid barrier.
KERNEL heat(float* a, float* b, int n, int steps) {
  cg::grid_group grid = cg::this_grid();
  for (int s = 0; s < steps; ++s) {
    for (unsigned long long i = grid.thread_rank(); i < n; i += grid.size()) {
      float l = a[(i + n - 1) % n], r = a[(i + 1) % n];
      b[i] = 0.5f * a[i] + 0.25f * (l + r);
    }
    grid.sync();
    float* t = a;
    a = b;
    b = t;
  }
}
// A global sum that every block needs, with a split grid barrier.
KERNEL normalise(const float* in, float* part, float* out, int n) {
  __shared__ float s[4];
  cg::grid_group grid = cg::this_grid();
  auto block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  float v = 0;
  for (int i = grid.thread_rank(); i < n; i += grid.num_threads()) v += in[i];
  v = cg::reduce(warp, v, cg::plus<float>());
  if (warp.thread_rank() == 0) s[warp.meta_group_rank()] = v;
  block.sync();
  if (block.thread_rank() == 0) part[grid.block_rank()] = s[0] + s[1] + s[2] + s[3];
  auto token = grid.barrier_arrive();
  float mine = grid.thread_rank() < n ? in[grid.thread_rank()] : 0;
  grid.barrier_wait(cuda::std::move(token));
  float total = 0;
  for (unsigned b = 0; b < grid.num_blocks(); ++b) total += part[b];
  if (grid.thread_rank() < n) out[grid.thread_rank()] = mine / total;
}
// Double buffering with memcpy_async and wait_prior.
KERNEL copy_ahead(const float* in, float* out, int tiles) {
  __shared__ alignas(16) float s[2][128];
  auto block = cg::this_thread_block();
  cg::memcpy_async(block, s[0], in, cuda::aligned_size_t<16>(512));
  float acc = 0;
  for (int t = 0; t < tiles; ++t) {
    if (t + 1 < tiles) {
      cg::memcpy_async(block, s[(t + 1) & 1], in + (t + 1) * 128, cuda::aligned_size_t<16>(512));
      cg::wait_prior<1>(block);
    } else {
      cg::wait(block);
    }
    acc += s[t & 1][127 - threadIdx.x] * (t + 1);
    block.sync();
  }
  out[threadIdx.x] = acc;
}
#if __CUDA_ARCH__ >= 900
// A cluster's histogram: each block owns a part of the bins.
KERNEL __cluster_dims__(4, 1, 1) cluster_histogram(const unsigned char* in, unsigned* out, int n) {
  __shared__ unsigned bins[64];
  auto cluster = cg::this_cluster();
  auto block = cg::this_thread_block();
  if (threadIdx.x < 64) bins[threadIdx.x] = 0;
  cluster.sync();
  for (int i = cluster.thread_rank(); i < n; i += cluster.num_threads()) {
    unsigned char v = in[i];
    unsigned* there = cluster.map_shared_rank(bins, v / 64);
    atomicAdd(there + v % 64, 1u);
  }
  cluster.sync();
  if (threadIdx.x < 64) atomicAdd(out + cluster.block_rank() * 64 + threadIdx.x, bins[threadIdx.x]);
}
// A reduction over a cluster by reading the neighbours' partial sums; the last barrier keeps them alive.
KERNEL __cluster_dims__(4, 1, 1) cluster_sum(const float* in, float* out) {
  __shared__ float part;
  auto cluster = cg::this_cluster();
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  float v = cg::reduce(warp, in[blockIdx.x * 32 + threadIdx.x], cg::plus<float>());
  if (threadIdx.x == 0) part = v;
  auto token = cluster.barrier_arrive();
  cluster.barrier_wait(cuda::std::move(token));
  if (cluster.block_rank() == 0 && threadIdx.x == 0) {
    float s = 0;
    for (unsigned r = 0; r < cluster.num_blocks(); ++r) s += *cluster.map_shared_rank(&part, r);
    out[blockIdx.x / 4] = s;
  }
  cluster.sync();
}
#endif
// One thread of those that are here; what it returns is everybody's.
KERNEL elected(const int* in, int* next, int* out, int* kept) {
  int v = in[blockIdx.x * blockDim.x + threadIdx.x];
  if (v & 1) {
    auto g = cg::coalesced_threads();
    int base = cg::invoke_one_broadcast(g, [&] { return atomicAdd(next, (int)g.size()); });
    out[base + g.thread_rank()] = v;
  } else {
    cg::invoke_one(cg::coalesced_threads(), [&] { atomicAdd(kept, 1); });
  }
}

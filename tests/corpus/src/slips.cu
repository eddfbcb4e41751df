// SPDX-License-Identifier: Apache-2.0
// Small kernels beside twins with one slip each.
#include <cooperative_groups.h>

#include "hopper.cuh"
namespace cg = cooperative_groups;
#define KERNEL extern "C" __global__ void

// Private bins in local memory, indexed by the data.
template <bool Right>
__device__ void private_bins(const unsigned char* in, unsigned* out, int per) {
  unsigned bins[16];
  if (Right)
    for (int i = 0; i < 16; ++i) bins[i] = 0;
  else
    bins[threadIdx.x & 15] = 0;
  const int t = blockIdx.x * blockDim.x + threadIdx.x;
  for (int i = 0; i < per; ++i) bins[in[t * per + i] & 15] += i + 1;
  for (int i = 0; i < 16; ++i) out[t * 16 + i] = bins[i];
}
KERNEL private_bins_good(const unsigned char* in, unsigned* out, int per) { private_bins<true>(in, out, per); }
KERNEL bins_half_cleared(const unsigned char* in, unsigned* out, int per) { private_bins<false>(in, out, per); }

// Sums per row into a buffer that only its first block clears.
KERNEL rows_added(const int* in, int* sums, int n) {
  if (blockIdx.x == 0 && threadIdx.x < gridDim.x - 1) sums[threadIdx.x] = 0;
  if (blockIdx.x == 0) return;
  const int s = __reduce_add_sync(~0u, in[(blockIdx.x - 1) * n + threadIdx.x]);
  if (threadIdx.x == 0) sums[blockIdx.x - 1] += s;
}

// 64-bit counters behind a 32-bit header.
KERNEL counters_behind_header(const int* in, unsigned* record) {
  unsigned long long* counters = reinterpret_cast<unsigned long long*>(record + 1);
  atomicAdd(counters + (in[threadIdx.x] & 3), 1ull << 33);
}

// Pairs of doubles, one pair a lane, from an odd place.
template <int From>
__device__ void pairs_of_doubles(const double* in, double* out) {
  const double2 v = *reinterpret_cast<const double2*>(in + From + 2 * threadIdx.x);
  out[threadIdx.x] = v.x * v.y;
}
KERNEL pairs_of_doubles_good(const double* in, double* out) { pairs_of_doubles<2>(in, out); }
KERNEL pairs_from_odd(const double* in, double* out) { pairs_of_doubles<1>(in, out); }

// Rounds until no thread has work; with the count asked by those that have some, only.
template <bool Right>
__device__ void rounds(const int* work, int* out) {
  int left = work[threadIdx.x], done = 0;
  if (Right) {
    while (__syncthreads_count(left > 0) > 0) {
      if (left > 0) --left, ++done;
    }
  } else {
    while (left > 0) {
      done += __syncthreads_count(left > 1) >= 0;
      --left;
    }
  }
  out[threadIdx.x] = done;
}
KERNEL rounds_good(const int* work, int* out) { rounds<true>(work, out); }
KERNEL rounds_of_some(const int* work, int* out) { rounds<false>(work, out); }

// Four flags in a byte each of one word, set by neighbouring threads.
template <bool Right>
__device__ void bytes_of_words(const int* in, unsigned* out) {
  __shared__ unsigned words[32];
  const int t = threadIdx.x;
  if (t < 32) words[t] = 0;
  __syncthreads();
  const unsigned bit = (in[t] & 0xffu) << t % 4 * 8;
  if (Right) atomicOr(&words[t / 4], bit);
  else words[t / 4] |= bit;
  __syncthreads();
  if (t < 32) out[t] = words[t];
}
KERNEL bytes_of_words_good(const int* in, unsigned* out) { bytes_of_words<true>(in, out); }
KERNEL bytes_lost(const int* in, unsigned* out) { bytes_of_words<false>(in, out); }

// The grid meets where the condition is the same for all, or is not.
template <bool Right>
__device__ void grid_in_branch(const int* in, int* mid, int* out) {
  auto grid = cg::this_grid();
  const int i = grid.thread_rank(), n = grid.size();
  mid[i] = in[i] + 1;
  if (Right ? gridDim.x > 1 : blockIdx.x > 0) grid.sync();
  out[i] = Right ? mid[(i + 37) % n] : mid[i];
}
KERNEL grid_in_branch_good(const int* in, int* mid, int* out) { grid_in_branch<true>(in, mid, out); }
KERNEL one_block_stays_away(const int* in, int* mid, int* out) { grid_in_branch<false>(in, mid, out); }

// A block of the heap is handed back once, or by two threads.
template <bool Right>
__device__ void handed_back(int* out) {
  __shared__ int* room;
  if (threadIdx.x == 0) room = (int*)malloc(64 * sizeof(int));
  __syncthreads();
  room[threadIdx.x] = threadIdx.x * 3;
  __syncthreads();
  out[threadIdx.x] = room[63 - threadIdx.x];
  __syncthreads();
  if (threadIdx.x == 0 || (!Right && threadIdx.x == 32)) free(room);
}
KERNEL handed_back_good(int* out) { handed_back<true>(out); }
KERNEL handed_back_twice(int* out) { handed_back<false>(out); }

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// Every block sends a row to its neighbour by st.async; the receiver waits for its bytes, or does not.
template <bool Right>
__device__ void sent_rows(const int* in, int* out) {
  __shared__ alignas(16) int row[64];
  __shared__ u64 bar;
  const int t = threadIdx.x, me = cluster_rank();
  if (t == 0) {
    mbar_init(&bar, 1);
    fence_init();
    mbar_expect(&bar, sizeof(row));
  }
  cluster_sync();
  ASM("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(mapa(smem(row + t), me ^ 1)), "r"(in[me * 64 + t]),
      "r"(mapa(smem(&bar), me ^ 1))
      : "memory");
  if (Right) mbar_wait(&bar, 0);
  out[me * 64 + t] = row[63 - t];
  if (!Right) mbar_wait(&bar, 0);
  cluster_sync();
}
KERNEL __cluster_dims__(2) sent_rows_good(const int* in, int* out) { sent_rows<true>(in, out); }
KERNEL __cluster_dims__(2) row_not_awaited(const int* in, int* out) { sent_rows<false>(in, out); }

// The barrier of a cluster, with the last block gone early.
template <bool Right>
__device__ void cluster_meets(const int* in, int* out) {
  __shared__ int sum;
  auto cluster = cg::this_cluster();
  const int s = __reduce_add_sync(~0u, in[blockIdx.x * 32 + threadIdx.x]);
  if (threadIdx.x == 0) sum = s;
  if (Right || cluster.block_rank() != 1) cluster.sync();
  if (threadIdx.x == 0 && cluster.block_rank() == 0) *out = sum + *cluster.map_shared_rank(&sum, Right ? 1 : 0);
  if (Right || cluster.block_rank() != 1) cluster.sync();
  else
    while (*(volatile int*)&sum == s) {
    }
}
KERNEL __cluster_dims__(2) cluster_meets_good(const int* in, int* out) { cluster_meets<true>(in, out); }
KERNEL __cluster_dims__(2) one_block_waits_elsewhere(const int* in, int* out) { cluster_meets<false>(in, out); }
#endif

// A table that the block has just written, read through the non-coherent cache.
template <bool Right>
__device__ void own_table(const int* in, int* table, int* out) {
  const int base = blockIdx.x * blockDim.x, t = threadIdx.x;
  table[base + t] = in[base + t] * 3;
  __syncthreads();
  const int* at = table + base + (blockDim.x - 1 - t);
  out[base + t] = Right ? *at : __ldg(at);
}
KERNEL own_table_good(const int* in, int* table, int* out) { own_table<true>(in, table, out); }
KERNEL own_table_by_ldg(const int* in, int* table, int* out) { own_table<false>(in, table, out); }

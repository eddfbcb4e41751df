// SPDX-License-Identifier: Apache-2.0
// CUB's block and warp primitives that the other files leave out.
#include <cub/cub.cuh>
#include <cub/block/block_shuffle.cuh>

extern "C" __global__ void loads_and_stores(const int* in, int* out, int n) {
  using Load = cub::BlockLoad<int, 96, 5, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
  using Scan = cub::BlockScan<int, 96, cub::BLOCK_SCAN_RAKING>;
  using Store = cub::BlockStore<int, 96, 5, cub::BLOCK_STORE_TRANSPOSE>;
  __shared__ union {
    typename Load::TempStorage load;
    typename Scan::TempStorage scan;
    typename Store::TempStorage store;
  } s;
  int v[5], total;
  Load(s.load).Load(in, v, n, -1);
  __syncthreads();
  Scan(s.scan).ExclusiveSum(v, v, total);
  for (int& x : v) x += total;
  __syncthreads();
  Store(s.store).Store(out, v, n);
}

struct IsHead {
  __device__ bool operator()(int a, int b) const { return a / 10 != b / 10; }
};
extern "C" __global__ void heads_and_differences(const int* in, int* heads, int* differences, int* turned) {
  using Flags = cub::BlockDiscontinuity<int, 64>;
  using Adjacent = cub::BlockAdjacentDifference<int, 64>;
  using Exchange = cub::BlockExchange<int, 64, 3>;
  __shared__ typename Flags::TempStorage f;
  __shared__ typename Adjacent::TempStorage a;
  __shared__ typename Exchange::TempStorage e;
  int v[3], flag[3], d[3];
  for (int k = 0; k < 3; ++k) v[k] = in[threadIdx.x * 3 + k];
  Flags(f).FlagHeads(flag, v, IsHead());
  Adjacent(a).SubtractLeft(v, d, [](int x, int y) { return x - y; });
  for (int k = 0; k < 3; ++k) heads[threadIdx.x * 3 + k] = flag[k], differences[threadIdx.x * 3 + k] = d[k];
  Exchange(e).BlockedToStriped(v);
  for (int k = 0; k < 3; ++k) turned[k * 64 + threadIdx.x] = v[k] * 2;
}

extern "C" __global__ void bins_and_ranks(const unsigned char* in, unsigned* bins, int* ranks) {
  using Histogram = cub::BlockHistogram<unsigned char, 128, 4, 32, cub::BLOCK_HISTO_SORT>;
  using Rank = cub::BlockRadixRankMatch<128, 5, false>;
  __shared__ typename Histogram::TempStorage h;
  __shared__ typename Rank::TempStorage r;
  __shared__ unsigned counts[32];
  unsigned char v[4];
  for (int k = 0; k < 4; ++k) v[k] = in[threadIdx.x * 4 + k];
  Histogram(h).Histogram(v, counts);
  __syncthreads();
  if (threadIdx.x < 32) bins[threadIdx.x] = counts[threadIdx.x];
  unsigned keys[4];
  int rank[4];
  for (int k = 0; k < 4; ++k) keys[k] = in[(threadIdx.x / 32) * 128 + k * 32 + threadIdx.x % 32];
  Rank(r).RankKeys(keys, rank, cub::BFEDigitExtractor<unsigned>(0, 5));
  for (int k = 0; k < 4; ++k) ranks[(threadIdx.x / 32) * 128 + k * 32 + threadIdx.x % 32] = rank[k];
}

extern "C" __global__ void warps_of_cub(const int* in, const unsigned char* flags, int* sums, int* sorted, int* far) {
  using Reduce = cub::WarpReduce<int, 16>;
  using Sort = cub::WarpMergeSort<int, 4, 32>;
  using Shuffle = cub::BlockShuffle<int, 64>;
  __shared__ typename Reduce::TempStorage r[4];
  __shared__ typename Sort::TempStorage s[2];
  __shared__ typename Shuffle::TempStorage f;
  const int t = threadIdx.x;
  sums[t] = t % 16 == 0 || flags[t] ? 1 : 0;
  const int sum = Reduce(r[t / 16]).HeadSegmentedSum(in[t * 4], t % 16 == 0 || flags[t]);
  sums[t] = sums[t] ? sum : -1;
  int v[4];
  for (int k = 0; k < 4; ++k) v[k] = in[t * 4 + k];
  Sort(s[t / 32]).Sort(v, [](int a, int b) { return a < b; });
  for (int k = 0; k < 4; ++k) sorted[t * 4 + k] = v[k];
  int o = -7;
  Shuffle(f).Offset(v[0], o, -3);
  far[t] = o;
}

template <bool kSync>
__device__ void twice(const int* in, int* out) {
  using Reduce = cub::BlockReduce<int, 96>;
  __shared__ typename Reduce::TempStorage s;
  __shared__ int all;
  const int v = in[blockIdx.x * 96 + threadIdx.x];
  const int sum = Reduce(s).Sum(v);
  if (kSync) __syncthreads();
  const int top = Reduce(s).Reduce(v, [](int a, int b) { return a > b ? a : b; });
  if (threadIdx.x == 0) all = sum * 1000 + top;
  __syncthreads();
  out[blockIdx.x * 96 + threadIdx.x] = all - v;
}
extern "C" __global__ void reduced_twice_good(const int* in, int* out) { twice<true>(in, out); }
extern "C" __global__ void reduced_twice_at_once(const int* in, int* out) { twice<false>(in, out); }

// SPDX-License-Identifier: Apache-2.0
// CUB's block and warp primitives and its decoupled look-back, in kernels of our own.
#include <cub/block/block_adjacent_difference.cuh>
#include <cub/block/block_discontinuity.cuh>
#include <cub/block/block_exchange.cuh>
#include <cub/block/block_histogram.cuh>
#include <cub/block/block_load.cuh>
#include <cub/block/block_merge_sort.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>
#include <cub/warp/warp_merge_sort.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>
#include <cub/agent/single_pass_scan_operators.cuh>
#define KERNEL extern "C" __global__ void

KERNEL cub_radix_sort(const int* in, int* keys, int* places) {
  using Load = cub::BlockLoad<int, 64, 4, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
  using Sort = cub::BlockRadixSort<int, 64, 4, int>;
  __shared__ union {
    typename Load::TempStorage load;
    typename Sort::TempStorage sort;
  } s;
  int k[4], v[4];
  Load(s.load).Load(in + blockIdx.x * 256, k);
  __syncthreads();
  for (int i = 0; i < 4; ++i) v[i] = threadIdx.x * 4 + i;
  Sort(s.sort).SortBlockedToStriped(k, v);
  cub::StoreDirectStriped<64>(threadIdx.x, keys + blockIdx.x * 256, k);
  cub::StoreDirectStriped<64>(threadIdx.x, places + blockIdx.x * 256, v);
}
struct Less {
  __device__ bool operator()(double a, double b) const { return a < b; }
};
KERNEL cub_merge_sort(const double* in, double* out, int valid) {
  using Sort = cub::BlockMergeSort<double, 128, 3>;
  __shared__ typename Sort::TempStorage s;
  double k[3];
  cub::LoadDirectBlocked(threadIdx.x, in, k, valid, 1e300);
  Sort(s).Sort(k, Less());
  cub::StoreDirectBlocked(threadIdx.x, out, k, valid);
}
KERNEL cub_block_mix(const int* in, int* out, int* summary) {
  using Scan = cub::BlockScan<int, 128, cub::BLOCK_SCAN_RAKING>;
  using Reduce = cub::BlockReduce<int, 128, cub::BLOCK_REDUCE_WARP_REDUCTIONS>;
  using Discontinuity = cub::BlockDiscontinuity<int, 128>;
  using Histogram = cub::BlockHistogram<unsigned char, 128, 2, 64, cub::BLOCK_HISTO_SORT>;
  using Exchange = cub::BlockExchange<int, 128, 2>;
  __shared__ union {
    typename Scan::TempStorage scan;
    typename Reduce::TempStorage reduce;
    typename Discontinuity::TempStorage heads;
    typename Histogram::TempStorage histogram;
    typename Exchange::TempStorage exchange;
  } s;
  __shared__ int bins[64];
  int v[2] = {in[threadIdx.x * 2], in[threadIdx.x * 2 + 1]}, sum[2], total, flags[2];
  Scan(s.scan).ExclusiveSum(v, sum, total);
  __syncthreads();
  int most = Reduce(s.reduce).Reduce(v, cuda::maximum<>{});
  __syncthreads();
  Discontinuity(s.heads).FlagHeads(flags, v, cuda::std::not_equal_to<>{});
  __syncthreads();
  unsigned char small[2] = {(unsigned char)(v[0] & 63), (unsigned char)(v[1] & 63)};
  Histogram(s.histogram).Histogram(small, bins);
  __syncthreads();
  Exchange(s.exchange).BlockedToStriped(v);
  for (int i = 0; i < 2; ++i) {
    out[threadIdx.x * 2 + i] = sum[i] * 2 + flags[i];
    out[256 + i * 128 + threadIdx.x] = v[i];
  }
  if (threadIdx.x == 0) summary[0] = most;
  if (threadIdx.x == 127) summary[1] = total;
  if (threadIdx.x < 64) summary[2 + threadIdx.x] = bins[threadIdx.x];
}
KERNEL cub_warps(const float* in, float* out, int* sorted) {
  using Reduce = cub::WarpReduce<float, 16>;
  using Scan = cub::WarpScan<int>;
  using Sort = cub::WarpMergeSort<int, 2, 32>;
  __shared__ typename Reduce::TempStorage r[8];
  __shared__ typename Scan::TempStorage c[4];
  __shared__ typename Sort::TempStorage m[4];
  int t = threadIdx.x, w = t / 32;
  float x = in[t];
  float head = Reduce(r[t / 16]).HeadSegmentedSum(x, t % 16 == 0 || x > 6);
  int incl, excl;
  Scan(c[w]).Scan((int)x, incl, excl, 0, cuda::std::plus<>{});
  out[t] = head;
  int k[2] = {(int)(x * 8), incl};
  Sort(m[w]).Sort(k, [](int a, int b) { return a < b; });
  sorted[2 * t] = k[0];
  sorted[2 * t + 1] = k[1];
  out[128 + t] = excl;
}
// CUB's own look-back machinery: tile states, back-off and all.
using State = cub::ScanTileState<int>;
KERNEL cub_lookback_init(void* status, int tiles) {
  State s;
  s.Init(tiles, status, 0);
  s.InitializeStatus(tiles);
}
KERNEL cub_lookback(const int* in, int* out, void* status, int tiles) {
  using Scan = cub::BlockScan<int, 128>;
  using Prefix = cub::TilePrefixCallbackOp<int, cuda::std::plus<>, State>;
  __shared__ union {
    typename Scan::TempStorage scan;
    typename Prefix::TempStorage prefix;
  } s;
  __shared__ typename Prefix::TempStorage ps;
  State state;
  state.Init(tiles, status, 0);
  int tile = blockIdx.x, v = in[tile * 128 + threadIdx.x], sum;
  if (tile == 0) {
    int total;
    Scan(s.scan).InclusiveSum(v, sum, total);
    if (threadIdx.x == 0) state.SetInclusive(0, total);
  } else {
    Prefix prefix(state, ps, cuda::std::plus<>{}, tile);
    Scan(s.scan).InclusiveSum(v, sum, prefix);
  }
  out[tile * 128 + threadIdx.x] = sum;
}

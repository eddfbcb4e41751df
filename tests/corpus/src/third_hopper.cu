// SPDX-License-Identifier: Apache-2.0
// Hopper by cuda::ptx and by hand: rings of bulk copies, tensor copies of four dimensions, sums stored by the copy engine, clusters,
// attention with wgmma, products of fp8 in flight; and slips in them.
#include <cooperative_groups.h>
#include <cuda/ptx>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include "hopper.cuh"
namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;
struct CUtensorMap_st;

// A ring of four stages between one thread that loads and all that add.
extern "C" __global__ void bulk_ptx_ring(const int* in, int* out, int tiles) {
  __shared__ alignas(128) int stage[4][128];
  __shared__ uint64_t full[4], empty[4];
  if (threadIdx.x == 0)
    for (int i = 0; i < 4; ++i) ptx::mbarrier_init(&full[i], 1), ptx::mbarrier_init(&empty[i], 4);
  ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
  __syncthreads();
  if (threadIdx.x >= 128) {
    if (threadIdx.x == 128)
      for (int k = 0; k < tiles; ++k) {
        while (!ptx::mbarrier_try_wait_parity(&empty[k % 4], (k / 4 & 1) ^ 1)) {}
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[k % 4], 512);
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, stage[k % 4], in + (blockIdx.x * tiles + k) * 128, 512, &full[k % 4]);
      }
    return;
  }
  int sum = 0;
  for (int k = 0; k < tiles; ++k) {
    while (!ptx::mbarrier_try_wait_parity(&full[k % 4], k / 4 & 1)) {}
    sum = sum * 2 + stage[k % 4][threadIdx.x ^ 64] - stage[k % 4][threadIdx.x];
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&empty[k % 4]);
  }
  out[blockIdx.x * 128 + threadIdx.x] = sum;
}

// Tiles of all blocks are added to one place of a matrix by the copy engine.
template <bool kFence>
__device__ void added_tiles(const CUtensorMap_st* map, const float* in) {
  __shared__ alignas(128) float tile[16][32];
  for (int i = threadIdx.x; i < 512; i += blockDim.x) tile[i / 32][i % 32] = in[blockIdx.x * 512 + i] * 2;
  if (kFence) fence_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    ASM("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(int(blockIdx.x % 2) * 8),
        "r"(int(blockIdx.x / 2) * 4), "r"(smem(tile))
        : "memory");
    bulk_commit();
    bulk_wait();
  }
}
struct alignas(64) Map {
  char bytes[128];
};
struct Loose {
  char bytes[128];
};
extern "C" __global__ void map_anywhere(const __grid_constant__ Loose map, const float* in) { added_tiles<true>((const CUtensorMap_st*)&map, in); }
extern "C" __global__ void added_tiles_good(const __grid_constant__ Map map, const float* in) { added_tiles<true>((const CUtensorMap_st*)&map, in); }
extern "C" __global__ void added_tiles_no_fence(const __grid_constant__ Map map, const float* in) { added_tiles<false>((const CUtensorMap_st*)&map, in); }

// A depth-wise filter of 3 by 3 on images n, h, w, c: the copy brings the halo, zeros outside.
extern "C" __global__ void filtered(const __grid_constant__ Map map, const float* weight, float* out, int h, int w) {
  __shared__ alignas(128) float tile[1][6][10][8];
  __shared__ uint64_t full;
  const int x0 = blockIdx.x * 8, y0 = blockIdx.y * 4, n = blockIdx.z;
  if (threadIdx.x == 0) {
    mbar_init((u64*)&full, 1);
    fence_init();
    mbar_expect((u64*)&full, sizeof(tile));
    ASM("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(smem(tile)), "l"(&map),
        "r"(0), "r"(x0 - 1), "r"(y0 - 1), "r"(n), "r"(smem(&full))
        : "memory");
  }
  __syncthreads();
  mbar_wait((u64*)&full, 0);
  for (int i = threadIdx.x; i < 4 * 8 * 8; i += blockDim.x) {
    const int c = i % 8, x = i / 8 % 8, y = i / 64;
    float sum = 0;
    for (int dy = 0; dy < 3; ++dy)
      for (int dx = 0; dx < 3; ++dx) sum += tile[0][y + dy][x + dx][c] * weight[(dy * 3 + dx) * 8 + c];
    if (y0 + y < h && x0 + x < w) out[((n * h + y0 + y) * w + x0 + x) * 8 + c] = sum;
  }
}

// Partial sums go to the first block of a cluster, whose wait is apart from its arrival.
template <bool kStay>
__device__ void cluster_total(const int* in, int* out) {
  __shared__ int part[8], mine[32];
  auto cluster = cg::this_cluster();
  int v = in[blockIdx.x * 32 + threadIdx.x];
  mine[threadIdx.x] = v * v;
  v = __reduce_add_sync(~0u, v);
  if (threadIdx.x == 0) *cluster.map_shared_rank(&part[cluster.block_rank()], 0) = v;
  auto token = cluster.barrier_arrive();
  const int later = in[blockIdx.x * 32 + 31 - threadIdx.x] * 10;
  cluster.barrier_wait(std::move(token));
  const unsigned next = (cluster.block_rank() + 1) % cluster.num_blocks();
  int sum = cluster.map_shared_rank(mine, next)[threadIdx.x];
  if (cluster.block_rank() == 0)
    for (int i = 0; i < cluster.num_blocks(); ++i) sum += part[i] * 1000;
  out[blockIdx.x * 32 + threadIdx.x] = sum + later;
  if (kStay) cluster.sync();
}
extern "C" __global__ void __cluster_dims__(4) cluster_total_good(const int* in, int* out) { cluster_total<true>(in, out); }
extern "C" __global__ void __cluster_dims__(4) cluster_left_early(const int* in, int* out) { cluster_total<false>(in, out); }

// Every block of the cluster gets all blocks' rows, by copies from shared memory to shared memory around a ring.
extern "C" __global__ void __cluster_dims__(4) all_gather(const int* in, int* out) {
  __shared__ alignas(128) int rows[4][64];
  __shared__ u64 arrived[4];
  const unsigned me = cluster_rank(), next = (me + 1) % 4;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 4; ++i) {
      mbar_init(&arrived[i], 1);
      if (i != me) mbar_expect(&arrived[i], 256);
    }
    fence_init();
  }
  rows[me][threadIdx.x] = in[blockIdx.x * 64 + threadIdx.x] + me;
  fence_async();
  cluster_sync();
  if (threadIdx.x == 0)
    for (int s = 0; s < 3; ++s) {
      const int row = (me + 4 - s) % 4;
      if (s) mbar_wait(&arrived[row], 0);
      ASM("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(mapa(smem(rows[row]), next)),
          "r"(smem(rows[row])), "r"(mapa(smem(&arrived[row]), next))
          : "memory");
    }
  int sum = 0;
  for (int i = 0; i < 4; ++i) {
    if (i != me) mbar_wait(&arrived[i], 0);
    sum = sum * 5 + rows[i][63 - threadIdx.x];
  }
  out[blockIdx.x * 64 + threadIdx.x] = sum;
  cluster_sync();
}

// Rows, 8 by 8 blocks of 16-byte rows behind each other: K-major operands without swizzle.
__device__ int core(int row, int col, int rows) { return (col / 8) * rows * 8 + (row / 8) * 64 + row % 8 * 8 + col % 8; }
__device__ void mma_64x64x16(float (&d)[32], u64 a, u64 b, int keep) {
  ASM("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %32, %33, p, 1, 1, 0, 0;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
        "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),
        "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b), "r"(keep));
}
__device__ void mma_64x64x16_ra(float (&d)[32], const unsigned* a, u64 b) {
  ASM("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, {%32,%33,%34,%35}, %36, 1, 1, 1, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
        "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),
        "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ void pin(float (&d)[32]) {
  for (float& x : d) ASM("" : "+f"(x)::"memory");
}
// 64 queries of a warpgroup over tiles of 64 keys: probabilities stay in registers as the second product's A.
// kSlip: 0 right, 1 no fence behind the tile's stores, 2 sums read before their wait, 3 the next keys stored under the second product.
template <int kSlip>
__device__ void attend(const __nv_bfloat16* q, const __nv_bfloat16* k, const __nv_bfloat16* v, float* out, int keys) {
  __shared__ alignas(128) __nv_bfloat16 sq[64 * 64], sk[64 * 64], sv[64 * 64];
  const int t = threadIdx.x;
  for (int i = t; i < 64 * 64; i += 128) sq[core(i / 64, i % 64, 64)] = q[i];
  float o[32], s[32], top[2] = {-1e30f, -1e30f}, sum[2] = {0, 0};
  for (float& x : o) x = 0;
  const u64 dq = descriptor(sq, 1024, 128, 0), dk = descriptor(sk, 1024, 128, 0), dv = descriptor(sv, 1024, 128, 0);
  for (int k0 = 0; k0 < keys; k0 += 64) {
    for (int i = t; i < 64 * 64; i += 128) {
      sk[core(i / 64, i % 64, 64)] = k[k0 * 64 + i];
      sv[core(i % 64, i / 64, 64)] = v[k0 * 64 + i];
    }
    if (kSlip != 1) fence_async();
    __syncthreads();
    pin(s);
    wgmma_fence();
    for (int j = 0; j < 4; ++j) mma_64x64x16(s, dq + j * 128, dk + j * 128, j > 0);
    wgmma_commit();
    if (kSlip != 2) wgmma_wait();
    pin(s);
    unsigned p[16];
    for (int r = 0; r < 2; ++r) {
      float m = top[r];
      for (int j = 0; j < 32; ++j)
        if (j / 2 % 2 == r) m = fmaxf(m, s[j] * 0.125f);
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
      const float scale = __expf(top[r] - m);
      top[r] = m;
      sum[r] *= scale;
      for (int j = 0; j < 32; ++j)
        if (j / 2 % 2 == r) {
          s[j] = __expf(s[j] * 0.125f - m);
          sum[r] += s[j];
          o[j] *= scale;
        }
    }
    if (kSlip == 2) wgmma_wait();
    for (int j = 0; j < 16; ++j) {
      __nv_bfloat162 two = __floats2bfloat162_rn(s[2 * j], s[2 * j + 1]);
      p[j] = *reinterpret_cast<unsigned*>(&two);
    }
    pin(o);
    wgmma_fence();
    for (int j = 0; j < 4; ++j) mma_64x64x16_ra(o, p + 4 * j, dv + j * 128);
    wgmma_commit();
    if (kSlip != 3) wgmma_wait();
    pin(o);
    __syncthreads();
    if (kSlip == 3) {
      sv[t] = v[t];
      wgmma_wait();
      __syncthreads();
    }
  }
  for (int r = 0; r < 2; ++r) {
    sum[r] += __shfl_xor_sync(~0u, sum[r], 1);
    sum[r] += __shfl_xor_sync(~0u, sum[r], 2);
  }
  const int row = t / 32 * 16 + t % 32 / 4, col = t % 4 * 2;
  for (int j = 0; j < 32; ++j) out[(row + j / 2 % 2 * 8) * 64 + j / 4 * 8 + col + j % 2] = o[j] / sum[j / 2 % 2];
}
#define ATTEND(name, slip)                                                                                                              \
  extern "C" __global__ void __launch_bounds__(128) name(const __nv_bfloat16* q, const __nv_bfloat16* k, const __nv_bfloat16* v, float* out, int keys) { \
    attend<slip>(q, k, v, out, keys);                                                                                                    \
  }
ATTEND(attend_good, 0)
ATTEND(attend_no_fence, 1)
ATTEND(attend_sums_early, 2)
ATTEND(attend_values_under_product, 3)

// fp8: the product of one step is in flight while the next step's operands are brought.
extern "C" __global__ void __launch_bounds__(128) fp8_in_flight(const unsigned char* a, const unsigned char* b, float* out, int k) {
  __shared__ alignas(128) unsigned char sa[2][64 * 32], sb[2][8 * 32];
  float d[4] = {0, 0, 0, 0};
  auto bring = [&](int s) {
    for (int i = threadIdx.x; i < 64 * 32; i += 128) {
      const int r = i / 32, c = i % 32;
      sa[s & 1][c / 16 * 1024 + r / 8 * 128 + r % 8 * 16 + c % 16] = a[r * k + s * 32 + c];
    }
    for (int i = threadIdx.x; i < 8 * 32; i += 128) {
      const int r = i / 32, c = i % 32;
      sb[s & 1][c / 16 * 128 + r * 16 + c % 16] = b[r * k + s * 32 + c];
    }
    fence_async();
    __syncthreads();
  };
  bring(0);
  const int steps = k / 32;
  for (int s = 0; s < steps; ++s) {
    wgmma_fence();
    ASM("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%0,%1,%2,%3}, %4, %5, 1, 1, 1;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "l"(descriptor(sa[s & 1], 1024, 128, 0)), "l"(descriptor(sb[s & 1], 128, 128, 0)));
    wgmma_commit();
    ASM("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    __syncthreads();
    if (s + 1 < steps) bring(s + 1);
  }
  ASM("wgmma.wait_group.sync.aligned 0;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])::"memory");
  const int t = threadIdx.x, row = t / 32 * 16 + t % 32 / 4, col = t % 4 * 2;
  for (int j = 0; j < 4; ++j) out[(row + j / 2 * 8) * 8 + col + j % 2] = d[j];
}

// Matrices go through stmatrix into one of two buffers and out by the copy engine; one store may be under way.
template <int kLeft>
__device__ void written_back(const __nv_bfloat16* in, const CUtensorMap_st* map, int tiles) {
  __shared__ alignas(128) __nv_bfloat16 tile[2][16 * 16];
  const int lane = threadIdx.x;
  for (int k = 0; k < tiles; ++k) {
    if (lane == 0) ASM("cp.async.bulk.wait_group.read %0;" ::"n"(kLeft) : "memory");
    __syncwarp();
    unsigned r[4];
    for (int j = 0; j < 4; ++j) {
      const int row = lane / 4 + j % 2 * 8, col = lane % 4 * 2 + j / 2 * 8;
      const unsigned two = *reinterpret_cast<const unsigned*>(in + (k * 16 + row) * 16 + col);
      r[j] = two >> 16 | two << 16;
    }
    const unsigned to = smem(&tile[k & 1][(lane % 16) * 16 + lane / 16 * 8]);
    ASM("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
    fence_async();
    __syncwarp();
    if (lane == 0) {
      tma_store2(map, 0, k * 16, tile[k & 1]);
      bulk_commit();
    }
  }
  if (lane == 0) bulk_wait();
}
extern "C" __global__ void written_back_good(const __nv_bfloat16* in, const __grid_constant__ Map map, int tiles) {
  written_back<1>(in, (const CUtensorMap_st*)&map, tiles);
}
extern "C" __global__ void written_back_two_left(const __nv_bfloat16* in, const __grid_constant__ Map map, int tiles) {
  written_back<2>(in, (const CUtensorMap_st*)&map, tiles);
}

// Words sent to the next block of the cluster, which counts their bytes.
template <bool kWait>
__device__ void sent_on(const int* in, int* out) {
  __shared__ int box[32];
  __shared__ u64 arrived;
  const unsigned next = (cluster_rank() + 1) % 2;
  if (threadIdx.x == 0) {
    mbar_init(&arrived, 1);
    mbar_expect(&arrived, 128);
    fence_init();
  }
  cluster_sync();
  ASM("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(mapa(smem(&box[threadIdx.x]), next)),
      "r"(in[blockIdx.x * 32 + threadIdx.x] * 3), "r"(mapa(smem(&arrived), next))
      : "memory");
  if (kWait) mbar_wait(&arrived, 0);
  else cluster_sync();
  out[blockIdx.x * 32 + threadIdx.x] = box[31 - threadIdx.x];
  cluster_sync();
}
extern "C" __global__ void __cluster_dims__(2) sent_on_good(const int* in, int* out) { sent_on<true>(in, out); }
extern "C" __global__ void __cluster_dims__(2) sent_on_no_wait(const int* in, int* out) { sent_on<false>(in, out); }

// A halo exchange in a cluster with flags of one scope too few: the peer block is outside of a block's scope.
template <bool kCluster>
__device__ void told_by_flag(const int* in, int* out) {
  __shared__ int word[32], flag;
  if (threadIdx.x == 0) flag = 0;
  cluster_sync();
  const unsigned peer = cluster_rank() ^ 1, to = mapa(smem(&word[threadIdx.x]), peer), there = mapa(smem(&flag), peer);
  ASM("st.shared::cluster.u32 [%0], %1;" ::"r"(to), "r"(in[blockIdx.x * 32 + threadIdx.x] + 5) : "memory");
  __syncwarp();
  if (threadIdx.x == 0) {
    if (kCluster) ASM("st.release.cluster.shared::cluster.u32 [%0], 1;" ::"r"(there) : "memory");
    else ASM("st.release.cta.shared::cluster.u32 [%0], 1;" ::"r"(there) : "memory");
    unsigned seen = 0;
    while (!seen) ASM("ld.acquire.cluster.shared::cta.u32 %0, [%1];" : "=r"(seen) : "r"(smem(&flag)) : "memory");
  }
  __syncwarp();
  out[blockIdx.x * 32 + threadIdx.x] = word[31 - threadIdx.x];
  cluster_sync();
}
extern "C" __global__ void __cluster_dims__(2) told_by_flag_good(const int* in, int* out) { told_by_flag<true>(in, out); }
extern "C" __global__ void __cluster_dims__(2) told_within_block(const int* in, int* out) { told_by_flag<false>(in, out); }

// SPDX-License-Identifier: Apache-2.0
// Attention by cp.async and mma.sync, and kernels of sm_90a and sm_100a: rings, clusters, ping-pong, reductions in bulk.
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cuda/barrier>
#include <cuda/ptx>

#include "hopper.cuh"
namespace cg = cooperative_groups;
#define KERNEL extern "C" __global__ void

__device__ __forceinline__ void mma16816(float* d, const unsigned* a, unsigned b0, unsigned b1) {
  ASM("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void ldmatrix4(unsigned* r, const void* p) {
  ASM("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(smem(p)) : "memory");
}
__device__ __forceinline__ void ldmatrix4_trans(unsigned* r, const void* p) {
  ASM("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(smem(p)) : "memory");
}
__device__ __forceinline__ unsigned pack(float a, float b) {
  const __nv_bfloat162 v = __floats2bfloat162_rn(a, b);
  return *reinterpret_cast<const unsigned*>(&v);
}
__device__ __forceinline__ void copy16(void* to, const void* from, bool valid) {
  ASM("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem(to)), "l"(from), "r"(valid ? 16 : 0) : "memory");
}

// Causal attention, head of 32, 64 rows a block, 16 keys a step, keys and values two stages deep.
template <bool Right>
__device__ void flash(const __nv_bfloat16* q, const __nv_bfloat16* k, const __nv_bfloat16* v, float* o, int keys, float scale) {
  constexpr int P = 40;  // pitch: no bank conflicts for ldmatrix
  __shared__ __align__(16) __nv_bfloat16 qs[64 * P], ks[2][16 * P], vs[2][16 * P];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32, row0 = blockIdx.x * 64;
  const auto load = [&](int step) {
    const int r = t % 64 / 4, c = t % 4 * 8, key = step * 16 + r;
    const auto* from = t < 64 ? k : v;
    auto* to = t < 64 ? ks[step & 1] : vs[step & 1];
    copy16(to + r * P + c, from + (key < keys ? key : 0) * 32 + c, key < keys);
  };
  for (int i = t; i < 256; i += 128) copy16(qs + i / 4 * P + i % 4 * 8, q + (row0 + i / 4) * 32 + i % 4 * 8, true);
  load(0);
  ASM("cp.async.commit_group;" ::: "memory");
  const int last = min((keys + 15) / 16, (row0 + 63) / 16 + 1);
  float acc[4][4] = {}, high[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
  unsigned qa[2][4];
  for (int step = 0; step < last; ++step) {
    if (step + 1 < last) {
      load(step + 1);
      ASM("cp.async.commit_group;" ::: "memory");
      ASM("cp.async.wait_group 1;" ::: "memory");
    } else if (Right) {
      ASM("cp.async.wait_group 0;" ::: "memory");
    } else {
      ASM("cp.async.wait_group 1;" ::: "memory");
    }
    __syncthreads();
    if (step == 0)
      for (int c = 0; c < 2; ++c) ldmatrix4(qa[c], qs + (warp * 16 + lane % 16) * P + c * 16 + lane / 16 * 8);
    float s[2][4] = {};
    for (int c = 0; c < 2; ++c) {
      unsigned b[4];
      ldmatrix4(b, ks[step & 1] + (lane % 8 + lane / 16 * 8) * P + c * 16 + lane / 8 % 2 * 8);
      mma16816(s[0], qa[c], b[0], b[1]);
      mma16816(s[1], qa[c], b[2], b[3]);
    }
    const int row = row0 + warp * 16 + lane / 4;
    for (int h = 0; h < 2; ++h) {
      float m = high[h];
      for (int j = 0; j < 2; ++j)
        for (int e = 0; e < 2; ++e) {
          const int key = step * 16 + j * 8 + lane % 4 * 2 + e;
          float& x = s[j][h * 2 + e];
          x = key <= row + h * 8 && key < keys ? x * scale : -INFINITY;
          m = fmaxf(m, x);
        }
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
      const float base = m == -INFINITY ? 0.f : m, keep = exp2f(high[h] - base);
      high[h] = m;
      sum[h] *= keep;
      for (int j = 0; j < 2; ++j)
        for (int e = 0; e < 2; ++e) sum[h] += s[j][h * 2 + e] = exp2f(s[j][h * 2 + e] - base);
      for (int j = 0; j < 4; ++j) acc[j][h * 2] *= keep, acc[j][h * 2 + 1] *= keep;
    }
    const unsigned pa[4] = {pack(s[0][0], s[0][1]), pack(s[0][2], s[0][3]), pack(s[1][0], s[1][1]), pack(s[1][2], s[1][3])};
    for (int c = 0; c < 2; ++c) {
      unsigned b[4];
      ldmatrix4_trans(b, vs[step & 1] + (lane % 16) * P + c * 16 + lane / 16 * 8);
      mma16816(acc[c * 2], pa, b[0], b[1]);
      mma16816(acc[c * 2 + 1], pa, b[2], b[3]);
    }
    __syncthreads();
  }
  for (int h = 0; h < 2; ++h) {
    sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
    sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
    const float by = 1.f / sum[h];
    for (int j = 0; j < 4; ++j)
      *reinterpret_cast<float2*>(o + (row0 + warp * 16 + lane / 4 + h * 8) * 32 + j * 8 + lane % 4 * 2) = make_float2(acc[j][h * 2] * by, acc[j][h * 2 + 1] * by);
  }
}
#if __CUDA_ARCH__ == 800
KERNEL flash_good(const __nv_bfloat16* q, const __nv_bfloat16* k, const __nv_bfloat16* v, float* o, int keys, float scale) { flash<true>(q, k, v, o, keys, scale); }
KERNEL flash_last_step(const __nv_bfloat16* q, const __nv_bfloat16* k, const __nv_bfloat16* v, float* o, int keys, float scale) {
  flash<false>(q, k, v, o, keys, scale);
}
#endif

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// Two warpgroups take tiles in turn; each multiplies while the other stores. 64 x 64 x 64 steps, three stages.
enum class Flaw { None, EarlyRelease, NoProxyFence };
__device__ __forceinline__ void wgmma64(float (&d)[32], u64 a, u64 b) {
  ASM("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,"
      "%26,%27,%28,%29,%30,%31}, %32, %33, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]),
        "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]),
        "+f"(d[31])
      : "l"(a), "l"(b));
}
struct alignas(64) Map { char bytes[128]; };
template <Flaw F>
__device__ __forceinline__ void pingpong(const void* ma, const void* mb, const void* mc, int tiles_m, int tiles, int steps) {
  extern __shared__ __align__(1024) unsigned char room[];
  __shared__ u64 full[3], empty[3];
  const int group = threadIdx.x / 128;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 3; ++i) mbar_init(full + i, 1), mbar_init(empty + i, 1);
    fence_init();
  }
  __syncthreads();
  if (group == 0) {
    ASM("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) {
      for (int i = 0; i < tiles * steps; ++i) {
        const int s = i % 3, tile = i / steps, k = i % steps * 64;
        if (i >= 3) mbar_wait(empty + s, (i / 3 - 1) & 1);
        mbar_expect(full + s, 16384);
        tma_load2(room + s * 16384, ma, k, tile % tiles_m * 64, full + s);
        tma_load2(room + s * 16384 + 8192, mb, k, tile / tiles_m * 64, full + s);
      }
    }
  } else {
    ASM("setmaxnreg.inc.sync.aligned.u32 224;");
    const int me = group - 1, t = threadIdx.x % 128, warp = t / 32, lane = t % 32;
    unsigned char* out = room + 3 * 16384 + me * 8192;
    if (me == 1) ASM("bar.arrive 2, 256;" ::: "memory");
    for (int tile = me; tile < tiles; tile += 2) {
      float d[32] = {};
      ASM("bar.sync %0, 256;" ::"r"(2 + me) : "memory");
      for (int k = 0; k < steps; ++k) {
        const int i = tile * steps + k, s = i % 3;
        mbar_wait(full + s, i / 3 & 1);
        wgmma_fence();
        for (int j = 0; j < 4; ++j)
          wgmma64(d, descriptor(room + s * 16384 + j * 32, 16, 1024, 1), descriptor(room + s * 16384 + 8192 + j * 32, 16, 1024, 1));
        wgmma_commit();
        if (F == Flaw::EarlyRelease && t == 0) mbar_arrive(empty + s);
        wgmma_wait();
        if (F != Flaw::EarlyRelease && t == 0) mbar_arrive(empty + s);
      }
      if (tile + 1 < tiles) ASM("bar.arrive %0, 256;" ::"r"(3 - me) : "memory");
      if (t == 0) ASM("cp.async.bulk.wait_group.read 0;" ::: "memory");
      ASM("bar.sync %0, 128;" ::"r"(4 + me) : "memory");
      for (int j = 0; j < 8; j += 2) {
        const unsigned to = smem(out + ((warp * 16 + lane % 16) * 64 + j * 8 + lane / 16 * 8) * 2);
        ASM("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(pack(d[j * 4], d[j * 4 + 1])), "r"(pack(d[j * 4 + 2], d[j * 4 + 3])),
            "r"(pack(d[j * 4 + 4], d[j * 4 + 5])), "r"(pack(d[j * 4 + 6], d[j * 4 + 7]))
            : "memory");
      }
      if (F != Flaw::NoProxyFence) ASM("fence.proxy.async.shared::cta;" ::: "memory");
      ASM("bar.sync %0, 128;" ::"r"(4 + me) : "memory");
      if (t == 0) {
        tma_store2(mc, tile / tiles_m * 64, tile % tiles_m * 64, out);
        bulk_commit();
      }
    }
    if (t == 0) bulk_wait();
  }
}
#define PINGPONG(name, flaw)                                                                                                               \
  KERNEL __launch_bounds__(384, 1) name(const __grid_constant__ Map ma, const __grid_constant__ Map mb, const __grid_constant__ Map mc,    \
                                        int tiles_m, int tiles, int steps) {                                                               \
    pingpong<flaw>(&ma, &mb, &mc, tiles_m, tiles, steps);                                                                                  \
  }
PINGPONG(pingpong_good, Flaw::None)
PINGPONG(released_before_wait, Flaw::EarlyRelease)
PINGPONG(stored_without_fence, Flaw::NoProxyFence)

// A cluster divides the depth of a product; each block then adds up a quarter of everybody's part.
template <bool Right>
__device__ void cluster_depth(const float* a, const float* b, float* c, int depth) {
  __shared__ float part[256];
  auto cluster = cg::this_cluster();
  const int r = cluster.block_rank(), n = cluster.num_blocks(), t = threadIdx.x;
  float s = 0;
  for (int k = r * depth / n; k < (r + 1) * depth / n; ++k) s += a[(blockIdx.x / n * 16 + t / 16) * depth + k] * b[k * 16 + t % 16];
  part[t] = s;
  if (Right) cluster.sync();
  else __syncthreads();
  if (t < 256 / n) {
    const int e = r * (256 / n) + t;
    float sum = 0;
    for (int o = 0; o < n; ++o) sum += *cluster.map_shared_rank(&part[e], (r + o) % n);
    c[blockIdx.x / n * 256 + e] = sum;
  }
  cluster.sync();
}
KERNEL __cluster_dims__(4) cluster_depth_good(const float* a, const float* b, float* c, int depth) { cluster_depth<true>(a, b, c, depth); }
KERNEL __cluster_dims__(4) block_barrier_only(const float* a, const float* b, float* c, int depth) { cluster_depth<false>(a, b, c, depth); }

// Bitonic sort over a cluster: a block holds 128 keys; far exchanges go through the neighbour's memory.
KERNEL __cluster_dims__(4) cluster_bitonic(int* data) {
  __shared__ int keys[2][128];
  auto cluster = cg::this_cluster();
  const int r = cluster.block_rank(), t = threadIdx.x, g = r * 128 + t, base = blockIdx.x / 4 * 512;
  int mine = data[base + g], side = 0;
  for (int k = 2; k <= 512; k *= 2)
    for (int j = k / 2; j > 0; j /= 2) {
      int other;
      if (j < 32) {
        other = __shfl_xor_sync(~0u, mine, j);
      } else {
        keys[side][t] = mine;
        cluster.sync();
        other = *cluster.map_shared_rank(&keys[side][t ^ (j & 127)], r ^ (j / 128));
        side ^= 1;
      }
      const bool up = (g & k) == 0, lower = (g & j) == 0;
      mine = up == lower ? min(mine, other) : max(mine, other);
    }
  data[base + g] = mine;
  cluster.sync();
}

// Four stages by cuda::ptx: one thread loads, three warps work in place, the last to finish stores.
template <bool Right>
__device__ void ring_of_four(const int* in, int* out, int rounds) {
  namespace ptx = cuda::ptx;
  __shared__ alignas(128) int stage[4][96];
  __shared__ uint64_t full[4], empty[4];
  const int t = threadIdx.x;
  if (t == 0) {
    for (int i = 0; i < 4; ++i) ptx::mbarrier_init(&full[i], 1), ptx::mbarrier_init(&empty[i], 3);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
  }
  __syncthreads();
  if (t >= 96) {
    if (t == 96)
      for (int i = 0; i < rounds; ++i) {
        if (i >= 4) {
          while (!ptx::mbarrier_try_wait_parity(&empty[i % 4], (i / 4 - 1) & 1)) {
          }
          ptx::fence_proxy_async(ptx::space_shared);
          ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out + (i - 4) * 96, stage[i % 4], 384);
          ptx::cp_async_bulk_commit_group();
          ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
        }
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[i % 4], 384);
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, stage[i % 4], in + i * 96, 384, &full[i % 4]);
      }
    if (t == 96) {
      for (int i = max(0, rounds - 4); i < rounds; ++i) {
        while (!ptx::mbarrier_try_wait_parity(&empty[i % 4], (i / 4) & 1)) {
        }
        ptx::fence_proxy_async(ptx::space_shared);
        ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out + i * 96, stage[i % 4], 384);
        ptx::cp_async_bulk_commit_group();
      }
      ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
    }
  } else {
    for (int i = 0; i < rounds; ++i) {
      while (!ptx::mbarrier_try_wait_parity(&full[i % 4], (i / 4) & 1)) {
      }
      const int v = stage[i % 4][t];
      stage[i % 4][t] = v * v - __shfl_xor_sync(~0u, v, 5);
      ptx::fence_proxy_async(ptx::space_shared);
      __syncwarp();
      if (t % 32 == 0 && (Right || i + 1 < rounds)) ptx::mbarrier_arrive(&empty[i % 4]);
    }
  }
}
KERNEL ring_of_four_good(const int* in, int* out, int rounds) { ring_of_four<true>(in, out, rounds); }
KERNEL last_stage_kept(const int* in, int* out, int rounds) { ring_of_four<false>(in, out, rounds); }

// Depthwise 3 x 3 on NHWC with a halo: the box starts outside of the tensor, which reads as zero.
KERNEL halo(const __grid_constant__ Map map, const float* w, float* y, int height, int width) {
  __shared__ alignas(128) float box[6][10][8];
  __shared__ u64 bar;
  if (threadIdx.x == 0) mbar_init(&bar, 1), fence_init();
  __syncthreads();
  const int y0 = blockIdx.y * 4, x0 = blockIdx.x * 8;
  if (threadIdx.x == 0) {
    mbar_expect(&bar, sizeof(box));
    ASM("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(smem(box)), "l"(&map),
        "r"(0), "r"(x0 - 1), "r"(y0 - 1), "r"(blockIdx.z), "r"(smem(&bar))
        : "memory");
  }
  mbar_wait(&bar, 0);
  for (int i = threadIdx.x; i < 256; i += blockDim.x) {
    const int c = i % 8, px = i / 8 % 8, py = i / 64;
    float s = 0;
    for (int dy = 0; dy < 3; ++dy)
      for (int dx = 0; dx < 3; ++dx) s += box[py + dy][px + dx][c] * w[(dy * 3 + dx) * 8 + c];
    if (x0 + px < width && y0 + py < height) y[((blockIdx.z * height + y0 + py) * width + x0 + px) * 8 + c] = s;
  }
}

// Bins and extremes leave the block by reductions in bulk, from two buffers in turn.
template <bool Right>
__device__ void bulk_bins(const unsigned char* in, int n, unsigned* bins, float* sums, unsigned* low) {
  __shared__ alignas(16) unsigned count[2][32];
  __shared__ alignas(16) float weight[2][32];
  const int t = threadIdx.x;
  int side = 0;
  for (int base = blockIdx.x * 256; base < n; base += gridDim.x * 256, side ^= 1) {
    if (t == 0 && Right) ASM("cp.async.bulk.wait_group.read 1;" ::: "memory");
    if (t == 0 && !Right) ASM("cp.async.bulk.wait_group.read 3;" ::: "memory");
    __syncthreads();
    if (t < 32) count[side][t] = 0, weight[side][t] = 0.f;
    __syncthreads();
    for (int i = base + t; i < min(base + 256, n); i += blockDim.x) {
      atomicAdd(&count[side][in[i] & 31], 1u);
      atomicAdd(&weight[side][in[i] & 31], 0.25f * in[i]);
    }
    fence_async();
    __syncthreads();
    if (t == 0) {
      ASM("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], 128;" ::"l"(bins), "r"(smem(count[side])) : "memory");
      ASM("cp.reduce.async.bulk.global.shared::cta.bulk_group.min.u32 [%0], [%1], 128;" ::"l"(low), "r"(smem(count[side])) : "memory");
      ASM("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], 128;" ::"l"(sums), "r"(smem(weight[side])) : "memory");
      bulk_commit();
    }
  }
  if (t == 0) bulk_wait();
}
KERNEL bulk_bins_good(const unsigned char* in, int n, unsigned* bins, float* sums, unsigned* low) { bulk_bins<true>(in, n, bins, sums, low); }
KERNEL bins_cleared_early(const unsigned char* in, int n, unsigned* bins, float* sums, unsigned* low) { bulk_bins<false>(in, n, bins, sums, low); }

// Two blocks share what each loads half of; a stage is free when the readers of both blocks say so.
template <bool Right>
__device__ void shared_halves(const int* in, int* out, int rounds) {
  __shared__ alignas(128) int stage[2][128];
  __shared__ u64 full[2], empty[2];
  const int t = threadIdx.x, me = cluster_rank();
  if (t == 0) {
    for (int i = 0; i < 2; ++i) mbar_init(full + i, 1), mbar_init(empty + i, Right ? 2 : 1);
    fence_init();
  }
  cluster_sync();
  if (t == 128) {
    for (int i = 0; i < rounds; ++i) {
      const int s = i % 2;
      if (i >= 2) mbar_wait(empty + s, (i / 2 - 1) & 1);
      mbar_expect(full + s, 512);
      ASM("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], 256, [%2], %3;" ::"r"(smem(&stage[s][me * 64])),
          "l"(in + i * 128 + me * 64), "r"(smem(full + s)), "h"((short)3)
          : "memory");
    }
  } else if (t < 128) {
    int sum = 0;
    for (int i = 0; i < rounds; ++i) {
      const int s = i % 2;
      mbar_wait(full + s, i / 2 & 1);
      sum += stage[s][(t * 5 + me) % 128] * (i + 1);
      ASM("bar.sync 1, 128;" ::: "memory");
      if (t < (Right ? 2 : 1))
        ASM("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(mapa(smem(empty + s), Right ? t : me)) : "memory");
    }
    out[blockIdx.x * 128 + t] = sum;
  }
  cluster_sync();
}
KERNEL __cluster_dims__(2) shared_halves_good(const int* in, int* out, int rounds) { shared_halves<true>(in, out, rounds); }
KERNEL __cluster_dims__(2) own_readers_only(const int* in, int* out, int rounds) { shared_halves<false>(in, out, rounds); }
#endif

#if defined(__CUDA_ARCH_FEAT_SM100_ALL)
// Pairs of floats in one instruction, 32-byte loads and stores.
KERNEL pairs(const float* x, const float* y, float* out, int n) {
  const int i = (blockIdx.x * blockDim.x + threadIdx.x) * 8;
  if (i >= n) return;
  u64 a[4], b[4], r[4];
  ASM("ld.global.nc.v4.b64 {%0,%1,%2,%3}, [%4];" : "=l"(a[0]), "=l"(a[1]), "=l"(a[2]), "=l"(a[3]) : "l"(x + i));
  ASM("ld.global.v8.b32 {%0,%1,%2,%3,%4,%5,%6,%7}, [%8];"
      : "=r"(((unsigned*)b)[0]), "=r"(((unsigned*)b)[1]), "=r"(((unsigned*)b)[2]), "=r"(((unsigned*)b)[3]), "=r"(((unsigned*)b)[4]), "=r"(((unsigned*)b)[5]),
        "=r"(((unsigned*)b)[6]), "=r"(((unsigned*)b)[7])
      : "l"(y + i));
  for (int k = 0; k < 4; ++k) {
    u64 s, p;
    ASM("add.rn.f32x2 %0, %1, %2;" : "=l"(s) : "l"(a[k]), "l"(b[k]));
    ASM("mul.rn.f32x2 %0, %1, %2;" : "=l"(p) : "l"(a[k]), "l"(s));
    ASM("fma.rn.f32x2 %0, %1, %2, %3;" : "=l"(r[k]) : "l"(p), "l"(b[k]), "l"(s));
  }
  float top;
  ASM("redux.sync.max.abs.NaN.f32 %0, %1, 0xffffffff;" : "=f"(top) : "f"(__uint_as_float((unsigned)r[0])));
  if (threadIdx.x == 0) out[n + blockIdx.x] = top;
  ASM("st.global.v4.b64 [%0], {%1,%2,%3,%4};" ::"l"(out + i), "l"(r[0]), "l"(r[1]), "l"(r[2]), "l"(r[3]) : "memory");
}
#endif

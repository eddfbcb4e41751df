// SPDX-License-Identifier: Apache-2.0
// Factorisations, solvers, searches and scans as application code has them; some with a twin that has one thing wrong.
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#include <cuda/atomic>
namespace cg = cooperative_groups;
#define KERNEL extern "C" __global__ void

// A block factors an n x n matrix, right-looking, in shared memory with a padded pitch.
template <bool Right>
__device__ void cholesky(const float* a, float* l, int n) {
  extern __shared__ float m[];
  const int pitch = n + 1;
  for (int i = threadIdx.x; i < n * n; i += blockDim.x) m[i / n * pitch + i % n] = a[i];
  __syncthreads();
  for (int k = 0; k < n; ++k) {
    const float pivot = sqrtf(m[k * pitch + k]);
    __syncthreads();
    for (int i = k + threadIdx.x; i < n; i += blockDim.x) m[i * pitch + k] = i == k ? pivot : m[i * pitch + k] / pivot;
    if (Right) __syncthreads();
    const int rest = n - k - 1;
    for (int e = threadIdx.x; e < rest * rest; e += blockDim.x) {
      const int i = k + 1 + e / rest, j = k + 1 + e % rest;
      if (j <= i) m[i * pitch + j] -= m[i * pitch + k] * m[j * pitch + k];
    }
    __syncthreads();
  }
  for (int i = threadIdx.x; i < n * n; i += blockDim.x) l[i] = i % n <= i / n ? m[i / n * pitch + i % n] : 0.f;
}
KERNEL cholesky_good(const float* a, float* l, int n) { cholesky<true>(a, l, n); }
KERNEL trailing_too_soon(const float* a, float* l, int n) { cholesky<false>(a, l, n); }

// Householder QR: a warp per column for the dot products, R is left in place.
__device__ float warp_sum(float v) {
  for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(~0u, v, d);
  return v;
}
KERNEL __launch_bounds__(128) householder(const float* a, float* r, int rows, int cols) {
  __shared__ float m[48 * 17], v[48], beta;
  for (int i = threadIdx.x; i < rows * cols; i += blockDim.x) m[i / cols * 17 + i % cols] = a[i];
  __syncthreads();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int k = 0; k < cols; ++k) {
    if (warp == 0) {
      float s = 0;
      for (int i = k + lane; i < rows; i += 32) s += m[i * 17 + k] * m[i * 17 + k];
      s = warp_sum(s);
      const float head = m[k * 17 + k], norm = head > 0 ? -sqrtf(s) : sqrtf(s);
      for (int i = k + lane; i < rows; i += 32) v[i] = i == k ? head - norm : m[i * 17 + k];
      if (lane == 0) beta = 2.f / (s - head * head + (head - norm) * (head - norm));
    }
    __syncthreads();
    for (int j = k + warp; j < cols; j += 4) {
      float dot = 0;
      for (int i = k + lane; i < rows; i += 32) dot += v[i] * m[i * 17 + j];
      dot = warp_sum(dot) * beta;
      for (int i = k + lane; i < rows; i += 32) m[i * 17 + j] -= dot * v[i];
    }
    __syncthreads();
  }
  for (int i = threadIdx.x; i < cols * cols; i += blockDim.x) r[i] = i % cols >= i / cols ? m[i / cols * 17 + i % cols] : 0.f;
}

// Triangular solve without levels: a warp per row waits for the rows it needs.
template <bool Right>
__device__ void triangular(const int* ptr, const int* col, const int* val, const int* b, int* x, int* ready, int n) {
  const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= n) return;
  int sum = 0;
  for (int i = ptr[row] + lane; i < ptr[row + 1]; i += 32) {
    const int c = col[i];
    while (*(volatile int*)&ready[c] == 0) {
    }
    __threadfence();
    sum += val[i] * x[c];
  }
  sum = __reduce_add_sync(~0u, sum);
  if (lane == 0) {
    x[row] = b[row] - sum;
    if (Right) __threadfence();
    *(volatile int*)&ready[row] = 1;
  }
}
KERNEL triangular_good(const int* ptr, const int* col, const int* val, const int* b, int* x, int* ready, int n) {
  triangular<true>(ptr, col, val, b, x, ready, n);
}
KERNEL triangular_no_fence(const int* ptr, const int* col, const int* val, const int* b, int* x, int* ready, int n) {
  triangular<false>(ptr, col, val, b, x, ready, n);
}

// Local alignment: each block owns 32 columns; its last column goes to the next block, 16 rows at a time.
template <bool Right>
__device__ void align(const char* s, const char* t, int rows, int* border, int* done, int* best) {
  __shared__ int left[17], out_column[16];
  const int j = threadIdx.x, c = blockIdx.x * 32 + j;
  const char mine = t[c];
  int top = 0, high = 0;
  for (int chunk = 0; chunk < rows / 16; ++chunk) {
    if (blockIdx.x > 0) {
      if (j == 0) {
        while (atomicAdd(&done[blockIdx.x - 1], 0) <= chunk) __nanosleep(20);
        __threadfence();
      }
      if (Right) __syncwarp();
    }
    int corner = 0;
    if (j <= 16) left[j] = blockIdx.x == 0 ? 0 : chunk == 0 && j == 0 ? 0 : border[(blockIdx.x - 1) * (rows + 1) + chunk * 16 + j];
    __syncwarp();
    // lane j works on row d - j of the chunk
    int here = top, diagonal_up = 0;
    corner = __shfl_up_sync(~0u, top, 1);
    if (j == 0) corner = left[0];
    for (int d = 0; d < 16 + 31; ++d) {
      const int r = d - j;
      int from_left = __shfl_up_sync(~0u, here, 1);
      if (r >= 0 && r < 16) {
        if (j == 0) from_left = left[r + 1];
        diagonal_up = corner;
        corner = from_left;
        int score = diagonal_up + (s[chunk * 16 + r] == mine ? 3 : -2);
        score = max(max(score, from_left - 1), max(here - 1, 0));
        here = score;
        high = max(high, score);
        if (j == 31) out_column[r] = score;
      }
    }
    top = here;
    __syncwarp();
    if (j < 16) border[blockIdx.x * (rows + 1) + chunk * 16 + j + 1] = out_column[j];
    __threadfence();
    __syncwarp();
    if (j == 0) atomicExch(&done[blockIdx.x], chunk + 1);
  }
  high = __reduce_max_sync(~0u, high);
  if (j == 0) atomicMax(best, high);
}
KERNEL align_good(const char* s, const char* t, int rows, int* border, int* done, int* best) { align<true>(s, t, rows, border, done, best); }
KERNEL others_run_ahead(const char* s, const char* t, int rows, int* border, int* done, int* best) { align<false>(s, t, rows, border, done, best); }

// Shortest paths: relax every edge until no distance changes; three flags so that clearing never meets setting.
template <bool Right>
__device__ void bellman(const int* from, const int* to, const int* weight, int edges, int* dist, int* changed) {
  auto grid = cg::this_grid();
  for (int round = 0;; ++round) {
    int* flag = Right ? changed + round % 3 : changed;
    for (int e = grid.thread_rank(); e < edges; e += grid.size()) {
      const int d = *(volatile int*)&dist[from[e]];
      if (d != 0x7fffffff && atomicMin(&dist[to[e]], d + weight[e]) > d + weight[e]) *(volatile int*)flag = 1;
    }
    if (Right && grid.thread_rank() == 0) changed[(round + 1) % 3] = 0;
    grid.sync();
    const bool again = *flag != 0;
    if (!Right && grid.thread_rank() == 0) *flag = 0;
    if (!again) break;
  }
}
KERNEL bellman_good(const int* from, const int* to, const int* weight, int edges, int* dist, int* changed) {
  bellman<true>(from, to, weight, edges, dist, changed);
}
KERNEL one_flag(const int* from, const int* to, const int* weight, int edges, int* dist, int* changed) {
  bellman<false>(from, to, weight, edges, dist, changed);
}

// Stream-K: the k-steps of all tiles are dealt out evenly; who ends a tile without having begun it hands its part over.
template <cuda::thread_scope Scope>
__device__ void stream_k(const int* a, const int* b, int* c, int tiles_n, int tiles, int steps, int* parts, int* flags) {
  __shared__ int as[16][17], bs[16][17];
  const int x = threadIdx.x, y = threadIdx.y, n = tiles_n * 16, k = steps * 16;
  const int all = tiles * steps, per = (all + gridDim.x - 1) / gridDim.x;
  int at = blockIdx.x * per;
  const int end = min(at + per, all);
  while (at < end) {
    const int tile = at / steps, first = at % steps, last = min(steps, first + end - at);
    const int row = tile / tiles_n * 16, column = tile % tiles_n * 16;
    int sum = 0;
    for (int s = first; s < last; ++s) {
      as[y][x] = a[(row + y) * k + s * 16 + x];
      bs[y][x] = b[(s * 16 + y) * n + column + x];
      __syncthreads();
      for (int i = 0; i < 16; ++i) sum += as[y][i] * bs[i][x];
      __syncthreads();
    }
    if (first > 0) {
      parts[blockIdx.x * 256 + y * 16 + x] = sum;
      __syncthreads();
      if (x == 0 && y == 0) cuda::atomic_ref<int, Scope>(flags[blockIdx.x]).store(1, cuda::memory_order_release);
    } else {
      for (int done = last, other = blockIdx.x + 1; done < steps; done += per, ++other) {
        if (x == 0 && y == 0)
          while (cuda::atomic_ref<int, cuda::thread_scope_device>(flags[other]).load(cuda::memory_order_acquire) == 0) {
          }
        __syncthreads();
        sum += parts[other * 256 + y * 16 + x];
      }
      c[(row + y) * n + column + x] = sum;
    }
    at += last - first;
  }
}
KERNEL stream_k_good(const int* a, const int* b, int* c, int tiles_n, int tiles, int steps, int* parts, int* flags) {
  stream_k<cuda::thread_scope_device>(a, b, c, tiles_n, tiles, steps, parts, flags);
}
KERNEL handed_to_the_block(const int* a, const int* b, int* c, int tiles_n, int tiles, int steps, int* parts, int* flags) {
  stream_k<cuda::thread_scope_block>(a, b, c, tiles_n, tiles, steps, parts, flags);
}

// Queens: a thread per placement of the first two; the rest by a stack of its own.
template <int Depth>
__device__ void queens(int n, unsigned* count) {
  const int id = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned found = 0;
  if (id < n * n) {
    const unsigned full = (1u << n) - 1, q0 = 1u << id / n, q1 = 1u << id % n;
    if (!(q1 & (q0 | q0 << 1 | q0 >> 1))) {
      uint4 stack[Depth];  // columns, both diagonals, places still open
      int level = 0;
      const auto push = [&](unsigned c, unsigned l, unsigned r) { stack[level] = make_uint4(c, l, r, full & ~(c | l | r)); };
      push(q0 | q1, (q0 << 1 | q1) << 1, (q0 >> 1 | q1) >> 1);
      while (level >= 0) {
        const uint4 at = stack[level];
        if (at.x == full) {
          ++found;
          --level;
        } else if (at.w == 0) {
          --level;
        } else {
          const unsigned q = at.w & -at.w;
          stack[level].w = at.w ^ q;
          ++level;
          push(at.x | q, (at.y | q) << 1, (at.z | q) >> 1);
        }
      }
    }
  }
  found = __reduce_add_sync(~0u, found);
  if (threadIdx.x % 32 == 0 && found) atomicAdd(count, found);
}
KERNEL queens_good(int n, unsigned* count) { queens<8>(n, count); }
KERNEL stack_too_shallow(int n, unsigned* count) { queens<4>(n, count); }

// A four-state machine over a text: functions of states, four nibbles in a word, are composed by a scan.
__device__ unsigned compose(unsigned first, unsigned then) { return __byte_perm(then, 0, first & 0xf | (first >> 4 & 0xf0) | (first >> 8 & 0xf00) | (first >> 12 & 0xf000)); }
template <bool Right>
__device__ void machine(const unsigned char* text, const unsigned* table, unsigned char* states, int n) {
  __shared__ unsigned totals[4];
  const int i = blockIdx.x * 128 + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  unsigned f = i < n ? table[text[i] & 3] : 0x03020100u;
  for (int d = 1; d < 32; d *= 2) {
    const unsigned before = __shfl_up_sync(~0u, f, d);
    if (lane >= d) f = compose(before, f);
  }
  if (lane == 31) totals[warp] = f;
  __syncthreads();
  if (threadIdx.x < 4) {
    unsigned g = totals[threadIdx.x];
    const unsigned mask = Right ? 0xfu : ~0u;
    for (int d = 1; d < 4; d *= 2) {
      const unsigned before = __shfl_up_sync(mask, g, d);
      if (threadIdx.x >= d) g = compose(before, g);
    }
    totals[threadIdx.x] = g;
  }
  __syncthreads();
  if (warp > 0) f = compose(totals[warp - 1], f);
  if (i < n) states[i] = f & 0xff;
}
KERNEL machine_good(const unsigned char* text, const unsigned* table, unsigned char* states, int n) { machine<true>(text, table, states, n); }
KERNEL whole_warp_of_four(const unsigned char* text, const unsigned* table, unsigned char* states, int n) { machine<false>(text, table, states, n); }

// Conway's rule on 32 cells a word, neighbours by funnel shifts and shuffles; a warp per row of 1024.
template <bool Right>
__device__ void life(const unsigned* in, unsigned* out, int rows) {
  const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  unsigned sum1 = 0, sum2 = 0, sum4 = 0, middle = 0;
  for (int dy = -1; dy <= 1; ++dy) {
    const int y = Right ? (row + dy + rows) % rows : row + dy;
    const unsigned w = in[y * 32 + lane];
    const unsigned before = __shfl_sync(~0u, w, lane + 31), behind = __shfl_sync(~0u, w, lane + 1);
    const unsigned l = __funnelshift_l(before, w, 1), r = __funnelshift_r(w, behind, 1);
    if (dy == 0) middle = w;
    for (int k = 0; k < 3; ++k) {
      if (k == 1 && dy == 0) continue;
      const unsigned v = k == 0 ? l : k == 1 ? w : r;
      const unsigned c1 = sum1 & v;
      sum1 ^= v;
      const unsigned c2 = sum2 & c1;
      sum2 ^= c1;
      sum4 |= c2;
    }
  }
  out[row * 32 + lane] = ~sum4 & sum2 & (sum1 | middle);
}
KERNEL life_good(const unsigned* in, unsigned* out, int rows) { life<true>(in, out, rows); }
KERNEL life_no_wrap(const unsigned* in, unsigned* out, int rows) { life<false>(in, out, rows); }

// Routing to experts: two best of E per token, places by a histogram and a scan, tokens listed by expert.
template <bool Right>
__device__ void route(const float* logits, int tokens, int* experts, int* places, int* starts) {
  __shared__ int count[16], start[17], next[16];
  const int warp = threadIdx.x / 16, lane = threadIdx.x % 16;  // half a warp for a token
  auto half = cg::tiled_partition<16>(cg::this_thread_block());
  if (Right && threadIdx.x < 16) count[threadIdx.x] = 0;
  __syncthreads();
  for (int t = warp; t < tokens; t += blockDim.x / 16) {
    float v = logits[t * 16 + lane];
    for (int k = 0; k < 2; ++k) {
      float high = v;
      int at = lane;
      for (int d = 8; d; d /= 2) {
        const float other = half.shfl_xor(high, d);
        const int whose = half.shfl_xor(at, d);
        if (other > high || (other == high && whose < at)) high = other, at = whose;
      }
      if (lane == 0) {
        experts[t * 2 + k] = at;
        atomicAdd(&count[at], 1);
      }
      if (lane == at) v = -INFINITY;
    }
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    int c = threadIdx.x < 16 ? count[threadIdx.x] : 0, s = c;
    for (int d = 1; d < 16; d *= 2) {
      const int o = __shfl_up_sync(~0u, s, d);
      if (threadIdx.x >= d) s += o;
    }
    if (threadIdx.x < 16) start[threadIdx.x + 1] = s, next[threadIdx.x] = s - c;
    if (threadIdx.x == 0) start[0] = 0;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < tokens * 2; i += blockDim.x) places[atomicAdd(&next[experts[i]], 1)] = i;
  if (threadIdx.x < 17) starts[threadIdx.x] = start[threadIdx.x];
}
KERNEL route_good(const float* logits, int tokens, int* experts, int* places, int* starts) { route<true>(logits, tokens, experts, places, starts); }
KERNEL experts_not_cleared(const float* logits, int tokens, int* experts, int* places, int* starts) { route<false>(logits, tokens, experts, places, starts); }

// y = W x with 4-bit weights, eight to a word, a scale and a zero per group of 64; 16-byte loads.
__device__ __forceinline__ __half2 halves(unsigned v) { return *reinterpret_cast<__half2*>(&v); }
KERNEL quantised(const unsigned* w, const __half* scales, const __half* x, float* y, int k, int pitch) {
  extern __shared__ __align__(16) __half xs[];
  for (int i = threadIdx.x; i < k / 8; i += blockDim.x) reinterpret_cast<uint4*>(xs)[i] = reinterpret_cast<const uint4*>(x)[i];
  __syncthreads();
  const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  float sum = 0;
  for (int c = lane * 32; c < k; c += 1024) {
    const uint4 packed = __ldg(reinterpret_cast<const uint4*>(w + row * pitch + c / 8));
    const unsigned words[4] = {packed.x, packed.y, packed.z, packed.w};
    const float scale = __half2float(__ldg(scales + row * (k / 64) + c / 64));
    float part = 0;
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      __half2 acc = __float2half2_rn(0.f);
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        unsigned v;
        asm("lop3.b32 %0, %1, 0x000f000f, 0x64006400, 0xea;" : "=r"(v) : "r"(words[q] >> (4 * s)));
        const __half2 d = __hsub2(halves(v), __float2half2_rn(1032.f));
        const __half2 xx = __halves2half2(xs[c + q * 8 + s], xs[c + q * 8 + s + 4]);
        acc = __hfma2(d, xx, acc);
      }
      part += __low2float(acc) + __high2float(acc);
    }
    sum += part * scale;
  }
  sum = warp_sum(sum);
  if (lane == 0) y[row] = sum;
}

// RMS norm, then rotary positions on pairs, bf16 in and out; a block per token.
KERNEL rotary(const __nv_bfloat16* x, const __nv_bfloat16* g, __nv_bfloat16* y, int n, float eps) {
  __shared__ float sums[4];
  __shared__ float scale;
  const __nv_bfloat162* row = reinterpret_cast<const __nv_bfloat162*>(x + (size_t)blockIdx.x * n);
  float s = 0;
  for (int i = threadIdx.x; i < n / 2; i += blockDim.x) {
    const float2 v = __bfloat1622float2(row[i]);
    s = fmaf(v.x, v.x, fmaf(v.y, v.y, s));
  }
  s = warp_sum(s);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = s;
  if (__syncthreads_or(0)) return;
  if (threadIdx.x < 32) {
    s = threadIdx.x < blockDim.x / 32 ? sums[threadIdx.x] : 0.f;
    s = warp_sum(s);
    if (threadIdx.x == 0) scale = rsqrtf(s / n + eps);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < n / 2; i += blockDim.x) {
    const float2 v = __bfloat1622float2(row[i]), gain = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162*>(g)[i]);
    float sn, cs;
    sincosf(blockIdx.x * exp2f(-13.287712f * (2 * i) / n), &sn, &cs);
    const float a = v.x * scale * gain.x, b = v.y * scale * gain.y;
    reinterpret_cast<__nv_bfloat162*>(y + (size_t)blockIdx.x * n)[i] = __floats2bfloat162_rn(a * cs - b * sn, a * sn + b * cs);
  }
}

// Numbers of 1 to 5 bytes (7 bits each, high bit: more follows), a byte per lane, ends found by a vote.
KERNEL varint(const unsigned char* bytes, int n, unsigned* numbers, int* count) {
  __shared__ int base;
  const unsigned lane = threadIdx.x;
  if (lane == 0) base = 0;
  __syncwarp();
  for (int at = 0; at < n;) {
    const int i = at + lane;
    const unsigned char byte = i < n ? bytes[i] : 0x80;
    const unsigned ends = __ballot_sync(~0u, !(byte & 0x80));
    if (ends == 0) break;
    if (!(byte & 0x80)) {
      const unsigned before = ends & ((1u << lane) - 1);
      const int begin = before ? 32 - __clz(before) : 0;
      unsigned v = 0;
      for (int b = lane; b >= begin; --b) v = v << 7 | (bytes[at + b] & 0x7f);
      numbers[base + __popc(before)] = v;
    }
    __syncwarp();
    if (lane == 0) base += __popc(ends);
    __syncwarp();
    at += 32 - __clz(ends);
  }
  if (lane == 0) *count = base;
}

// Rows become columns: count, scan by one warp with carries, scatter, then each short row sorts itself.
KERNEL transpose_count(const int* col, int nnz, int* counts) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < nnz; i += gridDim.x * blockDim.x) atomicAdd(counts + col[i], 1);
}
KERNEL transpose_scan(int* counts, int* ptr, int n) {
  int carry = 0;
  for (int base = 0; base < n; base += 32) {
    const int i = base + threadIdx.x;
    int v = i < n ? counts[i] : 0, s = v;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int o = __shfl_up_sync(~0u, s, d);
      s += threadIdx.x >= d ? o : 0;
    }
    if (i < n) ptr[i] = counts[i] = carry + s - v;
    carry += __shfl_sync(~0u, s, 31);
  }
  if (threadIdx.x == 0) ptr[n] = carry;
}
KERNEL transpose_scatter(const int* ptr, const int* col, const int* val, int rows, int* next, int* t_row, int* t_val) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  for (int i = ptr[row]; i < ptr[row + 1]; ++i) {
    const int at = atomicAdd(next + col[i], 1);
    t_row[at] = row;
    t_val[at] = val[i];
  }
}
KERNEL transpose_order(const int* t_ptr, int n, int* t_row, int* t_val) {
  const int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= n) return;
  for (int i = t_ptr[c] + 1; i < t_ptr[c + 1]; ++i) {
    const int r = t_row[i], v = t_val[i];
    int j = i - 1;
    for (; j >= t_ptr[c] && t_row[j] > r; --j) t_row[j + 1] = t_row[j], t_val[j + 1] = t_val[j];
    t_row[j + 1] = r, t_val[j + 1] = v;
  }
}

// One round of k-means in two dimensions: sums per block in shared memory, then to global memory.
template <bool Right>
__device__ void kmeans(const float2* p, int n, const float2* centres, int k, float* sums, int* counts) {
  __shared__ float2 c[8];
  __shared__ float s[8][2];
  __shared__ int m[8];
  for (int i = threadIdx.x; i < k; i += blockDim.x) c[i] = centres[i], s[i][0] = s[i][1] = 0.f, m[i] = 0;
  if (Right) __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    if (!Right) __syncthreads();
    const float2 v = p[i];
    float best = 3.4e38f;
    int at = 0;
    for (int j = 0; j < k; ++j) {
      const float dx = v.x - c[j].x, dy = v.y - c[j].y, d = dx * dx + dy * dy;
      if (d < best) best = d, at = j;
    }
    atomicAdd(&s[at][0], v.x);
    atomicAdd(&s[at][1], v.y);
    atomicAdd(&m[at], 1);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 2 * k; i += blockDim.x) atomicAdd(sums + i, s[i / 2][i % 2]);
  for (int i = threadIdx.x; i < k; i += blockDim.x) atomicAdd(counts + i, m[i]);
}
KERNEL kmeans_good(const float2* p, int n, const float2* centres, int k, float* sums, int* counts) { kmeans<true>(p, n, centres, k, sums, counts); }
KERNEL barrier_per_point(const float2* p, int n, const float2* centres, int k, float* sums, int* counts) { kmeans<false>(p, n, centres, k, sums, counts); }

// 3x3 convolution, NHWC, as a matrix product whose rows are gathered: 16 pixels x 16 output channels a warp.
KERNEL gathered(const __half* x, const __half* w, float* y, int height, int width) {
  using namespace nvcuda;
  __shared__ __align__(32) __half rows[4][16 * 24];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, pixel0 = (blockIdx.x * 4 + warp) * 16;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc;
  wmma::fill_fragment(acc, 0.f);
  for (int tap = 0; tap < 9; ++tap) {
    const int pixel = pixel0 + lane / 2, py = pixel / width + tap / 3 - 1, px = pixel % width + tap % 3 - 1;
    const bool in = py >= 0 && py < height && px >= 0 && px < width;
    uint4 v = make_uint4(0, 0, 0, 0);
    if (in) v = *reinterpret_cast<const uint4*>(x + (py * width + px) * 16 + lane % 2 * 8);
    __syncwarp();
    *reinterpret_cast<uint4*>(&rows[warp][lane / 2 * 24 + lane % 2 * 8]) = v;
    __syncwarp();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> fb;
    wmma::load_matrix_sync(fa, rows[warp], 24);
    wmma::load_matrix_sync(fb, w + tap * 256, 16);
    wmma::mma_sync(acc, fa, fb, acc);
  }
  wmma::store_matrix_sync(y + pixel0 * 16, acc, 16, wmma::mem_row_major);
}

// Flow through a pipe of three warps: each reads what the one before has published by a count in shared memory.
template <bool Right>
__device__ void three_warps(const int* in, int* out, int n) {
  __shared__ int a[64], b[64];
  __shared__ volatile int full_a, full_b;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) full_a = full_b = 0;
  __syncthreads();
  for (int i = 0; i < n; ++i) {
    if (warp == 0) {
      a[i * 32 + lane] = in[i * 32 + lane] * 3;
      __threadfence_block();
      __syncwarp();
      if (lane == 0) full_a = i + 1;
    } else if (warp == 1) {
      while (full_a <= i) {
      }
      if (Right) __threadfence_block();
      b[i * 32 + lane] = a[i * 32 + (lane ^ 1)] + 1;
      __threadfence_block();
      __syncwarp();
      if (lane == 0) full_b = i + 1;
    } else {
      while (full_b <= i) {
      }
      __threadfence_block();
      out[i * 32 + lane] = b[i * 32 + (lane ^ 2)] - lane;
    }
  }
}
KERNEL three_warps_good(const int* in, int* out, int n) { three_warps<true>(in, out, n); }
KERNEL middle_without_fence(const int* in, int* out, int n) { three_warps<false>(in, out, n); }

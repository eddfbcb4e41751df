// SPDX-License-Identifier: Apache-2.0
// Classic CUDA: partitions in one pass, handshakes, opportunism, recursion, callbacks, objects, local arrays, tiles; and slips in them.
#include <assert.h>
#include <cstdio>
#include <cstring>
#include <new>

// One pass of a radix sort by four bits: tiles take numbers, look back per digit in packed words, and scatter.
extern "C" __global__ void one_sweep(const unsigned* in, unsigned* out, const unsigned* start, unsigned* state, unsigned* ticket, int shift) {
  __shared__ unsigned tile, count[4][16], offset[16], before[4][16];
  const unsigned t = threadIdx.x, lane = t % 32, warp = t / 32;
  if (t == 0) tile = atomicAdd(ticket, 1);
  if (t < 64) count[t / 16][t % 16] = 0;
  __syncthreads();
  const unsigned key = in[tile * 128 + t], digit = key >> shift & 15;
  const unsigned same = __match_any_sync(0xffffffffu, digit), rank = __popc(same & ((1u << lane) - 1));
  if (rank == 0) count[warp][digit] = __popc(same);
  __syncthreads();
  if (t < 16) {
    unsigned total = 0;
    for (int w = 0; w < 4; ++w) before[w][t] = total, total += count[w][t];
    volatile unsigned* mine = state + tile * 16 + t;
    *mine = total | (tile ? 1u << 30 : 2u << 30);
    unsigned sum = 0;
    for (int back = int(tile) - 1; back >= 0;) {
      const unsigned v = *(volatile unsigned*)(state + back * 16 + t);
      if (v >> 30 == 0) continue;
      sum += v & 0x3fffffff;
      if (v >> 30 == 2) break;
      --back;
    }
    if (tile) *mine = (sum + total) | 2u << 30;
    offset[t] = start[t] + sum;
  }
  __syncthreads();
  out[offset[digit] + before[warp][digit] + rank] = key;
}

// Even blocks make, odd blocks take; a volatile flag between them.
template <bool kFence>
__device__ void handshake(const int* in, int* mail, volatile int* flag, int* out) {
  const int pair = blockIdx.x / 2, t = threadIdx.x;
  if (blockIdx.x % 2 == 0) {
    mail[pair * 64 + t] = in[pair * 64 + t] * 7;
    if (kFence) __threadfence();
    __syncthreads();
    if (t == 0) flag[pair] = 1;
  } else {
    if (t == 0) {
      while (flag[pair] == 0) {}
      __threadfence();
    }
    __syncthreads();
    out[pair * 64 + t] = mail[pair * 64 + 63 - t];
  }
}
extern "C" __global__ void handshake_good(const int* in, int* mail, int* flag, int* out) { handshake<true>(in, mail, flag, out); }
extern "C" __global__ void handshake_no_fence(const int* in, int* mail, int* flag, int* out) { handshake<false>(in, mail, flag, out); }

// Whoever happens to be here takes numbers together.
extern "C" __global__ void opportunists(const int* in, int n, int* out, int* next) {
  for (int i = threadIdx.x + blockIdx.x * blockDim.x; i < n; i += gridDim.x * blockDim.x) {
    int v = in[i];
    while (v > 0) {
      if (v & 1) {
        const unsigned here = __activemask();
        const int leader = __ffs(here) - 1, lane = threadIdx.x % 32;
        int first = 0;
        if (lane == leader) first = atomicAdd(next, __popc(here));
        first = __shfl_sync(here, first, leader);
        out[first + __popc(here & ((1u << lane) - 1))] = v * 1000 + i;
      }
      v >>= 2;
    }
  }
}

// Keys of 64 bits: each distinct one in a warp is written once, with how many; and whether all are one.
extern "C" __global__ void distinct(const unsigned long long* in, unsigned* out, int* alike) {
  const int i = threadIdx.x, lane = i % 32;
  const unsigned long long k = in[i];
  const unsigned some = __ballot_sync(0xffffffffu, k % 5 != 0);
  unsigned r = 0;
  if (k % 5 != 0) {
    const unsigned same = __match_any_sync(some, k);
    r = __ffs(same) - 1 == lane ? __popc(same) : 0;
  }
  out[i] = r;
  int all = 0;
  __match_all_sync(0xffffffffu, k, &all);
  alike[i] = all;
}

// The halves of a warp go different ways, each with its own mask and its own number of rounds.
extern "C" __global__ void own_masks(const int* in, int* out) {
  const int lane = threadIdx.x % 32;
  int v = in[threadIdx.x];
  if (lane < 16) {
    for (int d = 8; d; d /= 2) v += __shfl_xor_sync(0x0000ffffu, v, d, 16);
    if (lane < 4) {
      v ^= __shfl_down_sync(0xfu, v + lane, 1, 4);
      __syncwarp(0xfu);
    }
  } else {
    const unsigned odd = __ballot_sync(0xffff0000u, v & 1);
    while (v > 10) {
      const unsigned mask = __match_any_sync(__activemask(), v);
      v -= __popc(mask) ? 7 : 0;
    }
    __syncwarp(0xffff0000u);
    v = __shfl_up_sync(0xffff0000u, v, 3, 16) + __popc(odd);
  }
  out[threadIdx.x] = v;
}

// Recursion in two forms, mutual and deep.
__device__ __noinline__ int moves(int n, int a, int b, int c, unsigned* trace, int k) {
  if (n == 0) return k;
  k = moves(n - 1, a, c, b, trace, k);
  *trace = *trace * 31 + a * 3 + c;
  return moves(n - 1, b, a, c, trace, k + 1);
}
__device__ __noinline__ bool is_odd(unsigned n);
__device__ __noinline__ bool is_even(unsigned n) { return n == 0 || is_odd(n - 1); }
__device__ __noinline__ bool is_odd(unsigned n) { return n != 0 && is_even(n - 1); }
__device__ __noinline__ unsigned ackermann(unsigned m, unsigned n) {
  return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}
extern "C" __global__ void recursive(const int* in, unsigned* out) {
  const int i = threadIdx.x;
  unsigned trace = 1;
  const int k = moves(in[i] % 5, 0, 1, 2, &trace, 0);
  out[i * 4] = k;
  out[i * 4 + 1] = trace;
  out[i * 4 + 2] = is_even(in[i]);
  out[i * 4 + 3] = ackermann(in[i] % 3, in[i] % 4);
}

// Erased callables: made by each thread, kept in shared memory, called by another.
struct Task {
  int (*call)(const void*, int);
  int state[3];
};
template <class F>
__device__ Task make_task(F f) {
  Task t;
  static_assert(sizeof(F) <= sizeof(t.state));
  new (t.state) F(f);
  t.call = [](const void* self, int x) { return (*static_cast<const F*>(self))(x); };
  return t;
}
extern "C" __global__ void erased(const int* in, int* out) {
  __shared__ Task tasks[64];
  const int i = threadIdx.x, a = in[i], b = in[63 - i];
  if (i % 3 == 0) tasks[i] = make_task([=](int x) { return x * a; });
  else if (i % 3 == 1) tasks[i] = make_task([=](int x) { return x + a - b; });
  else tasks[i] = make_task([=](int x) { return a > b ? x : -x; });
  __syncthreads();
  const Task& other = tasks[(i * 7 + 3) % 64];
  out[i] = other.call(other.state, i);
}

// A diamond of virtual bases, built in shared memory, used by all.
struct Named {
  int name;
  __device__ Named(int n) : name(n) {}
  __device__ virtual int value() const = 0;
};
struct Wide : virtual Named {
  int w;
  __device__ Wide(int n, int w) : Named(n), w(w) {}
  __device__ int value() const override { return w * 2; }
};
struct High : virtual Named {
  int h;
  __device__ High(int n, int h) : Named(n), h(h) {}
  __device__ int value() const override { return h * 3; }
  __device__ virtual int extra() const { return 5; }
};
struct Box : Wide, High {
  __device__ Box(int n, int w, int h) : Named(n), Wide(n, w), High(n, h) {}
  __device__ int value() const override { return w * h + name; }
  __device__ int extra() const override { return Wide::value() + High::value(); }
};
extern "C" __global__ void diamond(const int* in, int* out) {
  __shared__ alignas(16) unsigned char place[8][64];
  __shared__ Named* made[8];
  __shared__ High* high[8];
  const int i = threadIdx.x;
  if (i < 8) {
    if (i % 2) {
      Box* b = new (place[i]) Box(i, in[i], in[i + 8]);
      made[i] = b, high[i] = b;
    } else {
      High* h = new (place[i]) High(i, in[i]);
      made[i] = h, high[i] = h;
    }
  }
  __syncthreads();
  out[i] = made[i % 8]->value() * 100 + high[(i + 1) % 8]->extra() + made[(i + 2) % 8]->name;
}

// Every thread sorts an array of its own, as a heap.
extern "C" __global__ void heaps(const int* in, int* out, int per) {
  int a[24];
  const int base = threadIdx.x * per;
  for (int i = 0; i < per; ++i) {
    int at = i;
    a[at] = in[base + i];
    while (at && a[(at - 1) / 2] < a[at]) {
      const int up = (at - 1) / 2, v = a[up];
      a[up] = a[at], a[at] = v, at = up;
    }
  }
  for (int n = per; n-- > 0;) {
    out[base + n] = a[0];
    a[0] = a[n];
    for (int at = 0;;) {
      int big = at;
      for (int s = 2 * at + 1; s <= 2 * at + 2; ++s)
        if (s < n && a[s] > a[big]) big = s;
      if (big == at) break;
      const int v = a[big];
      a[big] = a[at], a[at] = v, at = big;
    }
  }
}

extern "C" __global__ void said(const int* in, int* out) {
  const int i = threadIdx.x, v = in[i];
  assert(v >= 0 && "never negative");
  int n = printf("%d: %s %5.2f %llx %c|%-4u|%p\n", i, v & 1 ? "odd" : "even", v * 0.25, (unsigned long long)v << 33, 'a' + v % 26, v, (void*)0);
  if (v > 50) n += printf("large\n");
  out[i] = n;
}

// Red and black in a tile with a halo, in place.
template <bool kCorners, bool kSync>
__device__ void red_black(const float* in, float* out, int w, int h, int rounds) {
  __shared__ float s[18][18];
  const int x0 = blockIdx.x * 16, y0 = blockIdx.y * 16, tx = threadIdx.x, ty = threadIdx.y;
  auto at = [&](int x, int y) { return x >= 0 && y >= 0 && x < w && y < h ? in[y * w + x] : 0.0f; };
  s[ty + 1][tx + 1] = at(x0 + tx, y0 + ty);
  if (ty == 0) s[0][tx + 1] = at(x0 + tx, y0 - 1);
  if (ty == 15) s[17][tx + 1] = at(x0 + tx, y0 + 16);
  if (tx == 0) s[ty + 1][0] = at(x0 - 1, y0 + ty);
  if (tx == 15) s[ty + 1][17] = at(x0 + 16, y0 + ty);
  if (kCorners && tx < 2 && ty < 2) s[ty * 17][tx * 17] = at(x0 - 1 + tx * 17, y0 - 1 + ty * 17);
  __syncthreads();
  for (int r = 0; r < rounds; ++r)
    for (int colour = 0; colour < 2; ++colour) {
      if ((tx + ty) % 2 == colour) s[ty + 1][tx + 1] = 0.25f * (s[ty][tx + 1] + s[ty + 2][tx + 1] + s[ty + 1][tx] + s[ty + 1][tx + 2]);
      if (kSync) __syncthreads();
      else __syncwarp();
    }
  const float v = s[ty + 1][tx + 1] + s[ty][tx] - s[ty + 2][tx + 2];
  if (!kSync) __syncthreads();
  if (x0 + tx < w && y0 + ty < h) out[(y0 + ty) * w + x0 + tx] = v;
}
extern "C" __global__ void red_black_good(const float* in, float* out, int w, int h, int rounds) {
  // The diagonal is read while neighbours of the other colour are done; the last barrier stands before it.
  red_black<true, true>(in, out, w, h, rounds);
}
extern "C" __global__ void red_black_no_corners(const float* in, float* out, int w, int h, int rounds) { red_black<false, true>(in, out, w, h, rounds); }
extern "C" __global__ void red_black_by_warp(const float* in, float* out, int w, int h, int rounds) { red_black<true, false>(in, out, w, h, rounds); }

// Tiles of 16 by 16 of a product with crooked sizes, B transposed; the second barrier may be missing.
template <bool kSecond>
__device__ void product(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float sa[16][16], sb[16][17];
  const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  float sum = 0;
  for (int k0 = 0; k0 < k; k0 += 16) {
    sa[threadIdx.y][threadIdx.x] = row < m && k0 + threadIdx.x < k ? a[row * k + k0 + threadIdx.x] : 0;
    const int bn = blockIdx.x * 16 + threadIdx.y;
    sb[threadIdx.x][threadIdx.y] = bn < n && k0 + threadIdx.x < k ? b[bn * k + k0 + threadIdx.x] : 0;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 16; ++j) sum += sa[threadIdx.y][j] * sb[j][threadIdx.x];
    if (kSecond) __syncthreads();
  }
  if (row < m && col < n) c[row * n + col] = sum;
}
extern "C" __global__ void product_good(const float* a, const float* b, float* c, int m, int n, int k) { product<true>(a, b, c, m, n, k); }
extern "C" __global__ void product_one_barrier(const float* a, const float* b, float* c, int m, int n, int k) { product<false>(a, b, c, m, n, k); }

// The 32 greatest of a row: each warp keeps its own sorted, then they merge.
__device__ int sorted_down(int v) {
  const int lane = threadIdx.x % 32;
  for (int size = 2; size <= 32; size *= 2)
    for (int d = size / 2; d; d /= 2) {
      const int o = __shfl_xor_sync(~0u, v, d);
      const bool up = (lane & size) != 0 && size != 32, low = (lane & d) == 0;
      v = (low != up) ? max(v, o) : min(v, o);
    }
  return v;
}
__device__ int merged(int a, int b) {
  const int lane = threadIdx.x % 32;
  a = max(a, __shfl_sync(~0u, b, 31 - lane));
  for (int d = 16; d; d /= 2) {
    const int o = __shfl_xor_sync(~0u, a, d);
    a = (lane & d) == 0 ? max(a, o) : min(a, o);
  }
  return a;
}
extern "C" __global__ void greatest(const int* in, int n, int* out) {
  __shared__ int best[4][32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int mine = -1;
  for (int i = warp * 32; i < n; i += 128) mine = merged(mine, sorted_down(i + lane < n ? in[blockIdx.x * n + i + lane] : -1));
  best[warp][lane] = mine;
  for (int half = 2; half; half /= 2) {
    __syncthreads();
    if (warp < half) best[warp][lane] = merged(best[warp][lane], best[warp + half][lane]);
  }
  if (warp == 0) out[blockIdx.x * 32 + lane] = best[0][lane];
}

// Structs of 13 bytes, copied as bytes.
struct __attribute__((packed)) Odd {
  char kind;
  int a;
  double b;
};
extern "C" __global__ void packed_structs(const unsigned char* in, unsigned char* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  Odd v;
  memcpy(&v, in + i * sizeof(Odd), sizeof(Odd));
  v.a = v.kind % 2 ? v.a + 1 : v.a ^ 0x55;
  v.b = v.b * 2 + v.kind;
  memcpy(out + (n - 1 - i) * sizeof(Odd), &v, sizeof(Odd));
}

// Counts of the block with votes, and words of four at a time with a tail of single ones.
template <bool kTail>
__device__ void scaled(const float* in, float* out, int n, int* any) {
  const int step = gridDim.x * blockDim.x;
  int big = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < (kTail ? n / 4 : (n + 3) / 4); i += step) {
    float4 v = reinterpret_cast<const float4*>(in)[i];
    big |= v.x > 90;
    reinterpret_cast<float4*>(out)[i] = make_float4(v.x * 2, v.y * 2, v.z * 2, v.w * 2);
  }
  if (kTail)
    for (int i = n / 4 * 4 + blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) out[i] = in[i] * 2;
  const int count = __syncthreads_count(big), all = __syncthreads_and(threadIdx.x < 64), some = __syncthreads_or(threadIdx.x == 5);
  if (threadIdx.x == 0) any[blockIdx.x] = count + (all ? 1000 : 0) + (some ? 2000 : 0);
}
extern "C" __global__ void scaled_good(const float* in, float* out, int n, int* any) { scaled<true>(in, out, n, any); }
extern "C" __global__ void scaled_rounded_up(const float* in, float* out, int n, int* any) { scaled<false>(in, out, n, any); }

// ---------------------------------------------------------------- slips
extern "C" __global__ void last_warp_in_step(const int* in, int* out) {
  __shared__ int s[128];
  const int t = threadIdx.x;
  s[t] = in[t];
  __syncthreads();
  if (t < 64) s[t] += s[t + 64];
  __syncthreads();
  if (t < 32) {
    s[t] += s[t + 32];
    if (t < 16) s[t] += s[t + 16];
    if (t < 8) s[t] += s[t + 8];
    if (t < 4) s[t] += s[t + 4];
    if (t < 2) s[t] += s[t + 2];
    if (t < 1) out[0] = s[0] + s[1];
  }
}
extern "C" __global__ void two_buffers_wrong_turn(const int* in, int* out, int rounds) {
  __shared__ int s[2][64];
  int sum = 0;
  for (int r = 0; r < rounds; ++r) {
    const int b = r / 2 % 2;
    s[b][threadIdx.x] = in[r * 64 + threadIdx.x];
    __syncthreads();
    sum += s[b][63 - threadIdx.x];
  }
  out[threadIdx.x] = sum;
}
extern "C" __global__ void smoothed_in_place(float* a, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float l = i > 0 ? a[i - 1] : 0, r = i + 1 < n ? a[i + 1] : 0;
  __syncthreads();
  if (i < n) a[i] = (l + r) * 0.5f;
}
extern "C" __global__ void any_parent(const int* edges, int n, const int* level, int* parent) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && level[edges[2 * i]] == 1 && level[edges[2 * i + 1]] == -1) parent[edges[2 * i + 1]] = edges[2 * i];
}
extern "C" __global__ void look_back_two_words(const int* in, int* value, int* status, int* out) {
  __shared__ int before;
  const int t = threadIdx.x, b = blockIdx.x;
  int v = in[b * 32 + t];
  const int total = __reduce_add_sync(~0u, v);
  if (t == 0) {
    int sum = 0;
    if (b > 0) {
      while (atomicAdd(status + b - 1, 0) == 0) {}
      sum = value[b - 1];
    }
    value[b] = sum + total;
    atomicExch(status + b, 1);
    before = sum;
  }
  __syncwarp();
  out[b * 32 + t] = before + v;
}
extern "C" __global__ void blurred(const unsigned char* in, unsigned char* out, int w, int h) {
  const int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
  if (x >= w || y >= h) return;
  int sum = 0;
  for (int dy = -1; dy <= 1; ++dy)
    for (int dx = -1; dx <= 1; ++dx) sum += in[(y + dy) * w + max(0, min(w - 1, x + dx))];
  out[y * w + x] = sum / 9;
}
extern "C" __global__ void dynamic_two_arrays(const float* in, float* out, int n) {
  extern __shared__ float pool[];
  float *a = pool, *b = pool + n;
  a[threadIdx.x] = in[threadIdx.x];
  b[threadIdx.x] = in[threadIdx.x] * 2;
  __syncthreads();
  out[threadIdx.x] = a[n - 1 - threadIdx.x] + b[n - 1 - threadIdx.x];
}
extern "C" __global__ void column_of_tile(const float* in, float* out) {
  __shared__ float s[16][16];
  s[threadIdx.y][threadIdx.x] = in[threadIdx.y * 16 + threadIdx.x];
  __syncthreads();
  out[threadIdx.y * 16 + threadIdx.x] = s[threadIdx.y + 1][threadIdx.x];
}
extern "C" __global__ void stack_of_values(const unsigned char* in, int* out, int n) {
  int stack[12], top = 0, best = 0;
  for (int i = 0; i < n; ++i) {
    const int v = in[threadIdx.x * n + i];
    if (v < 200) stack[top++] = v;
    else if (top) best = max(best, stack[--top]);
  }
  for (int i = 0; i < top; ++i) best += stack[i];
  out[threadIdx.x] = best;
}
extern "C" __global__ void sum_of_seventy(const int* in, int* out) {
  __shared__ int s[128];
  s[threadIdx.x] = in[threadIdx.x];
  for (int d = 64; d; d /= 2) {
    __syncthreads();
    if (threadIdx.x < d) s[threadIdx.x] += s[threadIdx.x + d];
  }
  if (threadIdx.x == 0) *out = s[0];
}
extern "C" __global__ void added_to_nothing(const int* in, int* out, int rows, int cols) {
  const int j = threadIdx.x;
  for (int i = 0; i < rows; ++i) out[j] += in[i * cols + j];
}
extern "C" __global__ void wide_from_bytes(const unsigned char* in, double* out) {
  __shared__ alignas(8) unsigned char s[512 + 8];
  for (int i = threadIdx.x; i < 260; i += 32) s[i] = in[i];
  __syncthreads();
  out[threadIdx.x] = *reinterpret_cast<const double*>(s + 4 + threadIdx.x * 8);
}
extern "C" __global__ void copy_from_half(const float* in, float* out) {
  __shared__ float4 s[32];
  const unsigned to = __cvta_generic_to_shared(&s[threadIdx.x]);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\ncp.async.wait_all;" ::"r"(to), "l"(in + 2 + threadIdx.x * 4) : "memory");
  __syncthreads();
  out[threadIdx.x] = s[31 - threadIdx.x].y;
}
extern "C" __global__ void rounds_of_each(const int* many, const int* in, int* out) {
  __shared__ int s[32];
  int sum = 0;
  for (int r = 0; r < many[threadIdx.x]; ++r) {
    s[threadIdx.x] = in[threadIdx.x] + r;
    __syncthreads();
    sum += s[threadIdx.x ^ 1];
    __syncthreads();
  }
  out[threadIdx.x] = sum;
}
extern "C" __global__ void by_case(const int* kind, int* out) {
  __shared__ int s[64];
  const int t = threadIdx.x;
  switch (kind[t]) {
    case 0: s[t] = t; __syncthreads(); out[t] = s[63 - t]; break;
    case 1: s[t] = -t; __syncthreads(); out[t] = s[63 - t] * 2; break;
    default: s[t] = 0; __syncthreads(); out[t] = 1;
  }
}
extern "C" __global__ void sum_of_tail(const int* in, int n, int* out) {
  const int i = threadIdx.x;
  if (i < n) {
    int v = in[i];
    for (int d = 16; d; d /= 2) v += __shfl_down_sync(0xffffffffu, v, d);
    if (i % 32 == 0) out[i / 32] = v;
  }
}
extern "C" __global__ void mask_of_others(const int* in, int* out) {
  const unsigned mask = threadIdx.x < 16 ? 0x0000ffffu : 0x00ffff00u;
  out[threadIdx.x] = __shfl_xor_sync(mask, in[threadIdx.x], 1);
}
extern "C" __global__ void after_you(volatile int* flags, const int* in, int* out) {
  const int me = blockIdx.x, other = 1 - me;
  if (threadIdx.x == 0) {
    while (flags[other] == 0) {}
    __threadfence();
    flags[me] = 1;
  }
  __syncthreads();
  out[me * 32 + threadIdx.x] = in[threadIdx.x];
}
extern "C" __global__ void barriers_crossed(const int* in, int* out) {
  __shared__ int s[64];
  s[threadIdx.x] = in[threadIdx.x];
  if (threadIdx.x < 32) {
    asm volatile("bar.sync 1, 64;" ::: "memory");
    asm volatile("bar.sync 2, 64;" ::: "memory");
  } else {
    asm volatile("bar.sync 2, 64;" ::: "memory");
    asm volatile("bar.sync 1, 64;" ::: "memory");
  }
  out[threadIdx.x] = s[63 - threadIdx.x];
}
extern "C" __global__ void row_times_pitch(const int* in, int* out, int pitch) {
  const int row = blockIdx.x * 50000 + threadIdx.x;
  out[blockIdx.x * 32 + threadIdx.x] = in[row * pitch];
}
extern "C" __global__ void sorted_across(int* a, int n, int rounds) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int r = 0; r < rounds; ++r) {
    const int at = 2 * i + r % 2;
    if (at + 1 < n && a[at] > a[at + 1]) {
      const int v = a[at];
      a[at] = a[at + 1], a[at + 1] = v;
    }
    __syncthreads();
  }
}
extern "C" __global__ void bins_read_at_once(const unsigned char* in, int* out, int n) {
  __shared__ int bins[64];
  bins[threadIdx.x] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += 64) atomicAdd(&bins[in[i] % 64], 1);
  out[threadIdx.x] = bins[threadIdx.x];
}

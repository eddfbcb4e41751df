// SPDX-License-Identifier: Apache-2.0
// Concurrent data structures and parallel primitives as people write them by hand.
#include <cuda_runtime.h>
#include <cstdint>
#define KERNEL extern "C" __global__ void
typedef unsigned long long u64;

// Treiber's stack: a 32-bit tag against ABA beside a 32-bit index. All push, then all pop.
__device__ void push(u64* head, unsigned* next, unsigned node) {
  u64 old = *(volatile u64*)head, want;
  do {
    want = old;
    *(volatile unsigned*)&next[node] = (unsigned)want;
    __threadfence();
    old = atomicCAS(head, want, ((want >> 32) + 1) << 32 | (node + 1));
  } while (old != want);
}
__device__ unsigned pop(u64* head, unsigned* next) {
  u64 old = *(volatile u64*)head, want;
  do {
    want = old;
    if ((unsigned)want == 0) return 0;
    __threadfence();
    unsigned after = *(volatile unsigned*)&next[(unsigned)want - 1];
    old = atomicCAS(head, want, ((want >> 32) + 1) << 32 | after);
  } while (old != want);
  __threadfence();
  return (unsigned)want;
}
KERNEL treiber(u64* head, unsigned* next, int* payload, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    payload[i] = i * 3 + 1;
    push(head, next, i);
  }
  unsigned got = pop(head, next);
  out[i] = got ? payload[got - 1] : 0;
}
// Vyukov's bounded queue: a sequence number per cell.
struct Cell {
  unsigned seq;
  int value;
};
KERNEL mpmc(Cell* cells, unsigned mask, unsigned* tail, unsigned* head, const int* in, int* out, int per) {
  if (threadIdx.x) return;
  bool producer = blockIdx.x & 1;
  int who = blockIdx.x / 2;
  for (int k = 0; k < per; ++k) {
    unsigned* end = producer ? tail : head;
    unsigned pos = *(volatile unsigned*)end;
    Cell* c;
    for (;;) {
      c = &cells[pos & mask];
      unsigned seq;
      asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(seq) : "l"(&c->seq) : "memory");
      int diff = (int)(seq - (producer ? pos : pos + 1));
      if (diff == 0) {
        unsigned was = atomicCAS(end, pos, pos + 1);
        if (was == pos) break;
        pos = was;
      } else {
        if (diff < 0) __nanosleep(64);
        pos = *(volatile unsigned*)end;
      }
    }
    if (producer)
      c->value = in[who * per + k];
    else
      out[who * per + k] = c->value;
    unsigned seq = producer ? pos + 1 : pos + mask + 1;
    asm volatile("st.release.gpu.u32 [%0], %1;" ::"l"(&c->seq), "r"(seq) : "memory");
  }
}
// Work stealing: own range from the front, others' from the back; a range is one 64-bit word.
__device__ int take(u64* r, bool front) {
  u64 old = *(volatile u64*)r;
  for (;;) {
    unsigned lo = (unsigned)old, hi = (unsigned)(old >> 32);
    if (lo >= hi) return -1;
    u64 want = front ? ((u64)hi << 32 | (lo + 1)) : ((u64)(hi - 1) << 32 | lo);
    u64 seen = atomicCAS(r, old, want);
    if (seen == old) return front ? lo : hi - 1;
    old = seen;
  }
}
KERNEL steal(u64* range, const int* work, int* out, int* done) {
  __shared__ int item;
  int victim = blockIdx.x;
  for (;;) {
    if (threadIdx.x == 0) {
      item = take(&range[blockIdx.x], true);
      for (unsigned k = 1; item < 0 && k < gridDim.x; ++k) {
        victim = (victim + 1) % gridDim.x;
        item = take(&range[victim], false);
      }
    }
    __syncthreads();
    int i = item;
    if (i < 0) break;
    int v = work[i];
    for (int k = 0; k < v % 7; ++k) v = v * 3 + 1;
    if (threadIdx.x == v % 32) atomicAdd(done, 1);
    if (threadIdx.x == 0) out[i] = v;
    __syncthreads();
  }
}
// Open addressing with key and value in one word; insertion adds values, removal leaves a tombstone.
KERNEL table_add(u64* slots, unsigned size, const unsigned* keys, const int* vals, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned k = keys[i], at = (k * 2654435761u) >> 16;
  for (;; ++at) {
    u64* s = slots + at % size;
    u64 seen = *(volatile u64*)s;
    while ((unsigned)(seen >> 32) == k || seen == ~0ull) {
      u64 want = seen == ~0ull ? ((u64)k << 32 | (unsigned)vals[i]) : ((u64)k << 32 | ((unsigned)seen + (unsigned)vals[i]));
      u64 got = atomicCAS(s, seen, want);
      if (got == seen) return;
      seen = got;
    }
  }
}
KERNEL table_get(const u64* slots, unsigned size, const unsigned* keys, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned k = keys[i], at = (k * 2654435761u) >> 16;
  u64 s;
  while ((unsigned)((s = __ldg(slots + at % size)) >> 32) != k && s != ~0ull) ++at;
  out[i] = s == ~0ull ? -1 : (int)(unsigned)s;
}
// A ticket lock with proportional back-off, lanes of one warp among the contenders.
KERNEL ticket_lock(unsigned* next, unsigned* serving, int* log, int* count) {
  if (threadIdx.x % 8) return;
  unsigned mine = atomicAdd(next, 1);
  for (unsigned now; (now = *(volatile unsigned*)serving) != mine;) __nanosleep((mine - now) * 50);
  __threadfence();
  int at = *count;
  log[at] = (int)mine;
  *count = at + 1;
  __threadfence();
  *(volatile unsigned*)serving = mine + 1;
}
// The MCS queue lock: every waiter spins on its own word.
struct Waiter {
  int next, locked;
};
KERNEL mcs_lock(int* tail, Waiter* q, int* sum, int rounds) {
  if (threadIdx.x) return;
  int me = blockIdx.x + 1;
  volatile Waiter* mine = q + me;
  for (int r = 0; r < rounds; ++r) {
    mine->next = 0;
    mine->locked = 1;
    __threadfence();
    int before = atomicExch(tail, me);
    if (before) {
      ((volatile Waiter*)q)[before].next = me;
      while (mine->locked) {
      }
    }
    __threadfence();
    sum[0] += me;
    sum[1] = sum[1] * 3 + 1;
    __threadfence();
    if (!mine->next) {
      if (atomicCAS(tail, me, 0) == me) continue;
      while (!mine->next) {
      }
    }
    ((volatile Waiter*)q)[mine->next].locked = 0;
  }
}
// Many readers or one writer; readers see two words that belong together.
KERNEL rw_lock(int* lock, int* pair, int* out, int rounds) {
  if (threadIdx.x) return;
  for (int r = 0; r < rounds; ++r) {
    if (blockIdx.x == 0) {
      while (atomicCAS(lock, 0, -1) != 0) __nanosleep(40);
      __threadfence();
      pair[0] += 1;
      pair[1] = pair[0] * 10;
      __threadfence();
      atomicExch(lock, 0);
    } else {
      for (;;) {
        int n = *(volatile int*)lock;
        if (n >= 0 && atomicCAS(lock, n, n + 1) == n) break;
      }
      __threadfence();
      int bad = pair[1] != pair[0] * 10;
      __threadfence();
      atomicSub(lock, 1);
      if (bad) out[blockIdx.x] = 1;
    }
  }
}
// A sequence lock with relaxed data.
KERNEL seqlock(unsigned* seq, int* data, int* out, int rounds) {
  if (threadIdx.x) return;
  if (blockIdx.x == 0) {
    for (int r = 1; r <= rounds; ++r) {
      asm volatile("st.relaxed.gpu.u32 [%0], %1; fence.acq_rel.gpu;" ::"l"(seq), "r"(2 * r - 1) : "memory");
      for (int k = 0; k < 4; ++k) asm volatile("st.relaxed.gpu.u32 [%0], %1;" ::"l"(data + k), "r"(r * (k + 1)) : "memory");
      asm volatile("st.release.gpu.u32 [%0], %1;" ::"l"(seq), "r"(2 * r) : "memory");
    }
  } else {
    unsigned a, b;
    int v[4];
    do {
      asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(a) : "l"(seq) : "memory");
      for (int k = 0; k < 4; ++k) asm volatile("ld.relaxed.gpu.u32 %0, [%1];" : "=r"(v[k]) : "l"(data + k) : "memory");
      asm volatile("fence.acq_rel.gpu; ld.relaxed.gpu.u32 %0, [%1];" : "=r"(b) : "l"(seq) : "memory");
    } while (a != b || (a & 1) || a < 2u * rounds);
    out[blockIdx.x - 1] = v[0] + v[1] + v[2] + v[3];
  }
}
// A barrier of the grid with a sense that flips, used between two phases; blocks of one warp.
KERNEL sense_barrier(int* count, volatile int* sense, int* a, int* out, int phases) {
  int local = 0, i = blockIdx.x * 32 + threadIdx.x, n = gridDim.x * 32;
  for (int p = 0; p < phases; ++p) {
    a[i] = a[i] * 2 + p;
    for (int half = 0; half < 2; ++half) {
      local ^= 1;
      __threadfence();
      __syncwarp();
      if (threadIdx.x == 0) {
        if (atomicAdd(count, 1) == (int)gridDim.x - 1) {
          *count = 0;
          __threadfence();
          *sense = local;
        } else {
          while (*sense != local) __nanosleep(30);
        }
        __threadfence();
      }
      __syncwarp();
      if (half == 0) out[i] += a[n - 1 - i];
    }
  }
}
// Stream compaction in one pass: flags, aggregates and prefixes in one 64-bit word, tiles by ticket.
KERNEL compact_once(const int* in, int* out, int* total, u64* state, unsigned* ticket, int n) {
  __shared__ unsigned tile, base, warps[4];
  if (threadIdx.x == 0) tile = atomicAdd(ticket, 1);
  __syncthreads();
  int i = tile * 128 + threadIdx.x, lane = threadIdx.x & 31, w = threadIdx.x / 32;
  int v = i < n ? __ldcs(in + i) : 0;
  unsigned keep = __ballot_sync(~0u, i < n && v % 3 != 0), below;
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
  if (lane == 0) warps[w] = __popc(keep);
  __syncthreads();
  unsigned before = 0, all = 0;
  for (int k = 0; k < 4; ++k) {
    if (k < w) before += warps[k];
    all += warps[k];
  }
  if (threadIdx.x == 0) {
    if (tile == 0) {
      atomicExch(&state[0], 2ull << 32 | all);
      base = 0;
    } else {
      atomicExch(&state[tile], 1ull << 32 | all);
      unsigned sum = 0;
      for (int k = tile - 1;; --k) {
        u64 s;
        while ((s = atomicAdd(&state[k], 0ull)) >> 32 == 0) {
        }
        sum += (unsigned)s;
        if (s >> 33) break;
      }
      atomicExch(&state[tile], 2ull << 32 | (sum + all));
      base = sum;
    }
    if (tile == (n - 1) / 128) *total = base + all;
  }
  __syncthreads();
  if (keep >> lane & 1) out[base + before + __popc(keep & below)] = v;
}
// Building a binary search tree: a lock in the child pointer, as Barnes-Hut codes do; new nodes from a counter.
KERNEL build_tree(const int* keys, int* child, volatile int* node_key, int* used, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  bool todo = i < n;
  int key = todo ? keys[i] : 0, at = 0;
  while (__any_sync(~0u, todo)) {
    if (todo) {
      int side = key < node_key[at] ? 0 : 1;
      volatile int* c = (volatile int*)child + 2 * at + side;
      int now = *c;
      if (now == -1) {
        if (atomicCAS((int*)c, -1, -2) == -1) {
          int fresh = atomicAdd(used, 1);
          node_key[fresh] = key;
          __threadfence();
          *c = fresh;
          todo = false;
        }
      } else if (now != -2) {
        __threadfence();
        at = now;
      }
    }
    __syncwarp();
  }
}
KERNEL tree_depths(const int* child, const int* node_key, const int* keys, int* out, int n) {
  int i = threadIdx.x, at = 0, key = i < n ? keys[i] : 0;
  if (i >= n) return;
  while (node_key[at] != key) at = child[2 * at + (key < node_key[at] ? 0 : 1)];
  out[i] = node_key[at];
}
// A frontier queue, one aggregated atomic for the lanes that append, block-private staging.
KERNEL frontier(const int* row, const int* col, const int* queue, int count, int* level, int next_level, int* next, int* tail) {
  __shared__ int local[256], filled, base;
  if (threadIdx.x == 0) filled = 0;
  __syncthreads();
  int q = blockIdx.x * blockDim.x + threadIdx.x;
  if (q < count) {
    int u = queue[q];
    for (int e = row[u]; e < row[u + 1]; ++e) {
      int v = col[e];
      if (atomicCAS(&level[v], -1, next_level) == -1) {
        unsigned active = __activemask();
        int leader = __ffs(active) - 1, lane = threadIdx.x & 31, at = 0;
        if (lane == leader) at = atomicAdd(&filled, __popc(active));
        at = __shfl_sync(active, at, leader) + __popc(active & ((1u << lane) - 1));
        local[at] = v;
      }
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) base = atomicAdd(tail, filled);
  __syncthreads();
  for (int k = threadIdx.x; k < filled; k += blockDim.x) next[base + k] = local[k];
}
// Segmented sum by flags with shuffles, across warps by shared memory.
KERNEL segmented(const int* in, const unsigned char* start, int* out) {
  __shared__ int tail[8];
  __shared__ bool cut[8];
  int t = threadIdx.x, lane = t & 31, w = t >> 5, v = in[blockIdx.x * 256 + t];
  bool f = start[blockIdx.x * 256 + t] || t == 0;
  unsigned heads = __ballot_sync(~0u, f);
  int first = heads & (2u << lane) - 1 ? 31 - __clz(heads & ((2u << lane) - 1)) : 0;
  for (int d = 1; d < 32; d *= 2) {
    int x = __shfl_up_sync(~0u, v, d);
    if (lane - d >= first) v += x;
  }
  if (lane == 31) {
    tail[w] = v;
    cut[w] = heads != 0;
  }
  __syncthreads();
  int carry = 0;
  if (!(heads & ((2u << lane) - 1)))
    for (int k = w - 1; k >= 0; --k) {
      carry += tail[k];
      if (cut[k]) break;
    }
  out[blockIdx.x * 256 + t] = v + carry;
}
// Peterson's lock between two warps in shared memory.
KERNEL peterson(int* out, int rounds) {
  __shared__ volatile int want[2], turn;
  __shared__ int n;
  int w = threadIdx.x / 32;
  if (threadIdx.x == 0) {
    want[0] = want[1] = turn = 0;
    n = 0;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    for (int r = 0; r < rounds; ++r) {
      want[w] = 1;
      turn = 1 - w;
      __threadfence_block();
      while (want[1 - w] && turn == 1 - w) {
      }
      __threadfence_block();
      n += w + 1;
      __threadfence_block();
      want[w] = 0;
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) *out = n;
}
// Counting through all the ways to leave: barriers with predicates, warps that retire early.
KERNEL block_predicates(const int* in, int* out) {
  int v = in[blockIdx.x * blockDim.x + threadIdx.x];
  int n = __syncthreads_count(v > 50);
  int all = __syncthreads_and(v >= 0), any = __syncthreads_or(v == 99);
  if (threadIdx.x >= 96) return;
  __syncthreads();
  out[blockIdx.x * 96 + threadIdx.x] = n * 4 + all * 2 + any;
}

// SPDX-License-Identifier: Apache-2.0
// libcu++: pipelines, barriers, atomics that wait, charconv-like arithmetic, mdspan, complex numbers.
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/latch>
#include <cuda/pipeline>
#include <cuda/ptx>
#include <cuda/std/array>
#include <cuda/std/bit>
#include <cuda/std/complex>
#include <cuda/std/mdspan>
#include <cuda/std/tuple>
#include <cuda_pipeline.h>
#include <cooperative_groups.h>
#pragma nv_diag_suppress 20054
namespace cg = cooperative_groups;
#define KERNEL extern "C" __global__ void

// Three stages with the primitives; the tail of the row is zero-filled by the copy.
KERNEL stages(const float* in, float* out, int n, int tiles) {
  __shared__ alignas(16) float s[3][256];
  int t = threadIdx.x;
  auto fetch = [&](int k) {
    if (k < tiles) {
      int at = k * 256 + t * 4, left = n - at;
      size_t bytes = left >= 4 ? 16 : left > 0 ? left * 4 : 0;
      __pipeline_memcpy_async(&s[k % 3][t * 4], bytes ? in + at : in, 16, 16 - bytes);
    }
    __pipeline_commit();
  };
  fetch(0);
  fetch(1);
  float acc = 0;
  for (int k = 0; k < tiles; ++k) {
    fetch(k + 2);
    __pipeline_wait_prior(2);
    __syncthreads();
    for (int j = 0; j < 4; ++j) acc += s[k % 3][(t * 4 + j * 65) % 256] * (j + 1);
    __syncthreads();
  }
  out[t] = acc;
}
// A pipeline of the whole block with a shared state.
KERNEL block_pipeline(const int* in, int* out, int batches) {
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  __shared__ alignas(16) int s[2][64];
  auto block = cg::this_thread_block();
  auto pipe = cuda::make_pipeline(block, &state);
  int acc = 0;
  for (int fetch = 0, compute = 0; compute < batches; ++compute) {
    for (; fetch < batches && fetch < compute + 2; ++fetch) {
      pipe.producer_acquire();
      cuda::memcpy_async(block, s[fetch % 2], in + fetch * 64, sizeof(int) * 64, pipe);
      pipe.producer_commit();
    }
    pipe.consumer_wait();
    acc = acc * 3 + s[compute % 2][63 - threadIdx.x];
    pipe.consumer_release();
  }
  out[threadIdx.x] = acc;
}
// A barrier whose completion counts, with the parity interface and a timed try.
KERNEL barrier_parity(const int* in, int* out, int rounds) {
  using barrier = cuda::barrier<cuda::thread_scope_block>;
  __shared__ barrier full, empty;
  __shared__ int s[32];
  if (threadIdx.x == 0) {
    init(&full, 32);
    init(&empty, 32);
  }
  __syncthreads();
  int lane = threadIdx.x % 32;
  if (threadIdx.x < 32) {
    for (int r = 0; r < rounds; ++r) {
      if (r) empty.wait_parity((r - 1) & 1);
      s[lane] = in[r * 32 + lane];
      (void)full.arrive();
    }
  } else {
    int acc = 0;
    for (int r = 0; r < rounds; ++r) {
      while (!full.try_wait_parity_for(r & 1, cuda::std::chrono::microseconds(20))) {
      }
      acc = acc * 5 + s[lane ^ 1];
      (void)empty.arrive();
    }
    out[lane] = acc;
  }
}
// wait and notify on an atomic in global memory; a fetch_max that others see.
KERNEL wait_notify(cuda::atomic<int, cuda::thread_scope_device>* turn, int* data, int* out) {
  if (threadIdx.x) return;
  int me = blockIdx.x, now;
  while ((now = turn->load(cuda::memory_order_acquire)) != me) turn->wait(now, cuda::memory_order_acquire);
  out[me] = data[0];
  data[0] = data[0] * 2 + me;
  turn->store(me + 1, cuda::memory_order_release);
  turn->notify_all();
}
KERNEL float_atomics(const float* in, float* mx, double* sum, unsigned* bits, unsigned char* flags, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  cuda::atomic_ref<float, cuda::thread_scope_device> m(*mx);
  m.fetch_max(in[i], cuda::memory_order_relaxed);
  cuda::atomic_ref<double, cuda::thread_scope_device>(*sum).fetch_add(in[i]);
  cuda::atomic_ref<unsigned, cuda::thread_scope_block>(bits[blockIdx.x]).fetch_or(1u << (i % 32));
  cuda::atomic_ref<unsigned char, cuda::thread_scope_device>(flags[i % 7]).fetch_add(1);
}
// The dining philosophers' lock order, with atomic_flag and fences.
KERNEL forks(cuda::std::atomic_flag* fork, int* meals, int rounds) {
  if (threadIdx.x % 32) return;
  int who = threadIdx.x / 32, people = blockDim.x / 32, a = who, b = (who + 1) % people;
  if (a > b) {
    int t = a;
    a = b;
    b = t;
  }
  for (int r = 0; r < rounds; ++r) {
    while (fork[a].test_and_set(cuda::memory_order_acquire)) __nanosleep(20);
    while (fork[b].test_and_set(cuda::memory_order_acquire)) __nanosleep(20);
    meals[a] += 1;
    meals[b] += 1;
    fork[b].clear(cuda::memory_order_release);
    fork[a].clear(cuda::memory_order_release);
  }
}
// mdspan, complex numbers, arrays, tuples, bit operations.
KERNEL std_types(const float* in, float* out, unsigned* bits) {
  using complex = cuda::std::complex<float>;
  cuda::std::mdspan<const float, cuda::std::extents<int, 8, 8>> m(in);
  int r = threadIdx.x / 8, c = threadIdx.x % 8;
  complex z(m(r, c), m(c, r)), w = z * z + complex(1, -2);
  cuda::std::array<float, 5> a{};
  for (int i = 0; i < 5; ++i) a[(threadIdx.x + i) % 5] = m(i, c);
  auto t = cuda::std::make_tuple(w.real(), w.imag(), a[threadIdx.x % 5]);
  out[3 * threadIdx.x] = cuda::std::get<0>(t);
  out[3 * threadIdx.x + 1] = cuda::std::get<1>(t);
  out[3 * threadIdx.x + 2] = cuda::std::get<2>(t);
  unsigned u = cuda::std::bit_cast<unsigned>(in[threadIdx.x]);
  bits[threadIdx.x] = cuda::std::popcount(u) + 64 * cuda::std::countl_zero(u) + 4096 * (cuda::std::rotl(u, 9) & 255);
}
#if __CUDA_ARCH__ >= 900
// 128-bit exchange and compare-and-swap: a pair of pointers moved as one.
struct alignas(16) Pair {
  unsigned long long lo, hi;
};
KERNEL wide_cas(Pair* p, int rounds) {
  for (int r = 0; r < rounds; ++r) {
    Pair old, next, seen{0, 0};
    do {
      old = seen;
      next = Pair{old.lo + 3, old.hi + old.lo};
      asm volatile(
          "{\n .reg .b128 c, n, s;\n mov.b128 c, {%2, %3};\n mov.b128 n, {%4, %5};\n"
          " atom.acq_rel.gpu.global.cas.b128 s, [%6], c, n;\n mov.b128 {%0, %1}, s;\n}"
          : "=l"(seen.lo), "=l"(seen.hi)
          : "l"(old.lo), "l"(old.hi), "l"(next.lo), "l"(next.hi), "l"(p)
          : "memory");
    } while (seen.lo != old.lo || seen.hi != old.hi);
  }
}
// Bulk copies with the cuda::ptx wrappers, a barrier of the block around them.
KERNEL tx_copy(const int* in, int* out, int tiles) {
  namespace ptx = cuda::ptx;
  using barrier = cuda::barrier<cuda::thread_scope_block>;
  __shared__ alignas(128) int s[64];
  __shared__ barrier bar;
  if (threadIdx.x == 0) {
    init(&bar, blockDim.x);
    ptx::fence_proxy_async(ptx::space_shared);
  }
  __syncthreads();
  for (int t = 0; t < tiles; ++t) {
    barrier::arrival_token token;
    if (threadIdx.x == 0) {
      cuda::memcpy_async(s, in + t * 64, cuda::aligned_size_t<16>(256), bar);
      token = cuda::device::barrier_arrive_tx(bar, 1, 0);
    } else {
      token = bar.arrive();
    }
    bar.wait(cuda::std::move(token));
    int v = s[threadIdx.x ^ 1] + t;
    __syncthreads();
    s[threadIdx.x] = v;
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
      ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out + t * 64, s, 256);
      ptx::cp_async_bulk_commit_group();
      ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
    }
    __syncthreads();
  }
}
#endif

// SPDX-License-Identifier: Apache-2.0
#include "cgp/cpu/gemm/gemm.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "cgp/cpu/gemm/gemm_impl.h"
#include "cgp/cpu/matrix_impl.h"
#include "cgp/cpu/threads.h"

namespace cgp::cpu {
namespace {

using gemm_versions::Version;
using std::int64_t;

int64_t up(int64_t v, int64_t to) { return (v + to - 1) / to * to; }
int64_t parts(int64_t v, int64_t of) { return (v + of - 1) / of; }

const Version& version(Isa isa) {
  require(isa);
#if defined(__x86_64__)
  if (isa >= Isa::avx512) return gemm_versions::avx512;
  if (isa >= Isa::avx2) return gemm_versions::avx2;
#endif
  return gemm_versions::scalar;
}

/// A stored matrix and how op() of it is read: element (line, step) is data[line * line_stride + step * ...].
struct Operand {
  const float* data;
  int64_t ld;
  bool steps_contiguous;  ///< k runs along a stored row
  const float* at(int64_t line, int64_t step) const {
    return steps_contiguous ? data + line * ld + step : data + step * ld + line;
  }
};

/// C = beta * C. With beta 0 it is written only.
void scale(int64_t m, int64_t n, float beta, float* c, int64_t ldc) {
  if (beta == 1) return;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];
}

/// k is cut into equal pieces, of which a panel of B fills two thirds of L1 at most. A block of A takes a
/// twelfth of L2 (measured: with more, the panels of B that are fetched ahead no longer stay); what is packed
/// of B takes half of L3, and not more than 16 MiB, which others may use too.
GemmBlocks blocks_for(const Version& v, const GemmBlocks& wanted, int64_t m, int64_t n, int64_t k) {
  GemmBlocks b = wanted;
  const Caches& cache = caches();
  if (b.k <= 0) {
    const int64_t most = std::max<int64_t>(64, cache.l1 * 2 / 3 / (4 * v.nr));
    b.k = up(parts(k, parts(k, most)), 8);
  }
  if (b.m <= 0) b.m = cache.l2 / 12 / (4 * b.k);
  b.m = std::clamp<int64_t>(b.m / v.mr * v.mr, v.mr, up(m, v.mr));
  if (b.n <= 0) b.n = std::min<int64_t>(cache.l3 / 2, 16 << 20) / (4 * b.k);
  b.n = std::clamp<int64_t>(b.n / v.nr * v.nr, v.nr, up(n, v.nr));
  return b;
}

struct Product {
  const Version& v;
  Operand a, b;
  int64_t m, n, k;
  float alpha, beta;
  float* c;
  int64_t ldc;
  GemmBlocks block;
  bool direct_b;  ///< few rows: full panels of B are read where they lie

  int64_t phases() const { return parts(n, block.n) * parts(k, block.k); }
};

/// Buffers of the calling thread, kept from call to call: packed A of each thread of a product, and packed B.
struct Scratch {
  AlignedBuffer a, b;
};
Scratch& scratch() {
  thread_local Scratch s;
  return s;
}

/// Rows [first, first + rows) of C against panels [from, to) of the packed B.
void multiply_block(const Product& p, int64_t jc, int64_t pc, int64_t kc, int64_t first, int64_t rows,
                    int64_t from, int64_t to, const float* packed_a, const float* packed_b) {
  const Version& v = p.v;
  const float beta = pc == 0 ? p.beta : 1.0f;
  for (int64_t panel = from; panel < to; ++panel) {
    const int64_t j = jc + panel * v.nr, columns = std::min<int64_t>(v.nr, p.n - j);
    const bool direct = p.direct_b && columns == v.nr;
    const float* b = direct ? p.b.at(j, pc) : packed_b + panel * v.nr * kc;
    // Each call brings a part of the panel that follows into L2: it comes from L3 or memory.
    const float* ahead = direct || panel + 1 == to ? packed_a : packed_b + (panel + 1) * v.nr * kc;
    for (int64_t i = 0; i < rows; i += v.mr, ahead += kc / 4 * 16) {
      const int64_t r = std::min<int64_t>(v.mr, rows - i);
      v.kernel[r](kc, packed_a + i * kc, b, direct ? p.b.ld : v.nr, p.alpha, beta,
                  p.c + (first + i) * p.ldc + j, p.ldc, columns, ahead);
    }
  }
}

void pack_rows(const Product& p, int64_t first, int64_t rows, int64_t pc, int64_t kc, float* into) {
  for (int64_t i = 0; i < rows; i += p.v.mr)
    p.v.pack_a(p.a.steps_contiguous, p.a.at(first + i, pc), p.a.ld, std::min<int64_t>(p.v.mr, rows - i), kc,
               into + i * kc);
}

/// Panels that are packed together.
constexpr int64_t kStrip = 8;

/// Panels [from, to) of B. Rows of B are read a kilobyte at a time, a few of them at once: panel by panel
/// every row would be another page.
void pack_strip(const Product& p, int64_t jc, int64_t pc, int64_t kc, int64_t from, int64_t to,
                float* packed_b) {
  const Version& v = p.v;
  const int64_t some = p.b.steps_contiguous ? kc : 8;
  for (int64_t step = 0; step < kc; step += some)
    for (int64_t q = from; q < to; ++q) {
      const int64_t j = jc + q * v.nr, columns = std::min<int64_t>(v.nr, p.n - j);
      if (p.direct_b && columns == v.nr) continue;
      v.pack_b(p.b.steps_contiguous, p.b.at(j, pc + step), p.b.ld, columns, std::min(some, kc - step),
               packed_b + q * v.nr * kc + step * v.nr);
    }
}

/// What the threads of one product share.
struct Team {
  Team(int threads, int64_t phases) : barrier(threads), tickets(std::size_t(2 * phases)) {}
  Barrier barrier;
  std::vector<std::atomic<int64_t>> tickets;
  float* packed_b = nullptr;
};

/// One thread's share: panels of B, then blocks of rows (cut by columns too where there are few rows).
void work(const Product& p, Team& team, int count, float* packed_a) {
  const Version& v = p.v;
  int64_t phase = 0;
  for (int64_t jc = 0; jc < p.n; jc += p.block.n) {
    const int64_t panels = parts(std::min(p.block.n, p.n - jc), v.nr);
    for (int64_t pc = 0; pc < p.k; pc += p.block.k, ++phase) {
      const int64_t kc = std::min(p.block.k, p.k - pc);
      auto& pack = team.tickets[std::size_t(2 * phase)];
      auto& task = team.tickets[std::size_t(2 * phase + 1)];
      for (int64_t q; (q = pack.fetch_add(kStrip, std::memory_order_relaxed)) < panels;)
        pack_strip(p, jc, pc, kc, q, std::min(q + kStrip, panels), team.packed_b);
      team.barrier.wait();
      const int64_t bands = parts(p.m, p.block.m);
      const int64_t cuts = count == 1 ? 1 : std::clamp<int64_t>(parts(4 * count, bands), 1, panels);
      int64_t packed = -1;
      for (int64_t t; (t = task.fetch_add(1, std::memory_order_relaxed)) < bands * cuts;) {
        const int64_t band = t / cuts, cut = t % cuts, first = band * p.block.m;
        const int64_t rows = std::min(p.block.m, p.m - first);
        if (packed != band) pack_rows(p, first, rows, pc, kc, packed_a), packed = band;
        multiply_block(p, jc, pc, kc, first, rows, panels * cut / cuts, panels * (cut + 1) / cuts, packed_a,
                       team.packed_b);
      }
      team.barrier.wait();
    }
  }
}

}  // namespace

GemmTile gemm_tile(Isa isa) {
  const Version& v = version(isa);
  return {v.mr, v.nr, v.lanes, v.mr * v.nr / v.lanes, v.operands, v.registers};
}

void gemm(Transpose transpose_a, Transpose transpose_b, int64_t m, int64_t n, int64_t k, float alpha,
          const float* a, int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc,
          const GemmOptions& options) {
  const bool ta = transpose_a == Transpose::yes, tb = transpose_b == Transpose::yes;
  check_matrix("A", a, ta ? k : m, ta ? m : k, lda);
  check_matrix("B", b, tb ? n : k, tb ? k : n, ldb);
  check_matrix("C", c, m, n, ldc);
  const Version& v = version(options.isa);
  if (m == 0 || n == 0) return;
  if (k == 0 || alpha == 0) return scale(m, n, beta, c, ldc);
  // What lies in L1 anyway needs no packing, nor does what few rows meet in L2.
  const int64_t b_bytes = ldb <= 4096 ? 4 * std::min<int64_t>(k, 1 << 20) * ldb : INT64_MAX;
  const bool small_m = m <= 2 * v.mr;
  const bool direct_b = !tb && b_bytes <= (small_m ? caches().l2 / 2 : caches().l1 * 2 / 3);
  Product p{v, {a, lda, !ta}, {b, ldb, tb}, m, n, k, alpha, beta, c, ldc, options.blocks, direct_b};
  p.block = blocks_for(v, options.blocks, m, n, k);
  // 4 million operations last longer than it takes to wake a thread
  const int64_t work_units = std::int64_t(std::min(2.0 * double(m) * double(n) * double(k), 9e18));
  const int threads = threads_for(work_units, 4'000'000, options.threads);
  if (threads > 1 && options.blocks.m <= 0)  // a few blocks for each thread, so that none waits long
    p.block.m = std::clamp<int64_t>(up(parts(m, 4 * threads), v.mr), v.mr, p.block.m);
  // With few rows packed B is used once or twice: it should still be in L2 then.
  if (small_m && options.blocks.n <= 0)
    p.block.n =
        std::clamp<int64_t>(caches().l2 / 2 * threads / (4 * p.block.k) / v.nr * v.nr, v.nr, p.block.n);
  Team team(1, p.phases());
  team.packed_b = static_cast<float*>(scratch().b.at_least(std::size_t(p.block.n * p.block.k) * 4));
  const std::size_t a_floats = std::size_t(up(p.block.m * p.block.k, 16));
  float* const packed_a = static_cast<float*>(scratch().a.at_least(a_floats * std::size_t(threads) * 4));
  if (threads == 1) return work(p, team, 1, packed_a);
  Team many(threads, p.phases());
  many.packed_b = team.packed_b;
  run_on_threads(threads, [&](int thread, int count) {
    work(p, count == 1 ? team : many, count, packed_a + std::size_t(thread) * a_floats);
  });
}

}  // namespace cgp::cpu

// SPDX-License-Identifier: Apache-2.0
#include "cgp/cpu/matvec/matvec.h"

#include <algorithm>

#include "cgp/cpu/loops/loops.h"
#include "cgp/cpu/matrix_impl.h"
#include "cgp/cpu/threads.h"

namespace cgp::cpu {
namespace {

using std::int64_t;

int threads_of(int64_t m, int64_t n, int threads) {
  return threads_for(m * n, kMatvecWorkPerThread, threads);
}

}  // namespace

void matvec(int64_t m, int64_t n, const float* a, int64_t lda, const float* x, float* y,
            const MatvecOptions& o) {
  check_matrix("A", a, m, n, lda);
  const auto dot = loops(o.isa).dot;
  parallel_for(m, 16, threads_of(m, n, o.threads), [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) y[i] = dot(a + i * lda, x, std::size_t(n));
  });
}

void vecmat(int64_t m, int64_t n, const float* x, const float* a, int64_t lda, float* y,
            const MatvecOptions& o) {
  check_matrix("A", a, m, n, lda);
  const auto axpy = loops(o.isa).axpy;
  // 2048 sums stay in L1 while the rows go by
  parallel_for(n, 2048, threads_of(m, n, o.threads), [&](int64_t from, int64_t to) {
    std::fill(y + from, y + to, 0.0f);
    for (int64_t i = 0; i < m; ++i) axpy(x[i], a + i * lda + from, y + from, std::size_t(to - from));
  });
}

void transpose(int64_t m, int64_t n, const float* a, int64_t lda, float* b, int64_t ldb, int threads) {
  check_matrix("A", a, m, n, lda);
  check_matrix("B", b, n, m, ldb);
  constexpr int64_t kTile = 16;  // a line of 64 bytes of either matrix
  parallel_for(n, 64, threads_of(m, n, threads), [&](int64_t from, int64_t to) {
    for (int64_t i = 0; i < m; i += kTile)
      for (int64_t j = from; j < to; j += kTile)
        for (int64_t jj = j; jj < std::min(j + kTile, to); ++jj)
          for (int64_t ii = i; ii < std::min(i + kTile, m); ++ii) b[jj * ldb + ii] = a[ii * lda + jj];
  });
}

}  // namespace cgp::cpu

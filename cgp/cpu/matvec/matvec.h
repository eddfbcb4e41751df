// SPDX-License-Identifier: Apache-2.0
#pragma once
// Products of a matrix with a vector, and transposition: bound by memory, so that a thread more helps only
// from some size on.
#include <cstdint>

#include "cgp/cpu/dispatch.h"

namespace cgp::cpu {

struct MatvecOptions {
  Isa isa = chosen_isa();
  int threads = 1;  ///< at most; 0: all processors. Small ones use fewer
};

/// y[i] = sum over j of a[i * lda + j] * x[j], for m rows of n. y is written only. Throws ArgumentError as
/// gemm does.
void matvec(std::int64_t m, std::int64_t n, const float* a, std::int64_t lda, const float* x, float* y,
            const MatvecOptions& options = {});
/// y[j] = sum over i of x[i] * a[i * lda + j], in the order of i, whatever the threads.
void vecmat(std::int64_t m, std::int64_t n, const float* x, const float* a, std::int64_t lda, float* y,
            const MatvecOptions& options = {});
/// b[j * ldb + i] = a[i * lda + j], for m rows of n in a. They must not overlap.
void transpose(std::int64_t m, std::int64_t n, const float* a, std::int64_t lda, float* b, std::int64_t ldb,
               int threads = 1);

/// Elements of the matrix for each thread, at least.
inline constexpr std::int64_t kMatvecWorkPerThread = 1 << 18;

}  // namespace cgp::cpu

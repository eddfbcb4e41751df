// SPDX-License-Identifier: Apache-2.0
#pragma once
// C = alpha * op(A) * op(B) + beta * C in 32-bit floats, all matrices row by row.
//
// How: panels of B (k x nr) and of A (k x mr) are packed so that the inner kernel reads both in order; it
// keeps mr x nr sums in registers. A panel of B stays in L1 while panels of A come from L2; what is packed of
// B lies in L3. Threads share the packed B and take blocks of rows one after the other. README.md has the
// numbers.
#include <cstdint>

#include "cgp/cpu/dispatch.h"

namespace cgp::cpu {

enum class Transpose : bool { no, yes };

/// Extents of the blocks; 0: from the caches of this processor.
struct GemmBlocks {
  std::int64_t m = 0, n = 0, k = 0;
};

struct GemmOptions {
  Isa isa = chosen_isa();
  int threads = 1;  ///< at most; 0: all processors. Small products use fewer
  GemmBlocks blocks = {};
};

/// op(A) is m x k, op(B) k x n, C m x n; a transposed operand is stored k x m or n x k. Any extents from 0;
/// ld* are the floats from one stored row to the next. C must not overlap A or B. As in BLAS: with beta 0 C
/// is not read (NaN there does not matter), with alpha or k 0 A and B are not. NaN and infinity in A and B
/// reach every element that they belong to. Throws ArgumentError for negative extents, rows that overlap,
/// matrices beyond 2^63 bytes and null pointers.
void gemm(Transpose transpose_a, Transpose transpose_b, std::int64_t m, std::int64_t n, std::int64_t k,
          float alpha, const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float beta,
          float* c, std::int64_t ldc, const GemmOptions& options = {});

/// What an inner kernel holds in vector registers: for reports, and for the test that they suffice.
struct GemmTile {
  int rows = 0, columns = 0, lanes = 0;
  int sums = 0;       ///< registers of accumulators
  int operands = 0;   ///< of A and B
  int registers = 0;  ///< that the instruction set has
};
GemmTile gemm_tile(Isa isa);

}  // namespace cgp::cpu

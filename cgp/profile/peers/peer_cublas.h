// SPDX-License-Identifier: Apache-2.0
#pragma once
// cuBLAS as a peer to measure against: loaded with dlopen, never linked, never used by a kernel.
#include <cstdint>
#include <memory>
#include <string>

#include "cgp/base/dtype.h"

namespace cgp::measure {

/// One product in cuBLAS's terms, but row-major: C[m,n] = alpha * op(A)[m,k] * op(B)[k,n] + beta * C, fp32
/// sums.
struct CublasGemm {
  DType type = DType::bf16;  ///< of A, B and C: f16, bf16 or f32
  bool trans_a = false, trans_b = false;
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t lda = 0, ldb = 0, ldc = 0;  ///< elements between rows as stored
  float alpha = 1, beta = 0;
};

class Cublas {
 public:
  /// Loads libcublas ($CGP_CUBLAS_LIB, else the loader's search path). The CUDA context must be current.
  /// Throws Unsupported with what was looked for.
  Cublas();
  ~Cublas();
  /// Queues the product on a CUDA stream (its raw handle); addresses are device addresses.
  void gemm(void* stream, const CublasGemm& g, std::uint64_t a, std::uint64_t b, std::uint64_t c);
  int version() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cgp::measure

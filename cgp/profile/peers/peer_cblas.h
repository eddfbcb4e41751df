// SPDX-License-Identifier: Apache-2.0
#pragma once
// A library of the processor's linear algebra (OpenBLAS, BLIS, the reference BLAS, NumPy's own OpenBLAS) as a
// peer to measure against: loaded with dlopen, never linked, used by no kernel.
#include <cstdint>
#include <string>
#include <vector>

namespace cgp::measure {

class Cblas {
 public:
  /// Loads the first of `libraries` that is there and has cblas_sgemm (OpenBLAS's names for 64-bit integers
  /// and NumPy's prefixes too). Throws Unsupported with what was looked for.
  explicit Cblas(const std::vector<std::string>& libraries);
  /// $CGP_OPENBLAS_LIB, else libopenblas.so.0 by the loader's search path.
  static std::vector<std::string> openblas();
  /// $CGP_BLIS_LIB, else libblis.so.4.
  static std::vector<std::string> blis();

  /// Row by row: C[m,n] = alpha * op(A) * op(B) + beta * C.
  void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
            const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c,
            std::int64_t ldc) const;
  /// False where the library has no such call: then its environment decides.
  bool set_threads(int n) const;
  const std::string& name() const { return name_; }  ///< file, and what the library says of itself

 private:
  void* symbol(const std::string& plain) const;
  void* library_ = nullptr;
  std::string name_;
  std::string prefix_, suffix_;
  void* sgemm_ = nullptr;
};

}  // namespace cgp::measure

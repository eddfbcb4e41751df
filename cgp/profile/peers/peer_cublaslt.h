// SPDX-License-Identifier: Apache-2.0
#pragma once
// cuBLASLt as the peer that products are measured against: loaded with dlopen, never linked, never used by a
// kernel. Its heuristics are only a guess, so search() times what they propose and keeps the fastest: that
// is what "the best of cuBLASLt" means in every table of ours.
//
//   measure::CublasLt lt(device);
//   const auto best = lt.search(problem, operands);
//   contenders.push_back({"cublaslt", [&](Stream& s) { best.run(s, operands); }});
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cgp/base/dtype.h"
#include "cgp/runtime/device.h"
#include "cgp/runtime/stream.h"

namespace cgp::measure {

enum class LtEpilogue : std::uint8_t { none, relu, gelu, bias, relu_bias, gelu_bias };  ///< gelu: tanh form
/// What the factors of fp8 operands belong to: the whole of it (one float), each row of op(A) and column of
/// op(B) (m and n floats), or blocks (128 of K for A, 128 x 128 for B).
enum class LtScale : std::uint8_t { none, tensor, rows, blocks };

/// C[m,n] = epilogue(alpha * op(A)[m,k] * op(B)[k,n] + beta * C), row-major.
struct CublasLtGemm {
  DType a = DType::bf16, b = DType::bf16, c = DType::bf16;
  bool tf32 = false;        ///< f32 operands are rounded to tf32
  bool fast_accum = false;  ///< fp8: sums stay in the tensor core's precision
  bool trans_a = false, trans_b = false;
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t lda = 0, ldb = 0, ldc = 0;  ///< elements between rows as stored; 0: dense
  float alpha = 1, beta = 0;
  std::int64_t batch = 1, stride_a = 0, stride_b = 0, stride_c = 0;  ///< elements; 0: dense
  LtEpilogue epilogue = LtEpilogue::none;
  LtScale scale = LtScale::none;

  double flops() const { return 2.0 * double(m) * double(n) * double(k) * double(batch); }
};
/// Why cuBLASLt cannot be asked for it; empty: it can.
std::string reject(const CublasLtGemm& g);

/// Device addresses. bias: n values of C's type; scale_a, scale_b: floats as CublasLtGemm::scale says.
struct CublasLtOperands {
  std::uint64_t a = 0, b = 0, c = 0, bias = 0, scale_a = 0, scale_b = 0;
};

/// A problem with an algorithm, ready to be queued.
class CublasLtPlan {
 public:
  void run(runtime::Stream& s, const CublasLtOperands& at) const;
  const std::string& text() const { return text_; }  ///< "algo 66 tile 21 stages 35 split 1 cluster 3"
  int candidates = 1;                                ///< algorithms that were timed
  double milliseconds = 0;                           ///< of this one in the search
  double first_milliseconds = 0;  ///< of the heuristics' first proposal, in the same search

 private:
  friend class CublasLt;
  struct Impl;
  std::shared_ptr<const Impl> impl_;
  std::string text_;
};

class CublasLt {
 public:
  /// Loads libcublasLt ($CGP_CUBLASLT_LIB, else the loader's search path). Throws Unsupported with what was
  /// looked for, also for the emulator.
  explicit CublasLt(const runtime::Device& device, std::uint64_t workspace_bytes = 128u << 20);
  ~CublasLt();
  std::size_t version() const;  ///< 130100: 13.1.0

  /// What the heuristics propose, best guess first. Unsupported when there is nothing.
  std::vector<CublasLtPlan> heuristics(const CublasLtGemm& g, const CublasLtOperands& at,
                                       int most = 128) const;
  /// The fastest of them, timed with cold L2 on `at` (C is overwritten): all briefly, the leaders longer.
  CublasLtPlan search(const CublasLtGemm& g, const CublasLtOperands& at, int most = 128) const;

 private:
  friend class CublasLtPlan;
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace cgp::measure

// SPDX-License-Identifier: Apache-2.0
#pragma once
// A cgp_tensor seen as what kernels take: matrices in a batch, rows at a distance, a contiguous vector.
// Errors name the argument and say what was given.
#include <span>
#include <string>
#include <vector>

#include "cgp/base/dtype.h"
#include "cgp/capi/cgp.h"
#include "cgp/kernels/common/view.h"
#include "cgp/kernels/gemm/epilogue/epilogue.h"

namespace cgp::capi {

class Tensor {
 public:
  /// `name` is the argument's, `op` the operation's. ArgumentError when it is NULL or malformed.
  Tensor(const cgp_tensor* t, const char* op, const char* name);

  DType dtype() const { return DType(t_.dtype); }
  int rank() const { return t_.rank; }
  std::uint64_t size(int dim) const;  ///< negative: from the end
  std::uint64_t stride(int dim) const;
  std::uint64_t elements() const;
  std::uint64_t address() const { return t_.address; }
  const char* argument() const { return name_; }
  std::vector<std::uint64_t> shape() const;
  std::string text() const;  ///< "bf16 [2, 3, 4] with strides [12, 4, 1]"

  void expect(std::initializer_list<DType> types) const;
  void expect_rank(int least, int most) const;
  void expect_shape(std::span<const std::uint64_t> shape, const char* like) const;
  void expect_contiguous() const;
  bool contiguous() const;

  /// The leading dimensions (all but the last `keep`) as one, at one distance; 0 where there is but one.
  struct Batch {
    std::uint64_t count = 1, stride = 0;
  };
  Batch leading(int keep) const;
  /// Rows of the last dimension, which must be contiguous.
  struct Rows {
    std::uint64_t rows = 1, cols = 1, pitch = 0;
  };
  Rows rows() const;
  /// The elements from the first to the last, gaps included.
  std::uint64_t extent() const;
  /// For kernels on rows; `out`: it is written.
  kernels::View view(const cgp_stream& s, bool out = false) const;
  /// Shares no element's memory with `other` (it may lie between its elements); with `same` it may be exactly
  /// `other`.
  void expect_apart(const Tensor& other, bool same = false) const;
  kernels::DeviceArray array() const { return {t_.address, extent(), dtype()}; }
  [[noreturn]] void fail(std::string rule, std::string hint = {}) const;

 private:
  int dim(int d) const { return d < 0 ? d + t_.rank : d; }
  cgp_tensor t_{};
  const char *op_, *name_;
};

}  // namespace cgp::capi

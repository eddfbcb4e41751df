// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the products of stored and of packed weights share.
#include <cmath>
#include <span>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/cpu/quant/matmul.h"
#include "cgp/cpu/quant/matmul_impl.h"
#include "cgp/cpu/threads.h"

namespace cgp::cpu {

inline void agree(const char* what, std::size_t there, std::int64_t needed) {
  if (std::int64_t(there) != needed)
    throw ArgumentError(ErrorText{text::cat("the size of the ", what, " must be that of the product"),
                                  {},
                                  text::cat("it is ", there, ", needed are ", needed),
                                  {}});
}

/// Bytes of a row.
inline std::int64_t check_weights(quant::Format f, std::span<const std::byte> weights, std::int64_t m,
                                  std::int64_t k) {
  if (m < 0 || k < 0)
    throw ArgumentError(ErrorText{"extents are not negative", {}, text::cat(m, " rows of ", k), {}});
  const auto row = std::int64_t(quant::bytes_of(f, std::uint64_t(k)));
  std::int64_t all = 0;
  if (__builtin_mul_overflow(row, m, &all))
    throw ArgumentError(ErrorText{"extents beyond 2^63 bytes", {}, text::cat(m, " rows of ", k), {}});
  agree("weights (bytes)", weights.size(), all);
  return row;
}

/// n vectors of k, each in a whole number of blocks. One at a time on a thread, which keeps the memory.
template <class A>
class RoundedVectors {
 public:
  RoundedVectors(std::span<const float> x, std::int64_t n, std::int64_t k)
      : stride_((k + 255) / 256), memory_(memory_of_thread()) {
    memory_.at_least(std::size_t(n * stride_) * sizeof(A));
#if defined(__x86_64__)
    bool numbers = true;
    for (std::int64_t j = 0; j < n; ++j)
      numbers &= quant_versions::round_activations_avx2(x.data() + j * k, k, memory_.as<A>() + j * stride_);
    if (numbers) return;
#endif
    for (std::size_t i = 0; i < x.size(); ++i)
      if (!std::isfinite(x[i]))
        throw ArgumentError(ErrorText{"only finite activations can be rounded to integers",
                                      {},
                                      text::cat("element ", i, " is ", x[i]),
                                      "use Activations::f32"});
  }
  const A* vector(std::int64_t j) { return memory_.as<A>() + j * stride_; }
  std::int64_t stride() const { return stride_; }

 private:
  static AlignedBuffer& memory_of_thread() {
    thread_local AlignedBuffer memory;
    return memory;
  }
  std::int64_t stride_;
  AlignedBuffer& memory_;
};

/// Threads for m x n x k products. ArgumentError unless x holds n vectors of k and y their m sums.
inline int check_product(std::int64_t m, std::int64_t n, std::int64_t k, std::size_t x, std::size_t y,
                         int threads) {
  std::int64_t in = 0, out = 0, work = 0;
  if (n < 0) throw ArgumentError(ErrorText{"extents are not negative", {}, text::cat(n, " vectors"), {}});
  if (__builtin_mul_overflow(n, k, &in) || __builtin_mul_overflow(m, n, &out))
    throw ArgumentError(ErrorText{"extents beyond 2^63 elements", {}, text::cat(m, " x ", n, " x ", k), {}});
  if (__builtin_mul_overflow(out, k, &work)) work = INT64_MAX;
  agree("vectors", x, in);
  agree("result", y, out);
  return threads_for(work, kQuantWorkPerThread, threads);
}

}  // namespace cgp::cpu

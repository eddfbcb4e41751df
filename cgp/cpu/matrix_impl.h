// SPDX-License-Identifier: Apache-2.0
#pragma once
// What every function on stored matrices asks of them.
#include <algorithm>
#include <cstdint>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::cpu {

/// Throws ArgumentError for negative extents, rows that overlap, more than 2^63 bytes, and null.
inline void check_matrix(const char* name, const void* data, std::int64_t rows, std::int64_t cols,
                         std::int64_t ld) {
  using text::cat;
  if (rows < 0 || cols < 0)
    throw ArgumentError(ErrorText{"extents are not negative", {}, cat(name, " is ", rows, " x ", cols), {}});
  if (ld < std::max<std::int64_t>(cols, 1))
    throw ArgumentError(ErrorText{
        cat("rows of ", name, " must not overlap"), {}, cat("ld ", ld, " for ", cols, " columns"), {}});
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(rows, ld, &bytes) || __builtin_mul_overflow(bytes, std::int64_t(4), &bytes))
    throw ArgumentError(
        ErrorText{cat(name, " has more than 2^63 bytes"), {}, cat(rows, " rows of ", ld), {}});
  if (!data && rows > 0 && cols > 0) throw ArgumentError(ErrorText{cat(name, " is null"), {}, {}, {}});
}

}  // namespace cgp::cpu

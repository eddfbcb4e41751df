// SPDX-License-Identifier: Apache-2.0
#include "cgp/runtime/launch.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::runtime {
namespace {

std::uint32_t blocks(std::uint64_t n, std::uint64_t per_block, std::uint64_t limit, const char* axis) {
  if (per_block == 0) throw ArgumentError("a block covers at least one item");
  const std::uint64_t b = n == 0 ? 1 : (n - 1) / per_block + 1;
  if (b > limit)
    throw ArgumentError({text::cat("the grid has at most ", limit, " blocks in ", axis),
                         {},
                         text::cat(n, " items, ", per_block, " to a block, need ", b),
                         "use larger blocks, or a grid-stride kernel with grid_for_at_most"});
  return std::uint32_t(b);
}

}  // namespace

Dim3 grid_for(std::uint64_t n, std::uint64_t per_block) {
  return {blocks(n, per_block, 0x7fffffff, "x"), 1, 1};
}
Dim3 grid_for_2d(std::uint64_t cols, std::uint64_t rows, std::uint64_t block_cols, std::uint64_t block_rows) {
  return {blocks(cols, block_cols, 0x7fffffff, "x"), blocks(rows, block_rows, 65535, "y"), 1};
}
Dim3 grid_for_at_most(std::uint64_t n, std::uint64_t per_block, std::uint64_t at_most) {
  if (at_most == 0 || at_most > 0x7fffffff)
    throw ArgumentError("grid_for_at_most needs a limit of 1 to 2^31 - 1 blocks");
  if (per_block == 0) throw ArgumentError("a block covers at least one item");
  const std::uint64_t b = n == 0 ? 1 : (n - 1) / per_block + 1;
  return {std::uint32_t(b < at_most ? b : at_most), 1, 1};
}

}  // namespace cgp::runtime

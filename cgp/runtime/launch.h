// SPDX-License-Identifier: Apache-2.0
#pragma once
// The shape of a launch. Block and cluster shape usually come with the kernel; the caller says the grid.
#include <cstdint>
#include <optional>

namespace cgp::runtime {

struct Dim3 {
  std::uint32_t x = 1, y = 1, z = 1;
  constexpr std::uint64_t count() const { return std::uint64_t(x) * y * z; }
  friend constexpr bool operator==(const Dim3&, const Dim3&) = default;
};

inline constexpr Dim3 kFromKernel{0, 0, 0};  ///< "as the kernel was built"

struct Launch {
  Dim3 grid;                                    ///< in blocks
  Dim3 block = kFromKernel;                     ///< in threads
  Dim3 cluster = kFromKernel;                   ///< in blocks
  std::optional<std::uint32_t> dynamic_smem{};  ///< bytes; absent: as the kernel was built
  bool cooperative = false;                     ///< all blocks resident at once, grid barriers allowed
  bool programmatic = false;  ///< programmatic dependent launch: may start before the previous
                              ///< kernel ends; that one must be waited for by griddepcontrol
};

/// A block shape known to the compiler, checked by it: fn(s, LaunchConfig<256>{grid}, ...).
template <std::uint32_t BX, std::uint32_t BY = 1, std::uint32_t BZ = 1>
struct LaunchConfig {
  static_assert(BX >= 1 && BY >= 1 && BZ >= 1, "a block has at least one thread in each dimension");
  static_assert(std::uint64_t(BX) * BY * BZ <= 1024, "a block has at most 1024 threads");
  static_assert(BX <= 1024 && BY <= 1024 && BZ <= 64, "block dimensions are at most 1024 x 1024 x 64");
  static constexpr Dim3 block{BX, BY, BZ};
  Dim3 grid;
  constexpr operator Launch() const { return Launch{.grid = grid, .block = block}; }
  /// Enough blocks for n threads in x.
  static LaunchConfig linear(std::uint64_t n);
};

/// Enough blocks of `per_block` items for n items; at least one block, so that an empty problem is a legal
/// launch that does nothing. Throws ArgumentError beyond 2^31 - 1 blocks.
Dim3 grid_for(std::uint64_t n, std::uint64_t per_block);
/// The same in two dimensions: columns in x, rows in y (at most 65535 blocks).
Dim3 grid_for_2d(std::uint64_t cols, std::uint64_t rows, std::uint64_t block_cols, std::uint64_t block_rows);
/// grid_for, but no more than `at_most` blocks: for grid-stride kernels.
Dim3 grid_for_at_most(std::uint64_t n, std::uint64_t per_block, std::uint64_t at_most);

template <std::uint32_t BX, std::uint32_t BY, std::uint32_t BZ>
LaunchConfig<BX, BY, BZ> LaunchConfig<BX, BY, BZ>::linear(std::uint64_t n) {
  return {grid_for(n, std::uint64_t(BX) * BY * BZ)};
}

}  // namespace cgp::runtime

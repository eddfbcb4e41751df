// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tensor Memory of sm_100: 128 lanes x 512 columns of 32 bits per CTA, who allocated which columns and which
// cells were ever written. PTX ISA 9.7.16.1. An address has the lane in bits 31-16 and the column in 15-0.
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "cgp/emu/async/async_ops.h"

namespace cgp::emu {

struct TensorMemory {
  static constexpr int kDataLanes = 128, kColumns = 512, kGranule = 32;
  struct Allocation {
    std::uint32_t first = 0, columns = 0;
    const Op* by = nullptr;
    std::uint32_t warp = 0;
    const Op* freed_by = nullptr;
  };

  TensorMemory();
  /// First column of the lowest free run of `columns`, or -1.
  int find_room(std::uint32_t columns) const;
  void take(std::uint32_t first, std::uint32_t columns, const Op* by, std::uint32_t warp);
  void release(Allocation& a, const Op* by);
  /// The live allocation that contains a column, else the last one that did, else nullptr.
  const Allocation* at(std::uint32_t column) const;
  Allocation* live_at(std::uint32_t first);
  std::uint32_t free_columns() const;

  std::uint32_t* row(int lane, int column) { return &cells[std::size_t(lane * kColumns + column)]; }
  bool is_written(int lane, int column) const {
    const auto i = std::size_t(lane * kColumns + column);
    return written[i / 64] >> (i % 64) & 1;
  }
  /// Whether all of [column, column + count) of a lane were written.
  bool all_written(int lane, int column, int count) const;
  void mark(int lane, int column, int count, bool is = true);

  std::vector<std::uint32_t> cells;    ///< [lane][column]
  std::vector<std::uint64_t> written;  ///< bit per cell
  std::vector<Allocation> allocations;
  std::array<int, kColumns / kGranule> owner;  ///< index into allocations, -1: free
  const Op* relinquished = nullptr;
};
/// Made on first use; its cells hold junk.
TensorMemory& tensor_memory(Cta& cta);

struct TensorAddress {
  int lane = 0, column = 0;
  explicit TensorAddress(std::uint32_t bits) : lane(int(bits >> 16)), column(int(bits & 0xffff)) {}
};

/// Reports (oob.tensor, lifetime.tensor) unless lanes [lane, lane + lanes) and columns [column, column +
/// columns) exist and the columns are allocated. `what` continues "tcgen05.ld reads ...".
bool check_tensor_range(const Issuer& by, Cta& cta, int lane, int lanes, int column, int columns,
                        std::string_view what);
/// Reports uninit.tensor: `what` read a cell that was never written.
void report_unwritten_tensor(const Issuer& by, const Cta& cta, int lane, int column, std::string_view what);
/// Columns that a block leaves allocated when it exits.
void check_tensor_memory_at_exit(Cta& cta);

}  // namespace cgp::emu

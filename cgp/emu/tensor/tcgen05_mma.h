// SPDX-License-Identifier: Apache-2.0
#pragma once
// One tcgen05.mma between issue and execution: operands by descriptor or in Tensor Memory, D in Tensor
// Memory. exec_tcgen05_mma.cpp decodes and issues, tcgen05_mma.cpp computes, tcgen05_scale.cpp does the
// block-scaled kinds.
#include "cgp/emu/tensor/tcgen05.h"
#include "cgp/emu/tensor/tcgen05_descriptor.h"
#include "cgp/emu/tensor/tensor_core.h"

namespace cgp::emu {

/// Rows of a matrix in Tensor Memory: which lane of which CTA of the pair holds columns [first, first +
/// count) of row `row`, from column `column` on (relative to the operand's address). Figures of 9.7.16.10.5.
struct TensorRow {
  int cta = 0, lane = 0, column = 0, first = 0, count = 0;
};

/// Layouts A to G of the ISA: by M, group size and .ws.
class TensorLayout {
 public:
  TensorLayout(int m, int group, bool weight_stationary);
  /// Calls f(TensorRow) for the parts of row `row` of D with `n` columns.
  template <class F>
  void each_part(int row, int n, F&& f) const {
    const int width = n / folds_;
    for (int i = 0; i < folds_; ++i)
      f(TensorRow{row / rows_, lane(row) + i * (128 / folds_), 0, i * width, width});
  }
  /// Copies of A that the unit reads, one per fold: row `row` of copy `i`.
  int copies() const { return folds_; }
  TensorRow a_row(int row, int copy) const {
    return {row / rows_, lane(row) + copy * (128 / folds_), 0, 0, 0};
  }
  /// Lanes that an operand with this layout spans, and whether it may start at lane 16 (M = 64).
  int lanes() const { return scattered_ ? 112 : 128; }
  bool scattered() const { return scattered_; }

 private:
  int lane(int row) const {
    const int r = row % rows_;
    return scattered_ ? r / 16 * 32 + r % 16 : r;
  }
  int rows_ = 128;          // of one CTA
  int folds_ = 1;           // groups of lanes among which the columns of D are divided
  bool scattered_ = false;  // 16 rows in the lower (or upper) half of each 32 lanes
};

struct MmaPlan {
  MmaForm form;
  bool ashift = false;
  int block = 0;  ///< elements per scale factor
  Address d, a, sfa, sfb, metadata;
  Loc a_descriptor = kNoLoc, b_descriptor = kNoLoc, instruction = kNoLoc, accumulate = kNoLoc;
  Loc zero_columns = kNoLoc;   ///< .ws: descriptor of the zero-column mask
  std::vector<Loc> lane_mask;  ///< 4 or 8 registers: lanes of D that stay as they are
  int scale_d = 0;             ///< D is multiplied by 2^-scale_d on input
};

struct MmaStep final : TensorStep {
  const MmaPlan* plan = nullptr;
  CtaPair pair;
  InstructionDescriptor what;
  MatrixDescriptor a_shared, b_shared;
  ColumnMask column_mask;
  TensorAddress d{0}, a{0}, sfa{0}, sfb{0}, metadata{0};
  bool accumulate = false;
  std::array<std::uint32_t, 8> lane_mask{};
  void run() override;
  /// At issue, for the race detector: what it reads and writes.
  void note_accesses(race::Agent agent) const;

 private:
  void read_a(MatrixOperands& m);
  void read_a_tensor(MatrixOperands& m);
  void read_b(MatrixOperands& m);
  void load_d(MatrixOperands& m);
  void store_d(MatrixOperands& m);
  void read_metadata(MatrixOperands& m);
  FusedRule rule() const;
  /// Whether one of `count` columns of B in shared memory takes part (.ws: shift and zero-column mask).
  bool columns_used(int first, int count) const {
    for (int n = first - column_mask.source(0), end = n + count; n < end; ++n)
      if (n >= 0 && n < what.n && !column_mask.zero(n)) return true;
    return false;
  }
  bool packed4() const { return plan->form.kind == MmaKind::mxf4 || plan->form.kind == MmaKind::mxf4nvf4; }
  int stored_k() const { return what.sparse ? what.k / 2 : what.k; }
  int k_of(int row, int k) const { return what.sparse ? positions_[std::size_t(row * stored_k() + k)] : k; }
  std::vector<std::uint16_t> positions_;  // of stored elements, with sparse A
};

/// D += A*B of a block-scaled kind; the operands' bits and D are in `m`. tcgen05_scale.cpp.
void multiply_scaled(const MmaStep& step, MatrixOperands& m, MatrixPrecision precision);

}  // namespace cgp::emu

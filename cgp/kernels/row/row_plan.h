// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which skeleton and which config for a problem on a device: a pure function. And the launch of a planned
// kernel.
#include "cgp/kernels/common/variant.h"
#include "cgp/kernels/common/view.h"
#include "cgp/kernels/row/row_kernel.h"

namespace cgp::kernels::row {

/// What an operation asks of a skeleton.
struct RowNeeds {
  std::vector<DType> inputs, outputs;  ///< row by row
  std::vector<DType> columns;          ///< vectors along the row
  int fold_size = 1;                   ///< f32 of a row's statistics
  int accumulators = 0;                ///< sums over rows
  bool once = false;                   ///< results are statistics alone
  bool expensive = false;  ///< finish() takes as many instructions as the statistics: exponentials again
  /// begin() loads: rows beyond a block's registers wait less in few and large blocks.
  bool row_loads = false;
  int registers = 0;  ///< a thread needs beyond its elements, columns and sums
};
struct RowPlan {
  RowConfig config;
  std::string why;
};

/// Elements of a 16-byte access of the narrowest type.
int widest_access(const RowNeeds& n);
/// `fit`: how accesses of widest_access() do. With accumulators and rows too long for registers (accumulators
/// must stay there) throws Unsupported.
RowPlan plan_rows(const RowNeeds& n, std::uint64_t rows, std::uint64_t cols, Fit fit,
                  const runtime::DeviceInfo& device);
/// The same for RowConfig::shift: one input and one output of one type, no columns, no accumulators.
RowPlan plan_shifted_rows(const RowNeeds& n, std::uint64_t rows, std::uint64_t cols,
                          const runtime::DeviceInfo& device);
/// Row teams (grid blocks / cluster * t.rows) that a launch with accumulators has at most, each of which
/// needs a row of partial sums for each accumulator.
std::uint64_t most_teams(const RowConfig& t, std::uint64_t rows, const runtime::DeviceInfo& device);
/// Blocks to launch.
runtime::Dim3 grid(const runtime::LoadedKernel& fn, const RowConfig& t, const RowNeeds& n,
                   std::uint64_t rows);

/// The lowest architecture (times ten) that the types and the config allow.
int min_sm(const RowNeeds& n, const RowConfig& t);
/// "bf16", "bf16_f32": types in order, repeats left out.
std::string type_names(const RowNeeds& n);

/// For a catalogue's images: every config that `shapes` (rows, cols, wide) lead to on devices with and
/// without clusters.
std::vector<RowConfig> shipped_configs(const RowNeeds& n, std::string_view arch);
/// The same for plan_shifted_rows().
std::vector<RowConfig> shipped_shifted_configs(const RowNeeds& n, std::string_view arch);
/// Of those, every how many-th is listed for a type and form: all of the plain bf16 form on the architectures
/// that differ most, samples of the rest.
std::size_t image_step(std::string_view arch, DType t, bool special_form);

}  // namespace cgp::kernels::row

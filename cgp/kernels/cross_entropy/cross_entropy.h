// SPDX-License-Identifier: Apache-2.0
#pragma once
// Cross-entropy of logits, its gradient in the same launch. With lse = log sum exp(x), e = label_smoothing:
//   loss    = lse - (1 - e) x[target] - e mean(x) + z_loss lse^2
//   dlogits = scale * (softmax(x) (1 + 2 z_loss lse) - (1 - e) [column is target] - e / cols)
// A row whose target is ignore_index has loss 0 and gradient 0. Any other target outside
// [0, cols) gives NaN in its row and sets `error_flag`; nothing outside the logits is read.
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/kernels/row/row_plan.h"

namespace cgp::kernels {

struct CrossEntropy {
  View logits;      ///< [rows, cols]: f32, f16 or bf16
  View targets;     ///< [rows]: s32 or s64
  View loss;        ///< f32 [rows], optional
  View lse;         ///< f32 [rows], optional
  View dlogits;     ///< [rows, cols], optional; may be the logits themselves, with the same layout
  View scale;       ///< f32 [1] on the device, optional: multiplies dlogits (count_targets() makes 1 / count)
  View error_flag;  ///< u32 [1], optional: set to 1 where a target is out of range; never set to 0
  std::uint64_t rows = 0, cols = 0;
  row::Layout logits_layout{}, dlogits_layout{};
  std::int64_t ignore_index = -100;
  float label_smoothing = 0, z_loss = 0;
  std::optional<row::RowConfig> config{};
};
void cross_entropy(runtime::Stream& s, const CrossEntropy& c);

/// scale[0] = 1 / (targets that are not ignore_index): the factor of a mean. Targets are s32 or s64.
void count_targets(runtime::Stream& s, const View& targets, std::int64_t ignore_index, const View& scale);

/// The same scale, and loss[0] = scale[0] * the sum of `losses` (f32, one a target). Without scale: the sum, and
/// targets are ignored. One block, or a cluster of eight above 8192 on sm_90 and later; the order of addition
/// depends on the count and the device alone.
void mean_loss(runtime::Stream& s, const View& losses, const View& targets, std::int64_t ignore_index,
               const View& scale, const View& loss);

/// What would run.
Variant cross_entropy_variant(const CrossEntropy& c, const runtime::DeviceInfo& device, std::string* why);
KernelEntry cross_entropy_entry();

}  // namespace cgp::kernels

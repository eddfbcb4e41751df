// SPDX-License-Identifier: Apache-2.0
#pragma once
// log-softmax, and the gradients of softmax and log-softmax, row by row; f32, f16, bf16 in any mixture, f32
// inside.
//   log_softmax            y  = x - max - log sum exp(x - max)
//   softmax_backward       dx = y (dy - sum dy y)        y: the softmax
//   log_softmax_backward   dx = dy - exp(y) sum dy       y: the log-softmax
// A row with a NaN, a +inf or only -inf is NaN throughout (log_softmax).
#include "cgp/kernels/catalog.h"
#include "cgp/kernels/row/row_plan.h"

namespace cgp::kernels {

struct SoftmaxRows {
  View in;   ///< [rows, cols]: x, or y for gradients
  View dy;   ///< [rows, cols], gradients only
  View out;  ///< [rows, cols]: y or dx
  std::uint64_t rows = 0, cols = 0;
  row::Layout in_layout{}, dy_layout{}, out_layout{};
  std::optional<row::RowTuning> tuning{};
};
void log_softmax(runtime::Stream& s, const SoftmaxRows& r);
void softmax_backward(runtime::Stream& s, const SoftmaxRows& r);
void log_softmax_backward(runtime::Stream& s, const SoftmaxRows& r);

/// The softmax of rows that begin anywhere, where softmax() has but single elements: it sends them here.
void softmax_rows(runtime::Stream& s, const SoftmaxRows& r);

enum class SoftmaxOp : std::uint8_t { log_softmax, softmax_backward, log_softmax_backward, softmax };
/// What would run.
Variant softmax_rows_variant(SoftmaxOp op, const SoftmaxRows& r, const runtime::DeviceInfo& device,
                             std::string* why);

KernelEntry log_softmax_entry();
KernelEntry softmax_backward_entry();
KernelEntry log_softmax_backward_entry();

}  // namespace cgp::kernels

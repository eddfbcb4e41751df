// SPDX-License-Identifier: Apache-2.0
#pragma once
// Softmax, log-softmax and their gradients, row by row; f32, f16, bf16 in any mixture, f32 inside. Any number
// of rows and columns, 0 included; rows may be strided. An output may be one of the inputs.
//   softmax                y  = exp(x - max) / sum exp(x - max)
//   log_softmax            y  = x - max - log sum exp(x - max)
//   softmax_backward       dx = y (dy - sum dy y)        y: the softmax
//   log_softmax_backward   dx = dy - exp(y) sum dy       y: the log-softmax
// A row of x with a NaN, a +inf or only -inf is NaN throughout.
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/kernels/row/row_plan.h"

namespace cgp::kernels {

struct Softmax {
  View in;   ///< [rows, cols]: x, or y for gradients
  View dy;   ///< [rows, cols], gradients only
  View out;  ///< [rows, cols]: y or dx
  std::uint64_t rows = 0, cols = 0;
  row::Layout in_layout{}, dy_layout{}, out_layout{};
  std::optional<row::RowConfig> config{};
};
void softmax(runtime::Stream& s, const Softmax& r);
void log_softmax(runtime::Stream& s, const Softmax& r);
void softmax_backward(runtime::Stream& s, const Softmax& r);
void log_softmax_backward(runtime::Stream& s, const Softmax& r);

enum class SoftmaxOp : std::uint8_t { softmax, log_softmax, softmax_backward, log_softmax_backward };
/// What would run.
Variant softmax_variant(SoftmaxOp op, const Softmax& r, const runtime::DeviceInfo& device, std::string* why);

KernelEntry softmax_entry();
KernelEntry log_softmax_entry();
KernelEntry softmax_backward_entry();
KernelEntry log_softmax_backward_entry();

}  // namespace cgp::kernels

// SPDX-License-Identifier: Apache-2.0
#pragma once
// RMSNorm and LayerNorm, forward and backward, with the residual addition fused. f32, f16 and bf16 in any
// mixture, f32 inside; any number of rows and columns, any strides.
//   h = x + residual (rounded to the type of `sum`, else of x), or x
//   RMSNorm    y = h * rstd * (weight + weight_offset)              rstd = 1 / sqrt(mean(h^2) + eps)
//   LayerNorm  y = (h - mean) * rstd * (weight + weight_offset) + bias   rstd = 1 / sqrt(var(h) + eps)
// A row with a NaN gives NaN; a row with an infinity gives NaN under LayerNorm, and NaN there and 0 elsewhere under
// RMSNorm. Other rows are not affected.
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/kernels/row/row_plan.h"

namespace cgp::kernels {

struct Norm {
  View x, y;          ///< [rows, cols]
  View weight, bias;  ///< [cols]; not given: 1 and 0. RMSNorm has no bias
  View residual;      ///< [rows, cols], added to x
  View sum;           ///< [rows, cols], optional: gets h
  View mean, rstd;    ///< f32 [rows], optional: what the backward pass needs. RMSNorm has no mean
  std::uint64_t rows = 0, cols = 0;
  row::Layout x_layout{}, y_layout{}, residual_layout{}, sum_layout{};
  float eps = 1e-6f;
  float weight_offset = 0;
  std::optional<row::RowConfig> config{};  ///< instead of the selected one
};
/// Throws ArgumentError that names the argument; Unsupported where the device lacks the type.
void rms_norm(runtime::Stream& s, const Norm& n);
void layer_norm(runtime::Stream& s, const Norm& n);

struct NormBackward {
  View x;               ///< [rows, cols]: h of the forward pass
  View dy;              ///< [rows, cols]
  View dsum;            ///< [rows, cols], optional: the gradient of `sum`; added to dx
  View weight;          ///< [cols], optional
  View mean, rstd;      ///< f32 [rows], of the forward pass; RMSNorm has no mean
  View dx;              ///< [rows, cols]
  View dweight, dbias;  ///< [cols], optional (together they decide what is computed); RMSNorm has no dbias
  View dx_sum;     ///< [cols], optional: the sum of dx over the rows, the gradient of a bias added before
  View workspace;  ///< f32, norm_backward_workspace() elements
  std::uint64_t rows = 0, cols = 0;
  row::Layout x_layout{}, dy_layout{}, dsum_layout{}, dx_layout{};
  float weight_offset = 0;
  std::optional<row::RowConfig> config{};
};
/// Deterministic: sums over rows are taken in two stages, in an order that depends on shape and device only.
void rms_norm_backward(runtime::Stream& s, const NormBackward& n);
void layer_norm_backward(runtime::Stream& s, const NormBackward& n);
/// f32 elements of workspace.
std::uint64_t norm_backward_workspace(const NormBackward& n, bool layer, const runtime::DeviceInfo& device);

/// RMSNorm of every head of q and k in place or to other arrays: rows are heads of head_dim elements.
struct QkNorm {
  View q, k, q_out, k_out;  ///< [tokens, heads, head_dim]
  View q_weight, k_weight;  ///< [head_dim], optional
  View q_rstd, k_rstd;      ///< f32 [tokens * heads], optional
  std::uint64_t tokens = 0, q_heads = 0, k_heads = 0, head_dim = 0;
  /// Elements from one token to the next; 0: heads * head_dim.
  std::uint64_t q_pitch = 0, k_pitch = 0, q_out_pitch = 0, k_out_pitch = 0;
  float eps = 1e-6f;
};
void qk_norm(runtime::Stream& s, const QkNorm& n);

/// What a launch would run, for tools: variants in order, and why.
struct NormSteps {
  std::vector<Variant> variants;
  std::string why;
};
NormSteps norm_steps(const Norm& n, bool layer, const runtime::DeviceInfo& device);
NormSteps norm_backward_steps(const NormBackward& n, bool layer, const runtime::DeviceInfo& device);

KernelEntry rms_norm_entry();
KernelEntry layer_norm_entry();
KernelEntry rms_norm_backward_entry();
KernelEntry layer_norm_backward_entry();

}  // namespace cgp::kernels

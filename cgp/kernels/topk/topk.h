// SPDX-License-Identifier: Apache-2.0
#pragma once
// The k largest elements of each row with their indices, in descending order, equal ones (-0 equals 0) in ascending
// order of index; NaN is larger than any number, as in torch.topk. Of elements equal to the k-th largest the lowest
// indices are taken. The result is the same at every run.
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/kernels/common/variant.h"
#include "cgp/kernels/common/view.h"

namespace cgp::kernels {

inline constexpr std::uint64_t kMostTopK = 1024;

struct TopK {
  View in;      ///< [rows, cols]: f32, f16 or bf16
  View values;  ///< [rows, k] of in's type: the elements as they are, signs of zeros and NaNs included
  View index;   ///< [rows, k]: s32 or s64
  std::uint64_t rows = 0, cols = 0;  ///< cols at most 2^30
  std::uint64_t k = 0;               ///< at most cols and kMostTopK
  row::Layout layout{};              ///< of in: pitch alone
};
void topk(runtime::Stream& s, const TopK& t);

/// What would run.
Variant topk_variant(const TopK& t);
KernelEntry topk_entry();

}  // namespace cgp::kernels

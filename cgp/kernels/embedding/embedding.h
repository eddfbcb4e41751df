// SPDX-License-Identifier: Apache-2.0
#pragma once
// Rows of a table by index, and the gradient of the table.
//   forward    out[r] = weight[indices[r]]
//   backward   dweight[v] = sum of dout[r] over the r with indices[r] == v, in ascending order of r, in f32; 0 where v
//              is no index or padding_idx. With `accumulate` the sums are added to dweight and rounded once; other
//              rows are neither read nor written
// An index outside [0, vocab) gives a row of NaN (all bits set) in the forward pass, adds nothing in the backward
// pass, and sets `error_flag` in both; nothing outside the table is read or written. Both passes give the same bits
// at every run.
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/kernels/common/variant.h"
#include "cgp/kernels/common/view.h"

namespace cgp::kernels {

struct Embedding {
  View indices;     ///< [rows]: s32 or s64
  View weight;      ///< [vocab, cols]: f32, f16 or bf16
  View out;         ///< [rows, cols]: weight's type
  View error_flag;  ///< u32 [1], optional: set to 1 where an index is out of range; never set to 0
  std::uint64_t rows = 0, vocab = 0, cols = 0;
  row::Layout weight_layout{}, out_layout{};  ///< pitch alone
};
void embedding(runtime::Stream& s, const Embedding& e);

struct EmbeddingBackward {
  View indices;     ///< [rows]: s32 or s64
  View dout;        ///< [rows, cols]: f32, f16 or bf16
  View dweight;     ///< [vocab, cols], of dout's type; without `accumulate` every element is written
  View workspace;   ///< u32 [embedding_workspace(rows, vocab)]
  View error_flag;  ///< u32 [1], optional, as in the forward pass
  std::uint64_t rows = 0, vocab = 0, cols = 0;  ///< rows and vocab below 2^32 - 1
  /// The index whose row gets no gradient; -1: none. (The forward pass treats it like any other, as
  /// torch.nn.functional.embedding does.)
  std::int64_t padding_idx = -1;
  bool accumulate = false;                      ///< adds to dweight
  row::Layout dout_layout{}, dweight_layout{};  ///< pitch alone
};
/// u32 elements of workspace: the list of positions of each table row, and where each list starts.
std::uint64_t embedding_workspace(std::uint64_t rows, std::uint64_t vocab);
void embedding_backward(runtime::Stream& s, const EmbeddingBackward& e);

/// What would run.
std::vector<Variant> embedding_variants(const Embedding& e);
std::vector<Variant> embedding_backward_variants(const EmbeddingBackward& e);
KernelEntry embedding_entry();
KernelEntry embedding_backward_entry();

}  // namespace cgp::kernels

// SPDX-License-Identifier: Apache-2.0
#pragma once
// Oracle of attention, in double, one row at a time: any strides, masks and bounds.
#include <vector>

#include "cgp/kernels/attention/attention.h"

namespace cgp::kernels {

/// Everything a problem reads, on the host. Empty arrays where it has none.
struct AttentionInputs {
  HostArray q, k, v;  ///< flat: addressed with the problem's strides
  HostArray slopes, mask;
  HostArray q_scale, k_scale, v_scale;  ///< of e4m3 operands
  std::vector<std::uint32_t> cu_seqlens_q, cu_seqlens_kv, lengths;
  /// The host's version of the score modification.
  std::function<double(double score, std::uint64_t batch, std::uint64_t head, std::uint64_t query,
                       std::uint64_t key)>
      modify;
};
struct AttentionRow {
  bool exists = true;  ///< packed: whether the sequence has such a row
  std::vector<double> o;
  double lse = 0;
  std::vector<double> weight;  ///< sum_j p_j |v_j|: what rounding of probabilities multiplies
  std::vector<double> size;  ///< largest p_j times sum_j |v_j| of allowed keys: of what is rounded to nothing
  double score_size = 0;     ///< largest sum |q||k| * scale of an allowed key
  std::uint64_t row = 0;     ///< in memory: first_q + query
};
AttentionRow attention_ref(const AttentionProblem& dense, const AttentionInputs& in, std::uint64_t batch,
                           std::uint64_t head, std::uint64_t query);
/// Probabilities of one row (0 where not allowed), for gradients.
std::vector<double> attention_probabilities(const AttentionProblem& dense, const AttentionInputs& in,
                                            std::uint64_t batch, std::uint64_t head, std::uint64_t query);

/// Checks o (and lse, unless empty) at every row, or at a sample of them where that would take long.
Check check_attention(const AttentionProblem& p, const AttentionInputs& in, const HostArray& o,
                      const HostArray& lse);

}  // namespace cgp::kernels

// SPDX-License-Identifier: Apache-2.0
#pragma once
// Gradients of attention from o, its lse and the gradient of o. The result does not depend on the order of
// execution: every sum belongs to one warp. Rows and keys that nothing was allowed for get 0.
#include "cgp/kernels/attention/attention.h"

namespace cgp::kernels {

struct AttentionGradients {
  std::uint64_t d_o = 0;                    ///< in, strided as o
  std::uint64_t d_q = 0, d_k = 0, d_v = 0;  ///< out, strided as q, k, v
  std::uint64_t delta = 0;                  ///< scratch, f32, laid out as lse
};
/// Queues the gradients of `p`, whose forward pass left o and lse in `at`. ArgumentError with reject()'s
/// sentence or when an address is 0.
void attention_backward(runtime::Stream& s, const AttentionProblem& p, const AttentionAddresses& at,
                        const AttentionGradients& g);
/// The kernels, in the order they run: delta, queries, keys.
std::vector<Variant> attention_backward_simt(DType t, const AttentionFeatures& f);

}  // namespace cgp::kernels

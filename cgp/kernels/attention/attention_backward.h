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
/// Tiles of scores of a warp: its own queries (or keys) by those of the other side.
struct AttentionBackwardTuning {
  int key_rows = 16, key_columns = 48, query_rows = 32, query_columns = 32;
};
struct AttentionBackwardChoice {
  AttentionKind kind = AttentionKind::simt;  ///< simt or mma
  std::vector<Variant> kernels;              ///< delta, queries, keys
  std::string why;
  int width = 0;                 ///< of the tiles of mma
  AttentionBackwardTuning tune;  ///< of mma
};
/// Why `kind` cannot run it; empty: it can.
std::string reject_backward(AttentionKind kind, const AttentionProblem& p, const AttentionAddresses& at,
                            const AttentionGradients& g, const runtime::DeviceInfo& d);
/// A pure function of its arguments: mma where it can run.
AttentionBackwardChoice select_attention_backward(const AttentionProblem& p, const AttentionAddresses& at,
                                                  const AttentionGradients& g, const runtime::DeviceInfo& d);
/// One kind on compute capability `cc` (times ten), whether or not it can run; of mma, `tune` replaces the
/// tiles that would be chosen.
AttentionBackwardChoice choose_attention_backward(AttentionKind kind, const AttentionProblem& p, int cc,
                                                  const AttentionBackwardTuning* tune = nullptr);
/// Of the five products of the gradients, over the allowed part where bounds cut it.
double attention_backward_flops(const AttentionProblem& p);
/// Queues the gradients of `p`, whose forward pass left o and lse in `at`. ArgumentError with reject()'s
/// sentence or when an address is 0.
void attention_backward(runtime::Stream& s, const AttentionProblem& p, const AttentionAddresses& at,
                        const AttentionGradients& g);
/// The same with one choice; Unsupported with reject_backward()'s sentence.
void run_attention_backward(runtime::Stream& s, const AttentionBackwardChoice& choice,
                            const AttentionProblem& p, const AttentionAddresses& at,
                            const AttentionGradients& g);
/// The kernels, in the order they run: delta, queries, keys.
std::vector<Variant> attention_backward_simt(DType t, const AttentionFeatures& f);
/// Head dimensions up to `d`: 32, 64 or 128.
std::vector<Variant> attention_backward_mma(DType t, int d, const AttentionBackwardTuning& tune,
                                            const AttentionFeatures& f);

}  // namespace cgp::kernels

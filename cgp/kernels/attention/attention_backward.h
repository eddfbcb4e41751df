// SPDX-License-Identifier: Apache-2.0
#pragma once
// Gradients of attention from o, its lse and the gradient of o. Rows and keys that nothing was allowed for
// get 0. The result is the same in every run, unless a workspace is given and `deterministic` is false: then
// blocks of keys add to d_q in any order, which is faster.
#include "cgp/kernels/attention/attention.h"

namespace cgp::kernels {

struct AttentionGradients {
  std::uint64_t d_o = 0;                    ///< in, strided as o
  std::uint64_t d_q = 0, d_k = 0, d_v = 0;  ///< out, strided as q, k, v
  std::uint64_t delta = 0;                  ///< scratch, f32, laid out as lse
  /// Scratch of attention_backward_workspace() bytes at a multiple of 256, or 0: then sm90 is not chosen.
  std::uint64_t workspace = 0;
  bool deterministic = true;  ///< of sm90: sums of d_q in the order of keys; mma and simt always are
};
/// What sm90 needs, a few bytes for each element of d_q; 0 where sm90 does not take such problems. `total_q`:
/// rows of packed queries, as in AttentionAddresses; 0: as many as there may be.
std::uint64_t attention_backward_workspace(const AttentionProblem& p, std::uint64_t total_q = 0);
/// Tiles of scores of a warp: its own queries (or keys) by those of the other side.
struct AttentionBackwardTuning {
  int key_rows = 16, key_columns = 48, query_rows = 32, query_columns = 32;
};
struct AttentionBackwardSm90Tuning {
  int stages = 2;            ///< tiles of q and of d_o in flight
  int buffers = 2;           ///< parts of d_q of a warpgroup on their way
  bool turns = true;         ///< blocks of keys add to d_q in order
  bool first = false;        ///< in any order, but after the first, which replaces: nobody writes zeros
  bool spread = false;       ///< blocks of a head begin at different queries
  bool persistent = true;    ///< blocks stay and take tiles of keys one by one
  bool rounded = false;      ///< ds from probabilities as rounded for d_v: registers
  int depth = 0, width = 0;  ///< columns of q and k, and of v, that are multiplied; 0: the tile's
  int section = 0;           ///< heads of keys that are visited together; 0: what L2 holds
  int blocks = 0;            ///< that stay; 0: one for each SM
};
struct AttentionBackwardChoice {
  AttentionKind kind = AttentionKind::simt;
  std::vector<Variant>
      kernels;  ///< delta, queries, keys (mma above 128 columns: d_k, d_v); of sm90: delta, gradients, d_q
  std::string why;
  int width = 0;                 ///< of the tiles of mma and sm90
  AttentionBackwardTuning tune;  ///< of mma
  AttentionBackwardSm90Tuning sm90;
};
/// Why `kind` cannot run it; empty: it can.
std::string reject_backward(AttentionKind kind, const AttentionProblem& p, const AttentionAddresses& at,
                            const AttentionGradients& g, const runtime::DeviceInfo& d);
/// A pure function of its arguments: sm90 where it can run, then mma.
AttentionBackwardChoice select_attention_backward(const AttentionProblem& p, const AttentionAddresses& at,
                                                  const AttentionGradients& g, const runtime::DeviceInfo& d);
/// simt or mma on compute capability `cc` (times ten), whether or not it can run; of mma, `tune` replaces the
/// tiles that would be chosen.
AttentionBackwardChoice choose_attention_backward(AttentionKind kind, const AttentionProblem& p, int cc,
                                                  const AttentionBackwardTuning* tune = nullptr);
AttentionBackwardChoice choose_attention_backward_sm90(const AttentionProblem& p,
                                                       const AttentionBackwardSm90Tuning& tune);
/// What ships, chosen by the problem.
AttentionBackwardSm90Tuning tune_attention_backward(const AttentionProblem& p, bool deterministic);
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
/// Head dimensions up to `d`: 32, 64, 128, 192 or 256.
std::vector<Variant> attention_backward_mma(DType t, int d, const AttentionBackwardTuning& tune,
                                            const AttentionFeatures& f);
/// Head dimensions up to `d`: 64 or 128. In the order they run: delta, gradients, d_q.
std::vector<Variant> attention_backward_sm90(DType t, int d, const AttentionBackwardSm90Tuning& tune,
                                             const AttentionFeatures& f);
/// Why sm90 cannot run it; empty: it can.
std::string reject_backward_sm90(const AttentionProblem& dense, const AttentionAddresses& at,
                                 const AttentionGradients& g, const runtime::DeviceInfo& d);
void run_attention_backward_sm90(runtime::Stream& s, const AttentionBackwardChoice& choice,
                                 const AttentionProblem& dense, const AttentionAddresses& at,
                                 const AttentionGradients& g);

}  // namespace cgp::kernels

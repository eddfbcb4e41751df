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
  bool deterministic = true;  ///< sm90: d_q is summed in the order of keys; mma and simt always are
};
/// What sm90 needs, a few bytes for each element of d_q and, where blocks share the queries of a tile of keys, of
/// d_k and d_v; 0 where sm90 does not take such problems. `total_q`: rows of packed queries, as in
/// AttentionAddresses; 0: as many as there may be. `splits`: of AttentionBackwardSm90Tuning; 0: as chosen.
std::uint64_t attention_backward_workspace(const AttentionProblem& p, std::uint64_t total_q = 0,
                                           int splits = 0);
/// Tiles of scores of a warp: its own queries (or keys) by those of the other side.
struct AttentionBackwardTuning {
  int key_rows = 16, key_columns = 48, query_rows = 32, query_columns = 32;
};
/// When a block of keys of sm90 adds its part to a sum of d_q in global memory.
enum class AddOrder : std::uint8_t {
  any,           ///< at once: the sum begins as zeros
  first_stores,  ///< the first block of keys stores, the others wait for it and add in any order
  ordered        ///< in the order of keys: the result is the same in every run
};
struct AttentionBackwardSm90Tuning {
  int stages = 2;   ///< tiles of q and of d_o in flight
  int partial = 2;  ///< partial sums of d_q of a warpgroup that wait to be added, 1 or 2
  AddOrder order = AddOrder::ordered;
  bool persistent = true;           ///< blocks take tiles of keys one by one
  bool rounded = false;             ///< ds from probabilities as rounded for d_v: fewer registers
  int used_d_qk = 0, used_d_v = 0;  ///< columns of a tile that are multiplied; 0: all
  bool split = false;    ///< several blocks share the queries of a tile of keys, and d_k and d_v are summed
  int splits = 1;        ///< how many, where split
  int head_swizzle = 0;  ///< heads of keys that are visited together; 0: as many as L2 holds
  int blocks = 0;        ///< persistent blocks; 0: one for each SM
};

/// One of the kernels of the gradients.
enum class BackwardStep : std::uint8_t { delta, queries, keys, d_k, d_v, gradients, d_q, d_kv };
/// What delta of sm90 sets to zero beside the statistics: counters of added parts, and the sums of d_q where
/// nobody is the first to store.
enum class BackwardClears : std::uint8_t { nothing, counters, counters_and_d_q };
struct AttentionBackwardConfig {
  DType type = DType::bf16;
  AttentionKind kind = AttentionKind::simt;
  BackwardStep step = BackwardStep::delta;
  int d_qk = 0, d_v = 0;      ///< width of the tiles; 0 for simt, equal but for heads above 128 of sm90
  int rows = 0, columns = 0;  ///< mma: of a warp's part of a tile of scores
  AttentionBackwardSm90Tuning tune = {};            ///< sm90
  BackwardClears clears = BackwardClears::nothing;  ///< delta of sm90
  AttentionFeatures features = {};

  /// Heads above 128 columns of sm90 have a kernel for each of d_k, d_v and d_q.
  bool wide() const { return kind == AttentionKind::sm90 && d_qk > 128; }
  /// "attention_backward_bf16_sm90_gradients_d128x128_s2_ordered_persistent_window_right"
  std::string name() const { return config_name("attention_backward", *this); }
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    static constexpr std::string_view kinds[] = {"simt", "mma", "sm90"};
    static constexpr std::string_view steps[] = {"delta", "queries",   "keys", "d_k",
                                                 "d_v",   "gradients", "d_q",  "d_kv"};
    static constexpr std::string_view clears[] = {"", "clears_counters", "clears_counters_and_d_q"};
    static constexpr std::string_view orders[] = {"any_order", "first_stores", "ordered"};
    v.type("type", "", c.type), v.choice("kind", kinds, c.kind), v.choice("step", steps, c.step);
    v.extent("head_dim", "d", c.d_qk, c.d_v);
    if (c.kind == AttentionKind::mma) v.extent("tile", "tile", c.rows, c.columns);
    if (c.kind == AttentionKind::sm90 && c.step == BackwardStep::delta) v.choice("clears", clears, c.clears);
    const bool products = c.step == BackwardStep::gradients || (c.wide() && c.step != BackwardStep::delta);
    if (c.kind == AttentionKind::sm90 && products) {
      auto& t = c.tune;
      v.number("used_d_qk", "qk", t.used_d_qk, 0), v.number("used_d_v", "v", t.used_d_v, 0);
      if (c.step == BackwardStep::gradients) {
        v.number("stages", "s", t.stages), v.number("partial_sums", "partial", t.partial, 2);
        v.choice("order", orders, t.order);
      }
      v.flag("split", t.split), v.flag("persistent", t.persistent);
      if (c.step == BackwardStep::gradients) v.flag("rounded", t.rounded);
    }
    AttentionFeatures::visit(c.features, v);
  }
};
Variant attention_backward_variant(const AttentionBackwardConfig& c);

struct AttentionBackwardChoice {
  AttentionKind kind = AttentionKind::simt;
  /// In the order they run: delta, queries, keys (mma above 128 columns: d_k, d_v); of sm90: delta, gradients,
  /// d_q, or above 128 columns delta, d_k, d_v, d_q; where split, d_kv too.
  std::vector<AttentionBackwardConfig> configs;
  std::vector<Variant> kernels;  ///< of the configs
  std::string why;
  int width = 0;                     ///< of the tiles of mma and sm90
  AttentionBackwardTuning tune;      ///< of mma
  AttentionBackwardSm90Tuning sm90;  ///< of sm90
};
/// With the kernels of its configs.
AttentionBackwardChoice built(AttentionBackwardChoice c);
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
// ---------------------------------------------------------------- by kind
std::vector<AttentionBackwardConfig> attention_backward_simt(DType t, const AttentionFeatures& f);
/// Head dimensions up to `d`: 32, 64, 128, 192 or 256.
std::vector<AttentionBackwardConfig> attention_backward_mma(DType t, int d,
                                                            const AttentionBackwardTuning& tune,
                                                            const AttentionFeatures& f);
/// Head dimensions up to `d`: 64 or 128; up to d_qk x d_v: 192 x 128, 256 x 256.
std::vector<AttentionBackwardConfig> attention_backward_sm90(DType t, int d,
                                                             const AttentionBackwardSm90Tuning& tune,
                                                             const AttentionFeatures& f);
Variant attention_backward_simt_variant(const AttentionBackwardConfig& c);
Variant attention_backward_mma_variant(const AttentionBackwardConfig& c);
Variant attention_backward_sm90_variant(const AttentionBackwardConfig& c);
/// Why sm90 cannot run it; empty: it can.
std::string reject_backward_sm90(const AttentionProblem& dense, const AttentionAddresses& at,
                                 const AttentionGradients& g, const runtime::DeviceInfo& d);
void run_attention_backward_sm90(runtime::Stream& s, const AttentionBackwardChoice& choice,
                                 const AttentionProblem& dense, const AttentionAddresses& at,
                                 const AttentionGradients& g);

}  // namespace cgp::kernels

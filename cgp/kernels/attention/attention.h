// SPDX-License-Identifier: Apache-2.0
#pragma once
// o[b, h, i, :] = sum_j softmax_j(score(i, j)) v[b, h', j, :] with h' = h * heads_kv / heads_q (grouped
// queries), fp32 inside, no n_q x n_kv matrix in memory.
//   score   q_i . k_j * scale; with soft_cap c: c * tanh(score / c); with slopes: - slope_h * |i' - j|; with
//           an additive mask: + mask; with a ScoreModification: what it makes of that
//   i'      i + n_kv - n_q: the last query is aligned with the last key (bottom right)
//   allowed j <= i' (causal); i' - window_left <= j <= i' + window_right; boolean mask not 0; j below the
//           sequence's number of keys
// A row with nothing allowed is 0, and its lse -infinity.
#include <cstdint>
#include <functional>
#include <string>

#include "cgp/dsl/core/arith.h"
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/kernels/common/variant.h"

namespace cgp::kernels {

/// Elements between neighbours; the last dimension is contiguous. All 0: dense [batch, heads, rows, d].
struct AttentionStrides {
  std::uint64_t batch = 0, head = 0, row = 0;
};
/// Elements between the factors of neighbouring sequences and heads; 0: they share one.
struct AttentionScaleStrides {
  std::uint64_t batch = 0, head = 0;
};
enum class AttentionMask : std::uint8_t { none, additive, boolean };
std::string_view name(AttentionMask m);

/// One score on its way through a kernel, for ScoreModification. Tiles reach beyond a sequence: so do `query`
/// and `key`, of scores that are dropped afterwards. An index into `data` must be clamped.
struct AttentionScore {
  dsl::Val<dsl::f32> score;                    ///< scaled
  dsl::Val<dsl::u32> batch, head, query, key;  ///< of this sequence
  dsl::Val<dsl::u64> data;                     ///< AttentionAddresses::data
};
/// A lambda of the DSL that becomes part of the kernel. Kernels are cached by `name`: two different lambdas
/// need two names.
struct ScoreModification {
  std::string name;
  std::function<dsl::Val<dsl::f32>(const AttentionScore&)> apply;
  /// d(apply)/d(score), times `upstream`; empty: recorded from `apply` (cgp/dsl/core/derivative.h). Numbers behind
  /// `data` have no gradient.
  std::function<dsl::Val<dsl::f32>(const AttentionScore&, const dsl::Val<dsl::f32>& upstream)> gradient;
};

struct AttentionProblem {
  DType type = DType::bf16;  ///< of q, k, v, o: f32, f16 or bf16; forward only: e4m3, with o of type `out`
  DType out = DType::bf16;   ///< where type is e4m3: bf16 or f16
  std::uint64_t batch = 1, heads_q = 1, heads_kv = 0;  ///< heads_kv 0: heads_q
  std::uint64_t n_q = 0, n_kv = 0;                     ///< rows; of the longest sequence where packed
  std::uint64_t d_qk = 64, d_v = 0;                    ///< 1 to 256; d_v 0: d_qk
  AttentionStrides q, k, v, o;
  float scale = -1;  ///< negative: 1 / sqrt(d_qk)
  bool causal = false;
  std::int64_t window_left = -1, window_right = -1;  ///< negative: no limit
  float soft_cap = 0;                                ///< 0: none
  bool alibi = false;                                ///< f32 slopes [heads_q]
  AttentionMask mask = AttentionMask::none;          ///< additive: of the type of o; boolean: u8
  std::uint64_t mask_batch = 0, mask_head = 0, mask_row = 0, mask_col = 0;  ///< strides; 0: broadcast
  /// Sequences lie one after the other in [total, heads, d]: the strides of the batch do not matter, offsets
  /// come from u32 cu_q[batch + 1] and cu_kv[batch + 1].
  bool packed = false;
  bool key_lengths =
      false;  ///< u32 [batch]: keys of each sequence, at most n_kv; queries align with its last
  ScoreModification modify;  ///< `apply` empty: none
  /// Of the factors of e4m3 operands, f32: for q by batch and query head, for k and v by batch and key head.
  AttentionScaleStrides q_scale, k_scale, v_scale;
  /// Of e4m3, head dimensions up to 128: sums over keys leave the tensor cores, which keep some 14 bits,
  /// after every tile. Values whose mean is not 0 want it where there are thousands of keys.
  bool promoted = false;

  /// The same with every 0 or negative default replaced by what it means.
  AttentionProblem dense() const;
  double flops() const;  ///< of the two products, over the allowed part where bounds cut it
  DType o_type() const { return type == DType::e4m3 ? out : type; }
};
/// Why the problem is malformed, naming the argument; empty: it is fine, and has gradients.
std::string reject(const AttentionProblem& p);
/// The same for the forward pass alone, which takes e4m3 too.
std::string reject_forward(const AttentionProblem& p);

/// Device addresses; 0 where the problem does not use them. lse: f32 [batch, heads_q, n_q] ([heads_q,
/// total_q] where packed, total_q given by lse_row), or 0.
struct AttentionAddresses {
  std::uint64_t q = 0, k = 0, v = 0, o = 0, lse = 0, slopes = 0, mask = 0, cu_q = 0, cu_kv = 0, lengths = 0,
                data = 0;
  std::uint64_t q_scale = 0, k_scale = 0, v_scale = 0;  ///< of e4m3 operands; 0: 1
  std::uint64_t total_q = 0, total_kv = 0;              ///< rows in memory where packed
};

enum class AttentionKind : std::uint8_t { simt, mma, sm90 };
inline constexpr int kAttentionKinds = 3;
std::string_view name(AttentionKind k);

struct AttentionChoice {
  AttentionKind kind = AttentionKind::simt;
  Variant variant;
  std::string why;
  int rows = 1, columns = 1;  ///< of a tile of scores
  bool persistent = false;
  int section = 0;  ///< heads that are visited together (sm90); 0: what L2 holds
};
/// Why `kind` cannot run the problem; empty: it can.
std::string reject(AttentionKind kind, const AttentionProblem& p, const AttentionAddresses& at,
                   const runtime::DeviceInfo& d);
/// A pure function of its arguments. Unsupported where no kernel takes the problem: e4m3 needs sm_90a and
/// aligned rows.
AttentionChoice select_attention(const AttentionProblem& p, const AttentionAddresses& at,
                                 const runtime::DeviceInfo& d);
/// Queues the problem. ArgumentError with reject()'s sentence.
void attention(runtime::Stream& s, const AttentionProblem& p, const AttentionAddresses& at);
/// The same with one choice; Unsupported with reject()'s sentence.
void run_attention(runtime::Stream& s, const AttentionChoice& choice, const AttentionProblem& p,
                   const AttentionAddresses& at);

// ---------------------------------------------------------------- variants
/// What a kernel is built for: everything about the scores that is not a number.
struct AttentionFeatures {
  bool left = false, right = false, soft_cap = false, alibi = false, packed = false, lengths = false,
       lse = false;
  AttentionMask mask = AttentionMask::none;
  ScoreModification modify;

  static AttentionFeatures of(const AttentionProblem& p, bool lse);
  std::string text() const;  ///< part of the variant's name
  /// Whether scores are more than q . k times a number.
  bool shaped() const { return soft_cap || alibi || mask == AttentionMask::additive || bool(modify.apply); }
};
Variant attention_simt(DType t, const AttentionFeatures& f);
/// Head dimensions up to `d`: 32, 64, 128, 192 or 256.
Variant attention_mma(DType t, int d, const AttentionFeatures& f);

struct AttentionSm90Tuning {
  int warpgroups = 2;  ///< 64 rows each
  int stages = 2;      ///< tiles of K and of V in flight
  int queries = 1;     ///< tiles of Q in flight
  int turns = 0;       ///< warpgroups issue their products in turns, which end 1: at once, 2: with the scores
  bool persistent = true;    ///< one block per SM walks over the tiles
  int section = 0;           ///< heads that are visited together; 0: what L2 holds
  int polynomial = 0;        ///< of 16 exponentials, how many are computed without the special function unit
  int depth = 0, width = 0;  ///< columns of q and k, and of v, that are multiplied; 0: the tile's
  bool promoted = false;     ///< AttentionProblem::promoted
  bool lazy = true;          ///< the sums are rescaled only when the maximum grew by more than 2^8
};
/// d_qk, d_v: 64, 128, 256 (equal) or 192/128 (not e4m3); columns: see attention_sm90.cpp. `out`: of o where
/// t is e4m3.
Variant attention_sm90(DType t, int d_qk, int d_v, int columns, const AttentionSm90Tuning& tune,
                       const AttentionFeatures& f, DType out = DType::bf16);
AttentionChoice choose_sm90(const AttentionProblem& p, const AttentionSm90Tuning& tune, int columns,
                            bool lse);
/// simt or mma, whether or not it can run.
AttentionChoice choose_attention(AttentionKind kind, const AttentionProblem& p, bool lse);
/// What ships, for tests that assemble: every tile, and every feature with one of them.
std::vector<Variant> attention_variants();

KernelEntry attention_entry();

}  // namespace cgp::kernels

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
#include "cgp/kernels/common/config.h"
#include "cgp/kernels/common/variant.h"

namespace cgp::kernels {

/// Elements between neighbours; the last dimension is contiguous. All 0: dense [batch, heads, rows, d].
struct AttentionStrides {
  std::uint64_t batch = 0, head = 0, row = 0;
};
/// Elements between the scales of neighbouring sequences and heads; 0: they share one.
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
  std::int64_t window_left = -1, window_right = -1;  ///< keys beside a query's own; -1: no limit
  float soft_cap = 0;                                ///< 0: none
  bool alibi = false;                                ///< f32 slopes [heads_q]
  AttentionMask mask = AttentionMask::none;          ///< additive: of the type of o; boolean: u8
  std::uint64_t mask_batch = 0, mask_head = 0, mask_row = 0, mask_col = 0;  ///< strides; 0: broadcast
  /// Sequences lie one after the other in [total, heads, d]: the strides of the batch do not matter, offsets
  /// come from u32 cu_seqlens_q[batch + 1] and cu_seqlens_kv[batch + 1].
  bool packed = false;
  bool key_lengths =
      false;  ///< u32 [batch]: keys of each sequence, at most n_kv; queries align with its last
  ScoreModification modify;  ///< `apply` empty: none
  /// Of the scales of e4m3 operands, f32: for q by batch and query head, for k and v by batch and key head.
  AttentionScaleStrides q_scale, k_scale, v_scale;
  /// Promoted accumulation, of e4m3 with head dimensions up to 128: tensor cores keep some 14 bits of a sum, so
  /// fp32 registers add up the tiles of keys. For values whose mean is not 0 and thousands of keys.
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
  std::uint64_t q = 0, k = 0, v = 0, o = 0, lse = 0, slopes = 0, mask = 0, cu_seqlens_q = 0,
                cu_seqlens_kv = 0, lengths = 0, data = 0;
  std::uint64_t q_scale = 0, k_scale = 0, v_scale = 0;  ///< of e4m3 operands; 0: 1
  std::uint64_t total_q = 0, total_kv = 0;              ///< rows in memory where packed
};

enum class AttentionKind : std::uint8_t { simt, mma, sm90 };
inline constexpr int kAttentionKinds = 3;
std::string_view name(AttentionKind k);

// ---------------------------------------------------------------- variants
/// What a kernel is built for: everything about the scores that is not a number.
struct AttentionFeatures {
  bool window_right = false, window_left = false;  ///< causal is a right window of 0
  bool soft_cap = false, alibi = false, packed = false, key_lengths = false, lse = false;
  AttentionMask mask = AttentionMask::none;
  ScoreModification modify;  ///< parsed from a name: the name alone

  static AttentionFeatures of(const AttentionProblem& p, bool lse);
  /// Whether scores are more than q . k times a number.
  bool modifies_scores() const {
    return soft_cap || alibi || mask == AttentionMask::additive || bool(modify.apply);
  }
  template <class Self, class V>
  static void visit(Self& f, V& v) {
    static constexpr std::string_view masks[] = {"", "additive_mask", "boolean_mask"};
    v.flag("window_right", f.window_right), v.flag("window_left", f.window_left);
    v.flag("soft_cap", f.soft_cap), v.flag("alibi", f.alibi), v.flag("packed", f.packed);
    v.flag("key_lengths", f.key_lengths), v.flag("lse", f.lse);
    v.choice("mask", masks, f.mask), v.rest("modification", "mod_", f.modify.name);
  }
};

/// How warpgroups of sm90 issue their products: whenever they can, or in turn, so that the softmax of one runs
/// under the products of another. A turn ends when the products are issued, or when the scores are there.
enum class Pingpong : std::uint8_t { none, at_issue, at_scores };

struct AttentionSm90Tuning {
  int warpgroups = 2;  ///< 64 rows each
  int stages = 2;      ///< tiles of K and of V in flight
  int q_tiles = 1;     ///< tiles of Q in flight
  Pingpong pingpong = Pingpong::none;
  bool persistent = true;  ///< one block per SM walks over the tiles
  bool dynamic = false;    ///< persistent blocks take the next tile when they are done, not every 132nd
  bool split = false;      ///< several blocks share the keys of a tile, and another kernel combines them
  int splits = 1;          ///< how many, where split: at most 32
  int head_swizzle = 0;    ///< heads that are visited together; 0: as many as L2 holds
  int polynomial = 0;      ///< of 16 exponentials, how many are computed on the fp32 units
  int used_d_qk = 0, used_d_v = 0;  ///< columns of a tile that are multiplied; 0: all
  bool promoted = false;            ///< AttentionProblem::promoted
  bool lazy_rescale = true;         ///< o is rescaled only when a maximum grew by more than 2^8
};

/// A forward kernel.
struct AttentionConfig {
  AttentionKind kind = AttentionKind::simt;
  DType type = DType::bf16;       ///< of the operands
  bool f16_output = false;        ///< of e4m3 operands: o is f16, not bf16
  int d_qk = 0, d_v = 0;          ///< width of the tiles; 0 for simt, equal for mma
  int columns = 0;                ///< sm90: keys of a tile
  AttentionSm90Tuning tune = {};  ///< sm90
  AttentionFeatures features = {};

  DType o_type() const { return type != DType::e4m3 ? type : f16_output ? DType::f16 : DType::bf16; }
  /// Queries of a block.
  int rows() const {
    return kind == AttentionKind::sm90 ? 64 * tune.warpgroups : kind == AttentionKind::mma ? 64 : 1;
  }
  /// "attention_bf16_sm90_d128x128_tile128x176_s2_persistent_lazy_rescale_window_right"
  std::string name() const { return config_name("attention", *this); }
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    static constexpr std::string_view kinds[] = {"simt", "mma", "sm90"};
    static constexpr std::string_view orders[] = {"", "pingpong", "pingpong_scores"};
    v.type("type", "", c.type), v.choice("kind", kinds, c.kind);
    v.extent("head_dim", "d", c.d_qk, c.d_v);
    if (c.kind == AttentionKind::sm90) {
      auto& t = c.tune;
      int rows = 64 * t.warpgroups;
      v.extent("tile", "tile", rows, c.columns);
      if constexpr (!std::is_const_v<Self>) t.warpgroups = rows / 64;
      v.number("used_d_qk", "qk", t.used_d_qk, 0), v.number("used_d_v", "v", t.used_d_v, 0);
      v.number("stages", "s", t.stages), v.number("q_tiles", "q_tiles", t.q_tiles, 1);
      v.choice("pingpong", orders, t.pingpong), v.flag("persistent", t.persistent);
      v.flag("dynamic", t.dynamic), v.flag("split", t.split);
      v.flag("lazy_rescale", t.lazy_rescale), v.flag("promoted", t.promoted);
      v.number("polynomial", "polynomial", t.polynomial, 0), v.flag("f16_output", c.f16_output);
    }
    AttentionFeatures::visit(c.features, v);
  }
};
/// Unsupported where there is no such tile. Tiles: d_qk and d_v of mma 32, 64, 128, 192 or 256; of sm90 64, 128,
/// 256 (equal) or 192 x 128 (not e4m3), with the columns in attention_sm90*.cpp.
Variant attention_variant(const AttentionConfig& c);
Variant attention_simt(const AttentionConfig& c);
Variant attention_mma(const AttentionConfig& c);
Variant attention_sm90(const AttentionConfig& c);

/// Combines what blocks that share keys have.
struct AttentionCombineConfig {
  DType type = DType::bf16;  ///< of the result
  bool lse = false;
  std::string name() const { return config_name("attention_combine", *this); }
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.type("type", "", c.type), v.flag("lse", c.lse);
  }
};
Variant attention_combine(const AttentionCombineConfig& c);

/// What runs a problem.
struct AttentionChoice {
  AttentionConfig config;
  Variant variant;
  std::string why;
};
/// sm90; columns 0: what suits the features.
AttentionChoice choose_sm90(const AttentionProblem& p, const AttentionSm90Tuning& tune, int columns,
                            bool lse);
/// simt or mma, whether or not it can run.
AttentionChoice choose_attention(AttentionKind kind, const AttentionProblem& p, bool lse);
/// What ships, for tests that assemble: every tile, and every feature with one of them.
std::vector<AttentionConfig> attention_configs();
std::vector<Variant> attention_variants();

// ---------------------------------------------------------------- selection and launch
/// Why `kind` cannot run the problem; empty: it can.
std::string reject(AttentionKind kind, const AttentionProblem& p, const AttentionAddresses& at,
                   const runtime::DeviceInfo& d);
/// A pure function of its arguments. Unsupported where no kernel takes the problem: e4m3 needs sm_90a and
/// aligned rows.
AttentionChoice select_attention(const AttentionProblem& p, const AttentionAddresses& at,
                                 const runtime::DeviceInfo& d);
/// What sm90 is expected to take on an H200, in microseconds, of a dense() problem without modified scores.
double attention_sm90_us(const AttentionProblem& dense);
/// Queues the problem, by attention_split_kv() (decode.h) where few queries meet many keys. ArgumentError with
/// reject()'s sentence.
void attention(runtime::Stream& s, const AttentionProblem& p, const AttentionAddresses& at);
/// The same with one choice; Unsupported with reject()'s sentence.
void run_attention(runtime::Stream& s, const AttentionChoice& choice, const AttentionProblem& p,
                   const AttentionAddresses& at);

KernelEntry attention_entry();

}  // namespace cgp::kernels

// SPDX-License-Identifier: Apache-2.0
#pragma once
// A model as a list of operations on named values: what models/ builds and every backend runs.
//
// A value is a matrix [rows, width], row-major. Its rows are the tokens of the step (Rows::tokens), or those tokens whose
// logits are wanted (Rows::outputs). Operations run in order; each reads values that an earlier one wrote, and writes
// its `out` whole. `out` may be an operation's own input where both have one width: it then works in place.
//
// A weight is a tensor of the file, or some of its rows. y = W x for a linear weight of `rows` outputs and `cols` inputs,
// as GGUF stores it: `rows` rows of `cols` values, each row in blocks of the tensor's format.
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace cgp::engine {

using ValueId = std::int32_t;   ///< index into Program::values
using WeightId = std::int32_t;  ///< index into Program::weights
inline constexpr std::int32_t kNone = -1;

enum class Rows : std::uint8_t {
  tokens,  ///< one for each token of the step, in the order of Batch::tokens
  outputs  ///< one for each of Batch::outputs, in that order
};
enum class ValueType : std::uint8_t {
  f32,        ///< the residual stream and logits: never narrower
  activation  ///< f32, or what the backend's options allow (f16, bf16)
};
struct Value {
  std::string name;  ///< "residual", "q", "logits": values may share memory once they are no longer read
  std::int64_t width = 0;
  ValueType type = ValueType::activation;
  Rows rows = Rows::tokens;
};

struct Weight {
  std::string tensor;  ///< its name in the file
  std::int64_t first_row =
      0;  ///< where a file has several in one tensor (attn_qkv of phi3); of a vector, its first element
  std::int64_t rows = 0, cols = 0;  ///< a vector has one row
  std::int64_t experts = 1;         ///< matrices [rows, cols] one after the other
  std::int64_t first_col = 0;       ///< of the tensor's rows, where ranks share them
};

enum class Activation : std::uint8_t { silu, gelu, gelu_tanh };  ///< as cgp/cpu/ops/ops.h defines them

/// out[i] = table[token i] * scale, plus positions[position of token i] unless that is kNone.
struct Embedding {
  WeightId table = kNone;
  float scale = 1;
  WeightId positions = kNone;
  ValueId out = kNone;
};
/// Every run of `group` elements of a row: out = in / sqrt(mean(in^2) + epsilon) * weight[0, group). group is the width of the
/// value, or a head's size, where each head is normalised alone (qk-norm).
struct RmsNorm {
  ValueId in = kNone;
  WeightId weight = kNone;
  std::int64_t group = 0;
  float epsilon = 0;
  ValueId out = kNone;
};
/// out = (in - mean) / sqrt(variance + epsilon) * weight + bias, by row. `bias` may be kNone.
struct LayerNorm {
  ValueId in = kNone;
  WeightId weight = kNone, bias = kNone;
  float epsilon = 0;
  ValueId out = kNone;
};
/// One or more products of one input, which a backend may run as one: parts[p].out = W_p in + bias_p. With `residual`
/// there is one part, and residual is added to it (out may be residual). With `gated` there are two, gate and up, and
/// only the first one's out is written: activation(gate) * up. With `activation` alone: activation(W in + bias).
struct Linear {
  struct Part {
    WeightId weight = kNone, bias = kNone;
    ValueId out = kNone;
  };
  ValueId in = kNone;
  std::vector<Part> parts;
  ValueId residual = kNone;
  bool gated = false, activated = false;
  Activation activation = Activation::silu;
};
/// In place: the first 2 * frequencies of each head's head_dim elements are rotated by position * frequency; cosine and sine are
/// multiplied by the table's magnitude. Pairs are (i, i + frequencies) with `halves`, else (2i, 2i + 1).
struct Rope {
  ValueId value = kNone;
  std::int64_t heads = 0, head_dim = 0;
  bool halves = false;
  std::int32_t table = 0;  ///< index into Program::rope_tables
};
/// Keys and values of the step's tokens are stored in the cache of `cache_layer`; then head h of token i at position p gets
/// sum over t of softmax(score[t]) * value[t], with score[t] = cap(scale * q . key[t]), over positions t in
/// (p - window, p] of its sequence (window 0: [0, p]). cap(s) = softcap * tanh(s / softcap), or s where softcap is 0.
/// heads / kv_heads consecutive heads share a head of the cache.
struct Attention {
  ValueId q = kNone, k = kNone,
          v = kNone;  ///< [heads * head_dim], [kv_heads * head_dim], [kv_heads * head_dim]
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 1, softcap = 0;
  std::int64_t window = 0;
  std::int32_t cache_layer = 0;
  ValueId out = kNone;  ///< [heads * head_dim]
};
/// A mixture of experts. p = softmax(router in) over all experts; the `used` greatest (of equal ones the least index) are
/// chosen, and with `normalized` their p are divided by their sum. out = residual + sum over them of
/// p * down_e (activation(gate_e in) * (up_e in)).
struct Experts {
  ValueId in = kNone;
  WeightId router = kNone, gate = kNone, up = kNone, down = kNone;
  std::int64_t experts = 0, used = 0;
  bool normalized = true;
  Activation activation = Activation::silu;
  ValueId residual = kNone;
  ValueId out = kNone;
};
/// out = a + b.
struct Add {
  ValueId a = kNone, b = kNone, out = kNone;
};
/// In place: value = softcap * tanh(value * factor / softcap), or value * factor where softcap is 0.
struct Scale {
  ValueId value = kNone;
  float factor = 1, softcap = 0;
};
/// out row j = in row Batch::outputs[j]: what follows runs on those rows only.
struct SelectRows {
  ValueId in = kNone, out = kNone;
};

/// In place: the sum of the value over the ranks that share the model (tensor_parallel/), on all of them.
struct AllReduce {
  ValueId value = kNone;
};

using Operation = std::variant<Embedding, RmsNorm, LayerNorm, Linear, Rope, Attention, Experts, Add, Scale,
                               SelectRows, AllReduce>;

/// What an operation is for; profiles sum by it.
enum class Role : std::uint8_t {
  embedding,
  norm,
  qkv_projection,
  rope,
  attention,
  output_projection,
  gate_up_projection,
  down_projection,
  experts,
  residual,
  lm_head,
  all_reduce,
  other
};
inline constexpr int kRoles = int(Role::other) + 1;
std::string_view name(Role role);

struct Step {
  Operation operation;
  Role role = Role::other;
  std::int32_t layer = kNone;  ///< of the model
};

struct RopeTable {
  std::vector<float> frequencies;  ///< radians for each position
  float magnitude = 1;
};

struct Program {
  std::string architecture;
  std::vector<Value> values;
  std::vector<Weight> weights;
  std::vector<RopeTable> rope_tables;
  std::vector<Step> steps;
  ValueId logits = kNone;                                     ///< Rows::outputs; its width is the vocabulary
  std::int64_t cache_layers = 0, kv_heads = 0, head_dim = 0;  ///< one shape for all layers of the cache
  std::int64_t context = 0;                                   ///< positions the model was made for
};

/// The sentence that says why this is no program (a value read before it is written, widths that do not agree, an index that
/// is none); empty: it is one. Backends may rely on it.
std::string reject(const Program& program);

/// The same up to what the language model's head reads: `logits` is then the hidden state behind the last norm. ArgumentError where
/// no operation is the head.
Program without_lm_head(Program program);

/// One line for each step, for people.
std::string text_of(const Program& program);

}  // namespace cgp::engine

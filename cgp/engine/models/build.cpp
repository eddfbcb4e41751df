// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>
#include <optional>
#include <set>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/engine/models/architectures.h"
#include "cgp/engine/models/rope.h"
#include "cgp/quant/formats.h"

namespace cgp::engine {
namespace {

using std::int64_t;
using text::cat;
using T = Architecture::Tensor;

class Builder {
 public:
  Builder(const model::Source& file, const BuildOptions& o)
      : file_(file), a_(architecture_named(file.string("general.architecture"))), prefix_(cat(a_.name, ".")) {
    p_.architecture = a_.name;
    refuse_unknown_keys();
    layers_ = size("block_count"), width_ = size("embedding_length"), heads_ = size("attention.head_count");
    inner_ = maybe("feed_forward_length").value_or(0);
    kv_heads_ = maybe("attention.head_count_kv").value_or(heads_);
    if (kv_heads_ < 1 || heads_ % kv_heads_ != 0)
      wrong("attention.head_count_kv", cat(kv_heads_, " of ", heads_, " heads"));
    if (width_ % heads_ != 0 && !maybe("attention.key_length"))
      wrong("attention.head_count", cat(heads_, " of ", width_));
    head_dim_ = maybe("attention.key_length").value_or(width_ / heads_);
    if (const int64_t v = maybe("attention.value_length").value_or(head_dim_); v != head_dim_)
      throw Unsupported(ErrorText{"keys and values have one length",
                                  key_place("attention.value_length"),
                                  cat(head_dim_, " and ", v),
                                  {}});
    const int64_t trained = size("context_length");
    p_.context = o.context > 0 ? o.context : trained;
    if (a_.positions && p_.context > trained)
      throw Unsupported(ErrorText{"positions have embeddings",
                                  key_place("context_length"),
                                  cat(p_.context, " positions of ", trained),
                                  {}});
    epsilon_ =
        float(file_.number(prefix_ + (a_.norm == Architecture::Norm::rms ? "attention.layer_norm_rms_epsilon"
                                                                         : "attention.layer_norm_epsilon")));
    read_windows();
    p_.cache_layers = layers_, p_.kv_heads = kv_heads_, p_.head_dim = head_dim_;
    if (!a_.positions) {
      p_.rope_tables.push_back(rope_table(file_, head_dim_, p_.context));
      if (a_.local_rope_base != 0)
        p_.rope_tables.push_back(
            plain_rope_table(2 * int64_t(p_.rope_tables[0].frequencies.size()),
                             file_.find_number(prefix_ + "rope.freq_base_swa").value_or(a_.local_rope_base)));
    }
  }

  Program run() {
    embed();
    for (layer_ = 0; layer_ < layers_; ++layer_) attention(), feed_forward();
    layer_ = kNone;
    logits();
    refuse_unused_tensors();
    if (const std::string why = reject(p_); !why.empty()) throw Error(cat("a built program is sound: ", why));
    return std::move(p_);
  }

 private:
  // The file

  std::string key_place(std::string_view key) const { return cat(file_.path(), ", ", prefix_, key); }
  [[noreturn]] void wrong(std::string_view key, std::string why) const {
    throw ArgumentError(ErrorText{"the sizes of a model agree", key_place(key), std::move(why), {}});
  }
  int64_t checked(std::string_view key, std::uint64_t value) const {
    if (value > (1u << 30)) wrong(key, cat(value, " is beyond 2^30"));
    return int64_t(value);
  }
  int64_t size(std::string_view key) const {
    const int64_t value = checked(key, file_.integer(prefix_ + std::string(key)));
    if (value < 1) wrong(key, "0");
    return value;
  }
  std::optional<int64_t> maybe(std::string_view key) const {
    const auto value = file_.find_integer(prefix_ + std::string(key));
    return value ? std::optional(checked(key, *value)) : std::nullopt;
  }

  /// Keys that change what is computed, in ways that are not here.
  void refuse_unknown_keys() const {
    for (std::string_view key :
         {"attention.clamp_kqv", "attention.max_alibi_bias", "logit_scale", "residual_scale",
          "embedding_scale", "expert_shared_count", "expert_weights_scale", "leading_dense_block_count",
          "attention.temperature_length"})
      if (const auto value = file_.find_number(prefix_ + std::string(key));
          value && *value != 0 && *value != 1)
        throw Unsupported(
            ErrorText{cat(a_.name, " is run without this key"), key_place(key), cat("it is ", *value), {}});
    if (file_.find_bool(prefix_ + "attention.causal") == std::optional(false))
      throw Unsupported(ErrorText{"attention is causal", key_place("attention.causal"), "it is false", {}});
    if (const auto gating = maybe("expert_gating_func"); gating && *gating != 0 && *gating != 1)
      throw Unsupported(ErrorText{
          "experts are chosen by softmax", key_place("expert_gating_func"), cat("it is ", *gating), {}});
    if (const auto experts = maybe("expert_count"); experts && *experts > 0 && !a_.experts)
      throw Unsupported(
          ErrorText{cat(a_.name, " has no experts"), key_place("expert_count"), cat("it is ", *experts), {}});
  }

  void refuse_unused_tensors() const {
    for (const model::GgufTensor& t : file_.tensors())
      if (!used_.contains(t.name) && !t.name.starts_with("rope_f"))
        throw Unsupported(ErrorText{cat("every tensor is one that ", a_.name, " uses"),
                                    cat(file_.path(), ", ", t.name),
                                    "it would be left out",
                                    {}});
  }

  /// attention.sliding_window, and which layers have one: a period, or a flag for each layer.
  void read_windows() {
    const std::string pattern = prefix_ + "attention.sliding_window_pattern";
    const model::GgufValue* value = file_.find(pattern);
    const bool by_layer = value && value->type == model::GgufType::array;
    if (a_.window_period == 0 && !by_layer) return;
    window_ = a_.window_period != 1 ? size("attention.sliding_window")
                                    : maybe("attention.sliding_window").value_or(0);
    if (by_layer) {
      const model::GgufArray& flags = *file_.find_array(pattern, model::GgufType::boolean);
      if (int64_t(flags.count) < layers_)
        wrong("attention.sliding_window_pattern", cat(flags.count, " flags, ", layers_, " layers"));
      for (int64_t i = 0; i < layers_; ++i) windowed_.push_back(flags.at<std::uint8_t>(std::size_t(i)) != 0);
      return;
    }
    const int64_t period = value ? size("attention.sliding_window_pattern") : a_.window_period;
    for (int64_t i = 0; i < layers_; ++i) windowed_.push_back(period == 1 || i % period < period - 1);
  }

  // Weights

  std::string in_layer(std::string_view name) const {
    return layer_ == kNone ? std::string(name) : cat("blk.", layer_, ".", name);
  }
  bool has(std::string_view name) const { return file_.find_tensor(in_layer(name)) != nullptr; }

  /// Rows [first, first + rows) of a tensor that has `all` rows.
  WeightId weight(std::string_view name, int64_t rows, int64_t cols, int64_t first, int64_t all,
                  int64_t experts = 1) {
    const std::string full = in_layer(name);
    const model::GgufTensor& t = file_.tensor(full);
    std::vector<std::uint64_t> shape{std::uint64_t(cols), std::uint64_t(all), std::uint64_t(experts)};
    std::vector<std::uint64_t> there = t.shape;
    for (auto* s : {&shape, &there})
      while (s->size() > 1 && s->back() == 1) s->pop_back();
    if (shape != there) {
      std::string is, needed;
      for (auto n : there) is += cat(is.empty() ? "" : " x ", n);
      for (auto n : shape) needed += cat(needed.empty() ? "" : " x ", n);
      throw ArgumentError(ErrorText{"a tensor has the shape that the file's keys say",
                                    cat(file_.path(), ", ", full),
                                    cat("it is ", is, ", needed is ", needed),
                                    {}});
    }
    static_cast<void>(quant::format_of_ggml_type(t.type->id, full));
    used_.insert(t.name);
    p_.weights.push_back({full, first, rows, cols, experts});
    return WeightId(p_.weights.size() - 1);
  }
  WeightId matrix(std::string_view name, int64_t rows, int64_t cols) {
    return weight(name, rows, cols, 0, rows);
  }
  WeightId vector(std::string_view name, int64_t count) { return weight(name, 1, count, 0, 1); }
  WeightId bias(T kind, std::string_view name, int64_t count) {
    return kind == T::required || (kind == T::optional && has(name)) ? vector(name, count) : kNone;
  }

  // Values and steps

  ValueId value(std::string name, int64_t width, ValueType type = ValueType::activation) {
    const Rows rows = selected_ ? Rows::outputs : Rows::tokens;
    for (std::size_t i = 0; i < p_.values.size(); ++i)
      if (p_.values[i].name == name && p_.values[i].width == width && p_.values[i].rows == rows)
        return ValueId(i);
    p_.values.push_back({std::move(name), width, type, rows});
    return ValueId(p_.values.size() - 1);
  }
  void step(Role role, Operation operation) { p_.steps.push_back({std::move(operation), role, layer_}); }

  ValueId norm(std::string_view tensor, ValueId in, ValueId out) {
    const std::string base(tensor);
    if (a_.norm == Architecture::Norm::rms)
      step(Role::norm, RmsNorm{in, vector(base + ".weight", width_), width_, epsilon_, out});
    else
      step(Role::norm,
           LayerNorm{in, vector(base + ".weight", width_), vector(base + ".bias", width_), epsilon_, out});
    return out;
  }

  /// residual += W in, through a norm where the architecture has one there.
  void add_to_residual(Role role, ValueId in, std::string_view tensor, WeightId weight, WeightId bias) {
    if (!a_.post_norms)
      return step(role, Linear{.in = in, .parts = {{weight, bias, residual_}}, .residual = residual_});
    const ValueId projected = value("projected", width_);
    step(role, Linear{.in = in, .parts = {{weight, bias, projected}}});
    norm(tensor, projected, projected);
    step(Role::residual, Add{residual_, projected, residual_});
  }

  void embed() {
    residual_ = value("residual", width_, ValueType::f32);
    const model::GgufTensor& t = file_.tensor("token_embd.weight");
    vocabulary_ = t.shape.size() > 1 ? checked("vocab_size", t.shape[1]) : 0;
    step(Role::embedding,
         Embedding{matrix("token_embd.weight", vocabulary_, width_),
                   a_.embeddings_scaled ? float(std::sqrt(double(width_))) : 1,
                   a_.positions ? matrix("position_embd.weight", size("context_length"), width_) : kNone,
                   residual_});
  }

  float attention_scale() const {
    if (const double s = file_.find_number(prefix_ + "attention.scale").value_or(0); s != 0) return float(s);
    const bool by_width = a_.layers_with_embedding_scale && layers_ == a_.layers_with_embedding_scale;
    return float(1 / std::sqrt(double(by_width ? width_ / heads_ : head_dim_)));
  }

  void attention() {
    const int64_t q_width = heads_ * head_dim_, kv_width = kv_heads_ * head_dim_;
    const ValueId normed = norm("attn_norm", residual_, value("normed", width_));
    const ValueId q = value("q", q_width), k = value("k", kv_width), v = value("v", kv_width);
    Linear qkv{.in = normed, .parts = {}};
    if (has("attn_qkv.weight")) {
      const int64_t all = q_width + 2 * kv_width;
      int64_t first = 0;
      const bool biased = a_.qkv_bias == T::required || (a_.qkv_bias == T::optional && has("attn_qkv.bias"));
      for (ValueId out : {q, k, v}) {
        const int64_t rows = out == q ? q_width : kv_width;
        qkv.parts.push_back({weight("attn_qkv.weight", rows, width_, first, all), kNone, out});
        if (biased) qkv.parts.back().bias = part_of_vector("attn_qkv.bias", first, rows, all);
        first += rows;
      }
    } else {
      qkv.parts = {
          {matrix("attn_q.weight", q_width, width_), bias(a_.qkv_bias, "attn_q.bias", q_width), q},
          {matrix("attn_k.weight", kv_width, width_), bias(a_.qkv_bias, "attn_k.bias", kv_width), k},
          {matrix("attn_v.weight", kv_width, width_), bias(a_.qkv_bias, "attn_v.bias", kv_width), v}};
    }
    step(Role::qkv_projection, std::move(qkv));
    if (a_.qk_norm) {
      step(Role::norm, RmsNorm{q, vector("attn_q_norm.weight", head_dim_), head_dim_, epsilon_, q});
      step(Role::norm, RmsNorm{k, vector("attn_k_norm.weight", head_dim_), head_dim_, epsilon_, k});
    }
    const bool local = window_ > 0 && windowed_[std::size_t(layer_)];
    if (!a_.positions) {
      const bool halves = !file_.find_bool(prefix_ + "rope.interleaved").value_or(!a_.rope_halves);
      const std::int32_t table = local && p_.rope_tables.size() > 1 ? 1 : 0;
      step(Role::rope, Rope{q, heads_, head_dim_, halves, table});
      step(Role::rope, Rope{k, kv_heads_, head_dim_, halves, table});
    }
    ValueId attended = value("attended", q_width);
    const float softcap = a_.softcaps ? float(file_.number(prefix_ + "attn_logit_softcapping")) : 0;
    step(Role::attention, Attention{q, k, v, heads_, kv_heads_, head_dim_, attention_scale(), softcap,
                                    local ? window_ : 0, layer_, attended});
    if (layer_ + 1 == layers_) {
      // The rest of the last layer is for tokens whose logits are wanted.
      selected_ = true;
      const ValueId all_attended = attended, all_residual = residual_;
      attended = value("attended", q_width), residual_ = value("residual", width_, ValueType::f32);
      step(Role::other, SelectRows{all_attended, attended});
      step(Role::other, SelectRows{all_residual, residual_});
    }
    add_to_residual(Role::output_projection, attended, "post_attention_norm",
                    matrix("attn_output.weight", width_, q_width),
                    bias(a_.output_bias, "attn_output.bias", width_));
  }

  /// Elements [first, first + count) of a vector.
  WeightId part_of_vector(std::string_view name, int64_t first, int64_t count, int64_t all) {
    vector(name, all);
    p_.weights.back().first_row = first, p_.weights.back().rows = 1, p_.weights.back().cols = count;
    return WeightId(p_.weights.size() - 1);
  }

  void feed_forward() {
    const ValueId normed = norm("ffn_norm", residual_, value("normed", width_));
    if (const int64_t experts = maybe("expert_count").value_or(0)) return mixture(normed, experts);
    if (inner_ < 1) wrong("feed_forward_length", "0 or missing");
    const ValueId inner = value("inner", inner_);
    Linear up{
        .in = normed, .parts = {}, .gated = a_.gated, .activated = !a_.gated, .activation = a_.activation};
    if (!a_.gated) {
      up.parts = {{matrix("ffn_up.weight", inner_, width_), bias(a_.ffn_bias, "ffn_up.bias", inner_), inner}};
    } else if (has("ffn_gate.weight")) {
      up.parts = {
          {matrix("ffn_gate.weight", inner_, width_), bias(a_.ffn_bias, "ffn_gate.bias", inner_), inner},
          {matrix("ffn_up.weight", inner_, width_), bias(a_.ffn_bias, "ffn_up.bias", inner_), kNone}};
    } else {
      up.parts = {{weight("ffn_up.weight", inner_, width_, 0, 2 * inner_), kNone, inner},
                  {weight("ffn_up.weight", inner_, width_, inner_, 2 * inner_), kNone, kNone}};
    }
    step(Role::gate_up_projection, std::move(up));
    add_to_residual(Role::down_projection, inner, "post_ffw_norm", matrix("ffn_down.weight", width_, inner_),
                    bias(a_.ffn_bias, "ffn_down.bias", width_));
  }

  void mixture(ValueId normed, int64_t experts) {
    const int64_t inner = maybe("expert_feed_forward_length").value_or(inner_),
                  used = size("expert_used_count");
    if (used > experts) wrong("expert_used_count", cat(used, " of ", experts));
    if (inner < 1) wrong("feed_forward_length", "0 or missing");
    step(Role::experts, Experts{.in = normed,
                                .router = matrix("ffn_gate_inp.weight", experts, width_),
                                .gate = weight("ffn_gate_exps.weight", inner, width_, 0, inner, experts),
                                .up = weight("ffn_up_exps.weight", inner, width_, 0, inner, experts),
                                .down = weight("ffn_down_exps.weight", width_, inner, 0, width_, experts),
                                .experts = experts,
                                .used = used,
                                .normalized = file_.find_bool(prefix_ + "expert_weights_norm").value_or(true),
                                .activation = a_.activation,
                                .residual = residual_,
                                .out = residual_});
  }

  void logits() {
    const ValueId normed = norm("output_norm", residual_, value("normed", width_));
    p_.logits = value("logits", vocabulary_, ValueType::f32);
    const WeightId output =
        matrix(has("output.weight") ? "output.weight" : "token_embd.weight", vocabulary_, width_);
    step(Role::lm_head, Linear{.in = normed, .parts = {{output, kNone, p_.logits}}});
    if (!a_.softcaps) return;
    if (const double cap = file_.number(prefix_ + "final_logit_softcapping"); cap > 0)
      step(Role::lm_head, Scale{p_.logits, 1, float(cap)});
  }

  const model::Source& file_;
  const Architecture& a_;
  std::string prefix_;
  Program p_;
  std::set<std::string_view> used_;
  int64_t layers_ = 0, width_ = 0, heads_ = 0, kv_heads_ = 0, head_dim_ = 0, inner_ = 0, vocabulary_ = 0,
          window_ = 0;
  std::vector<bool> windowed_;  ///< by layer
  float epsilon_ = 0;
  std::int32_t layer_ = kNone;
  ValueId residual_ = kNone;
  bool selected_ = false;  ///< what follows runs on rows whose logits are wanted
};

}  // namespace

std::span<const Architecture> architectures() {
  static const Architecture all[] = {
#define CGP_ARCHITECTURE(name) models::name,
#include "cgp/engine/models/models.def"
#undef CGP_ARCHITECTURE
  };
  return all;
}

const Architecture& architecture_named(std::string_view name) {
  std::string there;
  for (const Architecture& a : architectures()) {
    if (a.name == name) return a;
    there += cat(there.empty() ? "" : ", ", a.name);
  }
  throw Unsupported(ErrorText{
      "the model's architecture is one that is here", {}, cat(name, " is not; there are ", there), {}});
}

quant::Format format_of(const Weight& w, const model::Source& file) {
  return quant::format_of_ggml_type(file.tensor(w.tensor).type->id, w.tensor);
}

WeightData data_of(const Weight& w, const model::Source& file, int64_t expert) {
  const model::GgufTensor& t = file.tensor(w.tensor);
  const quant::Format f = format_of(w, file);
  const auto size = [&](std::uint64_t elements) { return quant::bytes_of(f, elements); };
  const std::uint64_t cols = t.shape[0], rows = t.shape.size() > 1 ? t.shape[1] : 1,
                      kept = std::uint64_t(w.cols);
  const auto whole = t.parts.empty()
                         ? t.data.subspan(std::uint64_t(expert) * size(cols * rows), size(cols * rows))
                         : t.parts[std::size_t(expert)];
  if (rows == 1) return {f, whole.subspan(size(std::uint64_t(w.first_row + w.first_col)), size(kept))};
  const auto part =
      whole.subspan(std::uint64_t(w.first_row) * size(cols), std::uint64_t(w.rows) * size(cols));
  if (kept == cols) return {f, part};
  auto copy = std::make_shared<std::vector<std::byte>>(std::size_t(w.rows) * size(kept));
  for (std::size_t r = 0; r < std::size_t(w.rows); ++r)
    std::memcpy(copy->data() + r * size(kept),
                part.data() + r * size(cols) + size(std::uint64_t(w.first_col)), size(kept));
  return {f, *copy, copy};
}

Program build(const model::Source& file, const BuildOptions& options) { return Builder(file, options).run(); }

}  // namespace cgp::engine

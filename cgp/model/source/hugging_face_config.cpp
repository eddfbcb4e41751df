// SPDX-License-Identifier: Apache-2.0
#include "cgp/model/source/hugging_face_config.h"

#include <cmath>
#include <numbers>
#include <set>

#include "cgp/base/text.h"

namespace cgp::model {

using text::cat;

namespace {

/// A model_type, and the architecture of GGUF that computes it.
struct ModelType {
  std::string_view name, architecture, activation;
};
constexpr ModelType kModelTypes[] = {
    {"llama", "llama", "silu"},
    {"mistral", "llama", "silu"},
    {"mixtral", "llama", "silu"},
    {"qwen2", "qwen2", "silu"},
    {"qwen3", "qwen3", "silu"},
    {"qwen3_moe", "qwen3moe", "silu"},
    {"gemma2", "gemma2", "gelu_pytorch_tanh"},
    {"gemma3_text", "gemma3", "gelu_pytorch_tanh"},
    {"phi3", "phi3", "silu"},
    {"gpt2", "gpt2", "gelu_new"},
};

constexpr std::uint64_t kMaxLayers = 1 << 16;

const ModelType& model_type_of(const JsonObject& config) {
  const std::string name = config.string("model_type");
  std::string there;
  for (const ModelType& t : kModelTypes) {
    if (t.name == name) return t;
    there += cat(there.empty() ? "" : ", ", t.name);
  }
  config.unsupported("model_type", "the model_type is one that is here",
                     cat(name, " is not; there are ", there));
}

class ConfigReader {
 public:
  explicit ConfigReader(const JsonObject& config) : c_(config), type_(model_type_of(config)) {}

  ModelConfig run() {
    out_.architecture = type_.architecture;
    out_.keys.emplace_back("general.architecture", out_.architecture);
    refuse();
    const bool gpt2 = type_.name == "gpt2";
    const auto name = [&](std::string_view gpt2s, std::string_view others) { return gpt2 ? gpt2s : others; };
    out_.layers = size(name("n_layer", "num_hidden_layers"));
    if (out_.layers > kMaxLayers)
      c_.fail(name("n_layer", "num_hidden_layers"), cat("a model must have at most ", kMaxLayers, " layers"),
              cat("it has ", out_.layers));
    width_ = size(name("n_embd", "hidden_size")), heads_ = size(name("n_head", "num_attention_heads"));
    context_ =
        size(gpt2 && !c_.has("n_positions") ? "n_ctx" : name("n_positions", "max_position_embeddings"));
    add("block_count", out_.layers), add("embedding_length", width_), add("context_length", context_);
    add("vocab_size", size("vocab_size"));
    add("attention.head_count", heads_);
    out_.tied = c_.find_bool("tie_word_embeddings");
    if (gpt2) {
      add("feed_forward_length", c_.find_integer("n_inner").value_or(4 * width_));
      add("attention.layer_norm_epsilon", c_.find_number("layer_norm_epsilon").value_or(1e-5));
      return std::move(out_);
    }
    add("attention.head_count_kv", c_.find_integer("num_key_value_heads").value_or(heads_));
    add("feed_forward_length", size("intermediate_size"));
    add("attention.layer_norm_rms_epsilon", c_.number("rms_norm_eps"));
    head_dim_ = c_.find_integer("head_dim").value_or(width_ / heads_);
    if (c_.has("head_dim")) add("attention.key_length", head_dim_), add("attention.value_length", head_dim_);
    if (const auto scalar = c_.find_number("query_pre_attn_scalar")) {
      if (!(*scalar > 0))
        c_.fail("query_pre_attn_scalar", "the value must be positive", cat("it is ", *scalar));
      add("attention.scale", 1 / std::sqrt(*scalar));
    }
    softcaps(), windows(), experts(), rope();
    return std::move(out_);
  }

 private:
  void add(std::string_view key, ModelConfig::Held value) {
    out_.keys.emplace_back(cat(out_.architecture, ".", key), std::move(value));
  }
  std::uint64_t size(std::string_view key) const {
    const std::uint64_t n = c_.integer(key);
    if (n < 1 || n > (1u << 30)) c_.fail(key, "the value must be from 1 to 2^30", cat("it is ", n));
    return n;
  }

  /// Keys that change what is computed, in ways that are not here.
  void refuse() const {
    if (const auto q = c_.find_object("quantization_config"))
      c_.unsupported(
          "quantization_config", "the weights are f32, f16 or bf16",
          cat("they are quantised by ", q->find_string("quant_method").value_or("an unnamed method")));
    for (std::string_view key : {"hidden_activation", "hidden_act", "activation_function"})
      if (const auto activation = c_.find_string(key)) {
        if (*activation != type_.activation)
          c_.unsupported(key, cat(type_.name, " has the activation ", type_.activation),
                         cat("it is ", *activation));
        break;
      }
    const auto must_be = [&](std::string_view key, bool value) {
      if (c_.find_bool(key).value_or(value) != value)
        c_.unsupported(key, cat(type_.name, " is run with ", value, " here"), cat("it is ", !value));
    };
    must_be("scale_attn_weights", true);
    must_be("scale_attn_by_inverse_layer_idx", false);
    must_be("add_cross_attention", false);
    must_be("use_bidirectional_attention", false);
    for (std::string_view key : {"clip_qkv", "logits_scaling", "residual_multiplier", "embedding_multiplier",
                                 "attention_multiplier"})
      if (c_.has(key)) c_.unsupported(key, cat(type_.name, " is run without this key"), "it is set");
    if (const auto step = c_.find_integer("decoder_sparse_step"); step && *step != 1)
      c_.unsupported("decoder_sparse_step", "every layer has experts", cat("it is ", *step));
    if (const ValueList* dense = c_.find_list("mlp_only_layers"); dense && !dense->empty())
      c_.unsupported("mlp_only_layers", "every layer has experts", cat(dense->size(), " layers have none"));
  }

  void softcaps() {
    for (auto [key, name] : {std::pair("attn_logit_softcapping", "attn_logit_softcapping"),
                             std::pair("final_logit_softcapping", "final_logit_softcapping")}) {
      const double cap = c_.find_number(key).value_or(0);
      if (type_.name == "gemma2")
        add(name, cap);
      else if (cap != 0)
        c_.unsupported(key, cat(type_.name, " is run without this key"), cat("it is ", cap));
    }
  }

  /// Which layers attend to the last sliding_window tokens alone.
  void windows() {
    if (type_.name == "llama") return;
    const bool qwen = type_.name.starts_with("qwen");
    const auto window = c_.find_integer("sliding_window");
    if (!window || (qwen && !c_.find_bool("use_sliding_window").value_or(false))) return;
    add("attention.sliding_window", size("sliding_window"));
    std::vector<bool> windowed;
    if (const ValueList* types = c_.find_list("layer_types")) {
      for (const Value& type : *types) {
        if (!type.is_string() || (type.string() != "sliding_attention" && type.string() != "full_attention"))
          c_.unsupported("layer_types", "a layer has sliding_attention or full_attention",
                         cat("one has ", type.json().substr(0, 60)));
        windowed.push_back(type.string() == "sliding_attention");
      }
      if (windowed.size() != out_.layers)
        c_.fail("layer_types", "every layer must have its type", cat(windowed.size(), " of ", out_.layers));
    } else if (qwen) {
      const std::uint64_t first = c_.find_integer("max_window_layers").value_or(0);
      for (std::uint64_t i = 0; i < out_.layers; ++i) windowed.push_back(i >= first);
    } else if (const auto period = c_.find_integer("sliding_window_pattern")) {
      return add("attention.sliding_window_pattern", *period);
    }
    if (!windowed.empty()) add("attention.sliding_window_pattern", windowed);
  }

  void experts() {
    const bool mixtral = type_.name == "mixtral";
    if (!mixtral && type_.name != "qwen3_moe") return;
    const std::string_view key = mixtral ? "num_local_experts" : "num_experts";
    out_.experts = size(key);
    if (out_.experts > kMaxLayers)
      c_.fail(key, cat("a layer must have at most ", kMaxLayers, " experts"), cat("it has ", out_.experts));
    add("expert_count", out_.experts), add("expert_used_count", size("num_experts_per_tok"));
    if (mixtral) return;
    add("expert_feed_forward_length", size("moe_intermediate_size"));
    add("expert_weights_norm", c_.find_bool("norm_topk_prob").value_or(false));
  }

  /// rope_theta and rope_scaling, or both in rope_parameters, where layers with a window may have their own.
  void rope() {
    if (out_.architecture == "llama") add("rope.interleaved", false);
    std::optional<JsonObject> scaling = c_.find_object("rope_scaling");
    double base = c_.find_number("rope_theta").value_or(10000);
    std::optional<double> local = c_.find_number("rope_local_base_freq");
    if (auto all = c_.find_object("rope_parameters")) {
      if (const auto windowed = all->find_object("sliding_attention")) {
        local = windowed->find_number("rope_theta");
        if (windowed->find_string("rope_type").value_or("default") != "default")
          windowed->unsupported("rope_type", "layers with a window rotate without scaling",
                                cat("it is ", windowed->string("rope_type")));
        all = all->find_object("full_attention");
        if (!all) c_.fail("rope_parameters", "it must have full_attention", "it is not there");
      }
      scaling = all;
      base = scaling->find_number("rope_theta").value_or(base);
    }
    add("rope.freq_base", base);
    if (local) add("rope.freq_base_swa", *local);
    const double part = c_.find_number("partial_rotary_factor").value_or(1);
    if (!(part > 0 && part <= 1))
      c_.fail("partial_rotary_factor", "it must be above 0, at most 1", cat("it is ", part));
    dims_ = std::uint64_t(double(head_dim_) * part);
    if (dims_ % 2 != 0)
      c_.fail("partial_rotary_factor", "an even number of dimensions must rotate", cat(dims_, " do"));
    if (part != 1) add("rope.dimension_count", dims_);
    if (scaling) scale(*scaling, base);
  }

  void scale(const JsonObject& s, double base) {
    const std::string type =
        s.has("rope_type") ? s.string("rope_type") : s.find_string("type").value_or("default");
    const auto known = [&](std::set<std::string_view> keys) {
      keys.insert({"rope_type", "type", "rope_theta", "partial_rotary_factor"});
      for (const auto& [key, value] : s.members())
        if (!value.is_none() && !keys.contains(key.string()))
          s.unsupported(key.string(), cat("a rope_scaling of the type ", type, " is run without this key"),
                        "it is set");
    };
    const auto positive = [&](std::string_view key) {
      const double n = s.number(key);
      if (!(n > 0)) s.fail(key, "the value must be positive", cat("it is ", n));
      return n;
    };
    if (type == "default") return known({});
    if (type == "linear") {
      known({"factor"});
      add("rope.scaling.type", "linear"), add("rope.scaling.factor", positive("factor"));
    } else if (type == "llama3") {
      known({"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"});
      llama3(positive("factor"), positive("low_freq_factor"), positive("high_freq_factor"),
             positive("original_max_position_embeddings"), base);
    } else if (type == "yarn") {
      known({"factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow"});
      const double factor = positive("factor");
      add("rope.scaling.type", "yarn"), add("rope.scaling.factor", factor);
      add("rope.scaling.original_context_length",
          s.find_integer("original_max_position_embeddings").value_or(context_));
      add("rope.scaling.yarn_beta_fast", s.find_number("beta_fast").value_or(32));
      add("rope.scaling.yarn_beta_slow", s.find_number("beta_slow").value_or(1));
      // GGUF's factor comes on top of YaRN's own.
      if (s.has("attention_factor"))
        add("rope.scaling.attn_factor", positive("attention_factor") / (1 + 0.1 * std::log(factor)));
    } else if (type == "longrope" || type == "su") {
      known(
          {"short_factor", "long_factor", "factor", "attention_factor", "original_max_position_embeddings"});
      longrope(s);
    } else {
      s.unsupported(s.has("rope_type") ? "rope_type" : "type",
                    "the rope_scaling is default, linear, llama3, yarn or longrope", cat("it is ", type));
    }
  }

  /// Divisors of the frequencies: none of short wavelengths, `factor` of long ones, a blend between.
  void llama3(double factor, double low, double high, double trained, double base) {
    if (!(high > low))
      c_.fail("rope_scaling", "high_freq_factor must be above low_freq_factor", cat(high, " and ", low));
    ModelConfig::Factors f{"rope_freqs.weight", {}};
    for (std::uint64_t i = 0; i < dims_ / 2; ++i) {
      const double turns =
          trained * std::pow(base, -2.0 * double(i) / double(dims_)) / (2 * std::numbers::pi);
      const double kept = std::clamp((turns - low) / (high - low), 0.0, 1.0);
      f.values.push_back(float(1 / ((1 - kept) / factor + kept)));
    }
    out_.factors.push_back(std::move(f));
  }

  void longrope(const JsonObject& s) {
    const std::uint64_t trained = c_.has("original_max_position_embeddings")
                                      ? size("original_max_position_embeddings")
                                      : s.integer("original_max_position_embeddings");
    add("rope.scaling.type", "longrope"), add("rope.scaling.original_context_length", trained);
    const double stretch = s.find_number("factor").value_or(double(context_) / double(trained));
    const double magnitude = stretch <= 1 ? 1 : std::sqrt(1 + std::log(stretch) / std::log(double(trained)));
    add("rope.scaling.attn_factor", s.find_number("attention_factor").value_or(magnitude));
    for (auto [key, name] : {std::pair("long_factor", "rope_factors_long.weight"),
                             std::pair("short_factor", "rope_factors_short.weight")}) {
      const ValueList* list = s.find_list(key);
      if (!list || list->size() != dims_ / 2)
        s.fail(key, "every pair of dimensions must have a factor",
               cat(list ? list->size() : 0, " for ", dims_ / 2, " pairs"));
      ModelConfig::Factors f{name, {}};
      for (const Value& v : *list) {
        if (!(v.is_integer() || v.is_float()) || !(v.number() > 0))
          s.fail(key, "a factor must be a positive number", cat("one is ", v.json().substr(0, 60)));
        f.values.push_back(float(v.number()));
      }
      out_.factors.push_back(std::move(f));
    }
  }

  const JsonObject& c_;
  const ModelType& type_;
  ModelConfig out_;
  std::uint64_t width_ = 0, heads_ = 0, head_dim_ = 0, context_ = 0, dims_ = 0;
};

}  // namespace

ModelConfig read_config(const JsonObject& config) { return ConfigReader(config).run(); }

}  // namespace cgp::model

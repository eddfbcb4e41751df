// SPDX-License-Identifier: Apache-2.0
#include "cgp/model/source/hugging_face.h"

#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/model/safetensors/safetensors.h"
#include "cgp/model/source/hugging_face_config.h"

namespace cgp::model {

using text::cat;

namespace {

struct Renamed {
  std::string_view from, to;  ///< without ".weight" and ".bias"
};
constexpr Renamed kOutside[] = {{"model.embed_tokens", "token_embd"},
                                {"model.norm", "output_norm"},
                                {"lm_head", "output"},
                                {"wte", "token_embd"},
                                {"wpe", "position_embd"},
                                {"ln_f", "output_norm"}};
constexpr Renamed kInLayers[] = {{"input_layernorm", "attn_norm"},
                                 {"self_attn.q_proj", "attn_q"},
                                 {"self_attn.k_proj", "attn_k"},
                                 {"self_attn.v_proj", "attn_v"},
                                 {"self_attn.qkv_proj", "attn_qkv"},
                                 {"self_attn.o_proj", "attn_output"},
                                 {"self_attn.q_norm", "attn_q_norm"},
                                 {"self_attn.k_norm", "attn_k_norm"},
                                 {"post_attention_layernorm", "ffn_norm"},
                                 {"mlp.gate_proj", "ffn_gate"},
                                 {"mlp.up_proj", "ffn_up"},
                                 {"mlp.gate_up_proj", "ffn_up"},
                                 {"mlp.down_proj", "ffn_down"},
                                 {"mlp.gate", "ffn_gate_inp"},
                                 {"block_sparse_moe.gate", "ffn_gate_inp"},
                                 {"ln_1", "attn_norm"},
                                 {"ln_2", "ffn_norm"},
                                 {"attn.c_attn", "attn_qkv"},
                                 {"attn.c_proj", "attn_output"},
                                 {"mlp.c_fc", "ffn_up"},
                                 {"mlp.c_proj", "ffn_down"}};
/// Gemma has norms on both sides of a layer's parts.
constexpr Renamed kInLayersOfGemma[] = {{"post_attention_layernorm", "post_attention_norm"},
                                        {"pre_feedforward_layernorm", "ffn_norm"},
                                        {"post_feedforward_layernorm", "post_ffw_norm"}};
constexpr Renamed kOfExperts[] = {{"w1", "ffn_gate_exps"},    {"w3", "ffn_up_exps"},
                                  {"w2", "ffn_down_exps"},    {"gate_proj", "ffn_gate_exps"},
                                  {"up_proj", "ffn_up_exps"}, {"down_proj", "ffn_down_exps"}};
/// What some files have and no model reads: masks and frequencies that follow from the config.
constexpr std::string_view kBuffers[] = {"rotary_emb.inv_freq", "attn.bias", "attn.masked_bias"};

template <std::size_t N>
std::string_view renamed(const Renamed (&table)[N], std::string_view name) {
  for (const Renamed& r : table)
    if (r.from == name) return r.to;
  return {};
}

/// "12.rest": the number, and `text` is what follows the dot.
std::optional<std::uint64_t> take_index(std::string_view& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data() + text.size() || *end != '.') return {};
  text.remove_prefix(std::size_t(end - text.data()) + 1);
  return value;
}

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::string out;
  for (std::uint64_t n : shape) out += cat(out.empty() ? "" : " x ", n);
  return out.empty() ? "a scalar" : out;
}

}  // namespace

struct HuggingFaceFolder::Reader {
  HuggingFaceFolder& out;
  const ModelConfig& config;
  const std::string folder;
  std::map<std::string, GgufTensor> experts;  // by GGUF's name

  std::string place(std::string_view tensor) const { return cat(folder, ", tensor '", tensor, "'"); }
  [[noreturn]] void unsupported(std::string_view tensor, std::string rule, std::string why) const {
    throw Unsupported(ErrorText{std::move(rule), place(tensor), std::move(why), {}});
  }
  std::string_view keep(std::string text) { return out.kept_.emplace_back(std::move(text)); }

  void metadata() {
    for (const auto& [key, held] : config.keys) {
      GgufValue value;
      if (const auto* n = std::get_if<std::uint64_t>(&held)) {
        value.type = GgufType::u64, value.held = *n;
      } else if (const auto* x = std::get_if<double>(&held)) {
        value.type = GgufType::f64, value.held = *x;
      } else if (const auto* b = std::get_if<bool>(&held)) {
        value.type = GgufType::boolean, value.held = *b;
      } else if (const auto* s = std::get_if<std::string>(&held)) {
        value.type = GgufType::string, value.held = keep(*s);
      } else {
        std::string bytes;
        for (bool flag : std::get<std::vector<bool>>(held)) bytes += char(flag);
        GgufArray array;
        array.element = GgufType::boolean, array.count = bytes.size();
        const std::string_view kept = keep(std::move(bytes));
        array.data = std::as_bytes(std::span(kept.data(), kept.size()));
        value.type = GgufType::array, value.held = std::move(array);
      }
      const std::string_view name = keep(key);
      out.keys_.emplace(name, out.metadata_.size());
      out.metadata_.push_back({name, std::move(value)});
    }
  }

  void add(std::string name, GgufTensor t) {
    t.name = keep(std::move(name));
    if (!out.tensor_names_.emplace(t.name, out.tensors_.size()).second)
      throw ParseError(
          ErrorText{"a tensor must occur once", place(t.name), "two tensors have this role", {}});
    out.tensors_.push_back(std::move(t));
  }

  /// Type and shape; safetensors has the last size vary fastest.
  GgufTensor described(const SafetensorsTensor& from) const {
    GgufTensor t;
    t.type = find_ggml_type(from.type->name);
    if (!t.type || (t.type->name != "F32" && t.type->name != "F16" && t.type->name != "BF16"))
      unsupported(from.name, "a tensor is F32, F16 or BF16", cat("it is ", from.type->name));
    if (from.shape.size() != 1 && from.shape.size() != 2)
      unsupported(from.name, "a tensor is a vector or a matrix", cat("it is ", shape_text(from.shape)));
    t.shape.assign(from.shape.rbegin(), from.shape.rend());
    t.elements = from.data.size() / t.type->block_bytes;
    t.data = from.data;
    return t;
  }

  void tensor(const SafetensorsTensor& from) {
    std::string_view name = from.name;
    for (std::string_view buffer : kBuffers)
      if (name.ends_with(buffer) &&
          (name.size() == buffer.size() || name[name.size() - buffer.size() - 1] == '.'))
        return;
    const bool gpt2 = config.architecture == "gpt2";
    const bool gemma = config.architecture.starts_with("gemma");
    if (config.tied == true && name == "lm_head.weight") return;
    const auto unknown = [&] {
      unsupported(from.name, cat("every tensor is one that ", config.architecture, " uses"),
                  "it would be left out");
    };
    const std::size_t dot = name.rfind('.');
    if (dot == name.npos) unknown();
    const std::string_view suffix = name.substr(dot);
    if (suffix != ".weight" && suffix != ".bias") unknown();
    name = name.substr(0, dot + 1);  // with its dot, for take_index()
    if (gpt2 && name.starts_with("transformer.")) name.remove_prefix(12);
    const std::string_view layers = gpt2 ? "h." : "model.layers.";
    std::string to;
    GgufTensor t = described(from);
    if (!name.starts_with(layers)) {
      to = renamed(kOutside, name.substr(0, name.size() - 1));
      if (to.empty()) unknown();
    } else {
      name.remove_prefix(layers.size());
      const auto layer = take_index(name);
      if (!layer || *layer >= config.layers) unknown();
      to = cat("blk.", *layer, ".");
      for (std::string_view list : {"block_sparse_moe.experts.", "mlp.experts."})
        if (name.starts_with(list)) return expert(from.name, name.substr(list.size()), to, std::move(t));
      name.remove_suffix(1);
      std::string_view inner;
      if (gemma) inner = renamed(kInLayersOfGemma, name);
      if (inner.empty()) inner = renamed(kInLayers, name);
      if (inner.empty()) unknown();
      to += inner;
    }
    if (gpt2 && t.shape.size() == 2 && to.starts_with("blk.")) {
      t.layout = TensorLayout::transposed;  // Conv1D: [inputs, outputs]
      std::swap(t.shape[0], t.shape[1]);
    }
    if (gemma && to.ends_with("_norm")) t.layout = TensorLayout::minus_one;
    add(to + std::string(suffix), std::move(t));
  }

  /// "3.w1.": one matrix of a tensor that GGUF has of all experts.
  void expert(const std::string& name, std::string_view rest, const std::string& layer, GgufTensor t) {
    const auto index = take_index(rest);
    const std::string_view to = rest.empty() ? rest : renamed(kOfExperts, rest.substr(0, rest.size() - 1));
    if (!index || *index >= config.experts || to.empty() || t.shape.size() != 2)
      unsupported(name, cat("every tensor is one that ", config.architecture, " uses"),
                  "it would be left out");
    auto [found, first] = experts.try_emplace(cat(layer, to, ".weight"), t);
    GgufTensor& all = found->second;
    if (first) all.parts.resize(config.experts), all.data = {};
    if (t.type != all.type || t.shape != all.shape)
      throw ParseError(ErrorText{"all experts of a layer must have one type and shape",
                                 place(name),
                                 cat("it is ", shape_text(t.shape), " of ", t.type->name, ", another is ",
                                     shape_text(all.shape), " of ", all.type->name),
                                 {}});
    all.parts[*index] = t.data;
  }

  void run(const Safetensors& file) {
    metadata();
    for (const SafetensorsTensor& t : file.tensors()) tensor(t);
    for (auto& [name, t] : experts) {
      for (std::size_t i = 0; i < t.parts.size(); ++i)
        if (t.parts[i].empty())
          throw ParseError(ErrorText{"a layer must have all of its experts",
                                     place(name),
                                     cat("that of expert ", i, " is not there"),
                                     {}});
      t.shape.push_back(t.parts.size());
      t.elements *= t.parts.size();
      add(name, std::move(t));
    }
    if (config.tied == false && !out.find_tensor("output.weight"))
      throw ParseError(ErrorText{"a model whose word embeddings are not tied must have lm_head.weight",
                                 place("lm_head.weight"),
                                 "it is not there",
                                 {}});
    for (const ModelConfig::Factors& f : config.factors) {
      GgufTensor t;
      t.type = find_ggml_type("F32"), t.shape = {f.values.size()}, t.elements = f.values.size();
      const std::string_view kept =
          keep(std::string(reinterpret_cast<const char*>(f.values.data()), 4 * f.values.size()));
      t.data = std::as_bytes(std::span(kept.data(), kept.size()));
      add(f.name, std::move(t));
    }
  }
};

HuggingFaceFolder HuggingFaceFolder::open(const std::string& folder) {
  const std::filesystem::path at(folder);
  const auto there = [&](const char* name) { return std::filesystem::exists(at / name); };
  if (!there("config.json"))
    throw ParseError(ErrorText{"a folder of a model must have config.json", folder, "it is not there", {}});
  const char* weights =
      there("model.safetensors.index.json") ? "model.safetensors.index.json" : "model.safetensors";
  if (!there(weights))
    throw ParseError(ErrorText{"a folder of a model must have model.safetensors or its index", folder,
                               there("pytorch_model.bin") || there("pytorch_model.bin.index.json")
                                   ? "it has pytorch_model.bin"
                                   : "it is not there",
                               "save the model with safe_serialization=True"});
  HuggingFaceFolder out;
  out.path_ = folder;
  const ModelConfig config = read_config(JsonObject::read((at / "config.json").string()));
  Safetensors file = Safetensors::open((at / weights).string());
  Reader{out, config, folder, {}}.run(file);
  out.files_ = file.take_files();
  return out;
}

}  // namespace cgp::model

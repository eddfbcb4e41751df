// SPDX-License-Identifier: Apache-2.0
#include "cgp/engine/models/tiny_folder_test_kit.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <filesystem>
#include <map>

#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/model/safetensors/safetensors.h"
#include "cgp/quant/decode.h"
#include "cgp/quant/encode.h"

namespace cgp::engine {
namespace {

using model::SafetensorsTensor;
using text::cat;

std::string architecture_of(const std::string& type) {
  if (type == "mixtral") return "llama";
  if (type == "qwen3_moe") return "qwen3moe";
  if (type == "gemma3_text") return "gemma3";
  return type;
}

std::string replaced(std::string name, const std::map<std::string, std::string>& names) {
  const std::size_t dot = name.rfind('.');
  const auto found = names.find(name.substr(0, dot));
  return (found == names.end() ? name.substr(0, dot) : found->second) + name.substr(dot);
}

struct FolderWriter {
  const TinyFolderOptions& o;
  const model::Gguf& file;
  const std::string architecture = architecture_of(o.model_type);
  std::deque<std::vector<std::byte>> kept = {};
  std::vector<SafetensorsTensor> tensors = {};

  void add(std::string name, const model::GgufTensor& t, std::vector<std::uint64_t> shape,
           std::span<const std::byte> data) {
    tensors.push_back({std::move(name), model::find_safetensors_type(t.type->name), std::move(shape), data});
  }

  /// Where the checkpoint has a value that GGUF has at row r: halves of a head instead of pairs.
  static std::size_t row_in_gguf(std::size_t r, std::size_t d) {
    const std::size_t in_head = r % d;
    return r - in_head + (in_head < d / 2 ? 2 * in_head : 2 * (in_head - d / 2) + 1);
  }

  void tensor(const model::GgufTensor& t) {
    std::string name(t.name);
    const bool gpt2 = architecture == "gpt2", gemma = architecture.starts_with("gemma");
    std::vector<std::uint64_t> shape(t.shape.rbegin(), t.shape.rend());
    const std::size_t size = t.type->block_bytes;
    std::vector<std::byte>& bytes = kept.emplace_back(t.data.begin(), t.data.end());
    if (name.starts_with("rope_f")) return;
    if (!name.starts_with("blk.")) {
      const std::string outer = gpt2 ? "transformer." : "model.";
      if (gemma && name == "output_norm.weight") less_one(t, bytes);
      return add(replaced(name, {{"token_embd", outer + (gpt2 ? "wte" : "embed_tokens")},
                                 {"position_embd", outer + "wpe"},
                                 {"output_norm", outer + (gpt2 ? "ln_f" : "norm")},
                                 {"output", "lm_head"}}),
                 t, shape, bytes);
    }
    const std::size_t dot = name.find('.', 4);
    const std::string in = cat(gpt2 ? "transformer.h." : "model.layers.", name.substr(4, dot - 3));
    name = name.substr(dot + 1);
    if (architecture == "llama" && (name == "attn_q.weight" || name == "attn_k.weight"))
      for (std::size_t r = 0; r < t.shape[1]; ++r)
        std::memcpy(bytes.data() + r * t.row_bytes(), t.data.data() + row_in_gguf(r, 16) * t.row_bytes(),
                    t.row_bytes());
    if (gemma && name.find("norm") != name.npos) less_one(t, bytes);
    if (gpt2 && shape.size() == 2) {
      for (std::size_t r = 0; r < t.shape[1]; ++r)
        for (std::size_t c = 0; c < t.shape[0]; ++c)
          std::memcpy(bytes.data() + (c * t.shape[1] + r) * size, t.data.data() + (r * t.shape[0] + c) * size,
                      size);
      std::swap(shape[0], shape[1]);
    }
    if (shape.size() == 3) return experts(in, name, t, shape);
    static const std::map<std::string, std::string> of_gpt2 = {
        {"attn_norm", "ln_1"},          {"ffn_norm", "ln_2"},   {"attn_qkv", "attn.c_attn"},
        {"attn_output", "attn.c_proj"}, {"ffn_up", "mlp.c_fc"}, {"ffn_down", "mlp.c_proj"}};
    std::map<std::string, std::string> of_llama = {{"attn_norm", "input_layernorm"},
                                                   {"ffn_norm", "post_attention_layernorm"},
                                                   {"attn_q", "self_attn.q_proj"},
                                                   {"attn_k", "self_attn.k_proj"},
                                                   {"attn_v", "self_attn.v_proj"},
                                                   {"attn_qkv", "self_attn.qkv_proj"},
                                                   {"attn_output", "self_attn.o_proj"},
                                                   {"attn_q_norm", "self_attn.q_norm"},
                                                   {"attn_k_norm", "self_attn.k_norm"},
                                                   {"ffn_gate", "mlp.gate_proj"},
                                                   {"ffn_up", "mlp.up_proj"},
                                                   {"ffn_down", "mlp.down_proj"},
                                                   {"ffn_gate_inp", "mlp.gate"},
                                                   {"post_attention_norm", "post_attention_layernorm"},
                                                   {"post_ffw_norm", "post_feedforward_layernorm"}};
    if (architecture == "phi3") of_llama["ffn_up"] = "mlp.gate_up_proj";
    if (gemma) of_llama["ffn_norm"] = "pre_feedforward_layernorm";
    if (o.model_type == "mixtral") of_llama["ffn_gate_inp"] = "block_sparse_moe.gate";
    add(in + replaced(name, gpt2 ? of_gpt2 : of_llama), t, shape, bytes);
  }

  void less_one(const model::GgufTensor& t, std::vector<std::byte>& bytes) {
    const quant::Format f = quant::format_of_ggml_type(t.type->id);
    std::vector<float> values(t.elements);
    quant::decode(f, t.data, values);
    for (float& v : values) v -= 1;
    quant::encode(f, values, bytes);
  }

  void experts(const std::string& in, const std::string& name, const model::GgufTensor& t,
               const std::vector<std::uint64_t>& shape) {
    const bool mixtral = o.model_type == "mixtral";
    const std::string of = name == "ffn_gate_exps.weight" ? (mixtral ? "w1" : "gate_proj")
                           : name == "ffn_up_exps.weight" ? (mixtral ? "w3" : "up_proj")
                                                          : (mixtral ? "w2" : "down_proj");
    const std::size_t one = t.data.size() / shape[0];
    for (std::size_t e = 0; e < shape[0]; ++e)
      add(cat(in, mixtral ? "block_sparse_moe" : "mlp", ".experts.", e, ".", of, ".weight"), t,
          {shape[1], shape[2]}, std::span(kept.back()).subspan(e * one, one));
  }

  std::string list(std::string_view name) const {
    std::string out;
    const model::GgufTensor& t = file.tensor(name);
    for (std::size_t i = 0; i < t.elements; ++i) {
      float value;
      std::memcpy(&value, t.data.data() + 4 * i, 4);
      out += cat(i ? "," : "", value);
    }
    return cat("[", out, "]");
  }

  std::string config() const {
    std::string out = cat("{\"model_type\":\"", o.model_type, "\"");
    const auto put = [&](std::string_view key, const auto& value) { out += cat(",\"", key, "\":", value); };
    const auto copy = [&](std::string_view key, std::string_view from) {
      if (const auto n = file.find_number(cat(architecture, ".", from))) put(key, *n);
    };
    put("vocab_size", kTinyVocabulary);
    put("tie_word_embeddings", file.find_tensor("output.weight") ? "false" : "true");
    if (architecture == "gpt2") {
      copy("n_layer", "block_count"), copy("n_embd", "embedding_length"),
          copy("n_head", "attention.head_count");
      copy("n_positions", "context_length"), copy("n_inner", "feed_forward_length");
      copy("layer_norm_epsilon", "attention.layer_norm_epsilon");
      return out + ",\"activation_function\":\"gelu_new\"}";
    }
    copy("num_hidden_layers", "block_count"), copy("hidden_size", "embedding_length");
    copy("num_attention_heads", "attention.head_count"),
        copy("num_key_value_heads", "attention.head_count_kv");
    copy("max_position_embeddings", "context_length"), copy("rope_theta", "rope.freq_base");
    copy("rms_norm_eps", "attention.layer_norm_rms_epsilon"), copy("head_dim", "attention.key_length");
    copy("intermediate_size",
         o.model_type == "mixtral" ? "expert_feed_forward_length" : "feed_forward_length");
    copy("sliding_window", "attention.sliding_window");
    copy("attn_logit_softcapping", "attn_logit_softcapping");
    copy("final_logit_softcapping", "final_logit_softcapping");
    copy(o.model_type == "mixtral" ? "num_local_experts" : "num_experts", "expert_count");
    copy("num_experts_per_tok", "expert_used_count");
    if (architecture == "qwen3moe")
      copy("moe_intermediate_size", "expert_feed_forward_length"), put("norm_topk_prob", "true");
    if (architecture == "phi3")
      put("partial_rotary_factor", 0.75), put("original_max_position_embeddings", 64);
    if (architecture == "gemma3") put("sliding_window_pattern", 6), put("rope_local_base_freq", 10000);
    put(architecture.starts_with("gemma") ? "hidden_activation" : "hidden_act",
        architecture.starts_with("gemma") ? "\"gelu_pytorch_tanh\"" : "\"silu\"");
    if (o.rope_scaling == "longrope")
      put("rope_scaling", cat("{\"type\":\"longrope\",\"attention_factor\":1.19,\"long_factor\":",
                              list("rope_factors_long.weight"),
                              ",\"short_factor\":", list("rope_factors_short.weight"), "}"));
    else if (!o.rope_scaling.empty())
      put("rope_scaling", cat("{\"rope_type\":\"", o.rope_scaling, "\",\"factor\":4",
                              o.rope_scaling == "yarn" ? ",\"original_max_position_embeddings\":64}" : "}"));
    return out + "}";
  }
};

}  // namespace

TinyModel tiny_counterpart(const TinyFolderOptions& o) {
  return tiny_model({.architecture = architecture_of(o.model_type),
                     .format = o.format,
                     .rope_scaling = o.rope_scaling,
                     .experts = o.model_type == "mixtral"});
}

void write_tiny_folder(const TinyFolderOptions& o, const std::string& folder) {
  const TinyModel model = tiny_counterpart(o);
  FolderWriter w{o, *model.file};
  for (const model::GgufTensor& t : model.file->tensors()) w.tensor(t);
  std::filesystem::create_directories(folder);
  write_file(folder + "/config.json", w.config());
  if (!o.sharded) return write_safetensors(folder + "/model.safetensors", w.tensors);
  std::string map;
  const auto half = std::ptrdiff_t(w.tensors.size() / 2);
  for (int part = 0; part < 2; ++part) {
    const std::string name = cat("model-0000", part + 1, "-of-00002.safetensors");
    const std::vector<SafetensorsTensor> some(w.tensors.begin() + part * half,
                                              part ? w.tensors.end() : w.tensors.begin() + half);
    write_safetensors(folder + "/" + name, some);
    for (const SafetensorsTensor& t : some)
      map += cat(map.empty() ? "" : ",", "\"", t.name, "\":\"", name, "\"");
  }
  write_file(folder + "/model.safetensors.index.json", cat("{\"weight_map\":{", map, "}}"));
}

std::string temporary_folder(const std::string& name) {
  return cat(testing::TempDir(), "cgp_", name, "_", getpid());
}

}  // namespace cgp::engine

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <numeric>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/engine/quantize/quantize.h"

namespace cgp::engine {
namespace {

using text::cat;

constexpr QuantizeMix kMixes[] = {
    {"F32", 0, "F32"},    {"F16", 1, "F16"},      {"BF16", 32, "BF16"},   {"Q8_0", 7, "Q8_0"},
    {"Q6_K", 18, "Q6_K"}, {"Q5_K_M", 17, "Q5_K"}, {"Q5_K_S", 16, "Q5_K"}, {"Q5_1", 9, "Q5_1"},
    {"Q5_0", 8, "Q5_0"},  {"Q4_K_M", 15, "Q4_K"}, {"Q4_K_S", 14, "Q4_K"}, {"Q4_1", 3, "Q4_1"},
    {"Q4_0", 2, "Q4_0"},  {"Q3_K_L", 13, "Q3_K"}, {"Q3_K_M", 12, "Q3_K"}, {"Q3_K_S", 11, "Q3_K"},
    {"Q2_K", 10, "Q2_K"}, {"TQ2_0", 37, "TQ2_0"}, {"TQ1_0", 36, "TQ1_0"},
};

/// Number N of "blk.N.…", -1 for others.
int layer_of(std::string_view name) {
  int layer = -1;
  if (name.starts_with("blk.")) std::from_chars(name.data() + 4, name.data() + name.size(), layer);
  return layer;
}

bool is_plain(std::string_view type) { return type == "F32" || type == "F16" || type == "BF16"; }

/// Whether a tensor is one of those that are quantised at all.
bool is_quantized(const model::GgufTensor& t) {
  const auto has = [&](std::string_view part) { return t.name.find(part) != t.name.npos; };
  return t.name.ends_with("weight") && t.shape.size() >= 2 && !has("_norm.weight") &&
         !has("ffn_gate_inp.weight") && t.name != "position_embd.weight" && t.name != "token_types.weight";
}

struct Model {
  bool has_output, is_70b;
  std::uint64_t layers, experts, query_groups;
  std::size_t values;  ///< layers with a tensor of values
};

/// The layers that the M mixes give more bits.
bool more_bits(std::size_t layer, std::size_t layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

/// `value` and `down`: how many such tensors came before.
std::string_view chosen(const model::GgufTensor& t, const QuantizeMix& mix, const Model& m,
                        std::size_t& value, std::size_t& down) {
  const auto has = [&](std::string_view part) { return t.name.find(part) != t.name.npos; };
  const std::string_view name = mix.name;
  std::string_view type = mix.type;
  if (t.name == "output.weight" || (!m.has_output && t.name == "token_embd.weight")) {
    if (t.shape[0] % model::find_ggml_type(type)->block_elements != 0) return "Q8_0";
    return type == "Q8_0" ? type : "Q6_K";
  }
  if (t.name == "token_embd.weight") return name.starts_with("TQ") ? "Q4_K" : type;
  if (has("attn_v.weight")) {
    if (name == "Q2_K")
      type = m.query_groups >= 4 ? "Q4_K" : "Q3_K";
    else if (name == "Q3_K_M")
      type = value < 2 ? "Q5_K" : "Q4_K";
    else if (name == "Q3_K_L")
      type = "Q5_K";
    else if ((name == "Q4_K_M" || name == "Q5_K_M") && more_bits(value, m.values))
      type = "Q6_K";
    else if (name == "Q4_K_S" && value < 4)
      type = "Q5_K";
    if (m.is_70b && (type == "Q3_K" || type == "Q4_K")) type = "Q5_K";
    if (m.experts == 8) type = "Q8_0";
    ++value;
  } else if (has("attn_k.weight")) {
    if (m.experts == 8) type = "Q8_0";
  } else if (has("ffn_down")) {
    // Of experts a layer may have several tensors: the name counts.
    const std::size_t layer = m.experts > 1 ? std::size_t(std::max(layer_of(t.name), 0)) : down;
    if (name == "Q2_K")
      type = "Q3_K";
    else if (name == "Q3_K_M")
      type = layer < m.layers / 16 ? "Q5_K" : "Q4_K";
    else if (name == "Q3_K_L")
      type = "Q5_K";
    else if ((name == "Q4_K_M" || name == "Q5_K_M") && more_bits(layer, m.layers))
      type = "Q6_K";
    else if (name == "Q4_K_S" && layer < m.layers / 8)
      type = "Q5_K";
    ++down;
  } else if (has("attn_output.weight")) {
    if (m.experts == 8) {
      if (type == "Q2_K" || name == "Q3_K_S" || name == "Q3_K_M" || type == "Q4_K") type = "Q5_K";
    } else if (name == "Q2_K") {
      type = "Q3_K";
    } else if (name == "Q3_K_M") {
      type = "Q4_K";
    } else if (name == "Q3_K_L") {
      type = "Q5_K";
    }
  } else if (has("attn_qkv.weight")) {
    if (name == "Q3_K_M" || name == "Q3_K_L") type = "Q4_K";
    if (name == "Q4_K_M") type = "Q5_K";
    if (name == "Q5_K_M") type = "Q6_K";
  }
  return type;
}

/// For a row that `type`'s blocks do not fill.
std::string_view fitting(std::string_view type, std::uint64_t row) {
  const auto fits = [&](std::string_view t) { return row % model::find_ggml_type(t)->block_elements == 0; };
  if (fits(type)) return type;
  constexpr std::pair<std::string_view, std::string_view> kOthers[] = {
      {"TQ1_0", "Q4_0"}, {"TQ2_0", "Q4_0"}, {"Q2_K", "IQ4_NL"}, {"Q3_K", "IQ4_NL"},
      {"Q4_K", "Q5_0"},  {"Q5_K", "Q5_1"},  {"Q6_K", "Q8_0"}};
  for (const auto& [from, to] : kOthers)
    if (type == from && fits(to)) return to;
  return "F16";
}

}  // namespace

std::vector<QuantizeMix> quantize_mixes() { return {std::begin(kMixes), std::end(kMixes)}; }

QuantizeMix quantize_mix(std::string_view name) {
  std::string upper(name);
  for (char& c : upper) c = c >= 'a' && c <= 'z' ? char(c - 'a' + 'A') : c;
  std::vector<std::string> names;
  for (const QuantizeMix& m : kMixes) {
    if (m.name == upper) return m;
    names.emplace_back(m.name);
  }
  throw ArgumentError(ErrorText{"a type is one of those that files are quantised to",
                                std::string(name),
                                {},
                                cat("one of: ", text::join(names, " "))});
}

std::vector<std::string_view> quantized_types(const model::Source& file, const QuantizeMix& mix) {
  const auto& tensors = file.tensors();
  const std::string architecture(file.find_string("general.architecture").value_or(""));
  const auto number = [&](const char* key) { return file.find_integer(cat(architecture, ".", key)); };
  // Some files have a count for each layer: such models are not told by it.
  const auto plain = [&](const char* key, std::uint64_t otherwise) {
    const model::GgufValue* v = file.find(cat(architecture, ".", key));
    return v && v->type != model::GgufType::array ? number(key).value_or(otherwise) : otherwise;
  };
  Model m{};
  m.has_output = file.find_tensor("output.weight");
  m.layers = plain("block_count", 0), m.experts = plain("expert_count", 0);
  const std::uint64_t heads = plain("attention.head_count", 1),
                      kv_heads = plain("attention.head_count_kv", heads);
  m.query_groups = kv_heads ? heads / kv_heads : 0;
  m.is_70b = architecture == "llama" && m.layers == 80 && heads != kv_heads;
  for (const auto& t : tensors)
    m.values += t.name.find("attn_v.weight") != t.name.npos || t.name.find("attn_qkv.weight") != t.name.npos;
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return layer_of(tensors[a].name) < layer_of(tensors[b].name);
  });
  std::vector<std::string_view> out(tensors.size());
  std::size_t value = 0, down = 0;
  for (const std::size_t i : order) {
    const model::GgufTensor& t = tensors[i];
    out[i] = t.type->name;
    if (!is_quantized(t)) continue;
    out[i] = is_plain(mix.type) ? mix.type : fitting(chosen(t, mix, m, value, down), t.shape[0]);
  }
  return out;
}

}  // namespace cgp::engine

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <deque>
#include <numbers>
#include <random>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/engine/models/tiny_model_test_kit.h"
#include "cgp/model/gguf/ggml_types.h"
#include "cgp/quant/decode.h"
#include "cgp/quant/encode.h"

namespace cgp::engine {
namespace {

using text::cat;
using Doubles = std::vector<double>;

constexpr int kWidth = 64, kHeads = 4, kExperts = 5, kUsed = 2;

struct Maker {
  explicit Maker(const TinyOptions& options) : o(options), random(7) {}

  template <class T>
  void key(const std::string& name, T value) {
    if (name != o.without) out.add(name, value);
  }
  template <class T>
  void size(const std::string& name, T value) {
    key(cat(o.architecture, ".", name), value);
  }
  void tensor(const std::string& name, int rows, int cols, double mean = 0, double spread = -1,
              int experts = 1) {
    if (name == o.without) return;
    if (name == o.misshaped) rows += 32;
    const bool vector = rows == 1 && experts == 1;
    const auto f =
        quant::format_of_ggml_type(model::find_ggml_type(vector ? "F32" : std::string_view(o.format))->id);
    std::normal_distribution<float> normal(float(mean), float(spread < 0 ? 1 / std::sqrt(cols) : spread));
    std::vector<float> values(std::size_t(rows) * std::size_t(cols) * std::size_t(experts));
    for (float& v : values) v = normal(random);
    blocks.emplace_back(quant::bytes_of(f, values.size()));
    quant::encode(f, values, blocks.back());
    std::vector<std::uint64_t> shape{std::uint64_t(cols)};
    if (!vector) shape.push_back(std::uint64_t(rows));
    if (experts > 1) shape.push_back(std::uint64_t(experts));
    out.add_tensor(name, *model::find_ggml_type(std::uint32_t(quant::info(f).ggml_type)), shape,
                   blocks.back());
  }
  void vector(const std::string& name, int count, double mean) { tensor(name, 1, count, mean, 0.1); }

  const TinyOptions& o;
  std::mt19937 random;
  model::GgufWriter out;
  std::deque<std::vector<std::byte>> blocks;
};

int head_dim_of(const std::string& a) { return a == "qwen3" || a == "qwen3moe" || a == "gemma3" ? 24 : 16; }
bool is_gemma(const std::string& a) { return a == "gemma2" || a == "gemma3"; }

void add_tokenizer(Maker& m) {
  std::vector<std::string> words;
  for (char c = 33; c < 127; ++c) words.push_back(std::string(1, c));
  words.insert(words.end(), {"\u0120", "\u010a", "<|end|>"});
  std::vector<std::string_view> views(words.begin(), words.end());
  std::vector<std::int32_t> types(words.size(), 1);
  types.back() = 3;
  m.out.add("tokenizer.ggml.model", "gpt2");
  m.out.add("tokenizer.ggml.pre", "gpt-2");
  m.out.add_array("tokenizer.ggml.tokens", std::span<const std::string_view>(views));
  m.out.add_array("tokenizer.ggml.token_type", std::span<const std::int32_t>(types));
  m.out.add_array("tokenizer.ggml.merges", std::span<const std::string_view>());
  m.out.add("tokenizer.ggml.eos_token_id", std::uint32_t(96));
  m.out.add("tokenizer.ggml.add_bos_token", false);
}

}  // namespace

std::vector<std::string> tiny_architectures() {
  return {"gemma2", "gemma3", "gpt2", "llama", "phi3", "qwen2", "qwen3", "qwen3moe"};
}

std::vector<std::int32_t> tiny_prompt(int count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> out(std::size_t(count), 0);
  for (auto& t : out) t = std::int32_t(random() % 90);
  return out;
}

TinyModel tiny_model(const TinyOptions& o) {
  Maker m(o);
  const std::string& a = o.architecture;
  const int d = head_dim_of(a), q = kHeads * d, kv_heads = a == "gpt2" ? kHeads : 2, kv = kv_heads * d;
  const int layers = a == "gemma3" ? 7 : 3;
  const bool moe = o.experts || a == "qwen3moe";
  m.key("general.architecture", std::string_view(a));
  m.size("block_count", std::uint32_t(layers));
  m.size("context_length", std::uint32_t(kTinyContext));
  m.size("embedding_length", std::uint32_t(kWidth));
  m.size("feed_forward_length", std::uint32_t(o.inner));
  m.size("attention.head_count", std::uint32_t(kHeads));
  m.size("attention.head_count_kv", std::uint32_t(kv_heads));
  m.size(a == "gpt2" ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", 1e-5f);
  if (d != 16)
    m.size("attention.key_length", std::uint32_t(d)), m.size("attention.value_length", std::uint32_t(d));
  if (a != "gpt2") m.size("rope.freq_base", a == "gemma3" ? 50000.0f : 1000.0f);
  if (a == "phi3")
    m.size("rope.dimension_count", std::uint32_t(12)), m.size("attention.sliding_window", std::uint32_t(9));
  if (is_gemma(a)) m.size("attention.sliding_window", std::uint32_t(5));
  if (a == "gemma2") m.size("attn_logit_softcapping", 3.0f), m.size("final_logit_softcapping", 2.0f);
  if (moe) {
    m.size("expert_count", std::uint32_t(kExperts)), m.size("expert_used_count", std::uint32_t(kUsed));
    m.size("expert_feed_forward_length", std::uint32_t(o.inner / 3));
  }
  const int pairs = (a == "phi3" ? 12 : d) / 2;
  if (o.rope_scaling == "llama3") {
    m.tensor("rope_freqs.weight", 1, pairs, 3, 0.5);
  } else if (!o.rope_scaling.empty()) {
    m.size("rope.scaling.type", std::string_view(o.rope_scaling));
    m.size("rope.scaling.factor", 4.0f);
    m.size("rope.scaling.original_context_length", std::uint32_t(64));
    if (o.rope_scaling == "longrope") {
      m.size("rope.scaling.attn_factor", 1.19f);
      m.tensor("rope_factors_long.weight", 1, pairs, 3, 0.5),
          m.tensor("rope_factors_short.weight", 1, pairs, 1, 0.1);
    }
  }
  if (o.tokenizer) add_tokenizer(m);
  if (o.chat_template || o.tool_template)
    m.out.add(
        "tokenizer.chat_template",
        std::string(o.tool_template ? "{% for t in tools %}{{ t.function.name }}\n{% endfor %}" : "") +
            "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt "
            "%}assistant:{% endif %}");
  m.tensor("token_embd.weight", o.words, kWidth, 0, is_gemma(a) ? 0.1 : 1);
  if (a == "gpt2") m.tensor("position_embd.weight", kTinyContext, kWidth, 0, 0.3);
  for (int i = 0; i < layers; ++i) {
    const auto in = [i](const char* name) { return cat("blk.", i, ".", name); };
    m.vector(in("attn_norm.weight"), kWidth, 1), m.vector(in("ffn_norm.weight"), kWidth, 1);
    if (a == "gpt2") m.vector(in("attn_norm.bias"), kWidth, 0), m.vector(in("ffn_norm.bias"), kWidth, 0);
    if (a == "gpt2" || a == "phi3") {
      m.tensor(in("attn_qkv.weight"), q + 2 * kv, kWidth);
      if (a == "gpt2") m.vector(in("attn_qkv.bias"), q + 2 * kv, 0);
    } else {
      m.tensor(in("attn_q.weight"), q, kWidth, 0, 0.3), m.tensor(in("attn_k.weight"), kv, kWidth, 0, 0.3);
      m.tensor(in("attn_v.weight"), kv, kWidth);
    }
    if (a == "qwen2")
      m.vector(in("attn_q.bias"), q, 0), m.vector(in("attn_k.bias"), kv, 0),
          m.vector(in("attn_v.bias"), kv, 0);
    if (a == "qwen3" || a == "qwen3moe" || a == "gemma3")
      m.vector(in("attn_q_norm.weight"), d, 1), m.vector(in("attn_k_norm.weight"), d, 1);
    m.tensor(in("attn_output.weight"), kWidth, q);
    if (a == "gpt2") m.vector(in("attn_output.bias"), kWidth, 0);
    if (is_gemma(a))
      m.vector(in("post_attention_norm.weight"), kWidth, 1), m.vector(in("post_ffw_norm.weight"), kWidth, 1);
    if (moe) {
      const int inner = o.inner / 3;
      m.tensor(in("ffn_gate_inp.weight"), kExperts, kWidth);
      m.tensor(in("ffn_gate_exps.weight"), inner, kWidth, 0, -1, kExperts),
          m.tensor(in("ffn_up_exps.weight"), inner, kWidth, 0, -1, kExperts);
      m.tensor(in("ffn_down_exps.weight"), kWidth, inner, 0, -1, kExperts);
      continue;
    }
    if (a != "gpt2" && a != "phi3") m.tensor(in("ffn_gate.weight"), o.inner, kWidth);
    m.tensor(in("ffn_up.weight"), a == "phi3" ? 2 * o.inner : o.inner, kWidth);
    m.tensor(in("ffn_down.weight"), kWidth, o.inner);
    if (a == "gpt2") m.vector(in("ffn_up.bias"), o.inner, 0), m.vector(in("ffn_down.bias"), kWidth, 0);
  }
  m.vector("output_norm.weight", kWidth, 1);
  if (a == "gpt2") m.vector("output_norm.bias", kWidth, 0);
  if (a == "phi3" || a == "qwen2") m.tensor("output.weight", o.words, kWidth);
  if (!o.with.empty()) m.vector(o.with, 1, 0);
  TinyModel out{m.out.bytes(), nullptr};
  // The file reads the bytes where they lie: they live as long as it does.
  auto kept = std::make_shared<std::pair<std::string, std::unique_ptr<model::Gguf>>>(out.bytes, nullptr);
  kept->second =
      std::make_unique<model::Gguf>(model::Gguf::parse(std::as_bytes(std::span(kept->first)), "tiny.gguf"));
  out.file = std::shared_ptr<const model::Gguf>(kept, kept->second.get());
  return out;
}

namespace {

/// The model by its definition, token by token, in double.
struct Oracle {
  explicit Oracle(const model::Gguf& file) : f(file), a(file.string("general.architecture")) {}

  double number(const std::string& key, double otherwise) const {
    return f.find_number(cat(a, ".", key)).value_or(otherwise);
  }
  Doubles values(const std::string& name) const {
    const auto* t = f.find_tensor(name);
    if (!t) return {};
    std::vector<float> v(t->elements);
    quant::decode(quant::format_of_ggml_type(t->type->id), t->data, v);
    return {v.begin(), v.end()};
  }
  /// Rows [first, first + rows) of a matrix, times x, plus the bias.
  Doubles times(const std::string& name, const Doubles& x, std::size_t first, std::size_t rows,
                const std::string& bias = "") const {
    const Doubles w = values(name), b = values(bias);
    Doubles y(rows, 0.0);
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t j = 0; j < x.size(); ++j) y[i] += w.at((first + i) * x.size() + j) * x[j];
      if (!b.empty()) y[i] += b.at(first % b.size() + i);
    }
    return y;
  }
  Doubles norm(const Doubles& x, const std::string& name) const {
    const Doubles w = values(name + ".weight"), b = values(name + ".bias");
    double mean = 0, square = 0;
    if (a == "gpt2")
      for (double v : x) mean += v / double(x.size());
    for (double v : x) square += (v - mean) * (v - mean) / double(x.size());
    Doubles y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      y[i] = (x[i] - mean) / std::sqrt(square + double(1e-5f)) * w.at(i) + (b.empty() ? 0 : b.at(i));
    return y;
  }
  void norm_heads(Doubles& x, std::size_t d, const std::string& name) const {
    if (!f.find_tensor(name + ".weight")) return;
    for (std::size_t h = 0; h < x.size(); h += d) {
      const Doubles y = norm(Doubles(x.begin() + std::ptrdiff_t(h), x.begin() + std::ptrdiff_t(h + d)), name);
      std::copy(y.begin(), y.end(), x.begin() + std::ptrdiff_t(h));
    }
  }
  void rotate(Doubles& x, std::size_t d, std::size_t position, bool local) const {
    if (a == "gpt2") return;
    const auto dims = std::size_t(number("rope.dimension_count", double(d)));
    const double base = local && a == "gemma3" ? 10000 : number("rope.freq_base", 10000),
                 factor = number("rope.scaling.factor", 1);
    const std::string scaling(f.find_string(cat(a, ".rope.scaling.type")).value_or("none"));
    const Doubles llama3 = values("rope_freqs.weight"), longer = values("rope_factors_long.weight");
    for (std::size_t h = 0; h < x.size(); h += d)
      for (std::size_t i = 0; i < dims / 2; ++i) {
        double theta = std::pow(base, -2.0 * double(i) / double(dims)), magnitude = 1;
        if (scaling == "linear" && !local) theta /= factor;
        if (!llama3.empty()) theta /= llama3[i];
        if (scaling == "longrope") theta /= longer[i], magnitude = double(1.19f);
        if (scaling == "yarn") {
          const auto dim = [&](double turns) {
            return double(dims) * std::log(64 / (turns * 2 * std::numbers::pi)) / (2 * std::log(base));
          };
          const double low = std::max(0.0, std::floor(dim(32))),
                       high = std::min(double(dims) - 1, std::ceil(dim(1)));
          const double blend = std::clamp((double(i) - low) / std::max(high - low, 0.001), 0.0, 1.0);
          theta = theta * (1 - blend) + theta / factor * blend;
          magnitude = 0.1 * std::log(factor) + 1;
        }
        const std::size_t p = h + (a == "llama" ? 2 * i : i), q = a == "llama" ? p + 1 : p + dims / 2;
        const double c = magnitude * std::cos(double(position) * theta),
                     s = magnitude * std::sin(double(position) * theta);
        const double u = x[p], v = x[q];
        x[p] = u * c - v * s, x[q] = u * s + v * c;
      }
  }
  double activated(double x) const {
    if (a == "gpt2" || is_gemma(a))
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    return x / (1 + std::exp(-x));
  }

  std::vector<Doubles> run(std::span<const std::int32_t> tokens) const {
    const auto size = [&](const char* key) { return std::size_t(f.integer(cat(a, ".", key))); };
    const std::size_t width = size("embedding_length"), heads = size("attention.head_count"),
                      kv = size("attention.head_count_kv");
    const std::size_t layers = size("block_count"), inner = size("feed_forward_length"), n = tokens.size();
    const auto d = std::size_t(number("attention.key_length", double(width / heads)));
    const Doubles table = values("token_embd.weight"), positions = values("position_embd.weight");
    const std::size_t words = table.size() / width;
    std::vector<Doubles> x(n, Doubles(width));
    for (std::size_t t = 0; t < n; ++t)
      for (std::size_t i = 0; i < width; ++i) {
        x[t][i] = table[std::size_t(tokens[t]) * width + i] * (is_gemma(a) ? std::sqrt(double(width)) : 1);
        if (!positions.empty()) x[t][i] += positions[t * width + i];
      }
    for (std::size_t layer = 0; layer < layers; ++layer) {
      const std::string in = cat("blk.", layer, ".");
      const bool local =
          a == "phi3" || (a == "gemma2" && layer % 2 == 0) || (a == "gemma3" && layer % 6 != 5);
      const double window = local ? number("attention.sliding_window", 1e9) : 1e9;
      std::vector<Doubles> q(n), k(n), v(n);
      for (std::size_t t = 0; t < n; ++t) {
        const Doubles h = norm(x[t], in + "attn_norm");
        if (f.find_tensor(in + "attn_qkv.weight")) {
          const std::string w = in + "attn_qkv.weight", b = in + "attn_qkv.bias";
          q[t] = times(w, h, 0, heads * d, b), k[t] = times(w, h, heads * d, kv * d, b),
          v[t] = times(w, h, (heads + kv) * d, kv * d, b);
        } else {
          q[t] = times(in + "attn_q.weight", h, 0, heads * d, in + "attn_q.bias");
          k[t] = times(in + "attn_k.weight", h, 0, kv * d, in + "attn_k.bias");
          v[t] = times(in + "attn_v.weight", h, 0, kv * d, in + "attn_v.bias");
        }
        norm_heads(q[t], d, in + "attn_q_norm"), norm_heads(k[t], d, in + "attn_k_norm");
        rotate(q[t], d, t, local), rotate(k[t], d, t, local);
      }
      const double cap = number("attn_logit_softcapping", 0);
      for (std::size_t t = 0; t < n; ++t) {
        Doubles attended(heads * d, 0.0);
        for (std::size_t h = 0; h < heads; ++h) {
          const std::size_t g = h / (heads / kv);
          Doubles weight(t + 1, 0.0);
          double sum = 0;
          for (std::size_t s = 0; s <= t; ++s) {
            if (double(t - s) >= window) continue;
            double score = 0;
            for (std::size_t i = 0; i < d; ++i) score += q[t][h * d + i] * k[s][g * d + i];
            score /= std::sqrt(double(d));
            sum += weight[s] = std::exp(cap > 0 ? cap * std::tanh(score / cap) : score);
          }
          for (std::size_t s = 0; s <= t; ++s)
            for (std::size_t i = 0; i < d; ++i) attended[h * d + i] += weight[s] / sum * v[s][g * d + i];
        }
        Doubles projected = times(in + "attn_output.weight", attended, 0, width, in + "attn_output.bias");
        if (is_gemma(a)) projected = norm(projected, in + "post_attention_norm");
        for (std::size_t i = 0; i < width; ++i) x[t][i] += projected[i];
        Doubles fed = feed(norm(x[t], in + "ffn_norm"), in, inner, margins ? &(*margins)[t] : nullptr);
        if (is_gemma(a)) fed = norm(fed, in + "post_ffw_norm");
        for (std::size_t i = 0; i < width; ++i) x[t][i] += fed[i];
      }
    }
    std::vector<Doubles> out;
    const double cap = number("final_logit_softcapping", 0);
    for (const Doubles& row : x) {
      out.push_back(times(f.find_tensor("output.weight") ? "output.weight" : "token_embd.weight",
                          norm(row, "output_norm"), 0, words));
      for (double& l : out.back()) l = cap > 0 ? cap * std::tanh(l / cap) : l;
    }
    return out;
  }

  Doubles feed(const Doubles& h, const std::string& in, std::size_t inner, double* margin) const {
    if (!f.find_tensor(in + "ffn_gate_inp.weight")) {
      if (a == "gpt2") {
        Doubles up = times(in + "ffn_up.weight", h, 0, inner, in + "ffn_up.bias");
        for (double& u : up) u = activated(u);
        return times(in + "ffn_down.weight", up, 0, h.size(), in + "ffn_down.bias");
      }
      const bool fused = a == "phi3";
      Doubles gate = times(in + (fused ? "ffn_up.weight" : "ffn_gate.weight"), h, 0, inner);
      const Doubles up = times(in + "ffn_up.weight", h, fused ? inner : 0, inner);
      for (std::size_t i = 0; i < inner; ++i) gate[i] = activated(gate[i]) * up[i];
      return times(in + "ffn_down.weight", gate, 0, h.size());
    }
    const auto experts = std::size_t(number("expert_count", 0)),
               used = std::size_t(number("expert_used_count", 0)),
               size = std::size_t(number("expert_feed_forward_length", 0));
    Doubles p = times(in + "ffn_gate_inp.weight", h, 0, experts), out(h.size(), 0.0);
    for (double& v : p) v = std::exp(v);
    std::vector<std::size_t> order(experts);
    for (std::size_t e = 0; e < experts; ++e) order[e] = e;
    std::sort(order.begin(), order.end(), [&](auto x, auto y) { return p[x] > p[y]; });
    if (margin) *margin = std::min(*margin, std::log(p[order[used - 1]] / p[order[used]]));
    double chosen = 0;
    for (std::size_t j = 0; j < used; ++j) chosen += p[order[j]];
    for (std::size_t j = 0; j < used; ++j) {
      const std::size_t e = order[j];
      Doubles gate = times(in + "ffn_gate_exps.weight", h, e * size, size);
      const Doubles up = times(in + "ffn_up_exps.weight", h, e * size, size);
      for (std::size_t i = 0; i < size; ++i) gate[i] = activated(gate[i]) * up[i];
      const Doubles down = times(in + "ffn_down_exps.weight", gate, e * h.size(), h.size());
      for (std::size_t i = 0; i < h.size(); ++i) out[i] += p[e] / chosen * down[i];
    }
    return out;
  }

  const model::Gguf& f;
  std::string a;
  std::vector<double>* margins = nullptr;
};

}  // namespace

std::vector<Doubles> oracle_logits(const model::Gguf& file, std::span<const std::int32_t> tokens,
                                   std::vector<double>* margins) {
  Oracle oracle(file);
  if (margins) margins->assign(tokens.size(), HUGE_VAL);
  oracle.margins = margins;
  return oracle.run(tokens);
}

}  // namespace cgp::engine

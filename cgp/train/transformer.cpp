// SPDX-License-Identifier: Apache-2.0
#include "cgp/train/transformer.h"

#include <cmath>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::train {
namespace {

[[noreturn]] void refuse(std::string rule, std::string why) {
  throw ArgumentError({std::move(rule), "TransformerShape", std::move(why), {}});
}

struct List {
  std::vector<Parameter> all;
  std::uint64_t end = 0;

  /// Rows of a group follow the one before without a gap.
  void add(std::string name, std::vector<std::uint64_t> shape, double mean, double deviation,
           bool follows = false) {
    Parameter p{std::move(name), std::move(shape), 0, false, mean, deviation};
    p.decays = p.shape.size() > 1;
    p.offset = follows ? end : (end + 63) / 64 * 64;
    end = p.offset + p.elements();
    all.push_back(std::move(p));
  }
};

}  // namespace

std::uint64_t Parameter::elements() const {
  std::uint64_t n = 1;
  for (auto extent : shape) n *= extent;
  return n;
}

TransformerShape TransformerShape::checked() const {
  TransformerShape s = *this;
  if (!s.kv_heads) s.kv_heads = s.heads;
  if (!s.hidden) s.hidden = 4 * s.width;
  if (!s.layers || !s.width || !s.heads || !s.vocab || !s.positions)
    refuse("layers, width, heads, vocab and positions must not be 0",
           text::cat(s.layers, ", ", s.width, ", ", s.heads, ", ", s.vocab, ", ", s.positions));
  if (s.width % s.heads || s.head_dim() > 256)
    refuse("heads must divide width into at most 256 columns", text::cat(s.heads, " heads, width ", s.width));
  if (s.heads % s.kv_heads) refuse("kv_heads must divide heads", text::cat(s.kv_heads, " and ", s.heads));
  if (s.family == Family::gpt2 && s.kv_heads != s.heads)
    refuse("gpt2 has as many kv_heads as heads", text::cat(s.kv_heads, " and ", s.heads));
  if (s.family == Family::llama && s.head_dim() % 2)
    refuse("RoPE needs an even number of columns in a head", text::cat("there are ", s.head_dim()));
  if (s.vocab >= 1ull << 31) refuse("vocab must be below 2^31", text::cat("it is ", s.vocab));
  return s;
}

TransformerShape gpt2_124m() {
  return {.layers = 12, .width = 768, .heads = 12, .vocab = 50257, .positions = 1024};
}

std::vector<Parameter> parameters(const TransformerShape& s) {
  List list;
  const std::uint64_t w = s.width, kv = s.kv_heads * s.head_dim();
  // GPT-2's first values: what is added to the residual stream is smaller, for the number of additions.
  const double wide = 0.02, residual = 0.02 / std::sqrt(2.0 * double(s.layers));
  if (s.family == Family::gpt2) {
    list.add("wte.weight", {s.vocab, w}, 0, wide), list.add("wpe.weight", {s.positions, w}, 0, wide);
    for (std::uint64_t l = 0; l < s.layers; ++l) {
      const auto h = text::cat("h.", l, ".");
      const auto matrix = [&](const char* name, std::uint64_t in, std::uint64_t out, double deviation) {
        list.add(text::cat(h, name, ".weight"), {in, out}, 0, deviation);
        list.add(text::cat(h, name, ".bias"), {out}, 0, 0);
      };
      list.add(h + "ln_1.weight", {w}, 1, 0), list.add(h + "ln_1.bias", {w}, 0, 0);
      matrix("attn.c_attn", w, 3 * w, wide), matrix("attn.c_proj", w, w, residual);
      list.add(h + "ln_2.weight", {w}, 1, 0), list.add(h + "ln_2.bias", {w}, 0, 0);
      matrix("mlp.c_fc", w, s.hidden, wide), matrix("mlp.c_proj", s.hidden, w, residual);
    }
    list.add("ln_f.weight", {w}, 1, 0), list.add("ln_f.bias", {w}, 0, 0);
  } else {
    list.add("model.embed_tokens.weight", {s.vocab, w}, 0, wide);
    for (std::uint64_t l = 0; l < s.layers; ++l) {
      const auto h = text::cat("model.layers.", l, ".");
      list.add(h + "input_layernorm.weight", {w}, 1, 0);
      list.add(h + "self_attn.q_proj.weight", {w, w}, 0, wide);
      list.add(h + "self_attn.k_proj.weight", {kv, w}, 0, wide, true);
      list.add(h + "self_attn.v_proj.weight", {kv, w}, 0, wide, true);
      list.add(h + "self_attn.o_proj.weight", {w, w}, 0, residual);
      list.add(h + "post_attention_layernorm.weight", {w}, 1, 0);
      list.add(h + "mlp.gate_proj.weight", {s.hidden, w}, 0, wide);
      list.add(h + "mlp.up_proj.weight", {s.hidden, w}, 0, wide, true);
      list.add(h + "mlp.down_proj.weight", {w, s.hidden}, 0, residual);
    }
    list.add("model.norm.weight", {w}, 1, 0);
  }
  if (!s.tied) list.add("lm_head.weight", {s.vocab, w}, 0, wide);
  return std::move(list.all);
}

std::uint64_t parameter_elements(const std::vector<Parameter>& p) {
  return p.empty() ? 0 : p.back().offset + p.back().elements();
}

double training_flops_per_token(const TransformerShape& s, std::uint64_t sequence) {
  const double w = double(s.width);
  const double layer =
      w * double(s.qkv_columns()) + w * w + w * double(s.up_columns()) + double(s.hidden) * w;
  return 6 * (double(s.layers) * layer + w * double(s.vocab)) + 6 * double(s.layers) * w * double(sequence);
}

}  // namespace cgp::train

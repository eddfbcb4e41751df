// SPDX-License-Identifier: Apache-2.0
#pragma once
// The shape of a decoder-only transformer, and its parameters under the names and in the layouts of Hugging Face's files.
//   gpt2   LayerNorm, learned positions, one product for q, k and v, GELU (tanh); biases; matrices are [in, out]
//   llama  RMSNorm, RoPE (halves), grouped queries, SwiGLU; no biases; matrices are [out, in]
// Sources: Radford et al., "Language Models are Unsupervised Multitask Learners"; Touvron et al., arXiv:2302.13971.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cgp::train {

enum class Family : std::uint8_t { gpt2, llama };

struct TransformerShape {
  Family family = Family::gpt2;
  std::uint64_t layers = 0, width = 0, heads = 0;
  std::uint64_t kv_heads = 0;  ///< 0: heads. gpt2: as many as heads
  std::uint64_t hidden = 0;    ///< columns between the two products of the MLP; 0: 4 * width
  std::uint64_t vocab = 0;
  std::uint64_t positions = 0;  ///< longest sequence
  bool tied = true;             ///< the embedding is the last matrix, too
  float eps = 1e-5f;            ///< of the norms
  double rope_base = 10000;     ///< llama

  std::uint64_t head_dim() const { return width / heads; }
  std::uint64_t qkv_columns() const { return (heads + 2 * kv_heads) * head_dim(); }
  /// Columns of the first product of the MLP: gate and up lie side by side.
  std::uint64_t up_columns() const { return family == Family::llama ? 2 * hidden : hidden; }
  /// The same with every 0 replaced by what it means. ArgumentError naming the field.
  TransformerShape checked() const;
};
/// GPT-2 with 124 million parameters.
TransformerShape gpt2_124m();

struct Parameter {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::uint64_t offset = 0;        ///< elements before it in memory
  bool decays = false;             ///< matrices and tables decay, biases and norms do not
  double mean = 0, deviation = 0;  ///< of its first values

  std::uint64_t elements() const;
};
/// In the order of memory. Matrices that one product reads (q, k, v; gate, up) lie one after the other.
std::vector<Parameter> parameters(const TransformerShape& checked);
/// Elements of the memory that holds them.
std::uint64_t parameter_elements(const std::vector<Parameter>& p);

/// Floating-point operations of one training step for each token: 6 for each element of a matrix, and 6 * layers * width
/// * sequence for causal attention (the allowed half of both products, forward and twice that backward). Lookups,
/// norms and activations are not counted, nor what is computed a second time.
double training_flops_per_token(const TransformerShape& checked, std::uint64_t sequence);

}  // namespace cgp::train

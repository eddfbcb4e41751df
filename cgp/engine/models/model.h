// SPDX-License-Identifier: Apache-2.0
#pragma once
// Models as data: what an architecture is, beside the sizes in its file. build() turns both into a Program.
// models.def names them; each has a file of its own. Where a file has attn_qkv, its rows are those of q, k and v; where ffn_up
// has twice the rows, its first half is the gate.
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cgp/engine/program/program.h"
#include "cgp/model/source/source.h"
#include "cgp/quant/formats.h"

namespace cgp::engine {

/// What distinguishes one architecture from another. Sizes, bases and epsilons come from the file's keys
/// ("<architecture>.block_count" and so on); names of tensors are GGUF's.
struct Architecture {
  std::string_view name;  ///< general.architecture
  enum class Norm : std::uint8_t { rms, layer } norm = Norm::rms;
  enum class Tensor : std::uint8_t { none, required, optional };
  Tensor qkv_bias = Tensor::none;     ///< attn_q.bias, attn_k.bias, attn_v.bias
  Tensor output_bias = Tensor::none;  ///< attn_output.bias
  Tensor ffn_bias = Tensor::none;     ///< ffn_up.bias, ffn_down.bias
  bool qk_norm = false;               ///< attn_q_norm.weight, attn_k_norm.weight: one head's size each
  bool post_norms = false;   ///< post_attention_norm, post_ffw_norm: before each sum with the residual stream
  bool positions = false;    ///< position_embd.weight instead of RoPE
  bool rope_halves = false;  ///< pairs (i, i + r / 2); else (2i, 2i + 1); rope.interleaved says otherwise
  bool gated = true;
  Activation activation = Activation::silu;
  bool embeddings_scaled = false;  ///< by sqrt(embedding_length)
  /// Layers with a window (attention.sliding_window): all but every window_period-th; 1: all; 0: none, whatever the file
  /// says. Where `local_rope_base` is not 0, layers with a window rotate with that base and without scaling.
  int window_period = 0;
  float local_rope_base = 0;
  bool softcaps = false;  ///< attn_logit_softcapping, final_logit_softcapping
  bool experts = false;   ///< expert_count experts where the file has that key
  /// Layers of the size whose attention scale is 1 / sqrt(embedding_length / heads) instead of 1 / sqrt(head_dim); 0: none.
  int layers_with_embedding_scale = 0;
};

std::span<const Architecture> architectures();
/// Throws Unsupported that lists those there are.
const Architecture& architecture_named(std::string_view name);

struct BuildOptions {
  std::int64_t context =
      0;  ///< positions that will be used: RoPE factors may depend on it; 0: as many as the file says
};

/// Throws ParseError that names a missing key or tensor, and ArgumentError that names a tensor of another shape than the keys
/// say; Unsupported for a RoPE scaling or a format that is not here.
Program build(const model::Source& file, const BuildOptions& options = {});

/// The blocks of a weight in the mapped file: rows of cols values, of one expert where there are several. `file` is one of
/// row_major(). A part of a tensor's columns is copied.
struct WeightData {
  quant::Format format = quant::Format::f32;
  std::span<const std::byte> blocks;
  std::shared_ptr<const std::vector<std::byte>> copy = {};
};
quant::Format format_of(const Weight& weight, const model::Source& file);
WeightData data_of(const Weight& weight, const model::Source& file, std::int64_t expert = 0);

}  // namespace cgp::engine

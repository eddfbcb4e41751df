// SPDX-License-Identifier: Apache-2.0
#pragma once
// Training steps of a transformer on one device: forward, mean cross-entropy of the next tokens, backward, clipping by the
// global norm, optimizer. f32 throughout, or bf16 with gradients and master weights in f32. Repeated on one device a step
// gives the same bits: no sum depends on the order of blocks.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cgp/base/dtype.h"
#include "cgp/runtime/device.h"
#include "cgp/train/transformer.h"

namespace cgp::train {

/// Rates of the steps: a linear warm-up, then half a cosine down to `floor` (Loshchilov and Hutter, arXiv:1608.03983).
struct Schedule {
  double peak = 6e-4, floor = 6e-5;
  std::uint64_t warmup = 0, steps = 0;  ///< steps in all; 0: peak after the warm-up

  double rate(std::uint64_t step) const;  ///< of a step, from 0 on
};

struct TrainOptions {
  DType type = DType::f32;          ///< of weights and activations: f32 or bf16
  std::uint64_t batch = 1;          ///< sequences that are computed together
  std::uint64_t sequence = 0;       ///< tokens in each
  std::uint64_t micro_batches = 1;  ///< whose gradients are added up in a step
  bool checkpoint_layers =
      false;              ///< keep only the input of each layer, and compute it again in the backward pass
  bool fast_f32 = false;  ///< f32 products with operands rounded to tf32
  bool graph = false;     ///< from the second step on, a step is one CUDA graph; a GPU is needed
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;  ///< AdamW; matrices decay
  double max_norm = 1;  ///< of all gradients together; 0: not clipped
  std::uint64_t tokens() const { return batch * sequence * micro_batches; }  ///< of a step
};

/// What a step reports.
struct StepResult {
  double loss = 0;           ///< mean over the tokens, before the update
  double gradient_norm = 0;  ///< before clipping; 0 where it is not computed
  bool skipped = false;      ///< the gradients held NaN or Inf: nothing changed
};

class Trainer {
 public:
  /// Allocates everything. Weights are drawn by `seed`, each parameter on its own. ArgumentError naming the field.
  Trainer(const runtime::Device& device, const TransformerShape& shape, const TrainOptions& options,
          std::uint64_t seed = 0);
  ~Trainer();
  Trainer(Trainer&&) noexcept;

  const TransformerShape& shape() const;
  const TrainOptions& options() const;
  const std::vector<Parameter>& parameters() const;
  std::uint64_t memory_bytes() const;  ///< of weights, gradients, states and activations
  std::uint64_t steps() const;         ///< that were taken

  /// One step: tokens and the tokens that follow them, [micro_batches][batch][sequence] each. Waits.
  /// ArgumentError for a wrong length or a token outside the vocabulary.
  StepResult step(std::span<const std::int32_t> inputs, std::span<const std::int32_t> targets, double rate);
  /// The same without the update: gradients are there afterwards. Waits; returns the mean loss.
  double gradients(std::span<const std::int32_t> inputs, std::span<const std::int32_t> targets);
  /// The mean loss of one batch [batch][sequence], forward alone. Waits.
  double evaluate(std::span<const std::int32_t> inputs, std::span<const std::int32_t> targets);

  /// Copies of parameter i, f32. Weights are the masters where the type is bf16.
  std::vector<float> weight(std::size_t i) const;
  std::vector<float> gradient(std::size_t i) const;
  void set_weight(std::size_t i, std::span<const float> values);

  /// AdamW's states of parameter i, f32, and the number of steps behind them.
  struct State {
    std::vector<float> first, second;
  };
  State state(std::size_t i);
  void set_state(std::size_t i, const State& s);
  void set_steps(std::uint64_t steps);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cgp::train

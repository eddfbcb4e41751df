// SPDX-License-Identifier: Apache-2.0
#pragma once
// The weights of a program as the processor multiplies them.
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cgp/cpu/quant/packed.h"
#include "cgp/engine/backend.h"
#include "cgp/engine/models/model.h"
#include "cgp/model/source/source.h"

namespace cgp::engine {

class CpuWeights {
 public:
  CpuWeights(const Program& program, std::shared_ptr<const model::Source> file,
             const BackendOptions& options);

  /// Bytes beside the mapped file.
  static std::int64_t bytes_for(const Program& program, const model::Source& file,
                                const BackendOptions& options);

  /// y = x W' for n rows of x, with matrix `expert` of the weight.
  void multiply(WeightId weight, std::int64_t expert, std::int64_t n, std::span<const float> x,
                std::span<float> y) const;
  /// The rows of a table with these numbers, as f32.
  void rows(WeightId weight, std::span<const std::int32_t> ids, std::span<float> out) const;
  /// A norm's weight or a bias; empty for kNone.
  std::span<const float> vector(WeightId weight) const;

 private:
  struct Matrix {
    std::int64_t rows = 0, cols = 0;
    std::vector<WeightData> stored;          ///< one for each expert
    std::vector<cpu::PackedWeights> packed;  ///< one for each expert; empty: stored is read
    std::vector<float> values;               ///< of a vector
  };
  std::shared_ptr<const model::Source> file_;
  std::vector<Matrix> matrices_;
  cpu::Activations activations_;
  int threads_;
  bool batch_invariant_;
};

/// What ActivationType::automatic is here.
cpu::Activations activations_of(ActivationType type);

}  // namespace cgp::engine

// SPDX-License-Identifier: Apache-2.0
#pragma once
// One step of an optimizer over all tensors of a model: AdamW, Adam, SGD with momentum, Lion. With g the gradient
// divided by the loss scale and clipped, t the number of the step, and everything in f32:
//   adamw     w -= lr * decay * w;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;
//             w -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)
//   adam      g += decay * w, then as adamw without its decay
//   sgd       g += decay * w;  m = b1 m + g;  w -= lr * m
//   nesterov  g += decay * w;  m = b1 m + g;  w -= lr * (g + b1 m)
//   lion      w -= lr * decay * w;  w -= lr * sign(b1 m + (1 - b1) g);  m = b2 m + (1 - b2) g
// Sources: Kingma and Ba, arXiv:1412.6980; Loshchilov and Hutter, arXiv:1711.05101; Sutskever et al., ICML 2013; Chen
// et al., arXiv:2302.06675.
//
// A step is three launches at most: partial sums of the squared gradients (where they are checked), one block that
// decides and prepares the rates, and the update. Nothing comes back to the host, so that a graph can hold them.
#include <cstdint>
#include <span>
#include <vector>

#include "cgp/kernels/common/variant.h"
#include "cgp/kernels/common/view.h"

namespace cgp::kernels {

enum class OptimizerRule : std::uint8_t { adamw, adam, sgd, nesterov, lion };

/// Any length and any address; f32, f16 or bf16. A gradient is f32 or has the weight's type; of f32 weights, any.
struct OptimizerTensor {
  View weight, gradient;
  View master;  ///< f32 copy of the weight that the steps are taken on; not given: the weight itself
  std::uint32_t group = 0;  ///< its OptimizerGroup
};

struct OptimizerGroup {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
};

struct OptimizerOptions {
  OptimizerRule rule = OptimizerRule::adamw;
  double max_norm = 0;  ///< of all gradients together, as torch.nn.utils.clip_grad_norm_; 0: not clipped
  bool skip_nonfinite = false;  ///< a step whose gradients hold NaN or Inf changes nothing but the counts
  double loss_scale = 1;        ///< that the gradients carry at the first step
  std::uint32_t growth_interval =
      0;  ///< steps without NaN or Inf after which the scale grows; 0: it never changes
  double growth = 2, backoff = 0.5;  ///< factors of the scale, the second after a skipped step
};

/// What the device counts.
struct OptimizerStatus {
  std::uint32_t step = 0;     ///< steps taken
  std::uint32_t skipped = 0;  ///< steps that were not, for NaN or Inf
  std::uint32_t good = 0;     ///< steps since the scale last changed
  float loss_scale = 1;       ///< for the next step
  float norm = 0;             ///< of the last step's gradients, the scale removed; 0 where it is not computed
};

/// Holds the table of tensors, the states (f32, zero at first) and the counts on the device. The tensors' memory stays
/// the caller's and stays where it is.
class Optimizer {
 public:
  /// All tensors have the types of the first, and all or none have a master. Throws ArgumentError naming the tensor.
  /// max_norm, growth_interval and skip_nonfinite each make the step read the gradients once more.
  Optimizer(const runtime::Device& device, const OptimizerOptions& options,
            std::span<const OptimizerTensor> tensors, std::span<const OptimizerGroup> groups);

  /// Queues one step. Repeated on one device it gives the same bits: no sum depends on the order of blocks.
  void step(runtime::Stream& s);

  /// New rates for the steps that follow; as many groups as before. Waits for the copy.
  void set_groups(std::span<const OptimizerGroup> groups);

  /// Waits for the copy; call after the stream is done.
  OptimizerStatus status() const;
  void restore(const OptimizerStatus& status);

  /// m of a tensor, and v (empty for rules without one): as many f32 as the weight has elements.
  runtime::Slice<float> first_state(std::size_t tensor);
  runtime::Slice<float> second_state(std::size_t tensor);

 private:
  OptimizerOptions options_;
  std::vector<std::uint64_t> lengths_, offsets_;
  std::uint32_t pieces_ = 0, groups_ = 0;
  bool checks_ = false;
  std::size_t types_ = 0;  ///< number of its variant
  bool master_ = false;
  runtime::Buffer<std::uint64_t> table_;
  runtime::Buffer<std::uint32_t> piece_table_, control_;
  runtime::Buffer<double> group_data_;
  runtime::Buffer<float> rates_, partial_, first_, second_;
};

/// All kernels that a step may launch.
std::vector<Variant> optimizer_variants();

}  // namespace cgp::kernels

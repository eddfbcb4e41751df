// SPDX-License-Identifier: Apache-2.0
#pragma once
// One step of an optimizer over all tensors of a model: AdamW, Adam, SGD, Lion. With g the gradient divided by the loss
// scale and clipped (and negated to maximize), t the number of the tensor's step, and everything in f32:
//   adamw     w -= lr * decay * w;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;
//             w -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)
//   adam      g += decay * w, then as adamw without its decay
//   sgd       g += decay * w;  m = b1 m + g;  w -= lr * m
//   nesterov  g += decay * w;  m = b1 m + g;  w -= lr * (g + b1 m)
//   lion      w -= lr * decay * w;  w -= lr * sign(b1 m + (1 - b1) g);  m = b2 m + (1 - b2) g
//   descent   w -= lr * (g + decay * w): SGD without momentum
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

enum class OptimizerRule : std::uint8_t { adamw, adam, sgd, nesterov, lion, descent };
/// How a weight of 16 bits is made of the f32 value: to the nearest; or up or down with the probability that keeps the mean
/// (bf16 only), by Philox4x32-10 from (seed, step, tensor, element).
enum class OptimizerRounding : std::uint8_t { nearest, stochastic };

/// What the update of all tensors of a launch has in common.
struct OptimizerTypes {
  OptimizerRule rule = OptimizerRule::adamw;
  DType weight = DType::f32,
        gradient = DType::f32;  ///< the gradient: f32 or the weight's; of f32 weights any
  bool master = false;          ///< steps are taken on an f32 copy of the weight
  OptimizerRounding rounding = OptimizerRounding::nearest;
  bool states8 = false;  ///< states are of 8 bits (optimizer_code.h): not with a master
};
bool has_first_state(OptimizerRule rule);
bool has_second_state(OptimizerRule rule);

struct OptimizerGroup {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool maximize = false;
};

struct OptimizerOptions {
  OptimizerRule rule = OptimizerRule::adamw;
  double max_norm = 0;  ///< of all gradients together, as torch.nn.utils.clip_grad_norm_; 0: not clipped
  bool skip_nonfinite = false;  ///< a step whose gradients hold NaN or Inf changes nothing but the counts; so
                                ///< it is with max_norm and growth_interval, too
  double loss_scale = 1;        ///< that the gradients carry at the first step
  std::uint32_t growth_interval =
      0;  ///< steps without NaN or Inf after which the scale grows; 0: it never changes
  double growth = 2, backoff = 0.5;  ///< factors of the scale, the second after a skipped step
  OptimizerRounding rounding = OptimizerRounding::nearest;
  std::uint64_t seed = 0;  ///< of stochastic rounding
  bool states8 = false;    ///< states take 8 bits and an f32 for each 256 elements
};

// ---- The launches, on tables in device memory. They allocate nothing.

/// A row of the table of tensors, addresses of memory on the device. Any length; any address that fits the element type.
struct OptimizerRow {
  std::uint64_t weight, gradient;
  std::uint64_t master;         ///< f32; 8-bit states: their scales, f32 [states][ceil(elements / 256)]
  std::uint64_t first, second;  ///< states m and v, f32 or u8, where the rule has them
  std::uint64_t step;           ///< one f32: the steps that this tensor has taken
  std::uint64_t elements;
  std::uint32_t group, tensor;  ///< its row of the groups; what stochastic rounding counts it as
};
inline constexpr std::uint32_t kOptimizerRowWords = 8, kOptimizerGroupWords = 6, kOptimizerRateWords = 12;
/// Words of the control block, u32 or the bits of an f32.
enum OptimizerControl {
  kTaken,    ///< steps taken
  kSkipped,  ///< steps that were not, for NaN or Inf
  kGood,     ///< steps since the loss scale last changed
  kSkip,     ///< whether this step is skipped
  kScale,    ///< f32: the loss scale
  kFactor,   ///< f32: what gradients are multiplied with
  kNorm,     ///< f32: of the gradients, the scale removed; 0 where it is not computed
  kFound,    ///< f32: not 0 where gradients hold NaN or Inf
  kOptimizerControlWords
};
/// The work of the blocks: (row, chunk) for each 16384 elements of each tensor.
std::vector<std::uint32_t> optimizer_chunks(std::span<const std::uint64_t> elements);
/// (lr, beta1, beta2, eps, weight_decay, maximize) of each group. Throws ArgumentError naming group and number.
std::vector<double> optimizer_group_words(std::span<const OptimizerGroup> groups);

/// table u64 [tensors][8], groups f64 [groups][6], control u32 [8], rates f32 [tensors][12], 16 bytes aligned.
struct OptimizerTables {
  View table, groups, control, rates;
};
/// What the control launch is asked to do.
struct OptimizerDecision {
  OptimizerRule rule = OptimizerRule::adamw;
  float max_norm = 0;  ///< 0: not clipped
  float growth = 2, backoff = 0.5;
  std::uint32_t growth_interval = 0;
  bool use_found = false;  ///< the step is skipped, too, where the caller has set kFound
  bool steps = true;       ///< false: for optimizer_clip alone, no counts and no rates
};
/// partial[i] = the sum of the squares of the gradients of chunk i.
void optimizer_norm(runtime::Stream& s, DType gradient, const View& table, const View& chunks,
                    const View& partial);
/// Adds the partial sums, decides whether the step is taken, counts, and prepares the rates of each tensor.
void optimizer_control(runtime::Stream& s, const OptimizerDecision& d, const OptimizerTables& t,
                       const View& partial);
/// The step, on the tensors of these chunks.
void optimizer_update(runtime::Stream& s, const OptimizerTypes& types, const OptimizerTables& t,
                      const View& chunks, std::uint64_t seed = 0);
/// Multiplies the gradients of these chunks with kFactor; where it is 1 they are not touched.
void optimizer_clip(runtime::Stream& s, DType gradient, const View& table, const View& chunks,
                    const View& control);

// ---- An optimizer that owns its tables and states.

/// Any length and any address; f32, f16 or bf16. A gradient is f32 or has the weight's type; of f32 weights, any.
struct OptimizerTensor {
  View weight, gradient;
  View master;  ///< f32 copy of the weight that the steps are taken on; not given: the weight itself
  std::uint32_t group = 0;  ///< its OptimizerGroup
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

  /// m of a tensor, and v (empty for rules without one): as many f32 as the weight has elements. Empty with 8-bit states.
  runtime::Slice<float> first_state(std::size_t tensor);
  runtime::Slice<float> second_state(std::size_t tensor);
  /// 8-bit states: m (which = 0) or v (1) is dynamic_code(which == 0).values[code] * scale of each 256 elements.
  runtime::Slice<std::uint8_t> state_codes(std::size_t tensor, int which);
  runtime::Slice<float> state_scales(std::size_t tensor, int which);

 private:
  OptimizerOptions options_;
  OptimizerTypes types_;
  std::vector<std::uint64_t> lengths_, offsets_;
  std::uint32_t groups_ = 0;
  bool checks_ = false;
  runtime::Buffer<std::uint64_t> table_;
  runtime::Buffer<std::uint32_t> chunks_, control_;
  runtime::Buffer<double> group_data_;
  runtime::Buffer<float> rates_, partial_, first_, second_, steps_, scales_;
  runtime::Buffer<std::uint8_t> codes_[2];
};

/// All kernels that a step may launch.
std::vector<Variant> optimizer_variants();

}  // namespace cgp::kernels

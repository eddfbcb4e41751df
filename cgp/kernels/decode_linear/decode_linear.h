// SPDX-License-Identifier: Apache-2.0
#pragma once
// Linear layers of one to eight rows, as when a language model makes one token a sequence: the bytes of the
// weights are the cost, and every launch that is saved. One launch does
//   h = x, or RMSNorm or LayerNorm of its rows, rounded to the type
//   p = h w' + bias, for up to three weights [n, k] whose columns of p lie one after another
//   y = f(p) + residual;  gated: f(p of the first weight) * p of the second + residual
// Sums are f32, added in an order that depends on shapes alone; y is rounded once.
// Between GPUs (`all`): each rank has a part of K, of x and of the weights, and h w' is summed over the ranks before the bias. All ranks
// get the same y.
#include <string>
#include <vector>

#include "cgp/kernels/activation/activation.h"
#include "cgp/kernels/collective/communicator.h"
#include "cgp/kernels/common/config.h"
#include "cgp/kernels/common/variant.h"

namespace cgp::kernels {

inline constexpr std::uint64_t kMostDecodeLinearRows = 8;
/// Rows that are normalised are at most this long.
inline constexpr std::uint64_t kMostNormedColumns = 4096;

enum class DecodeLinearNorm : std::uint8_t { none, rms, layer };

struct DecodeLinear {
  struct Weight {
    std::uint64_t address = 0;  ///< [n, k], dense
    std::uint64_t bias = 0;     ///< [n], or 0; all of them have one or none has
    std::uint64_t n = 0;
  };
  DType type = DType::bf16;  ///< of everything: f16 or bf16
  std::uint64_t m = 1, k = 0;
  std::vector<Weight> weights;                     ///< 1 to 3; gated: 2 of one n
  std::uint64_t x = 0, x_pitch = 0;                ///< [m, k]; elements between rows, 0: dense
  std::uint64_t y = 0, y_pitch = 0;                ///< [m, columns()]
  std::uint64_t residual = 0, residual_pitch = 0;  ///< as y, or 0; may be y
  DecodeLinearNorm norm = DecodeLinearNorm::none;
  std::uint64_t norm_weight = 0, norm_bias = 0;  ///< [k]; the bias is LayerNorm's
  float eps = 1e-6f, weight_offset = 0;          ///< h * (norm_weight + weight_offset)
  Activation activation = Activation::identity;
  bool gated = false;
  /// Programmatic dependent launch (sm_90): the first weights are loaded before the work queued right before has
  /// ended. That work must not write the weights or the norm's.
  bool pdl = false;

  /// With `pdl`: memory of up to two weights of what runs next, fetched into L2 while this waits for the work
  /// before it; bytes, from multiples of 128.
  struct Memory {
    std::uint64_t address = 0, bytes = 0;
  };
  Memory prefetch[2];

  /// Ranks whose products are summed; none: this GPU alone. Each makes the same call with the same n and m.
  const Communicator* all = nullptr;
  int rank = 0;

  std::uint64_t columns() const;  ///< of y
};
/// Why it cannot run, naming the argument; empty: it can.
std::string reject(const DecodeLinear& p);
/// Between ranks: whether all blocks fit on the GPU at once. Loads the kernel.
bool fits_at_once(const DecodeLinear& p);
/// ArgumentError with reject()'s sentence; Unsupported where ranks need more blocks than fit.
void decode_linear(runtime::Stream& s, const DecodeLinear& p);

/// What the kernel is built for.
struct DecodeLinearConfig {
  DType type = DType::bf16;
  int k = 0;
  int rows = 1;         ///< of x, a power of two; matters where they are normalised
  bool rows32 = false;  ///< a block owns 32 rows of a weight, not 16: long weights and gated ones
  DecodeLinearNorm norm = DecodeLinearNorm::none;
  Activation activation = Activation::identity;
  bool several = false, gated = false, bias = false, residual = false, pdl = false, prefetch = false;
  int ranks = 1;

  static DecodeLinearConfig of(const DecodeLinear& p);
  /// "decode_linear_bf16_k2048_m1_rms_norm_several_weights_pdl"
  std::string name() const { return config_name("decode_linear", *this); }
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    static constexpr std::string_view norms[] = {"", "rms_norm", "layer_norm"};
    static constexpr std::string_view activations[] = {"", "relu", "silu", "gelu", "gelu_tanh"};
    v.type("type", "", c.type), v.number("k", "k", c.k), v.number("rows", "m", c.rows);
    v.flag("rows32", c.rows32), v.choice("norm", norms, c.norm), v.flag("several_weights", c.several);
    v.flag("gated", c.gated), v.flag("bias", c.bias), v.choice("activation", activations, c.activation);
    v.flag("residual", c.residual), v.flag("pdl", c.pdl), v.flag("prefetch", c.prefetch);
    v.number("ranks", "ranks", c.ranks, 1);
  }
};
Variant decode_linear_variant(const DecodeLinearConfig& c);
std::vector<Variant> decode_linear_variants();

}  // namespace cgp::kernels

// SPDX-License-Identifier: Apache-2.0
#pragma once
// pack_weights() (weight_only_layout.h, weight_only_tensors.h) on the device: blocks as a GGUF file has them, and the tensors of GPTQ (without
// act-order), AWQ and bitsandbytes' NF4 (absmax in f32), become packed weights, the same bytes.
#include "cgp/kernels/common/config.h"
#include "cgp/kernels/common/variant.h"
#include "cgp/kernels/weight_only/weight_only_layout.h"

namespace cgp::kernels {

/// Where codes and scales lie: in blocks, or apart, as quant::Gptq, Awq and BnbNf4 have them.
enum class WeightSource : std::uint8_t { blocks, gptq, awq, bnb };

struct WeightPack {
  WeightFormat format = WeightFormat::q4_0;
  std::uint64_t n = 0, k = 0;  ///< rows of all weights together; columns
  std::uint64_t file = 0;      ///< n rows of k / file_block blocks
  /// Or 0. The gate and its up (WeightOnlyEnd::gate): n / 2 rows of the gate in `file`, as many of up here, packed in turns
  /// of 8; n is a multiple of 16.
  std::uint64_t up = 0;
  std::uint64_t packed = 0;  ///< packed_bytes(format, n, k)
  WeightSource source = WeightSource::blocks;
  /// Of tensors, whose codes are `file`: f16 [k / group, n] or f32 absmax [n * k / 64]; u32 [k / group, n / 8].
  std::uint64_t scales = 0, zeros = 0;
  bool zeros_minus_one = false;  ///< GPTQ: zeros hold zero - 1
};
/// Why it cannot run, naming the argument; empty: it can.
std::string reject(const WeightPack& p);
/// ArgumentError with reject()'s sentence.
void pack_weights(runtime::Stream& s, const WeightPack& p);

struct WeightPackConfig {
  WeightFormat format = WeightFormat::q4_0;
  WeightSource source = WeightSource::blocks;
  static constexpr std::string_view kSources[] = {"", "gptq", "awq", "bnb"};
  /// "weight_pack_q4_k"
  std::string name() const { return config_name("weight_pack", *this); }
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.choice("format", kWeightFormatNames, c.format), v.choice("source", kSources, c.source);
  }
};
Variant weight_pack_variant(const WeightPackConfig& c);
/// Of formats with a table and of int4: the other kernel behind weight_pack_variant(), and its launch.
Variant weight_pack_tensors_variant(const WeightPackConfig& c);
void pack_tensors(runtime::Stream& s, const WeightPack& p);

}  // namespace cgp::kernels

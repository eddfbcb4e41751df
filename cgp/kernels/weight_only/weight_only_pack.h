// SPDX-License-Identifier: Apache-2.0
#pragma once
// pack_weights() (weight_only_layout.h) on the device: blocks as a GGUF file has them become packed weights, the same bytes.
#include "cgp/kernels/common/config.h"
#include "cgp/kernels/common/variant.h"
#include "cgp/kernels/weight_only/weight_only_layout.h"

namespace cgp::kernels {

struct WeightPack {
  WeightFormat format = WeightFormat::q4_0;
  std::uint64_t n = 0, k = 0;  ///< rows of all weights together; columns
  std::uint64_t file = 0;      ///< n rows of k / file_block blocks
  /// Or 0. The gate and its up (WeightOnlyEnd::gate): n / 2 rows of the gate in `file`, as many of up here, packed in turns
  /// of 8; n is a multiple of 16.
  std::uint64_t up = 0;
  std::uint64_t packed = 0;  ///< packed_bytes(format, n, k)
};
/// Why it cannot run, naming the argument; empty: it can.
std::string reject(const WeightPack& p);
/// ArgumentError with reject()'s sentence.
void pack_weights(runtime::Stream& s, const WeightPack& p);

struct WeightPackConfig {
  WeightFormat format = WeightFormat::q4_0;
  /// "weight_pack_q4_k"
  std::string name() const { return config_name("weight_pack", *this); }
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.choice("format", kWeightFormatNames, c.format);
  }
};
Variant weight_pack_variant(const WeightPackConfig& c);

}  // namespace cgp::kernels

// SPDX-License-Identifier: Apache-2.0
#pragma once
// Few rows times a weight that weight_only has packed (weight_only_layout.h), without tensor cores: y [m, n] = x [m, k] w', m up to 4, on
// every GPU from sm_75 on, on Vulkan and on WebGPU. Codes are read once, 16 bytes a lane; sums are f32.
#include <string>

#include "cgp/kernels/quantized_matmul/quantized_matmul.h"

namespace cgp::kernels {

struct PackedGemvConfig {
  WeightFormat format = WeightFormat::q4_0;
  DType type = DType::f16, type_y = DType::f16;
  int rows = 1;    ///< of x
  int warps = 8;   ///< of a block
  int share = 8;   ///< warps that share the columns of 16 rows of the weight, 64 at a time: a multiple of 4
  int chunk = 16;  ///< times 256 columns of x in shared memory at a time
  int ahead = 2;   ///< steps of 64 columns that a warp loads before it multiplies them
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.choice("format", kWeightFormatNames, c.format), v.type("type", "", c.type);
    v.type("type_y", "y_", c.type_y), v.number("rows", "rows", c.rows);
    v.number("warps", "warps", c.warps), v.number("share", "share", c.share);
    v.number("chunk", "chunk", c.chunk), v.number("ahead", "ahead", c.ahead);
  }
  int placed_units() const { return 32 * chunk; }  ///< of eight columns of x each, in shared memory
  int shared_bytes() const;
};

/// Why it does not run this product; empty: it does. Views need types, alignments and layouts alone.
std::string reject_packed_gemv(const QuantizedMatmul& p, const runtime::DeviceInfo& d);
/// The selector: how much of x is placed at a time follows from the format and from the device's shared memory.
PackedGemvConfig packed_gemv_config(const QuantizedMatmul& p, const runtime::DeviceInfo& d);
Variant packed_gemv_variant(const PackedGemvConfig& c);
/// What quantized_matmul() has checked and reject_packed_gemv() lets pass.
void packed_gemv(runtime::Stream& s, const QuantizedMatmul& p);
/// With a config of the caller's, for tuning.
void packed_gemv(runtime::Stream& s, const QuantizedMatmul& p, const PackedGemvConfig& c);

}  // namespace cgp::kernels

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
  int warps = 4;   ///< of a block
  int share = 4;   ///< warps that share the columns of 16 rows of the weight, 256 at a time; a power of two
  int chunk = 16;  ///< times 256 columns of x in shared memory at a time; a multiple of share
  bool ahead = false;  ///< the next tile is loaded before one is multiplied
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.choice("format", kWeightFormatNames, c.format), v.type("type", "", c.type);
    v.type("type_y", "y_", c.type_y), v.number("rows", "rows", c.rows);
    v.number("warps", "warps", c.warps), v.number("share", "share", c.share);
    v.number("chunk", "chunk", c.chunk), v.flag("ahead", c.ahead);
  }
  /// Of eight columns of x each, in shared memory: as many for each thread.
  int placed_units() const { return (chunk + warps - 1) / warps * warps * 32; }
  int shared_bytes() const;
};

/// Why it does not run this product; empty: it does. Views need types, alignments and layouts alone.
std::string reject_packed_gemv(const QuantizedMatmul& p, const runtime::DeviceInfo& d);
/// The selector: as many warps share the columns as there are tiles of 256, and as much of x is placed at a time as the device's
/// shared memory has room for.
PackedGemvConfig packed_gemv_config(const QuantizedMatmul& p, const runtime::DeviceInfo& d);
Variant packed_gemv_variant(const PackedGemvConfig& c);
/// What quantized_matmul() has checked and reject_packed_gemv() lets pass.
void packed_gemv(runtime::Stream& s, const QuantizedMatmul& p);
/// With a config of the caller's, for tuning.
void packed_gemv(runtime::Stream& s, const QuantizedMatmul& p, const PackedGemvConfig& c);

}  // namespace cgp::kernels

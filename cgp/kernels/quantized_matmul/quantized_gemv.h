// SPDX-License-Identifier: Apache-2.0
#pragma once
// Few rows times a quantised weight, decoded in registers: y [m, n] = x [m, k] w', m up to 4, on every GPU from sm_75 on without
// tensor cores, and on Vulkan and WebGPU. Every byte of the weight is read once; sums are f32.
#include <string>

#include "cgp/kernels/quantized_matmul/quantized_matmul.h"

namespace cgp::kernels {

struct QuantizedGemvConfig {
  QuantizedFormat format = QuantizedFormat::q4_0;
  DType type = DType::f16, type_y = DType::f16;
  int rows = 1;              ///< of x
  int align = 1;             ///< of the codes of a block, in bytes
  bool wide_x = false;       ///< rows of x are read 16 bytes at a time
  bool block_a_row = false;  ///< a block has one row of the weight, else each of its warps
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.choice("format", DequantizeConfig::names(), c.format), v.type("type", "", c.type);
    v.type("type_y", "y_", c.type_y), v.number("rows", "rows", c.rows), v.number("align", "align", c.align);
    v.flag("wide_x", c.wide_x), v.flag("block_a_row", c.block_a_row);
  }
};

/// Why it does not run this product; empty: it does. Views need types and layouts alone.
std::string reject_gemv(const QuantizedMatmul& p, const runtime::DeviceInfo& d);
/// The selector: a block has a row where there are too few of them for the warps of the device.
QuantizedGemvConfig quantized_gemv_config(const QuantizedMatmul& p, const runtime::DeviceInfo& d);
Variant quantized_gemv_variant(const QuantizedGemvConfig& c);
/// What quantized_matmul() has checked and reject_gemv() lets pass.
void quantized_gemv(runtime::Stream& s, const QuantizedMatmul& p);

}  // namespace cgp::kernels

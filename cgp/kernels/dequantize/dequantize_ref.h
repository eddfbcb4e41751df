// SPDX-License-Identifier: Apache-2.0
#pragma once
// The oracle: weights on the host, decoded by cgp/quant, and random ones.
#include <cstring>
#include <vector>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/common/array.h"
#include "cgp/kernels/dequantize/dequantize.h"
#include "cgp/quant/decode.h"
#include "cgp/quant/layouts.h"

namespace cgp::kernels {

/// QuantizedWeight with its tensors on the host.
struct HostWeight {
  QuantizedWeight shape;  ///< views are not given
  HostArray codes, scales, zeros, g_idx, absmax_table, absmax_scales;
};

inline std::vector<float> decoded(const HostWeight& h) {
  const auto& w = h.shape;
  std::vector<float> out(w.rows * w.cols);
  if (const auto f = block_format(w.format)) {
    quant::decode(*f, h.codes.bytes, out);
  } else if (w.format == QuantizedFormat::gptq) {
    quant::decode(
        quant::Gptq{w.rows, w.cols, w.group, typed<std::uint32_t>(h.codes), typed<std::uint32_t>(h.zeros),
                    typed<std::uint16_t>(h.scales), typed<std::int32_t>(h.g_idx), w.zeros_minus_one},
        out);
  } else if (w.format == QuantizedFormat::awq) {
    quant::decode(quant::Awq{w.rows, w.cols, w.group, typed<std::uint32_t>(h.codes),
                             typed<std::uint32_t>(h.zeros), typed<std::uint16_t>(h.scales)},
                  out);
  } else if (w.format == QuantizedFormat::bnb_nf4) {
    quant::BnbNf4 b{w.rows, w.cols, w.group, typed<std::uint8_t>(h.codes)};
    if (h.scales.dtype == DType::f32)
      b.absmax = typed<float>(h.scales);
    else
      b.absmax_codes = typed<std::uint8_t>(h.scales), b.absmax_table = typed<float>(h.absmax_table),
      b.absmax_scales = typed<float>(h.absmax_scales), b.absmax_block = w.absmax_block,
      b.absmax_offset = w.absmax_offset;
    quant::decode(b, out);
  } else {
    const DType type = w.format == QuantizedFormat::fp8_e4m3 ? DType::e4m3 : DType::e5m2;
    quant::decode(quant::Fp8{w.rows, w.cols, type, w.scale_rows, w.scale_cols, typed<std::uint8_t>(h.codes),
                             typed<float>(h.scales)},
                  out);
  }
  return out;
}

/// Random codes, and scales of a size that products like.
HostWeight random_weight(const QuantizedWeight& shape, bool g_idx, bool nested, std::uint64_t seed);

}  // namespace cgp::kernels

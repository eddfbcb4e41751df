// SPDX-License-Identifier: Apache-2.0
// The reference of the products: for floats each weight is dequantised, for integers the definitions of
// gemv_impl.h word by word.
#include "cgp/base/float16.h"
#include "cgp/cpu/quant/codes_impl.h"
#include "cgp/cpu/quant/gemv_impl.h"
#include "cgp/cpu/quant/quantize.h"
#include "cgp/quant/decode.h"

namespace cgp::cpu {
namespace {

template <QuantType kType>
float dot_f32(const void* row, std::int64_t blocks, const float* x, const float*) {
  const auto format = format_of(kType);
  const QuantFacts& f = facts(kType);
  const auto* at = static_cast<const std::byte*>(row);
  float w[256], sum = 0;
  for (std::int64_t b = 0; b < blocks; ++b, at += f.bytes, x += f.elements) {
    quant::decode_blocks(format, at, 1, w);
    for (std::int64_t i = 0; i < f.elements; ++i) sum += w[i] * x[i];
  }
  return sum;
}

/// Scale, offset and what dmin stands for, of 16 elements.
template <class Block>
void scale_of(const Block& b, int j, int& scale, int& offset, std::uint16_t& dmin) {
  const PackedScales p = scales_of(b.scales);
  scale = int(p.scales >> (8 * (j / 2)) & 255), offset = int(p.mins >> (8 * (j / 2)) & 255), dmin = b.dmin;
}
void scale_of(const BlockQ6K& b, int j, int& scale, int& offset, std::uint16_t& dmin) {
  scale = b.scales[j], offset = 32 * scale, dmin = b.d;
}

float wide_scale(std::uint16_t bits) { return float(half::from_bits(bits)); }

template <class Block>
float dot_q8k(const void* row, std::int64_t blocks, const BlockQ8K* x) {
  const auto* w = static_cast<const Block*>(row);
  float a = 0, b = 0;
  for (std::int64_t i = 0; i < blocks; ++i) {
    std::int32_t sum = 0, offsets = 0;
    std::uint16_t dmin = 0;
    for (int j = 0; j < 16; ++j) {
      int scale = 0, offset = 0;
      std::int32_t products = 0;
      scale_of(w[i], j, scale, offset, dmin);
      for (int e = 0; e < 16; ++e) products += code(w[i], j / 2, 16 * (j % 2) + e) * x[i].qs[16 * j + e];
      sum += scale * products, offsets += offset * x[i].bsums[j];
    }
    a += wide_scale(w[i].d) * x[i].d * float(sum);
    b += wide_scale(dmin) * x[i].d * float(offsets);
  }
  return a - b;
}

float dot_q80(const void* row, std::int64_t blocks, const BlockQ80* x) {
  const auto* w = static_cast<const BlockQ80*>(row);
  float lane[8] = {};
  for (std::int64_t i = 0; i < blocks; ++i)
    for (int l = 0; l < 8; ++l) {
      std::int32_t sum = 0;
      for (int e = 4 * l; e < 4 * l + 4; ++e) sum += w[i].qs[e] * x[i].qs[e];
      lane[l] += wide_scale(w[i].d) * wide_scale(x[i].d) * float(sum);
    }
  for (int l = 0; l < 4; ++l) lane[l] += lane[l + 4];
  return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

}  // namespace

namespace quant_versions {
const Version scalar{{dot_f32<QuantType::q4_k>, dot_f32<QuantType::q5_k>, dot_f32<QuantType::q6_k>,
                      dot_f32<QuantType::q8_0>, dot_f32<QuantType::nf4>},
                     {dot_q8k<BlockQ4K>, dot_q8k<BlockQ5K>, dot_q8k<BlockQ6K>},
                     dot_q80};
}
}  // namespace cgp::cpu

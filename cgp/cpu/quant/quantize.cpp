// SPDX-License-Identifier: Apache-2.0
#include "cgp/cpu/quant/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "cgp/base/error.h"
#include "cgp/base/float16.h"
#include "cgp/base/text.h"
#include "cgp/quant/decode.h"
#include "cgp/quant/encode.h"

namespace cgp::cpu {
namespace {

using text::cat;

constexpr std::array kFormats{quant::Format::q4_k, quant::Format::q5_k, quant::Format::q6_k,
                              quant::Format::q8_0, quant::Format::nf4};

void quantize_block(const float* x, BlockQ80& b) {
  float most = 0;
  for (int i = 0; i < 32; ++i) most = std::max(most, std::fabs(x[i]));
  const float d = most / 127;
  const half scale{double(d)};
  if (!std::isfinite(float(scale)))
    throw ArgumentError(ErrorText{"a block's scale must fit binary16", {}, cat("it is ", d), {}});
  b.d = scale.bits;
  for (int i = 0; i < 32; ++i)
    b.qs[i] = std::int8_t(std::clamp(d == 0 ? 0 : int(std::lrint(x[i] / d)), -127, 127));
}
void quantize_block(const float* x, BlockQ8K& b) {
  float most = 0;  // with its sign: it becomes -128, which uses the whole range
  for (int i = 0; i < 256; ++i)
    if (std::fabs(x[i]) > std::fabs(most)) most = x[i];
  b = {};
  const float inverse = -128.0f / most;
  if (!std::isfinite(inverse)) return;  // zeros, or as good as
  for (int i = 0; i < 256; ++i) {
    b.qs[i] = std::int8_t(std::min(127L, std::lrint(inverse * x[i])));
    b.bsums[i / 16] = std::int16_t(b.bsums[i / 16] + b.qs[i]);
  }
  b.d = 1 / inverse;
}

void finite(std::span<const float> values) {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i]))
      throw ArgumentError(
          ErrorText{"only finite values can be quantised", {}, cat("element ", i, " is ", values[i]), {}});
}

template <class Block>
void quantize_blocks(std::span<const float> values, std::span<Block> blocks, std::size_t each) {
  finite(values);
  if (values.size() != each * blocks.size())
    throw ArgumentError(ErrorText{
        cat(each, " activations to a block"), {}, cat(values.size(), " for ", blocks.size(), " blocks"), {}});
  for (std::size_t i = 0; i < blocks.size(); ++i) quantize_block(values.data() + i * each, blocks[i]);
}

}  // namespace

quant::Format format_of(QuantType type) { return kFormats[std::size_t(type)]; }

const QuantFacts& facts(QuantType type) {
  static const auto all = [] {
    std::array<QuantFacts, kFormats.size()> out;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto& f = quant::info(kFormats[i]);
      out[i] = {f.name, std::int64_t(f.elements), std::int64_t(f.bytes)};
    }
    return out;
  }();
  return all[std::size_t(type)];
}

std::vector<QuantType> all_quant_types() {
  return {QuantType::q4_k, QuantType::q5_k, QuantType::q6_k, QuantType::q8_0, QuantType::nf4};
}

std::int64_t quantized_bytes(QuantType type, std::int64_t elements) {
  if (elements < 0)
    throw ArgumentError(ErrorText{"a row has no negative length", {}, cat(elements, " elements"), {}});
  return std::int64_t(quant::bytes_of(format_of(type), std::uint64_t(elements)));
}

void dequantize(QuantType type, std::span<const std::byte> blocks, std::span<float> values) {
  quant::decode(format_of(type), blocks, values);
}
void quantize(QuantType type, std::span<const float> values, std::span<std::byte> blocks) {
  quant::encode(format_of(type), values, blocks);
}

void quantize_activations(std::span<const float> values, std::span<BlockQ8K> blocks) {
  quantize_blocks(values, blocks, 256);
}
void quantize_activations(std::span<const float> values, std::span<BlockQ80> blocks) {
  quantize_blocks(values, blocks, 32);
}

}  // namespace cgp::cpu

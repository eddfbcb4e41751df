// SPDX-License-Identifier: Apache-2.0
#include "cgp/cpu/quant/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "cgp/base/error.h"
#include "cgp/base/float16.h"
#include "cgp/base/text.h"
#include "cgp/cpu/quant/codes_impl.h"

namespace cgp::cpu {
namespace {

using text::cat;

constexpr std::array<QuantFacts, 5> kFacts{
    QuantFacts{"q4_k", 256, sizeof(BlockQ4K)}, QuantFacts{"q5_k", 256, sizeof(BlockQ5K)},
    QuantFacts{"q6_k", 256, sizeof(BlockQ6K)}, QuantFacts{"q8_0", 32, sizeof(BlockQ80)},
    QuantFacts{"nf4", 64, sizeof(BlockNf4)}};

float wide(std::uint16_t bits) { return float(half::from_bits(bits)); }

/// The scale as binary16, checked.
std::uint16_t narrow(float v) {
  const half h{double(v)};
  if (!std::isfinite(float(h)))
    throw ArgumentError(ErrorText{"a block's scale must fit binary16", {}, cat("it is ", v), {}});
  return h.bits;
}

int nearest(float v, int lo, int hi) { return std::clamp(int(std::lrint(v)), lo, hi); }
float ratio(float v, float by) { return by == 0 ? 0 : v / by; }

int byte_of(std::uint64_t bytes, int i) { return int(bytes >> (8 * i) & 255); }

void put(BlockQ4K& b, int s, int e, int q) { b.qs[32 * (s / 2) + e] |= std::uint8_t(q << (4 * (s % 2))); }
void put(BlockQ5K& b, int s, int e, int q) {
  b.qs[32 * (s / 2) + e] |= std::uint8_t((q & 15) << (4 * (s % 2)));
  b.qh[e] |= std::uint8_t((q >> 4) << s);
}

template <class Block>
void dequantize_block(const Block& b, float* out) {
  const float d = wide(b.d), dmin = wide(b.dmin);
  const PackedScales p = scales_of(b.scales);
  for (int s = 0; s < 8; ++s) {
    const float scale = d * float(byte_of(p.scales, s)), min = dmin * float(byte_of(p.mins, s));
    for (int e = 0; e < 32; ++e) out[32 * s + e] = scale * float(code(b, s, e)) - min;
  }
}

void dequantize_block(const BlockQ6K& b, float* out) {
  for (int i = 0; i < 256; ++i)
    out[i] = wide(b.d) * float(b.scales[i / 16]) * float(code(b, i / 32, i % 32) - 32);
}
void dequantize_block(const BlockQ80& b, float* out) {
  for (int i = 0; i < 32; ++i) out[i] = wide(b.d) * float(b.qs[i]);
}
void dequantize_block(const BlockNf4& b, float* out) {
  for (int i = 0; i < 64; ++i) out[i] = b.absmax * kNf4[i % 2 ? b.codes[i / 2] & 15 : b.codes[i / 2] >> 4];
}

/// Q4_K and Q5_K: each sub-block's range from min(0, smallest) to the largest value, its scale and min in 6
/// bits of the block's; then codes for the scales as they are stored.
template <class Block, int kLevels>
Block quantize_mins(const float* x) {
  Block b{};
  float scale[8], min[8];
  for (int s = 0; s < 8; ++s) {
    const auto [lo, hi] = std::minmax_element(x + 32 * s, x + 32 * s + 32);
    min[s] = std::max(0.0f, -*lo);
    scale[s] = (std::max(*hi, -min[s]) + min[s]) / kLevels;
  }
  b.d = narrow(*std::max_element(scale, scale + 8) / 63);
  b.dmin = narrow(*std::max_element(min, min + 8) / 63);
  for (int s = 0; s < 8; ++s) {
    const int sc = nearest(ratio(scale[s], wide(b.d)), 0, 63),
              m = nearest(ratio(min[s], wide(b.dmin)), 0, 63);
    if (s < 4) {
      b.scales[s] |= std::uint8_t(sc), b.scales[s + 4] |= std::uint8_t(m);
    } else {
      b.scales[s + 4] = std::uint8_t((sc & 15) | (m & 15) << 4);
      b.scales[s - 4] |= std::uint8_t(sc >> 4 << 6), b.scales[s] |= std::uint8_t(m >> 4 << 6);
    }
    const float step = wide(b.d) * float(sc), base = wide(b.dmin) * float(m);
    for (int e = 0; e < 32; ++e) put(b, s, e, nearest(ratio(x[32 * s + e] + base, step), 0, kLevels));
  }
  return b;
}

void quantize_block(const float* x, BlockQ4K& b) { b = quantize_mins<BlockQ4K, 15>(x); }
void quantize_block(const float* x, BlockQ5K& b) { b = quantize_mins<BlockQ5K, 31>(x); }

float absmax(const float* x, int n) {
  float most = 0;
  for (int i = 0; i < n; ++i) most = std::max(most, std::fabs(x[i]));
  return most;
}

void quantize_block(const float* x, BlockQ6K& b) {
  b = {};
  float scale[16];
  for (int j = 0; j < 16; ++j) scale[j] = absmax(x + 16 * j, 16) / 31;
  b.d = narrow(*std::max_element(scale, scale + 16) / 127);
  for (int j = 0; j < 16; ++j) b.scales[j] = std::int8_t(nearest(ratio(scale[j], wide(b.d)), 0, 127));
  for (int i = 0; i < 256; ++i) {
    const int q = nearest(ratio(x[i], wide(b.d) * float(b.scales[i / 16])), -32, 31) + 32;
    const int h = i / 128, t = i % 128 / 32, l = i % 32;
    b.ql[64 * h + 32 * (t % 2) + l] |= std::uint8_t((q & 15) << (4 * (t / 2)));
    b.qh[32 * h + l] |= std::uint8_t((q >> 4) << (2 * t));
  }
}
void quantize_block(const float* x, BlockQ80& b) {
  const float d = absmax(x, 32) / 127;
  b.d = narrow(d);
  for (int i = 0; i < 32; ++i) b.qs[i] = std::int8_t(nearest(ratio(x[i], d), -127, 127));
}
void quantize_block(const float* x, BlockNf4& b) {
  b = {};
  b.absmax = absmax(x, 64);
  for (int i = 0; i < 64; ++i) {
    int best = 7;
    for (int q = 0; q < 16; ++q)
      if (std::fabs(x[i] - b.absmax * kNf4[q]) < std::fabs(x[i] - b.absmax * kNf4[best])) best = q;
    b.codes[i / 2] |= std::uint8_t(i % 2 ? best : best << 4);
  }
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

void sizes(QuantType type, std::size_t values, std::size_t bytes) {
  const std::int64_t needed = quantized_bytes(type, std::int64_t(values));
  if (std::size_t(needed) != bytes)
    throw ArgumentError(ErrorText{cat(values, " values of ", facts(type).name, " take ", needed, " bytes"),
                                  {},
                                  cat("there are ", bytes),
                                  {}});
}

template <class Block>
void dequantize_all(std::span<const std::byte> blocks, std::span<float> values) {
  const std::size_t each = values.size() / (blocks.size() / sizeof(Block));
  for (std::size_t i = 0; i * sizeof(Block) < blocks.size(); ++i) {
    Block b;
    __builtin_memcpy(&b, blocks.data() + i * sizeof(Block), sizeof(Block));
    dequantize_block(b, values.data() + i * each);
  }
}

template <class Block>
void quantize_all(std::span<const float> values, std::span<std::byte> blocks) {
  const std::size_t each = values.size() / (blocks.size() / sizeof(Block));
  for (std::size_t i = 0; i * sizeof(Block) < blocks.size(); ++i) {
    Block b;
    quantize_block(values.data() + i * each, b);
    __builtin_memcpy(blocks.data() + i * sizeof(Block), &b, sizeof(Block));
  }
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

const QuantFacts& facts(QuantType type) { return kFacts[std::size_t(type)]; }

std::vector<QuantType> all_quant_types() {
  return {QuantType::q4_k, QuantType::q5_k, QuantType::q6_k, QuantType::q8_0, QuantType::nf4};
}

std::int64_t quantized_bytes(QuantType type, std::int64_t elements) {
  const QuantFacts& f = facts(type);
  if (elements < 0 || elements % f.elements)
    throw ArgumentError(ErrorText{cat("a row of ", f.name, " holds whole blocks of ", f.elements),
                                  {},
                                  cat(elements, " elements"),
                                  elements < f.elements
                                      ? cat("the least are ", f.elements)
                                      : cat("the next are ", elements / f.elements * f.elements, " and ",
                                            (elements / f.elements + 1) * f.elements)});
  return elements / f.elements * f.bytes;
}

void dequantize(QuantType type, std::span<const std::byte> blocks, std::span<float> values) {
  sizes(type, values.size(), blocks.size());
  if (values.empty()) return;
  switch (type) {
    case QuantType::q4_k:
      return dequantize_all<BlockQ4K>(blocks, values);
    case QuantType::q5_k:
      return dequantize_all<BlockQ5K>(blocks, values);
    case QuantType::q6_k:
      return dequantize_all<BlockQ6K>(blocks, values);
    case QuantType::q8_0:
      return dequantize_all<BlockQ80>(blocks, values);
    case QuantType::nf4:
      return dequantize_all<BlockNf4>(blocks, values);
  }
}

void quantize(QuantType type, std::span<const float> values, std::span<std::byte> blocks) {
  sizes(type, values.size(), blocks.size());
  finite(values);
  if (values.empty()) return;
  switch (type) {
    case QuantType::q4_k:
      return quantize_all<BlockQ4K>(values, blocks);
    case QuantType::q5_k:
      return quantize_all<BlockQ5K>(values, blocks);
    case QuantType::q6_k:
      return quantize_all<BlockQ6K>(values, blocks);
    case QuantType::q8_0:
      return quantize_all<BlockQ80>(values, blocks);
    case QuantType::nf4:
      return quantize_all<BlockNf4>(values, blocks);
  }
}

void quantize_activations(std::span<const float> values, std::span<BlockQ8K> blocks) {
  quantize_blocks(values, blocks, 256);
}
void quantize_activations(std::span<const float> values, std::span<BlockQ80> blocks) {
  quantize_blocks(values, blocks, 32);
}

}  // namespace cgp::cpu

// SPDX-License-Identifier: Apache-2.0
#include "cgp/quant/encode.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "cgp/base/error.h"
#include "cgp/base/float16.h"
#include "cgp/base/text.h"
#include "cgp/quant/blocks.h"
#include "cgp/quant/decode.h"
#include "cgp/quant/encode_k_impl.h"

namespace cgp::quant {
namespace {

using text::cat;

float inverse(float d) { return d == 0 ? 0 : 1 / d; }

float absmax(const float* x, int n) {
  float most = 0;
  for (int i = 0; i < n; ++i) most = std::max(most, std::fabs(x[i]));
  return most;
}
/// The value of the largest magnitude, with its sign; the first of equals.
float extreme(const float* x, int n) {
  float most = x[0];
  for (int i = 1; i < n; ++i)
    if (std::fabs(x[i]) > std::fabs(most)) most = x[i];
  return most;
}

// Elements 0 to 15 go to low nibbles, 16 to 31 to high ones, the fifth bit to qh.
void put_half(std::uint8_t* qs, int e, int q) { qs[e % 16] |= std::uint8_t((q & 15) << (e / 16 * 4)); }
void put_fifth(std::uint8_t* qh, int e, int q) { qh[e / 8] |= std::uint8_t((q >> 4) << (e % 8)); }

// The extreme value becomes the lowest code, which uses the whole range.
template <class Put>
std::uint16_t centred(const float* x, int levels, const Put& put) {
  const float d = extreme(x, 32) / float(-levels), id = inverse(d);
  const std::uint16_t scale = narrow_scale(d);
  for (int e = 0; e < 32; ++e) put(e, std::clamp(int(x[e] * id + (float(levels) + 0.5f)), 0, 2 * levels - 1));
  return scale;
}
template <class Put>
void ranged(const float* x, int levels, std::uint16_t& scale, std::uint16_t& min, const Put& put) {
  const auto [lo, hi] = std::minmax_element(x, x + 32);
  const float d = (*hi - *lo) / float(levels), id = inverse(d);
  scale = narrow_scale(d), min = narrow_scale(*lo);
  for (int e = 0; e < 32; ++e) put(e, std::clamp(int((x[e] - *lo) * id + 0.5f), 0, levels));
}

void encode_block(const float* x, BlockQ40& b) {
  b = {};
  b.d = centred(x, 8, [&](int e, int q) { put_half(b.qs, e, q); });
}
void encode_block(const float* x, BlockQ41& b) {
  b = {};
  ranged(x, 15, b.d, b.m, [&](int e, int q) { put_half(b.qs, e, q); });
}
void encode_block(const float* x, BlockQ50& b) {
  b = {};
  b.d = centred(x, 16, [&](int e, int q) { put_half(b.qs, e, q), put_fifth(b.qh, e, q); });
}
void encode_block(const float* x, BlockQ51& b) {
  b = {};
  ranged(x, 31, b.d, b.m, [&](int e, int q) { put_half(b.qs, e, q), put_fifth(b.qh, e, q); });
}
void encode_block(const float* x, BlockQ80& b) {
  const float d = absmax(x, 32) / 127, id = inverse(d);
  b.d = narrow_scale(d);
  for (int e = 0; e < 32; ++e) b.qs[e] = std::int8_t(std::round(x[e] * id));
}

void encode_block(const float* x, BlockQ2K& b) { encode_k(x, b); }
void encode_block(const float* x, BlockQ3K& b) { encode_k(x, b); }
void encode_block(const float* x, BlockQ4K& b) { encode_k(x, b); }
void encode_block(const float* x, BlockQ5K& b) { encode_k(x, b); }
void encode_block(const float* x, BlockQ6K& b) { encode_k(x, b); }
void encode_block(const float* x, BlockNf4& b) {
  b = {};
  b.absmax = absmax(x, 64);
  for (int i = 0; i < 64; ++i) {
    int best = 7;
    for (int q = 0; q < 16; ++q)
      if (std::fabs(x[i] - b.absmax * kNf4[q]) < std::fabs(x[i] - b.absmax * kNf4[best])) best = q;
    b.codes[i / 2] |= std::uint8_t(i % 2 ? best : best << 4);
  }
}

// -1, 0 or 1 in units of the largest magnitude, plus one.
int ternary(float x, float id) { return int(std::round(x * id)) + 1; }
struct BlockTq1 {
  std::uint8_t qs[48], qh[4];
  std::uint16_t d;
};
struct BlockTq2 {
  std::uint8_t qs[64];
  std::uint16_t d;
};
static_assert(sizeof(BlockTq1) == 54 && sizeof(BlockTq2) == 66);
void encode_block(const float* x, BlockTq1& b) {
  const float d = absmax(x, 256), id = inverse(d);
  b.d = narrow_scale(d);
  const auto run = [&](const float* from, int bytes, int digits, std::uint8_t* to) {
    for (int l = 0; l < bytes; ++l) {
      int q = 0, unit = 81;
      for (int n = 0; n < digits; ++n, unit /= 3) q += unit * ternary(from[n * bytes + l], id);
      to[l] = std::uint8_t((q * 256 + 242) / 243);
    }
  };
  run(x, 32, 5, b.qs), run(x + 160, 16, 5, b.qs + 32), run(x + 240, 4, 4, b.qh);
}
void encode_block(const float* x, BlockTq2& b) {
  const float d = absmax(x, 256), id = inverse(d);
  b = {}, b.d = narrow_scale(d);
  for (int e = 0; e < 256; ++e)
    b.qs[e / 128 * 32 + e % 32] |= std::uint8_t(ternary(x[e], id) << (e % 128 / 32 * 2));
}
struct BlockMxfp4 {
  std::uint8_t e, qs[16];
};
void encode_block(const float* x, BlockMxfp4& b) {
  b = {};
  const float most = absmax(x, 32);
  if (most > 0) b.e = std::uint8_t(std::clamp(int(std::floor(std::log2(most))) - 2 + 127, 0, 254));
  const float d = e8m0_half(b.e);
  for (int e = 0; e < 32; ++e) {
    int best = 0;
    for (int q = 1; q < 16; ++q)
      if (std::fabs(d * kE2m1Doubled[q] - x[e]) < std::fabs(d * kE2m1Doubled[best] - x[e])) best = q;
    put_half(b.qs, e, best);
  }
}
void encode_block(const float* x, float& b) { b = *x; }
void encode_block(const float* x, half& b) { b = half{double(*x)}; }
void encode_block(const float* x, bfloat16& b) { b = bfloat16{double(*x)}; }

template <class Block>
void encode_all(std::span<const float> values, std::span<std::byte> blocks) {
  std::vector<Block> made(blocks.size() / sizeof(Block));  // all of it, or nothing is written
  const std::size_t each = made.empty() ? 0 : values.size() / made.size();
  for (std::size_t i = 0; i < made.size(); ++i) encode_block(values.data() + i * each, made[i]);
  if (!made.empty()) std::memcpy(blocks.data(), made.data(), blocks.size());
}

}  // namespace

std::uint16_t narrow_scale(float v) {
  const half h{double(v)};
  if (!std::isfinite(float(h)))
    throw ArgumentError(ErrorText{"a block's scale must fit binary16", {}, cat("it is ", v), {}});
  return h.bits;
}

void encode(Format f, std::span<const float> values, std::span<std::byte> blocks) {
  const auto& i = info(f);
  if (!i.encodes)
    throw ArgumentError(
        ErrorText{cat(i.name, " is decoded only"), {}, {}, "q2_k to q6_k and q8_0 can be made"});
  if (const auto need = bytes_of(f, values.size()); need != blocks.size())
    throw ArgumentError(ErrorText{cat(values.size(), " values of ", i.name, " take ", need, " bytes"),
                                  {},
                                  cat("there are ", blocks.size()),
                                  {}});
  for (std::size_t at = 0; at < values.size(); ++at)
    if (!std::isfinite(values[at]))
      throw ArgumentError(
          ErrorText{"only finite values can be quantised", {}, cat("element ", at, " is ", values[at]), {}});
  switch (f) {
    case Format::f32:
      return encode_all<float>(values, blocks);
    case Format::f16:
      return encode_all<half>(values, blocks);
    case Format::bf16:
      return encode_all<bfloat16>(values, blocks);
    case Format::q4_0:
      return encode_all<BlockQ40>(values, blocks);
    case Format::q4_1:
      return encode_all<BlockQ41>(values, blocks);
    case Format::q5_0:
      return encode_all<BlockQ50>(values, blocks);
    case Format::q5_1:
      return encode_all<BlockQ51>(values, blocks);
    case Format::q8_0:
      return encode_all<BlockQ80>(values, blocks);
    case Format::q2_k:
      return encode_all<BlockQ2K>(values, blocks);
    case Format::q3_k:
      return encode_all<BlockQ3K>(values, blocks);
    case Format::q4_k:
      return encode_all<BlockQ4K>(values, blocks);
    case Format::q5_k:
      return encode_all<BlockQ5K>(values, blocks);
    case Format::q6_k:
      return encode_all<BlockQ6K>(values, blocks);
    case Format::tq1_0:
      return encode_all<BlockTq1>(values, blocks);
    case Format::tq2_0:
      return encode_all<BlockTq2>(values, blocks);
    case Format::mxfp4:
      return encode_all<BlockMxfp4>(values, blocks);
    default:
      return encode_all<BlockNf4>(values, blocks);
  }
}

}  // namespace cgp::quant

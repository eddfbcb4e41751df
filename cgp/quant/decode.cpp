// SPDX-License-Identifier: Apache-2.0
// Products and sums are rounded one by one, in the order of the reference: this file is compiled without contraction.
#include "cgp/quant/decode.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "cgp/base/error.h"
#include "cgp/base/float16.h"
#include "cgp/base/text.h"
#include "cgp/quant/blocks.h"
#include "cgp/quant/iq_grids.h"

namespace cgp::quant {
namespace {

using Bytes = const std::uint8_t*;

float f16(std::uint16_t bits) { return float(half::from_bits(bits)); }
std::uint16_t u16(Bytes p) { return std::uint16_t(p[0] | p[1] << 8); }
std::uint32_t u32(Bytes p) { return std::uint32_t(u16(p)) | std::uint32_t(u16(p + 2)) << 16; }
float f16(Bytes p) { return f16(u16(p)); }
float f32(Bytes p) { return std::bit_cast<float>(u32(p)); }
int nibble(std::uint8_t byte, int high) { return high ? byte >> 4 : byte & 15; }

template <class Block>
Block as(Bytes p) {
  Block b;
  std::memcpy(&b, p, sizeof b);
  return b;
}

// Elements 0 to 15 are low nibbles, 16 to 31 high ones.
template <class F>
void halves(const std::uint8_t* qs, float* out, const F& value) {
  for (int e = 0; e < 32; ++e) out[e] = value(e, nibble(qs[e % 16], e / 16));
}

void q4_0(Bytes p, float* out) {
  const auto b = as<BlockQ40>(p);
  halves(b.qs, out, [&](int, int q) { return f16(b.d) * float(q - 8); });
}
void q4_1(Bytes p, float* out) {
  const auto b = as<BlockQ41>(p);
  halves(b.qs, out, [&](int, int q) { return f16(b.d) * float(q) + f16(b.m); });
}
int fifth_bit(const std::uint8_t* qh, int e) { return (qh[e / 8] >> (e % 8) & 1) << 4; }
void q5_0(Bytes p, float* out) {
  const auto b = as<BlockQ50>(p);
  halves(b.qs, out, [&](int e, int q) { return f16(b.d) * float((q | fifth_bit(b.qh, e)) - 16); });
}
void q5_1(Bytes p, float* out) {
  const auto b = as<BlockQ51>(p);
  halves(b.qs, out, [&](int e, int q) { return f16(b.d) * float(q | fifth_bit(b.qh, e)) + f16(b.m); });
}
void q8_0(Bytes p, float* out) {
  const auto b = as<BlockQ80>(p);
  for (int e = 0; e < 32; ++e) out[e] = f16(b.d) * float(b.qs[e]);
}
void q8_1(Bytes p, float* out) {
  const auto b = as<BlockQ81>(p);
  for (int e = 0; e < 32; ++e) out[e] = f16(b.d) * float(b.qs[e]);
}
void q8_k(Bytes p, float* out) {
  const auto b = as<BlockQ8K>(p);
  for (int e = 0; e < 256; ++e) out[e] = b.d * float(b.qs[e]);
}

// Two bits of element e of 256: bits 2t, 2t + 1 of byte 32h + l for e = 128h + 32t + l.
int two_bits(const std::uint8_t* qs, int e) { return qs[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3; }

void q2_k(Bytes p, float* out) {
  const auto b = as<BlockQ2K>(p);
  for (int e = 0; e < 256; ++e) {
    const int s = b.scales[e / 16];
    out[e] = f16(b.d) * float(s & 15) * float(two_bits(b.qs, e)) - f16(b.dmin) * float(s >> 4);
  }
}
void q3_k(Bytes p, float* out) {
  const auto b = as<BlockQ3K>(p);
  for (int e = 0; e < 256; ++e) {
    const int s = e / 16, low = nibble(b.scales[s % 8], s / 8), high = b.scales[8 + s % 4] >> (s / 4 * 2) & 3;
    const int less = b.hmask[e % 32] >> (e / 32) & 1 ? 0 : 4;
    out[e] = f16(b.d) * float((low | high << 4) - 32) * float(two_bits(b.qs, e) - less);
  }
}
template <class Block, class Code>
void scales_and_mins(const Block& b, float* out, const Code& code) {
  const auto packed = scales_of(b.scales);
  for (int s = 0; s < 8; ++s) {
    const float scale = f16(b.d) * float(packed.scales >> (8 * s) & 255);
    const float min = f16(b.dmin) * float(packed.mins >> (8 * s) & 255);
    for (int l = 0; l < 32; ++l) out[32 * s + l] = scale * float(code(s, l)) - min;
  }
}
void q4_k(Bytes p, float* out) {
  const auto b = as<BlockQ4K>(p);
  scales_and_mins(b, out, [&](int s, int l) { return nibble(b.qs[s / 2 * 32 + l], s % 2); });
}
void q5_k(Bytes p, float* out) {
  const auto b = as<BlockQ5K>(p);
  scales_and_mins(
      b, out, [&](int s, int l) { return nibble(b.qs[s / 2 * 32 + l], s % 2) | (b.qh[l] >> s & 1) << 4; });
}
void q6_k(Bytes p, float* out) {
  const auto b = as<BlockQ6K>(p);
  for (int e = 0; e < 256; ++e) {
    const int h = e / 128, t = e % 128 / 32, l = e % 32;
    const int q = nibble(b.ql[64 * h + 32 * (t % 2) + l], t / 2) | two_bits(b.qh, e) << 4;
    out[e] = f16(b.d) * float(b.scales[e / 16]) * float(q - 32);
  }
}

// Packed codebooks: value i of a grid.
int grid2(const std::uint8_t* grid, int i) { return grid[i / 4] >> (i % 4 * 2) & 3; }
int grid4(const std::uint8_t* grid, int i) { return grid[i / 2] >> (i % 2 * 4) & 7; }
constexpr float kIq2Values[] = {8, 25, 43}, kIq3XxsValues[] = {4, 12, 20, 28, 36, 44, 52, 62};
float signed_by(float v, int signs, int bit) { return signs >> bit & 1 ? -v : v; }

// Eight elements from entry `entry` of an IQ2 codebook.
void iq2_group(const std::uint8_t* grid, int entry, int signs, float scale, float* out) {
  for (int i = 0; i < 8; ++i) out[i] = signed_by(scale * kIq2Values[grid2(grid, 8 * entry + i)], signs, i);
}
void iq2_xxs(Bytes p, float* out) {
  for (int s = 0; s < 8; ++s) {
    const Bytes at = p + 2 + 8 * s;
    const std::uint32_t word = u32(at + 4);
    const float scale = f16(p) * (0.5f + float(word >> 28)) * 0.25f;
    for (int g = 0; g < 4; ++g)
      iq2_group(kIq2XxsGrid, at[g], kSigns[word >> (7 * g) & 127], scale, out + 32 * s + 8 * g);
  }
}
void iq2_xs(Bytes p, float* out) {
  for (int g = 0; g < 32; ++g) {
    const int code = u16(p + 2 + 2 * g);
    const float scale = f16(p) * (0.5f + float(nibble(p[66 + g / 4], g / 2 % 2))) * 0.25f;
    iq2_group(kIq2XsGrid, code & 511, kSigns[code >> 9], scale, out + 8 * g);
  }
}
void iq2_s(Bytes p, float* out) {
  for (int g = 0; g < 32; ++g) {
    const int entry = p[2 + g] | (p[66 + g / 4] >> (g % 4 * 2) & 3) << 8;
    const float scale = f16(p) * (0.5f + float(nibble(p[74 + g / 4], g / 2 % 2))) * 0.25f;
    iq2_group(kIq2SGrid, entry, p[34 + g], scale, out + 8 * g);
  }
}
void iq3_xxs(Bytes p, float* out) {
  for (int s = 0; s < 8; ++s) {
    const std::uint32_t word = u32(p + 66 + 4 * s);
    const float scale = f16(p) * (0.5f + float(word >> 28)) * 0.5f;
    for (int i = 0; i < 32; ++i) {
      const int entry = p[2 + 8 * s + i / 4];
      const float v = scale * kIq3XxsValues[grid4(kIq3XxsGrid, 4 * entry + i % 4)];
      out[32 * s + i] = signed_by(v, kSigns[word >> (i / 8 * 7) & 127], i % 8);
    }
  }
}
void iq3_s(Bytes p, float* out) {
  for (int e = 0; e < 256; ++e) {
    const int j = e / 4, entry = p[2 + j] | (p[66 + j / 8] >> (j % 8) & 1) << 8;
    const float scale = f16(p) * float(1 + 2 * nibble(p[106 + e / 64], e / 32 % 2));
    const float v = scale * float(1 + 2 * grid4(kIq3SGrid, 4 * entry + e % 4));
    out[e] = signed_by(v, p[74 + e / 8], e % 8);
  }
}
constexpr float kIq1Delta = 0.125f;
void iq1_group(int entry, bool below, float scale, float* out) {
  for (int i = 0; i < 8; ++i)
    out[i] = scale * (float(grid2(kIq1SGrid, 8 * entry + i) - 1) + (below ? -kIq1Delta : kIq1Delta));
}
void iq1_s(Bytes p, float* out) {
  for (int g = 0; g < 32; ++g) {
    const int high = u16(p + 34 + g / 4 * 2), entry = p[2 + g] | (high >> (g % 4 * 3) & 7) << 8;
    iq1_group(entry, high & 0x8000, f16(p) * float(2 * (high >> 12 & 7) + 1), out + 8 * g);
  }
}
// Its binary16 scale lies in the upper four bits of four words.
float iq1_m_scale(Bytes p) {
  int bits = 0;
  for (int i = 0; i < 4; ++i) bits |= (u16(p + 48 + 2 * i) >> 12) << (4 * i);
  return f16(std::uint16_t(bits));
}
void iq1_m(Bytes p, float* out) {
  for (int g = 0; g < 32; ++g) {
    const int s = g / 2, scale = u16(p + 48 + s / 4 * 2) >> (s % 4 * 3) & 7,
              high = nibble(p[32 + g / 2], g % 2);
    iq1_group(p[g] | (high & 7) << 8, high & 8, iq1_m_scale(p) * float(2 * scale + 1), out + 8 * g);
  }
}
void iq4_nl(Bytes p, float* out) {
  halves(p + 2, out, [&](int, int q) { return f16(p) * float(kIq4[q]); });
}
void iq4_xs(Bytes p, float* out) {
  for (int s = 0; s < 8; ++s) {
    const int scale = nibble(p[4 + s / 2], s % 2) | (u16(p + 2) >> (2 * s) & 3) << 4;
    const float d = f16(p) * float(scale - 32);
    halves(p + 8 + 16 * s, out + 32 * s, [&](int, int q) { return d * float(kIq4[q]); });
  }
}

// Five ternary digits to a byte (four in the last four bytes), the first one the most significant.
void tq1_0(Bytes p, float* out) {
  constexpr int kPowers[] = {1, 3, 9, 27, 81};
  const auto run = [&](Bytes from, int bytes, int digits, float* to) {
    for (int n = 0; n < digits; ++n)
      for (int l = 0; l < bytes; ++l)
        to[n * bytes + l] = f16(p + 52) * float((std::uint8_t(from[l] * kPowers[n]) * 3 >> 8) - 1);
  };
  run(p, 32, 5, out), run(p + 32, 16, 5, out + 160), run(p + 48, 4, 4, out + 240);
}
void tq2_0(Bytes p, float* out) {
  for (int e = 0; e < 256; ++e) out[e] = f16(p + 64) * float(two_bits(p, e) - 1);
}
void mxfp4(Bytes p, float* out) {
  const float d = e8m0_half(p[0]);
  halves(p + 1, out, [&](int, int q) { return d * float(kE2m1Doubled[q]); });
}
void nvfp4(Bytes p, float* out) {
  for (int e = 0; e < 64; ++e)
    out[e] = ue4m3_half(p[e / 16]) * float(kE2m1Doubled[nibble(p[4 + e / 16 * 8 + e % 8], e % 16 / 8)]);
}
void nf4(Bytes p, float* out) {
  const auto b = as<BlockNf4>(p);
  for (int e = 0; e < 64; ++e) out[e] = b.absmax * kNf4[nibble(b.codes[e / 2], e % 2 == 0)];
}
void f32(Bytes p, float* out) { *out = f32(p); }
void f16(Bytes p, float* out) { *out = f16(p); }
void bf16(Bytes p, float* out) { *out = std::bit_cast<float>(std::uint32_t(u16(p)) << 16); }

using Decoder = void (*)(Bytes, float*);
constexpr Decoder kDecoders[] = {
#define CGP_FORMAT(name, ggml, elements, bytes, encodes) static_cast<Decoder>(name),
#include "cgp/quant/formats.def"
#undef CGP_FORMAT
};

// Are all scales of the block numbers?
bool finite_scales(Format f, Bytes p) {
  const auto all = [&](std::initializer_list<int> offsets) {
    for (int at : offsets)
      if (!std::isfinite(f16(p + at))) return false;
    return true;
  };
  switch (f) {
    case Format::f32:
    case Format::f16:
    case Format::bf16:
      return true;  // values, not scales
    case Format::q4_1:
    case Format::q5_1:
    case Format::q4_k:
    case Format::q5_k:
      return all({0, 2});
    case Format::q2_k:
      return all({80, 82});
    case Format::q3_k:
      return all({108});
    case Format::q6_k:
      return all({208});
    case Format::tq1_0:
      return all({52});
    case Format::tq2_0:
      return all({64});
    case Format::iq1_m:
      return std::isfinite(iq1_m_scale(p));
    case Format::q8_k:
    case Format::nf4:
      return std::isfinite(f32(p));
    case Format::mxfp4:
      return p[0] != 255;
    case Format::nvfp4:
      return (p[0] < 127) & (p[1] < 127) & (p[2] < 127) & (p[3] < 127);
    default:
      return all({0});
  }
}

}  // namespace

float e8m0_half(std::uint8_t x) {
  return std::bit_cast<float>(x < 2 ? 0x00200000u << x : std::uint32_t(x - 1) << 23);
}
float ue4m3_half(std::uint8_t x) {
  const int exponent = x >> 3, mantissa = x & 7;
  return exponent ? std::ldexp(8.0f + float(mantissa), exponent - 11) : std::ldexp(float(mantissa), -10);
}

void check_scales(Format f, std::span<const std::byte> blocks) {
  const auto& i = info(f);
  const auto* bytes = reinterpret_cast<Bytes>(blocks.data());
  for (std::size_t b = 0; b < blocks.size() / i.bytes; ++b)
    if (!finite_scales(f, bytes + b * i.bytes))
      throw ArgumentError(
          {text::cat("the scales of ", i.name, " blocks must be finite"), {}, text::cat("block ", b), {}});
}

void decode(Format f, std::span<const std::byte> blocks, std::span<float> values) {
  const auto& i = info(f);
  if (const auto need = bytes_of(f, values.size()); need != blocks.size())
    throw ArgumentError({text::cat(values.size(), " values of ", i.name, " take ", need, " bytes"),
                         {},
                         text::cat("there are ", blocks.size()),
                         {}});
  check_scales(f, blocks);
  decode_blocks(f, blocks.data(), values.size() / i.elements, values.data());
}

void decode_blocks(Format f, const std::byte* blocks, std::size_t count, float* values) {
  const auto& i = info(f);
  const auto* bytes = reinterpret_cast<Bytes>(blocks);
  for (std::size_t b = 0; b < count; ++b)
    kDecoders[std::size_t(f)](bytes + b * i.bytes, values + b * i.elements);
}

}  // namespace cgp::quant

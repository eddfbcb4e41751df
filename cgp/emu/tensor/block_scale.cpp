// SPDX-License-Identifier: Apache-2.0
#include "cgp/emu/tensor/block_scale.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "cgp/emu/tensor/tensor_core_step.h"

namespace cgp::emu {

using ptx::Mod;

double BlockScale::value() const { return std::ldexp(double(significand), exponent - 3); }

BlockScale decode_scale(std::uint32_t code, bool ue8m0) {
  if (ue8m0) return {8, int(code) - 127, code == 0xff};
  const int e = int(code >> 3 & 15), m = int(code & 7);  // the sign bit does not count
  return {e ? 8 + m : m, std::max(e, 1) - 7, (code & 0x7f) == 0x7f};
}

void ScaledElements::add(Mod type, std::uint32_t bits, bool negate) {
  const Decoded d = byte_decoder(type)[bits & 0xff];
  value.push_back(negate ? -d.value : d.value);
  const bool number = d.exponent != kSpecialExponent && d.exponent != kZeroExponent;
  special = special || d.exponent == kSpecialExponent;
  exponent.push_back(number ? d.exponent : 0);
  significand.push_back(number ? std::int32_t(std::ldexp(double(value.back()), 3 - d.exponent)) : 0);
}

namespace {

constexpr int kFused = 25, kGrouped = 35;
constexpr float kNaN = std::bit_cast<float>(0x7fffffffu);

float cut(double v) {
  if (std::fabs(v) >= 0x1p128)
    return std::copysign(std::numeric_limits<float>::infinity(), float(v > 0 ? 1 : -1));
  const float f = float(v);
  return std::fabs(double(f)) > std::fabs(v) ? std::nextafter(f, 0.0f) : f;
}
std::int64_t shifted(std::int64_t v, int bits) {
  const std::int64_t magnitude = v < 0 ? -v : v;
  const std::int64_t moved = bits >= 0 ? magnitude << bits : bits <= -63 ? 0 : magnitude >> -bits;
  return v < 0 ? -moved : moved;
}

struct Addend {  // significand * 2^(exponent - 23)
  std::int64_t significand = 0;
  int exponent = -100000;
};
Addend addend(float c) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(c);
  if (!(u & 0x7fffffffu)) return {};
  const int e = int(u >> 23 & 0xff);
  const auto m = std::int64_t((u & 0x7fffff) | (e ? 0x800000 : 0));
  return {u >> 31 ? -m : m, std::max(e, 1) - 127};
}

float fused(const ScaledElements& a, const ScaledElements& b, const BlockScale& sa, const BlockScale& sb,
            float c) {
  const int scale = sa.exponent + sb.exponent;
  const Addend x = addend(c);
  int top = x.exponent;
  const std::size_t k = a.significand.size();
  for (std::size_t i = 0; i < k; ++i)
    if (a.significand[i] && b.significand[i]) top = std::max(top, a.exponent[i] + b.exponent[i] + scale);
  if (top == -100000) return 0.0f;
  std::int64_t sum = shifted(x.significand, kFused - 23 - (top - x.exponent));
  for (std::size_t i = 0; i < k; ++i) {
    const std::int64_t p = std::int64_t(a.significand[i]) * b.significand[i];
    if (p) sum += shifted(p, kFused - 6 - (top - scale - a.exponent[i] - b.exponent[i]));
  }
  return cut(std::ldexp(double(sum), top - kFused));
}

float grouped(const ScaledElements& a, const ScaledElements& b, const BlockScale* sa, const BlockScale* sb,
              int blocks, float c) {
  constexpr int kGroup = 16, kGroups = 4;
  const Addend x = addend(c);
  int top = x.exponent;
  std::int64_t term[kGroups];
  int exponent[kGroups];
  for (int g = 0; g < kGroups; ++g) {
    std::int64_t s = 0;  // e2m1 in halves: products in quarters
    for (int i = g * kGroup; i < (g + 1) * kGroup; ++i) {
      const auto at = std::size_t(i);
      s += std::int64_t(a.value[at] * 2) * std::int64_t(b.value[at] * 2);
    }
    const BlockScale &p = sa[g * blocks / kGroups], &q = sb[g * blocks / kGroups];
    term[g] = s * p.significand * q.significand;
    exponent[g] = p.exponent + q.exponent;
    top = std::max(top, exponent[g]);
  }
  std::int64_t sum = shifted(x.significand, kGrouped - 23 - (top - x.exponent));
  for (int g = 0; g < kGroups; ++g) sum += shifted(term[g], kGrouped - 8 - (top - exponent[g]));
  return cut(std::ldexp(double(sum), top - kGrouped));
}

float plain(const ScaledElements& a, const ScaledElements& b, const BlockScale* sa, const BlockScale* sb,
            int blocks, float c) {
  const std::size_t k = a.value.size();
  bool nan = c != c;
  for (int i = 0; i < blocks; ++i) nan = nan || sa[i].nan || sb[i].nan;
  double sum = c;
  for (std::size_t i = 0; i < k; ++i) {
    const std::size_t block = i * std::size_t(blocks) / k;
    sum += double(a.value[i]) * b.value[i] * sa[block].value() * sb[block].value();
  }
  return nan || sum != sum ? kNaN : float(sum);
}

}  // namespace

float scaled_sum(const ScaledElements& a, const ScaledElements& b, const BlockScale* sa, const BlockScale* sb,
                 int blocks, bool by_group, float c, MatrixPrecision precision) {
  bool special = a.special || b.special || !std::isfinite(c) || precision == MatrixPrecision::f32;
  for (int i = 0; i < blocks; ++i) special = special || sa[i].nan || sb[i].nan;
  if (special) return plain(a, b, sa, sb, blocks, c);
  return by_group ? grouped(a, b, sa, sb, blocks, c) : fused(a, b, sa[0], sb[0], c);
}

}  // namespace cgp::emu

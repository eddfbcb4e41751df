// SPDX-License-Identifier: Apache-2.0
// cvt.rs: f32 to two 16-bit or four 8-, 6- or 4-bit numbers with stochastic rounding. PTX ISA 9.7.9.22.
//
// Each source has its bits of the random operand: a number R of n bits. With the discarded part of the
// magnitude, in units of the last kept bit, cut to n bits F, the result goes away from zero when F + R
// carries out of n bits. Which bits of the operand a source takes is not in the manual for the forms of four;
// it was measured on an sm_100a and published (see docs/emulator.md). .f16x2 takes 13 bits of each half, as
// the manual draws it, .bf16x2 all 16; the forms of four take 16 bits each and use every bit twice, in
// opposite order.
#include "cgp/emu/exec/exec_convert_random.h"

#include <bit>
#include <cmath>

#include "cgp/emu/decode/decode_modifiers.h"

namespace cgp::emu {

using ptx::Mod;

namespace {
struct Target {
  int ebits, mbits, storage;  ///< storage: bits that an element takes in the result
  std::uint32_t most, infinity, nan;
  int random_bits = 16;
};

constexpr Target target_of(Mod t) {
  switch (t) {
    case Mod::f16x2:
      return {5, 10, 16, 0x7bff, 0x7c00, 0x7fff, 13};
    case Mod::bf16x2:
      return {8, 7, 16, 0x7f7f, 0x7f80, 0x7fff};
    case Mod::e4m3x4:
      return {4, 3, 8, 0x7e, 0x7e, 0x7f};
    case Mod::e5m2x4:
      return {5, 2, 8, 0x7b, 0x7c, 0x7f};
    case Mod::e2m3x4:
      return {2, 3, 8, 0x1f, 0x1f, 0x1f};
    case Mod::e3m2x4:
      return {3, 2, 8, 0x1f, 0x1f, 0x1f};
    default:
      return {2, 1, 4, 0x7, 0x7, 0x7};
  }
}

struct RandomPlan {
  Target to;
  Mod type = Mod::f16x2;
  std::vector<Loc> sources;  // the first one gets the highest bits of the result
  bool relu = false, satfinite = false;
};

std::uint32_t reversed16(std::uint32_t x) {
  std::uint32_t r = 0;
  for (int k = 0; k < 16; ++k) r |= (x >> k & 1) << (15 - k);
  return r;
}

// The bits of the random operand that source `n` takes.
std::uint32_t random_part(Mod type, std::size_t n, std::uint32_t word) {
  switch (type) {
    case Mod::f16x2:
      return (n == 0 ? word >> 16 : word) & 0x1fff;
    case Mod::bf16x2:
      return n == 0 ? word >> 16 : word & 0xffff;
    default:
      break;
  }
  std::uint32_t part = n < 2 ? word >> 16 : word & 0xffff;
  if (type == Mod::e2m1x4) {  // bytes 3 and 1, bytes 2 and 0
    const int low = n < 2 ? 8 : 0;
    part = (word >> (low + 16) & 0xff) << 8 | (word >> low & 0xff);
  }
  return n % 2 ? part : reversed16(part);
}

std::uint32_t round_randomly(const RandomPlan& p, float x, std::uint32_t random) {
  const Target& t = p.to;
  if (x != x) return t.nan;
  if (p.relu && x <= 0) return 0;
  const std::uint32_t sign = std::uint32_t(std::signbit(x)) << (t.ebits + t.mbits),
                      beyond = p.satfinite ? t.most : t.infinity;
  const double a = std::fabs(double(x));
  if (a == 0) return sign;
  const int least = 2 - (1 << (t.ebits - 1));  // exponent of the smallest normal number
  if (std::isinf(a) || std::ilogb(a) > (1 << t.ebits) - 1 + least) return sign | beyond;
  const int exponent = std::max(std::ilogb(a), least);
  const double units = std::ldexp(a, t.mbits - exponent), whole = std::floor(units);
  const auto cut = std::uint32_t(std::ldexp(units - whole, t.random_bits));
  const bool up = (cut + random) >> t.random_bits & 1;
  // A carry out of the fraction raises the exponent.
  const std::uint32_t r = (std::uint32_t(exponent - least) << t.mbits) + std::uint32_t(whole) + up;
  return sign | (r > t.most ? beyond : r);
}

void exec_random_cvt(Warp& w, const Op& op) {
  const auto& p = op.data_as<RandomPlan>();
  const std::uint32_t* random = w.row<std::uint32_t>(op.a);
  for_lanes(w.active, [&](int l) {
    std::uint32_t all = 0;
    for (std::size_t n = 0; n < p.sources.size(); ++n)
      all = all << p.to.storage |
            round_randomly(p, w.row<float>(p.sources[n])[l], random_part(p.type, n, random[l]));
    w.row<std::uint32_t>(op.d)[l] = all;
  });
}
}  // namespace

void decode_random_cvt(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {Mod::rs, Mod::relu, Mod::satfinite});
  RandomPlan p;
  p.type = i.type(0);
  p.to = target_of(p.type);
  p.relu = i.has(Mod::relu);
  p.satfinite = i.has(Mod::satfinite);
  std::size_t at = 1;
  if (d.operand(i, at).kind == ptx::OperandKind::vector)
    p.sources = d.sources(d.operand(i, at++), Mod::f32);
  else
    for (; at < 3; ++at) p.sources.push_back(d.source(d.operand(i, at), Mod::f32));
  op.a = d.source(d.operand(i, at), Mod::b32);
  op.d = d.dest(d.operand(i, 0), ptx::type_bits(p.type) == 16 ? Mod::b16 : Mod::b32);
  op.data = d.keep(std::move(p));
  op.fn = exec_random_cvt;
}

}  // namespace cgp::emu

// SPDX-License-Identifier: Apache-2.0
// Codes are gathered as bytes of two words and become floats by bits: a byte in the mantissa of 2^23, less 2^23.
#include "cgp/kernels/dequantize/block_decoder.h"

#include <numeric>

#include "cgp/dsl/memory/global_table.h"
#include "cgp/dsl/memory/tile.h"
#include "cgp/quant/blocks.h"
#include "cgp/quant/iq_grids.h"

namespace cgp::kernels::dequantize_code {

using namespace dsl;

namespace {

constexpr std::uint32_t kTwo23 = 0x4b000000;  // 2^23 as bits

Word nibble(const Word& byte, const Word& high) { return (byte >> (high * 4u)) & 15u; }
/// Bits 0 to 3 of w as the lowest bits of four bytes.
Word spread(const Word& w) { return (w * 0x00204081u) & 0x01010101u; }

struct Codes {
  Word lo, hi;
};
template <class F>
Codes each(const std::vector<Word>& w, const F& f) {
  return {f(w[0]), f(w[1])};
}
Codes with(const Codes& a, const Codes& b) { return {a.lo | b.lo, a.hi | b.hi}; }

template <class F>
Eight generate(const F& value) {
  Eight out;
  for (int i = 0; i < 8; ++i) out.push_back(value(i));
  return out;
}
Number code_of(const Codes& c, int i, float zero) { return number_of_byte(i < 4 ? c.lo : c.hi, i % 4, zero); }
/// scale * (code - zero).
Eight scaled(const Number& scale, const Codes& c, float zero) {
  return generate([&](int i) { return product(scale, code_of(c, i, zero)); });
}
/// scale * code + base.
Eight scaled_onto(const Number& scale, const Codes& c, const Number& base) {
  return generate([&](int i) { return sum(product(scale, code_of(c, i, 0)), base); });
}

/// table[code] + 128 of four codes below 16, a byte each.
Word lookup(const Word& codes, const std::int8_t (&table)[16]) {
  std::vector<Word> words;
  for (int w = 0; w < 4; ++w) {
    std::uint32_t v = 0;
    for (int b = 0; b < 4; ++b) v |= std::uint32_t(std::uint8_t(table[4 * w + b] + 128)) << (8 * b);
    words.push_back(Word(v));
  }
  const auto pairs = codes | (codes >> 4u);  // bytes 0 and 2: two codes each
  const auto select = prmt(pairs, pairs, Word(0x4420u)) & 0x7777u;
  const auto upper = ((codes >> 3u) & 0x01010101u) * 255u;
  return (prmt(words[0], words[1], select) & ~upper) | (prmt(words[2], words[3], select) & upper);
}
Codes lookup(const Codes& c, const std::int8_t (&table)[16]) {
  return {lookup(c.lo, table), lookup(c.hi, table)};
}

/// A table of 16-bit entries from pairs of bytes.
template <std::size_t N>
In<u16> codebook(Kernel& k, const char* name, const std::uint8_t (&grid)[N]) {
  std::vector<std::uint32_t> entries;
  for (std::size_t i = 0; i < N; i += 2) entries.push_back(std::uint32_t(grid[i] | grid[i + 1] << 8));
  return global_table<u16>(k, name, entries);
}
Word entry(const In<u16>& book, const Word& i) { return to<u32>(book.ld(i)); }
/// Seven signs and the one that makes their number even.
Word even_signs(const Word& seven) { return seven | ((popc(seven) & 1u) << 7u); }

/// Blocks of one format: each function is its decoder of cgp/quant/decode.cpp for elements e to e + 7.
class Decoder {
 public:
  Decoder(Kernel& k, const Bytes& b, const Word& e, std::vector<Number>& scales)
      : k_(k), b_(b), e_(e), scales_(scales), none_(e & 0u), group_(divided(e, 8)), run_(divided(e, 32)) {}

  Eight q4_0() {
    const auto d = half(0);
    return scaled(d, halves(2), 8);
  }
  Eight q4_1() {
    const auto d = half(0), m = half(2);
    return scaled_onto(d, halves(4), m);
  }
  Eight q5_0() {
    const auto d = half(0);
    return scaled(d, with_fifth(halves(6), 2), 16);
  }
  Eight q5_1() {
    const auto d = half(0), m = half(2);
    return scaled_onto(d, with_fifth(halves(8), 4), m);
  }
  Eight q8_0() {
    const auto d = half(0);
    return scaled(d, signed_bytes(2), 128);
  }
  Eight q8_1() {
    const auto d = half(0);
    return scaled(d, signed_bytes(4), 128);
  }
  Eight q8_k() {
    const auto d = used(bits<f32>(b_.words(1, none_, 0, 16)[0]));
    return scaled(d, signed_bytes(4), 128);
  }

  Eight q2_k() {
    const auto s = b_.u8(divided(e_, 16), 0);
    const auto d = half(80), dmin = half(82);
    return scaled_onto(product(d, number(s & 15u)), two_bits(16), -product(dmin, number(s >> 4u)));
  }
  Eight q3_k() {
    const auto s = divided(e_, 16);
    const auto low = nibble(b_.u8(s & 7u, 96), divided(s, 8));
    const auto high = (b_.u8(s & 3u, 104) >> (divided(s, 4) * 2u)) & 3u;
    const auto scale = product(half(108), number(low | (high << 4u), 32));
    return scaled(scale, with(two_bits(32), bit_of_run(0, 2)), 4);
  }
  Eight q4_k() {
    const auto m = minima();
    return scaled_onto(m.scale, nibbles(16), -m.min);
  }
  Eight q5_k() {
    const auto m = minima();
    return scaled_onto(m.scale, with(nibbles(48), bit_of_run(16, 4)), -m.min);
  }
  Eight q6_k() {
    const auto h = divided(e_, 128), t = run_ & 3u, l = e_ & 31u;
    const auto low = each(b_.words(2, h * 64u + (t & 1u) * 32u + l, 0, 8),
                          [&](const Word& w) { return (w >> (divided(t, 2) * 4u)) & 0x0f0f0f0fu; });
    const auto high = two_bits(128);
    const auto scale = number(b_.u8(divided(e_, 16), 192) ^ 128u, 128);
    return scaled(product(half(208), scale), with(low, {high.lo << 4u, high.hi << 4u}), 32);
  }

  Eight iq2_xxs() {
    const auto word = b_.words(1, run_ * 8u, 6, 2)[0];
    const auto at = b_.u8(run_ * 8u + (group_ & 3u), 2);
    const auto signs = even_signs((word >> ((group_ & 3u) * 7u)) & 127u);
    return iq2(codebook(k_, "iq2_xxs_grid", quant::kIq2XxsGrid), at, signs, word >> 28u);
  }
  Eight iq2_xs() {
    const auto code = b_.u16(group_ * 2u, 2, 2);
    const auto scale = nibble(b_.u8(divided(group_, 4), 66), divided(group_, 2) & 1u);
    return iq2(codebook(k_, "iq2_xs_grid", quant::kIq2XsGrid), code & 511u, even_signs(code >> 9u), scale);
  }
  Eight iq2_s() {
    const auto low = b_.u8(group_, 2), signs = b_.u8(group_, 34);
    const auto high = (b_.u8(divided(group_, 4), 66) >> ((group_ & 3u) * 2u)) & 3u;
    const auto scale = nibble(b_.u8(divided(group_, 4), 74), divided(group_, 2) & 1u);
    return iq2(codebook(k_, "iq2_s_grid", quant::kIq2SGrid), low | (high << 8u), signs, scale);
  }
  Eight iq3_xxs() {
    const auto word = b_.words(1, run_ * 4u, 66, 2)[0];
    const auto scale = product(product(half(0), sum(number(word >> 28u), .5f)), .5f);
    const auto signs = even_signs((word >> ((group_ & 3u) * 7u)) & 127u);
    const auto pair = b_.u16(group_ * 2u, 2, 2);
    const auto book = codebook(k_, "iq3_xxs_grid", quant::kIq3XxsGrid);
    return iq3(book, pair & 255u, pair >> 8u, signs, [&](const Word& code) {  // 4 + 8 code, but 62 for code 7
      return product(scale, number(code * 8u + 4u + ((code + 1u) >> 3u) * 2u));
    });
  }
  Eight iq3_s() {
    const auto high = b_.u8(divided(group_, 4), 66) >> ((group_ & 3u) * 2u), signs = b_.u8(group_, 74);
    const auto scale = nibble(b_.u8(divided(e_, 64), 106), run_ & 1u) * 2u + 1u;
    const auto d = product(half(0), number(scale));
    const auto pair = b_.u16(group_ * 2u, 2, 2);
    const auto book = codebook(k_, "iq3_s_grid", quant::kIq3SGrid);
    return iq3(book, (pair & 255u) | ((high & 1u) << 8u), (pair >> 8u) | ((high & 2u) << 7u), signs,
               [&](const Word& code) { return product(d, number(code * 2u + 1u)); });
  }
  Eight iq1_s() {
    const auto high = b_.u16(divided(group_, 4) * 2u, 34, 2), low = b_.u8(group_, 2);
    const auto at = low | (((high >> ((group_ & 3u) * 3u)) & 7u) << 8u);
    return iq1(at, high >> 15u, product(half(0), number(((high >> 12u) & 7u) * 2u + 1u)));
  }
  Eight iq1_m() {
    std::vector<Word> words;  // the upper four bits of each are four of the scale
    for (int i = 0; i < 4; ++i) words.push_back(b_.u16(none_, 48 + 2 * i, 2));
    const auto d = used(from_half(((words[0] >> 12u) | (words[1] >> 12u << 4u)) |
                                  ((words[2] >> 12u << 8u) | (words[3] >> 12u << 12u))));
    const auto s = divided(e_, 16);
    const auto scale = (b_.u16(divided(s, 4) * 2u, 48, 2) >> ((s & 3u) * 3u)) & 7u;
    const auto high = nibble(b_.u8(s, 32), group_ & 1u), low = b_.u8(group_, 0);
    return iq1(low | ((high & 7u) << 8u), high >> 3u, product(d, number(scale * 2u + 1u)));
  }
  Eight iq4_nl() {
    const auto d = half(0);
    return scaled(d, lookup(halves(2), quant::kIq4), 128);
  }
  Eight iq4_xs() {
    const auto low = nibble(b_.u8(divided(run_, 2), 4), run_ & 1u);
    const auto high = (b_.u16(none_, 2, 16) >> (run_ * 2u)) & 3u;
    const auto d = product(half(0), number(low | (high << 4u), 32));
    return scaled(d, lookup(nibbles_at(run_ * 16u + (e_ & 15u), 8, (divided(e_, 16)) & 1u), quant::kIq4),
                  128);
  }

  Eight tq1_0() {
    // 160 elements in 32 bytes of five digits, 80 in 16, 16 in 4 of four digits.
    const Val<dsl::pred> first = e_ < 160u, second = e_ < 240u;
    const auto in_second = e_ - 160u;
    const auto digit =
        select(first, divided(e_, 32), select(second, divided(in_second, 16), divided(e_ - 240u, 4)));
    const auto at = select(first, e_ & 31u, select(second, (in_second & 15u) + 32u, Word(48u)));
    const auto lo = b_.words(1, at, 0, 4)[0];
    const auto hi = b_.words(1, select(second, at + 4u, at), 0, 4)[0];
    const auto power = [&](const Word& n) {
      return select(n == 4u, Word(81u), (Word(0x1b090301u) >> (n * 8u)) & 255u);
    };
    const auto p_lo = power(digit), p_hi = power(select(second, digit, digit + 1u));
    const auto d = half(52);
    return generate([&](int i) {
      const auto byte = ((i < 4 ? lo : hi) >> std::uint32_t(8 * (i % 4))) & 255u;
      const auto rest = (byte * (i < 4 ? p_lo : p_hi)) & 255u;
      return product(d, number((rest * 3u) >> 8u, 1));
    });
  }
  Eight tq2_0() {
    const auto d = half(64);
    return scaled(d, two_bits(0), 1);
  }
  Eight mxfp4() {
    const auto x = b_.u8(none_, 0);
    scales_.push_back(select(x == 255u, bits<f32>(Word(0x7fc00000u)), Number(1.f)));
    const auto half_scale = select(x < 2u, Word(0x00200000u) << x, (x - 1u) << 23u);
    return scaled(bits<f32>(half_scale), lookup(halves(1), quant::kE2m1Doubled), 128);
  }
  Eight nvfp4() {
    const auto x = b_.u8(divided(e_, 16), 0);
    scales_.push_back(select(x < 127u, Number(1.f), bits<f32>(Word(0x7fc00000u))));
    const auto codes = nibbles_at(divided(e_, 16) * 8u, 4, group_ & 1u);
    return scaled(product(from_e4m3(x), .5f), lookup(codes, quant::kE2m1Doubled), 128);
  }

 private:
  Number used(const Number& scale) {
    scales_.push_back(scale);
    return scale;
  }
  Number half(int at) { return used(from_half(b_.u16(none_, at, 16))); }

  Codes nibbles_at(const Word& more, int at, const Word& high) {
    return each(b_.words(2, more, at, 8), [&](const Word& w) { return (w >> (high * 4u)) & 0x0f0f0f0fu; });
  }
  /// Elements 0 to 15 of 32 are low nibbles, 16 to 31 high ones.
  Codes halves(int at) { return nibbles_at(e_ & 15u, at, divided(e_, 16)); }
  /// Runs 2c and 2c + 1 of 32 are the low and the high nibbles of 32 bytes.
  Codes nibbles(int at) { return nibbles_at(divided(run_, 2) * 32u + (e_ & 31u), at, run_ & 1u); }
  Codes signed_bytes(int at) {
    return each(b_.words(2, e_, at, 8), [](const Word& w) { return w ^ 0x80808080u; });
  }
  Codes with_fifth(const Codes& c, int at) {
    const auto fifth = b_.u8(group_, at);
    return with(c, {spread(fifth & 15u) << 4u, spread(fifth >> 4u) << 4u});
  }
  /// Element 128 h + 32 t + l: bits 2t, 2t + 1 of byte 32 h + l.
  Codes two_bits(int at) {
    return each(b_.words(2, divided(e_, 128) * 32u + (e_ & 31u), at, 8),
                [&](const Word& w) { return (w >> ((run_ & 3u) * 2u)) & 0x03030303u; });
  }
  /// Bit s of byte l for element 32 s + l, at bit `to`.
  Codes bit_of_run(int at, unsigned to) {
    return each(b_.words(2, e_ & 31u, at, 8),
                [&](const Word& w) { return ((w >> run_) & 0x01010101u) << to; });
  }

  struct Minima {
    Number scale, min;
  };
  Minima minima() {  // quant::scales_of
    const auto d = half(0), dmin = half(2);
    const auto w = b_.words(3, none_, 4, 16);
    const Val<dsl::pred> first = e_ < 128u;
    const auto upper = [&](int shift, int high) {
      return ((w[2] >> std::uint32_t(shift)) & 0x0f0f0f0fu) | ((w[std::size_t(high)] >> 2u) & 0x30303030u);
    };
    const auto scales = select(first, w[0] & 0x3f3f3f3fu, upper(0, 0));
    const auto mins = select(first, w[1] & 0x3f3f3f3fu, upper(4, 1));
    const auto shift = (run_ & 3u) * 8u;
    return {product(d, number((scales >> shift) & 255u)), product(dmin, number((mins >> shift) & 255u))};
  }

  Eight iq2(const In<u16>& book, const Word& at, const Word& signs, const Word& scale) {
    const auto d = product(product(half(0), sum(number(scale), .5f)), .25f);
    const auto codes = entry(book, at);
    return generate([&](int i) {  // 8, 25, 43 by code
      const auto code = (codes >> std::uint32_t(2 * i)) & 3u;
      const auto value = bits<f32>(prmt(Word(0x002b1908u), Word(kTwo23), code | 0x7650u)) - float(1 << 23);
      return with_sign(product(d, value), signs, i);
    });
  }
  template <class F>
  Eight iq3(const In<u16>& book, const Word& first, const Word& second, const Word& signs, const F& value) {
    const auto lo = entry(book, first), hi = entry(book, second);
    return generate([&](int i) {
      const auto code = ((i < 4 ? lo : hi) >> std::uint32_t(4 * (i % 4))) & 7u;
      return with_sign(value(code), signs, i);
    });
  }
  Eight iq1(const Word& at, const Word& below, const Number& scale) {
    const auto codes = entry(codebook(k_, "iq1_s_grid", quant::kIq1SGrid), at);
    const auto delta = select(below == 1u, Number(-.125f), Number(.125f));
    return generate(
        [&](int i) { return product(scale, sum(number((codes >> std::uint32_t(2 * i)) & 3u, 1), delta)); });
  }

  Kernel& k_;
  const Bytes& b_;
  const Word& e_;
  std::vector<Number>& scales_;
  Word none_, group_, run_;  // 0; of 8 and of 32 elements
};

}  // namespace

Word Bytes::u8(const Word& more, int at) const { return to<u32>(at_.at(more).as<const dsl::u8>().ld(at)); }
Word Bytes::u16(const Word& more, int at, int unit) const {
  if (std::gcd(std::gcd(align_, at), unit) >= 2)
    return to<u32>(at_.at(more).at(at).as<const dsl::u16>().ld(0));
  const auto low = u8(more, at), high = u8(more, at + 1);
  return low | (high << 8u);
}
std::vector<Word> Bytes::words(int count, const Word& more, int at, int unit) const {
  const int align = std::gcd(std::gcd(align_, at), unit);
  std::vector<Word> out;
  if (align >= 4) {
    const auto from = at_.at(more).at(at).as<const u32>();
    if (count == 2 && align >= 8) {
      const auto both = from.ld<2>(0);
      return {both[0], both[1]};
    }
    for (int i = 0; i < count; ++i) out.push_back(from.ld(i));
    return out;
  }
  for (int i = 0; i < count; ++i) {
    const auto low = u16(more, at + 4 * i, unit), high = u16(more, at + 4 * i + 2, unit);
    out.push_back(low | (high << 16u));
  }
  return out;
}

Number number(const Word& x, float zero) { return bits<f32>(x | kTwo23) - (float(1 << 23) + zero); }
Number number_of_byte(const Word& codes, int i, float zero) {
  return bits<f32>(prmt(codes, Word(kTwo23), Word(0x7650u + std::uint32_t(i)))) - (float(1 << 23) + zero);
}
Number from_half(const Word& b) { return to<f32>(bits<f16>(to<dsl::u16>(b))); }
Number from_e4m3(const Word& byte) {
  // As f16 the exponent is 8 too small.
  const auto half = ((byte & 127u) << 7u) | ((byte & 128u) << 8u);
  return select((byte & 127u) == 127u, bits<f32>(Word(0x7fc00000u)), from_half(half) * 256.f);
}
Number from_e5m2(const Word& byte) { return from_half(byte << 8u); }
Number with_sign(const Number& v, const Word& signs, int i) {
  return bits<f32>(bits<u32>(v) ^ ((signs << std::uint32_t(31 - i)) & 0x80000000u));
}
Number product(const Number& a, const Number& b) { return mul<rn>(a, b); }
Number sum(const Number& a, const Number& b) { return add<rn>(a, b); }

Eight decode_eight(Kernel& k, quant::Format f, const Bytes& block, const Word& e,
                   std::vector<Number>& scales) {
  Decoder d(k, block, e, scales);
  switch (f) {
#define CGP_DECODES(name)   \
  case quant::Format::name: \
    return d.name()
    CGP_DECODES(q4_0);
    CGP_DECODES(q4_1);
    CGP_DECODES(q5_0);
    CGP_DECODES(q5_1);
    CGP_DECODES(q8_0);
    CGP_DECODES(q8_1);
    CGP_DECODES(q8_k);
    CGP_DECODES(q2_k);
    CGP_DECODES(q3_k);
    CGP_DECODES(q4_k);
    CGP_DECODES(q5_k);
    CGP_DECODES(q6_k);
    CGP_DECODES(iq2_xxs);
    CGP_DECODES(iq2_xs);
    CGP_DECODES(iq2_s);
    CGP_DECODES(iq3_xxs);
    CGP_DECODES(iq3_s);
    CGP_DECODES(iq1_s);
    CGP_DECODES(iq1_m);
    CGP_DECODES(iq4_nl);
    CGP_DECODES(iq4_xs);
    CGP_DECODES(tq1_0);
    CGP_DECODES(tq2_0);
    CGP_DECODES(mxfp4);
    CGP_DECODES(nvfp4);
#undef CGP_DECODES
    case quant::Format::nf4:
    case quant::Format::f32:
    case quant::Format::f16:
    case quant::Format::bf16:
      break;
  }
  throw BuildError("this format has no blocks of eight codes", k.here());
}

Ptr<shared, f32> nf4_table(Kernel& k) {
  const auto values = k.constant<f32>(std::vector<float>(std::begin(quant::kNf4), std::end(quant::kNf4)));
  const auto table = k.shared<f32>(16);
  const auto thread = k.tid();
  k.if_(thread < 16u, [&] { table.st(thread, values.ld(thread)); });
  k.sync();
  return table;
}
Eight nf4_values(const Ptr<shared, f32>& table, const Word& codes, const Number& absmax) {
  return generate([&](int i) {
    const auto code = (codes >> std::uint32_t(8 * (i / 2) + (i % 2 ? 0 : 4))) & 15u;
    return product(absmax, table.ld(code));
  });
}

}  // namespace cgp::kernels::dequantize_code

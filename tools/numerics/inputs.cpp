// SPDX-License-Identifier: Apache-2.0
// The values of the corpus. They follow from the case's number, the type and the role alone, so that a
// fixture made on one machine holds on another.
#include <bit>
#include <cmath>

#include "cgp/base/random.h"
#include "corpus.h"

namespace cgp::numerics {
namespace {

using ptx::Mod;

struct Format {
  int exponent, mantissa;
  int bits() const { return 1 + exponent + mantissa; }
  std::uint64_t sign() const { return 1ull << (exponent + mantissa); }
  std::uint64_t top() const { return (1ull << exponent) - 1; }
  int bias() const { return int(top() >> 1); }
  std::uint64_t fraction() const { return (1ull << mantissa) - 1; }
  std::uint64_t make(bool negative, std::uint64_t e, std::uint64_t m) const {
    return (negative ? sign() : 0) | (e & top()) << mantissa | (m & fraction());
  }
};

bool format_of(Mod t, Format& f) {
  switch (t) {
    case Mod::f64:
      f = {11, 52};
      return true;
    case Mod::f32:
    case Mod::tf32:
      f = {8, 23};
      return true;
    case Mod::f16:
    case Mod::f16x2:
      f = {5, 10};
      return true;
    case Mod::bf16:
    case Mod::bf16x2:
      f = {8, 7};
      return true;
    case Mod::e4m3:
    case Mod::e4m3x2:
      f = {4, 3};
      return true;
    case Mod::e5m2:
    case Mod::e5m2x2:
      f = {5, 2};
      return true;
    default:
      return false;
  }
}

// Truncating, good enough to place values near others.
std::uint64_t encode(const Format& f, double x) {
  const std::uint64_t b = std::bit_cast<std::uint64_t>(x);
  const std::int64_t e = std::int64_t(b >> 52 & 2047) - 1023 + f.bias();
  const bool negative = b >> 63;
  if (e >= std::int64_t(f.top())) return f.make(negative, f.top() - 1, f.fraction());
  if (e <= 0) {
    const std::int64_t shift = 53 - f.mantissa - e;
    const std::uint64_t whole = (b & ((1ull << 52) - 1)) | 1ull << 52;
    return f.make(negative, 0, shift > 63 ? 0 : whole >> shift);
  }
  return f.make(negative, std::uint64_t(e), (b & ((1ull << 52) - 1)) >> (52 - f.mantissa));
}
double decode(const Format& f, std::uint64_t b) {
  const std::uint64_t e = b >> f.mantissa & f.top(), m = b & f.fraction();
  const double v = e == 0 ? std::ldexp(double(m), 1 - f.bias() - f.mantissa)
                          : std::ldexp(double(m | (1ull << f.mantissa)), int(e) - f.bias() - f.mantissa);
  return b & f.sign() ? -v : v;
}

std::vector<std::uint64_t> hard_floats(const Format& f) {
  std::vector<std::uint64_t> h;
  for (const bool n : {false, true}) {
    h.push_back(f.make(n, 0, 0));
    h.push_back(f.make(n, 0, 1));
    h.push_back(f.make(n, 0, f.fraction()));
    h.push_back(f.make(n, 1, 0));
    h.push_back(f.make(n, std::uint64_t(f.bias()), 0));
    h.push_back(f.make(n, std::uint64_t(f.bias()), 1));
    h.push_back(f.make(n, std::uint64_t(f.bias()) - 1, f.fraction()));
    h.push_back(f.make(n, f.top() - 1, f.fraction()));
    h.push_back(f.make(n, f.top(), 0));
    h.push_back(f.make(n, f.top(), f.fraction()));                                     // canonical NaN
    h.push_back(f.make(n, f.top(), (f.fraction() >> 1) + 1));                          // quiet, no payload
    h.push_back(f.make(n, f.top(), 1));                                                // signalling
    h.push_back(f.make(n, f.top(), (f.fraction() >> 1) + 1 + (f.fraction() & 0x2d)));  // payload
    for (const double x :
         {0.5, 1.5, 2.5, 127.5, 255.5, 32767.5, 65519.0, 2147483648.0, 18446744073709551616.0})
      h.push_back(encode(f, n ? -x : x));
  }
  return h;
}

struct Triple {
  std::uint64_t v[3];
};

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  return SplitMix64(a * 0x9E3779B97F4A7C15ull + b).next();
}

Triple random_floats(const Format& f, std::uint32_t i) {
  SplitMix64 r(mix(std::uint64_t(f.exponent * 64 + f.mantissa), i));
  const std::uint64_t all = f.sign() * 2 - 1;
  Triple t{{r.next() & all, r.next() & all, r.next() & all}};
  auto near = [&](std::uint64_t e, int spread) {
    const std::int64_t x = std::int64_t(e) + std::int64_t(r.next() % std::uint64_t(2 * spread + 1)) - spread;
    return f.make(
        r.next() & 1,
        std::uint64_t(std::max<std::int64_t>(0, std::min<std::int64_t>(x, std::int64_t(f.top()) - 1))),
        r.next());
  };
  const auto bias = std::uint64_t(f.bias());
  switch (i % 8) {
    case 1:
      for (auto& x : t.v) x = near(bias, 4);
      break;
    case 2: {  // cancellation: b next to -a, c next to -ab
      t.v[0] = near(bias, int(bias) / 3);
      t.v[1] = r.next() & 1 ? (t.v[0] ^ f.sign()) + r.next() % 5 - 2 : near(bias, int(bias) / 3);
      t.v[2] = encode(f, -decode(f, t.v[0]) * decode(f, t.v[1])) + r.next() % 3 - 1;
      break;
    }
    case 3:  // subnormal results
      t.v[0] = near(2, 2);
      t.v[1] = r.next() & 1 ? near(2, 3) : near(bias - 2, 2);
      t.v[2] = near(1, 1);
      break;
    case 4:  // overflow
      t.v[0] = near(f.top() - 2, 2);
      t.v[1] = r.next() & 1 ? near(f.top() - 2, 2) : near(bias + 1, 1);
      t.v[2] = near(f.top() - 2, 1);
      break;
    case 5: {  // ties: few bits set, exponents a mantissa apart
      const auto bit = [&] {
        return r.next() & 3 ? f.fraction() & (1ull << r.next() % 64) : f.fraction() - (r.next() & 3);
      };
      const std::uint64_t e = bias + r.next() % 8;
      t.v[0] = f.make(r.next() & 1, e, bit());
      t.v[1] = f.make(r.next() & 1, e - std::uint64_t(f.mantissa) + r.next() % 3 - 1, bit());
      t.v[2] = f.make(r.next() & 1, e - std::uint64_t(f.mantissa) - r.next() % 3, bit());
      break;
    }
    case 6:  // around the ends of integer types
      for (auto& x : t.v) {
        static const double ends[] = {1,
                                      128,
                                      256,
                                      32768,
                                      65536,
                                      2147483648.0,
                                      4294967296.0,
                                      9223372036854775808.0,
                                      18446744073709551616.0,
                                      16777216.0};
        const double e = ends[r.next() % 10] + double(std::int64_t(r.next() % 9) - 4) / 4;
        x = encode(f, r.next() & 1 ? -e : e) + r.next() % 3 - 1;
      }
      break;
    default:
      break;
  }
  for (auto& x : t.v) x &= all;
  return t;
}

Triple floats(const Format& f, std::uint32_t i) {
  static std::vector<std::uint64_t> lists[12][53];
  auto& h = lists[f.exponent][f.mantissa];
  if (h.empty()) h = hard_floats(f);
  const auto n = std::uint32_t(h.size());
  if (i < n * n) return {{h[i % n], h[i / n], h[(i * 11 + i / n * 3) % n]}};
  return random_floats(f, i);
}

Triple integers(int bits, std::uint32_t i) {
  const std::uint64_t all = bits == 64 ? ~0ull : (1ull << bits) - 1, half = 1ull << (bits - 1);
  const std::uint64_t hard[] = {0,
                                1,
                                2,
                                3,
                                4,
                                7,
                                8,
                                15,
                                16,
                                17,
                                31,
                                32,
                                33,
                                63,
                                64,
                                65,
                                127,
                                128,
                                255,
                                256,
                                0x5555555555555555ull,
                                0xaaaaaaaaaaaaaaaaull,
                                all,
                                all - 1,
                                half,
                                half - 1,
                                half + 1,
                                all - 127,
                                all - 255,
                                0x7f80ff0180fe7f00ull};
  constexpr std::uint32_t n = sizeof hard / sizeof *hard;
  if (i < n * n) return {{hard[i % n] & all, hard[i / n] & all, hard[(i * 7 + i / n * 3) % n] & all}};
  SplitMix64 r(mix(std::uint64_t(bits) + 1000, i));
  Triple t{{r.next(), r.next(), r.next()}};
  switch (i % 4) {
    case 1:  // few significant bits
      for (auto& x : t.v) x >>= r.next() % 64;
      break;
    case 2:
      for (auto& x : t.v) x = (r.next() & 1 ? 0 : all) ^ (x >> r.next() % 64);
      break;
    case 3:  // shifts and positions
      t.v[1] %= 70;
      t.v[2] %= 70;
      break;
    default:
      break;
  }
  for (auto& x : t.v) x &= all;
  return t;
}

bool packed_float(Mod t) {
  return t == Mod::f16x2 || t == Mod::bf16x2 || t == Mod::e4m3x2 || t == Mod::e5m2x2;
}

std::uint64_t scalar(Mod type, int role, std::uint32_t i) {
  Format f;
  role %= 3;
  if (format_of(type, f)) {
    std::uint64_t v = floats(f, i).v[role];
    if (packed_float(type)) v |= floats(f, (i * 5 + 3) % 4096).v[role] << f.bits();
    return v;
  }
  if (type == Mod::u16x2 || type == Mod::s16x2)
    return integers(16, i).v[role] | integers(16, (i * 5 + 3) % 4096).v[role] << 16;
  // A narrow value in a wider register: the bits above it must not count.
  const int bits = std::max(8, ptx::type_bits(type));
  std::uint64_t v = integers(bits, i).v[role];
  if (bits < 32) v |= mix(77, i) << bits;
  return v;
}

// a * b, a / b and a * b + c next to the smallest normal number, off by a few last places.
std::uint64_t small(Mod type, int role, std::uint32_t i) {
  Format f;
  format_of(type, f);
  auto one = [&](std::uint32_t at) {
    SplitMix64 r(mix(std::uint64_t(f.exponent * 64 + f.mantissa) + 5000, at));
    const auto bias = std::uint64_t(f.bias());
    auto mantissa = [&] { return r.next() % 3 ? r.next() % 4 : f.fraction() - r.next() % 4; };
    const std::uint64_t a = mantissa(), b = mantissa(), e = 1 + r.next() % (bias - 2), shift = r.next() % 3;
    const bool negative_a = r.next() & 1, negative_b = r.next() & 1;
    if (role == 0) return f.make(negative_a, e, a);
    // Half of the cases are for products, half for quotients.
    if (role == 1) return f.make(negative_b, at & 1 ? bias - e + shift : bias + e - shift, b);
    const std::uint64_t c = r.next() % 4 ? r.next() % 3 : f.fraction() + 1 - r.next() % 3;
    return f.make(r.next() & 1, 0, 0) | c;
  };
  std::uint64_t v = one(i) & (f.sign() * 2 - 1);
  if (packed_float(type)) v |= (one(i + 4096) & (f.sign() * 2 - 1)) << f.bits();
  return v;
}

// ---------------------------------------------------------------- matrix operands
std::uint64_t tensor_float(const Format& f, int style, int role, std::uint64_t seed, std::uint64_t previous,
                           bool odd) {
  SplitMix64 r(seed);
  const auto bias = std::int64_t(f.bias());
  auto spread = [&](std::int64_t around, std::int64_t width) {
    const std::int64_t e = around + std::int64_t(r.next() % std::uint64_t(2 * width + 1)) - width;
    const std::int64_t low = 0, high = std::int64_t(f.top()) - 1;
    return f.make(r.next() & 1, std::uint64_t(std::max(low, std::min(e, high))), r.next());
  };
  switch (style) {
    case 0:
      return r.next() & (f.sign() * 2 - 1);
    case 1:
      return spread(bias, bias - 1);
    case 2:
      return spread(bias, std::min<std::int64_t>(3, bias / 2));
    case 3:
      return spread(bias, std::min<std::int64_t>(10, bias - 1));
    case 4:  // neighbours along K cancel
      if (odd) return (role == 1 ? previous ^ f.sign() : previous) ^ (r.next() % 4 == 0 ? 1 : 0);
      return spread(bias, std::min<std::int64_t>(6, bias - 1));
    case 5:
      return spread(role == 1 ? bias - 1 : 1, 1);
    case 6:
      switch (r.next() % 48) {
        case 0:
          return f.make(r.next() & 1, f.top(), f.exponent == 4 ? f.fraction() : 0);
        case 1:
          return f.make(r.next() & 1, f.top(), r.next() | 1);
        case 2:
        case 3:
          return f.make(r.next() & 1, 0, 0);
        default:
          return spread(bias, 2);
      }
    default:
      return spread(role == 2 ? std::int64_t(f.top()) - 2 : std::int64_t(bias + bias / 2), 2);
  }
}

std::uint64_t tensor_word(Mod type, int bits, int style, int role, std::uint64_t seed) {
  Format f;
  if (!format_of(type, f) && type != Mod::b16) {  // integers
    SplitMix64 r(seed);
    const std::uint64_t v = r.next();
    if (type == Mod::s32) {
      const std::uint64_t edge = v & 1 ? 0x7fffffff : 0x80000000;
      return style % 2 ? std::uint32_t(edge - std::uint64_t(r.next() % 4000) + 2000)
                       : std::uint32_t(v) >> (style * 2);
    }
    std::uint64_t w = 0;
    for (int b = 0; b < bits; b += 8) {
      static const std::uint8_t ends[] = {0x80, 0x7f, 0xff, 0x01, 0x00, 0x81, 0x88, 0x77};
      w |= std::uint64_t(style == 1 || style == 3 ? ends[style == 1 ? r.next() % 8 : v % 2] : r.next() & 0xff)
           << b;
    }
    return w;
  }
  const int step = f.bits();
  std::uint64_t w = 0, previous = 0;
  for (int b = 0, k = 0; b < bits; b += step, ++k) {
    previous = tensor_float(f, style, role, mix(seed, std::uint64_t(b)), previous, k & 1);
    w |= previous << b;
  }
  return w;
}

std::uint64_t value(const Input& in, std::uint32_t gid, int n) {
  const std::uint64_t place = std::uint64_t(gid) * 256 + std::uint64_t(n);
  switch (in.draw) {
    case Draw::scalar:
      return scalar(in.type, in.role, in.count == 1 ? gid : std::uint32_t(mix(std::uint64_t(n), gid) % 4096));
    case Draw::small:
      return small(in.type, in.role, gid);
    case Draw::all16:
      return (gid & 0xffff) | std::uint64_t(gid * 40503u & 0xffff) << 16;
    case Draw::bit:
      if (in.type == Mod::pred && gid / 32 % 4 < 2) return gid / 32 % 4;
      return mix(std::uint64_t(in.role) + 50, gid) & 1;
    case Draw::tensor:
      return tensor_word(in.type, in.bits, int(gid / 32 % 8), in.role,
                         mix(std::uint64_t(in.role) + 900, place));
    case Draw::block:
      return tensor_word(in.type, 32, int(gid / kBlock / 2 % 8), in.role,
                         mix(std::uint64_t(in.role) + 700, place));
    case Draw::lane: {
      const std::uint64_t r = mix(std::uint64_t(in.role) + 300, gid);
      return gid / 32 % 5 == 0 ? 7 : r >> 40 & 7 ? r % 33 : std::uint32_t(r);
    }
    case Draw::clamp: {
      static const std::uint32_t segments[] = {0, 16, 24, 28, 30, 31};
      const std::uint64_t r = mix(400, gid);
      return segments[gid / 32 % 6] << 8 | (gid / 192 % 2 ? r % 32 : gid / 384 % 2 ? 31 : 0);
    }
    case Draw::group:
      return tensor_word(in.type, in.bits, int(gid / kBlock / 2 % 8), in.role,
                         mix(std::uint64_t(in.role) + 900, place));
    case Draw::mask: {  // two of four elements, or one of two for tf32
      static const std::uint32_t pairs[] = {0x4, 0x8, 0xc, 0x9, 0xd, 0xe};
      SplitMix64 r(mix(600, place));
      std::uint64_t v = 0;
      for (int k = 0; k < 32; k += 4)
        v |= std::uint64_t(in.type == Mod::tf32 ? (r.next() & 1 ? 0xe : 0x4) : pairs[r.next() % 6]) << k;
      return v;
    }
  }
  return 0;
}

}  // namespace

std::vector<std::uint32_t> values(const Input& in, std::uint32_t cases) {
  std::vector<std::uint32_t> out;
  // Operands of wgmma: a block's bytes, 4 at a time, spread over its threads.
  const int count = in.draw == Draw::block ? int((in.role == 0 ? kBlockA : kBlockB) / 4 / kBlock) : in.count;
  out.reserve(std::size_t(cases) * std::size_t(count) * (in.bits == 64 ? 2 : 1));
  for (std::uint32_t gid = 0; gid < cases; ++gid)
    for (int n = 0; n < count; ++n) {
      const std::uint64_t v = value(in, gid, n);
      out.push_back(std::uint32_t(v));
      if (in.bits == 64) out.push_back(std::uint32_t(v >> 32));
    }
  return out;
}

}  // namespace cgp::numerics

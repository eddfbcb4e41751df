// SPDX-License-Identifier: Apache-2.0
#include "cgp/ptx/analysis/exact.h"

#include <algorithm>
#include <bit>

namespace cgp::ptx::exact {
namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i64 = std::int64_t;
__extension__ typedef __int128 i128;
__extension__ typedef unsigned __int128 u128;

i64 sign(i64 v, int bits) { return bits >= 64 ? v : i64(u64(v) << (64 - bits)) >> (64 - bits); }
u64 zero(i64 v, int bits) { return bits >= 64 ? u64(v) : u64(v) & ((1ull << bits) - 1); }

i64 high_product(i64 a, i64 b, Mod type) {
  const int bits = type_bits(type);
  if (is_signed(type)) return i64((i128(a) * b) >> bits);
  return i64((u128(u64(a)) * u64(b)) >> bits);
}

i64 shift_left(u64 a, u32 n, int bits) { return n >= u32(bits) ? 0 : i64(a << n); }
i64 shift_right(i64 a, u32 n, Mod type) {
  const int bits = type_bits(type);
  if (is_signed(type)) return a >> std::min<u32>(n, u32(bits) - 1);
  return n >= u32(bits) ? 0 : i64(u64(a) >> n);
}

i64 lop3(u32 a, u32 b, u32 c, u32 table) {
  u32 r = 0;
  for (int i = 0; i < 32; ++i)
    r |= (table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1) << i;
  return r;
}

i64 prmt(u32 a, u32 b, u32 selector) {
  const u64 bytes = u64(b) << 32 | a;
  u32 r = 0;
  for (int k = 0; k < 4; ++k) {
    const u32 s = selector >> 4 * k & 15;
    u32 byte = u32(bytes >> 8 * (s & 7)) & 255;
    if (s & 8) byte = byte & 128 ? 255 : 0;
    r |= byte << 8 * k;
  }
  return r;
}

i64 funnel(const Inst& i, u32 low, u32 high, u32 n) {
  n = i.has(Mod::clamp) ? std::min(n, 32u) : n & 31;
  const u64 both = u64(high) << 32 | low;
  return i.has(Mod::l) ? i64(u32(both << n >> 32)) : i64(u32(both >> n));
}

i64 field(i64 a, u32 at, u32 n, Mod type) {
  const int bits = type_bits(type);
  at &= 255;
  n &= 255;
  const bool negative =
      is_signed(type) && n && (zero(a, bits) >> std::min<u32>(at + n - 1, u32(bits) - 1) & 1);
  i64 r = 0;
  for (u32 k = 0; k < u32(bits); ++k) {
    const bool bit = k < n && at + k < u32(bits) ? (zero(a, bits) >> (at + k) & 1) : negative;
    r |= i64(bit) << k;
  }
  return r;
}

i64 insert(u64 a, u64 b, u32 at, u32 n, int bits) {
  at &= 255;
  n &= 255;
  for (u32 k = 0; k < n && at + k < u32(bits); ++k) b = (b & ~(1ull << (at + k))) | (a >> k & 1) << (at + k);
  return i64(b);
}

std::optional<i64> divide(i64 a, i64 b, Mod type, bool remainder) {
  if (b == 0) return std::nullopt;
  if (!is_signed(type)) return i64(remainder ? u64(a) % u64(b) : u64(a) / u64(b));
  if (b == -1) return remainder ? 0 : i64(0 - u64(a));
  return remainder ? a % b : a / b;
}

}  // namespace

std::int64_t extend(std::int64_t v, Mod type) {
  const int bits = type_bits(type);
  return is_signed(type) ? sign(v, bits) : i64(zero(v, bits));
}

bool is_relation(Mod m) {
  switch (m) {
    case Mod::eq:
    case Mod::ne:
    case Mod::lt:
    case Mod::le:
    case Mod::gt:
    case Mod::ge:
    case Mod::lo:
    case Mod::ls:
    case Mod::hi:
    case Mod::hs:
      return true;
    default:
      return false;
  }
}

bool relate(Mod relation, std::int64_t a, std::int64_t b, bool is_signed) {
  const bool less = is_signed ? a < b : u64(a) < u64(b);
  switch (relation) {
    case Mod::eq:
      return a == b;
    case Mod::ne:
      return a != b;
    case Mod::lt:
    case Mod::lo:
      return less;
    case Mod::le:
    case Mod::ls:
      return less || a == b;
    case Mod::gt:
    case Mod::hi:
      return !less && a != b;
    default:
      return !less;
  }
}

bool computes(const Inst& i) {
  const Mod t = i.type();
  if (t == kNoMod || is_float(t) || type_bits(t) > 64 || t == Mod::u16x2 || t == Mod::s16x2) return false;
  if (i.has(Mod::cc) || i.has(Mod::sat) || i.has(Mod::relu)) return false;
  switch (i.op) {
    case Op::add:
    case Op::sub:
    case Op::mul:
    case Op::mad:
    case Op::mul24:
    case Op::mad24:
    case Op::div:
    case Op::rem:
    case Op::abs:
    case Op::neg:
    case Op::min:
    case Op::max:
    case Op::popc:
    case Op::clz:
    case Op::brev:
    case Op::bfe:
    case Op::bfi:
    case Op::and_:
    case Op::or_:
    case Op::xor_:
    case Op::not_:
    case Op::cnot:
    case Op::shl:
    case Op::shr:
    case Op::shf:
      return true;
    case Op::prmt:
      return i.mods.size() == 1;
    case Op::lop3:
      return i.mods.size() == 1;
    default:
      return false;
  }
}

std::optional<std::int64_t> compute(const Inst& i, const std::vector<std::int64_t>& in) {
  const Mod t = i.type();
  int bits = type_bits(t);
  const auto at = [&](std::size_t k) { return extend(in[k], t); };
  const auto raw = [&](std::size_t k) { return zero(in[k], bits); };
  const auto wrapped = [](i64 v, int n) -> std::optional<i64> { return n == 1 ? v & 1 : sign(v, n); };
  switch (i.op) {
    case Op::add:
      return wrapped(i64(u64(in[0]) + u64(in[1])), bits);
    case Op::sub:
      return wrapped(i64(u64(in[0]) - u64(in[1])), bits);
    case Op::mul24:
    case Op::mad24: {
      if (i.has(Mod::hi)) return std::nullopt;
      const auto low24 = [&](std::size_t k) { return is_signed(t) ? sign(in[k], 24) : i64(zero(in[k], 24)); };
      const i64 p = low24(0) * low24(1);
      return wrapped(i.op == Op::mad24 ? i64(u64(p) + u64(in[2])) : p, bits);
    }
    case Op::mul:
    case Op::mad: {
      if (i.has(Mod::wide)) bits *= 2;
      const i64 p = i.has(Mod::hi) ? high_product(at(0), at(1), t) : i64(u64(at(0)) * u64(at(1)));
      return wrapped(i.op == Op::mad ? i64(u64(p) + u64(in[2])) : p, bits);
    }
    case Op::div:
    case Op::rem: {
      const auto r = divide(at(0), at(1), t, i.op == Op::rem);
      return r ? wrapped(*r, bits) : r;
    }
    case Op::abs:
      return wrapped(at(0) < 0 ? i64(0 - u64(at(0))) : at(0), bits);
    case Op::neg:
      return wrapped(i64(0 - u64(in[0])), bits);
    case Op::min:
    case Op::max: {
      const bool less = relate(Mod::lt, at(0), at(1), is_signed(t));
      return wrapped(less == (i.op == Op::min) ? in[0] : in[1], bits);
    }
    case Op::popc:
      return std::popcount(raw(0));
    case Op::clz:
      return std::countl_zero(raw(0)) - (64 - bits);
    case Op::brev: {
      u64 r = 0;
      for (int k = 0; k < bits; ++k) r |= (raw(0) >> k & 1) << (bits - 1 - k);
      return wrapped(i64(r), bits);
    }
    case Op::bfe:
      return wrapped(field(in[0], u32(in[1]), u32(in[2]), t), bits);
    case Op::bfi:
      return wrapped(insert(raw(0), raw(1), u32(in[2]), u32(in[3]), bits), bits);
    case Op::and_:
      return wrapped(in[0] & in[1], bits);
    case Op::or_:
      return wrapped(in[0] | in[1], bits);
    case Op::xor_:
      return wrapped(in[0] ^ in[1], bits);
    case Op::not_:
      return wrapped(~in[0], bits);
    case Op::cnot:
      return raw(0) == 0;
    case Op::shl:
      return wrapped(shift_left(raw(0), u32(in[1]), bits), bits);
    case Op::shr:
      return wrapped(shift_right(at(0), u32(in[1]), t), bits);
    case Op::shf:
      return wrapped(funnel(i, u32(in[0]), u32(in[1]), u32(in[2])), 32);
    case Op::prmt:
      return wrapped(prmt(u32(in[0]), u32(in[1]), u32(in[2])), 32);
    case Op::lop3:
      return wrapped(lop3(u32(in[0]), u32(in[1]), u32(in[2]), u32(in[3])), 32);
    default:
      return std::nullopt;
  }
}

}  // namespace cgp::ptx::exact

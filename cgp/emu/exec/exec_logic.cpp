// SPDX-License-Identifier: Apache-2.0
// Bits: logic, shifts, fields, permutations, dot products of bytes. Compiled twice, see isa_begin.h.
#include <algorithm>
#include <bit>
#include <limits>
#include <type_traits>

#include "cgp/emu/core/handlers.h"

#include "cgp/emu/core/isa_begin.h"
namespace {
#include "cgp/emu/core/lanes_impl.h"
using ptx::Mod;
using u16 = std::uint16_t;
using s16 = std::int16_t;
using u32 = std::uint32_t;
using s32 = std::int32_t;
using u64 = std::uint64_t;
using s64 = std::int64_t;

#define CGP_BITS2(NAME, EXPR)                           \
  template <class T>                                    \
  struct NAME {                                         \
    static inline T apply(T a, T b) { return T(EXPR); } \
  };
#define CGP_BITS1(NAME, R, EXPR)                   \
  template <class T>                               \
  struct NAME {                                    \
    static inline R apply(T a) { return R(EXPR); } \
  };
CGP_BITS2(And, a& b)
CGP_BITS2(Or, a | b)
CGP_BITS2(Xor, a ^ b)
CGP_BITS1(Not, T, ~a)
CGP_BITS1(Cnot, T, a == 0 ? 1 : 0)
CGP_BITS1(Copy, T, a)

// Shift amounts above the width give 0, or the sign.
template <class T>
struct Shl {
  static inline T apply(T a, u32 n) { return n >= 8 * sizeof(T) ? T(0) : T(std::make_unsigned_t<T>(a) << n); }
};
template <class T>
struct Shr {
  static inline T apply(T a, u32 n) {
    constexpr u32 bits = 8 * sizeof(T);
    if constexpr (std::is_signed_v<T>)
      return T(a >> (n >= bits ? bits - 1 : n));
    else
      return n >= bits ? T(0) : T(a >> n);
  }
};

template <class T>
struct Popc {
  static inline u32 apply(T a) {
    u64 x = a;  // the bit-slice form vectorises everywhere
    x = x - ((x >> 1) & 0x5555555555555555ull);
    x = (x & 0x3333333333333333ull) + ((x >> 2) & 0x3333333333333333ull);
    x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0full;
    return u32((x * 0x0101010101010101ull) >> 56);
  }
};
CGP_BITS1(Clz, u32, std::countl_zero(a))
template <class T>
struct Bfind {
  static inline u32 apply(T a) {
    using U = std::make_unsigned_t<T>;
    U x = U(a);
    if (std::is_signed_v<T> && a < 0) x = U(~x);
    return x == 0 ? ~0u : u32(8 * sizeof(T) - 1) - u32(std::countl_zero(x));
  }
};
template <class T>
struct BfindShift {
  static inline u32 apply(T a) {
    const u32 at = Bfind<T>::apply(a);
    return at == ~0u ? at : u32(8 * sizeof(T) - 1) - at;
  }
};
template <class T>
struct Brev {
  static inline T apply(T a) {
    u64 x = a;
    x = ((x >> 1) & 0x5555555555555555ull) | ((x & 0x5555555555555555ull) << 1);
    x = ((x >> 2) & 0x3333333333333333ull) | ((x & 0x3333333333333333ull) << 2);
    x = ((x >> 4) & 0x0f0f0f0f0f0f0f0full) | ((x & 0x0f0f0f0f0f0f0f0full) << 4);
    x = __builtin_bswap64(x);
    return T(x >> (64 - 8 * sizeof(T)));
  }
};

template <class T>
struct Bfe {
  static inline T apply(T a, u32 pos, u32 len) {
    using U = std::make_unsigned_t<T>;
    constexpr u32 bits = 8 * sizeof(T);
    if (bits == 32) {  // of 64 bits all 32 bits of both count (measured)
      pos &= 0xff;
      len &= 0xff;
    }
    if (len == 0) return 0;
    const u32 last = u32(std::min<u64>(u64(pos) + len - 1, bits - 1));
    const bool sign = std::is_signed_v<T> && (U(a) >> last & 1);
    const U field = pos >= bits ? U(0) : U(U(a) >> pos);
    const u32 have = pos >= bits ? 0 : std::min(len, bits - pos);
    const U mask = have >= bits ? U(~U(0)) : U((U(1) << have) - 1);
    return T((field & mask) | (sign ? U(~mask) : U(0)));
  }
};
template <class T>
static void bfi(Warp& w, const Op& op) {
  const auto* a = w.row<T>(op.a);
  const auto* b = w.row<T>(op.b);
  const auto* p = w.row<u32>(op.c);
  const auto* n = w.row<u32>(op.e);
  constexpr u32 bits = 8 * sizeof(T);
  alignas(64) T t[kLanes];
  for (int l = 0; l < kLanes; ++l) {
    const u32 pos = bits == 32 ? p[l] & 0xff : p[l], len = bits == 32 ? n[l] & 0xff : n[l];
    T mask = len >= bits ? T(~T(0)) : T((T(1) << len) - 1);
    mask = pos >= bits ? T(0) : T(mask << pos);
    t[l] = (b[l] & ~mask) | (pos >= bits ? T(0) : T(a[l] << pos) & mask);
  }
  put(w.row<T>(op.d), t, w.active);
}
template <bool Clamp>
struct Bmsk {
  static inline u32 apply(u32 a, u32 b) {
    const u32 at = a & 31, width = b & 31, sum = at + width;
    const u32 from = Clamp && a >= 32 ? 0 : ~0u << at;
    const u32 beyond = sum >= 32 || (Clamp && b >= 32) ? 0 : ~0u << sum;
    return from & ~beyond;
  }
};
template <class T, bool Clamp>
struct Szext {
  static inline T apply(T a, u32 b) {
    const u32 n = b & 31;
    const bool large = Clamp && b >= 32;
    const u32 mask = large ? 0 : ~0u << n;
    const bool sign = std::is_signed_v<T> && n && !large && (u32(a) >> (n - 1) & 1);
    return T((u32(a) & ~mask) | (sign ? mask : 0));
  }
};
struct Fns {
  static inline u32 apply(u32 mask, u32 base, s32 offset) {
    if (offset == std::numeric_limits<s32>::min()) return 0;  // measured
    if (base > 31) return ~0u;
    if (offset == 0) return mask >> base & 1 ? base : ~0u;
    int left = offset < 0 ? -offset : offset;
    for (s32 i = s32(base); i >= 0 && i < 32; i += offset < 0 ? -1 : 1)
      if (mask >> i & 1 && --left == 0) return u32(i);
    return ~0u;
  }
};

static void lop3(Warp& w, const Op& op) {
  const auto* a = w.row<u32>(op.a);
  const auto* b = w.row<u32>(op.b);
  const auto* c = w.row<u32>(op.c);
  alignas(64) u32 t[kLanes];
  u32 sel[8];  // minterm i is present when bit i of the table is set
  for (u32 i = 0; i < 8; ++i) sel[i] = op.kind >> i & 1 ? ~0u : 0u;
  for (int l = 0; l < kLanes; ++l) {
    const u32 x = a[l], y = b[l], z = c[l];
    t[l] = (~x & ~y & ~z & sel[0]) | (~x & ~y & z & sel[1]) | (~x & y & ~z & sel[2]) | (~x & y & z & sel[3]) |
           (x & ~y & ~z & sel[4]) | (x & ~y & z & sel[5]) | (x & y & ~z & sel[6]) | (x & y & z & sel[7]);
  }
  put(w.row<u32>(op.d), t, w.active);
  if (op.f == kNoLoc) return;  // lop3.BoolOp: f = (d != 0) op q, small: 0 or, 1 and
  Mask nonzero = 0;
  for (int l = 0; l < kLanes; ++l) nonzero |= t[l] ? 1u << l : 0u;
  const Mask q = w.pred(op.e);
  w.set_pred(op.f, op.small ? nonzero & q : nonzero | q, w.active);
}

// shf.l keeps the high word of {b, a} << n, shf.r the low word of {b, a} >> n.
template <bool Left, bool Wrap>
struct Shf {
  static inline u32 apply(u32 a, u32 b, u32 c) {
    const u32 n = Wrap ? c & 31 : std::min(c, 32u);
    const u64 pair = u64(b) << 32 | a;
    return Left ? u32((pair << n) >> 32) : u32(pair >> n);
  }
};

// One selected byte of {b, a}, or its sign replicated.
static inline u32 prmt_byte(u64 pair, u32 selector) {
  const u32 byte = u32(pair >> (8 * (selector & 7))) & 0xff;
  return selector & 8 ? (byte & 0x80 ? 0xffu : 0u) : byte;
}
struct Prmt {
  static inline u32 apply(u32 a, u32 b, u32 c) {
    const u64 pair = u64(b) << 32 | a;
    u32 r = 0;
    for (u32 i = 0; i < 4; ++i) r |= prmt_byte(pair, c >> (4 * i) & 15) << (8 * i);
    return r;
  }
};
enum class PrmtMode { f4e, b4e, rc8, ecl, ecr, rc16 };
template <PrmtMode M>
struct PrmtFixed {
  static inline u32 apply(u32 a, u32 b, u32 c) {
    const u64 pair = u64(b) << 32 | a;
    const u32 n = c & 3;
    u32 r = 0;
    for (u32 i = 0; i < 4; ++i) {
      u32 s = 0;
      if (M == PrmtMode::f4e) s = n + i;
      if (M == PrmtMode::b4e) s = (n - i) & 7;
      if (M == PrmtMode::rc8) s = n;
      if (M == PrmtMode::ecl) s = std::max(i, n);
      if (M == PrmtMode::ecr) s = std::min(i, n);
      if (M == PrmtMode::rc16) s = (n & 1) * 2 + (i & 1);
      r |= prmt_byte(pair, s & 7) << (8 * i);
    }
    return r;
  }
};

template <bool SignedA, bool SignedB>
struct Dp4a {
  static inline u32 apply(u32 a, u32 b, u32 c) {
    for (int i = 0; i < 32; i += 8) {
      const s32 x = SignedA ? s32(std::int8_t(a >> i)) : s32(a >> i & 0xff);
      const s32 y = SignedB ? s32(std::int8_t(b >> i)) : s32(b >> i & 0xff);
      c += u32(x * y);
    }
    return c;
  }
};
template <bool High, bool SignedA, bool SignedB>
struct Dp2a {
  static inline u32 apply(u32 a, u32 b, u32 c) {
    for (int i = 0; i < 2; ++i) {
      const s32 x = SignedA ? s32(s16(a >> (16 * i))) : s32(a >> (16 * i) & 0xffff);
      const int at = 8 * i + (High ? 16 : 0);
      const s32 y = SignedB ? s32(std::int8_t(b >> at)) : s32(b >> at & 0xff);
      c += u32(x) * u32(y);
    }
    return c;
  }
};

template <class T>
static void select(Warp& w, const Op& op) {
  const auto* a = w.row<T>(op.a);
  const auto* b = w.row<T>(op.b);
  const Mask m = w.pred(op.c);
  alignas(64) T t[kLanes];
  for (int l = 0; l < kLanes; ++l) t[l] = m >> l & 1 ? a[l] : b[l];
  put(w.row<T>(op.d), t, w.active);
}
// slct: a where c >= 0; kind 1: c is f32 (NaN selects b; small: flush subnormal c).
template <class T>
static void slct(Warp& w, const Op& op) {
  const auto* a = w.row<T>(op.a);
  const auto* b = w.row<T>(op.b);
  const auto* c = w.row<u32>(op.c);
  alignas(64) T t[kLanes];
  for (int l = 0; l < kLanes; ++l) {
    bool first = s32(c[l]) >= 0;
    if (op.kind) {
      const u32 magnitude = c[l] & 0x7fffffffu;
      first = magnitude <= 0x7f800000u &&
              (s32(c[l]) >= 0 || magnitude == 0 || (op.small && magnitude < 0x00800000u));
    }
    t[l] = first ? a[l] : b[l];
  }
  put(w.row<T>(op.d), t, w.active);
}
static void pred_logic(Warp& w, const Op& op) {
  const Mask a = w.pred(op.a), b = op.b == kNoLoc ? 0 : w.pred(op.b);
  Mask r = a;
  switch (IntOp(op.kind)) {
    case IntOp::and_:
      r = a & b;
      break;
    case IntOp::or_:
      r = a | b;
      break;
    case IntOp::xor_:
      r = a ^ b;
      break;
    case IntOp::not_:
      r = ~a;
      break;
    default:
      break;
  }
  w.set_pred(op.d, r, w.active);
}

template <template <class> class F>
static Handler bits2(Mod t) {
  switch (ptx::type_bits(t)) {
    case 16:
      return binary<F<u16>, u16, u16, u16>;
    case 32:
      return binary<F<u32>, u32, u32, u32>;
    case 64:
      return binary<F<u64>, u64, u64, u64>;
    default:
      return nullptr;
  }
}
template <template <class> class F>
static Handler bits1(Mod t) {
  switch (ptx::type_bits(t)) {
    case 8:
    case 16:
      return unary<F<u16>, u16, u16>;
    case 32:
      return unary<F<u32>, u32, u32>;
    case 64:
      return unary<F<u64>, u64, u64>;
    default:
      return nullptr;
  }
}
template <template <class> class F>
static Handler count1(Mod t) {
  return ptx::type_bits(t) == 64 ? Handler(unary<F<u64>, u32, u64>) : unary<F<u32>, u32, u32>;
}
template <template <class> class F>
static Handler find1(Mod t) {
  switch (t) {
    case Mod::u32:
      return unary<F<u32>, u32, u32>;
    case Mod::s32:
      return unary<F<s32>, u32, s32>;
    case Mod::u64:
      return unary<F<u64>, u32, u64>;
    case Mod::s64:
      return unary<F<s64>, u32, s64>;
    default:
      return nullptr;
  }
}
static Handler shift(Mod t, bool left) {
  const int bits = ptx::type_bits(t);
  if (left)
    return bits == 16   ? Handler(binary<Shl<u16>, u16, u16, u32>)
           : bits == 32 ? Handler(binary<Shl<u32>, u32, u32, u32>)
                        : binary<Shl<u64>, u64, u64, u32>;
  switch (t) {
    case Mod::s16:
      return binary<Shr<s16>, s16, s16, u32>;
    case Mod::s32:
      return binary<Shr<s32>, s32, s32, u32>;
    case Mod::s64:
      return binary<Shr<s64>, s64, s64, u32>;
    default:
      break;
  }
  return bits == 16   ? Handler(binary<Shr<u16>, u16, u16, u32>)
         : bits == 32 ? Handler(binary<Shr<u32>, u32, u32, u32>)
                      : binary<Shr<u64>, u64, u64, u32>;
}
template <class F>
static Handler three() {
  return ternary<F, u32, u32, u32, u32>;
}
}  // namespace

Handler logic_handler(IntOp op, ptx::Mod t) {
  const int bits = ptx::type_bits(t);
  if (bits == 1) return pred_logic;
  switch (op) {
    case IntOp::and_:
      return bits2<And>(t);
    case IntOp::or_:
      return bits2<Or>(t);
    case IntOp::xor_:
      return bits2<Xor>(t);
    case IntOp::not_:
      return bits1<Not>(t);
    case IntOp::cnot:
      return bits1<Cnot>(t);
    case IntOp::copy:
      return bits1<Copy>(t);
    case IntOp::shl:
      return shift(t, true);
    case IntOp::shr:
      return shift(t, false);
    case IntOp::popc:
      return count1<Popc>(t);
    case IntOp::clz:
      return count1<Clz>(t);
    case IntOp::bfind:
      return find1<Bfind>(t);
    case IntOp::bfind_shiftamt:
      return find1<BfindShift>(t);
    case IntOp::brev:
      return bits1<Brev>(t);
    case IntOp::bfe:
      switch (t) {
        case Mod::u32:
          return ternary<Bfe<u32>, u32, u32, u32, u32>;
        case Mod::s32:
          return ternary<Bfe<s32>, s32, s32, u32, u32>;
        case Mod::u64:
          return ternary<Bfe<u64>, u64, u64, u32, u32>;
        case Mod::s64:
          return ternary<Bfe<s64>, s64, s64, u32, u32>;
        default:
          return nullptr;
      }
    case IntOp::bfi:
      return bits == 64 ? Handler(bfi<u64>) : bfi<u32>;
    case IntOp::fns:
      return ternary<Fns, u32, u32, u32, s32>;
    case IntOp::bmsk_clamp:
      return binary<Bmsk<true>, u32, u32, u32>;
    case IntOp::bmsk_wrap:
      return binary<Bmsk<false>, u32, u32, u32>;
    case IntOp::szext_clamp:
      return t == Mod::s32 ? Handler(binary<Szext<s32, true>, s32, s32, u32>)
                           : binary<Szext<u32, true>, u32, u32, u32>;
    case IntOp::szext_wrap:
      return t == Mod::s32 ? Handler(binary<Szext<s32, false>, s32, s32, u32>)
                           : binary<Szext<u32, false>, u32, u32, u32>;
    case IntOp::lop3:
      return lop3;
    case IntOp::shf_l_clamp:
      return three<Shf<true, false>>();
    case IntOp::shf_l_wrap:
      return three<Shf<true, true>>();
    case IntOp::shf_r_clamp:
      return three<Shf<false, false>>();
    case IntOp::shf_r_wrap:
      return three<Shf<false, true>>();
    case IntOp::prmt:
      return three<Prmt>();
    case IntOp::prmt_f4e:
      return three<PrmtFixed<PrmtMode::f4e>>();
    case IntOp::prmt_b4e:
      return three<PrmtFixed<PrmtMode::b4e>>();
    case IntOp::prmt_rc8:
      return three<PrmtFixed<PrmtMode::rc8>>();
    case IntOp::prmt_ecl:
      return three<PrmtFixed<PrmtMode::ecl>>();
    case IntOp::prmt_ecr:
      return three<PrmtFixed<PrmtMode::ecr>>();
    case IntOp::prmt_rc16:
      return three<PrmtFixed<PrmtMode::rc16>>();
    case IntOp::dp4a_uu:
      return three<Dp4a<false, false>>();
    case IntOp::dp4a_us:
      return three<Dp4a<false, true>>();
    case IntOp::dp4a_su:
      return three<Dp4a<true, false>>();
    case IntOp::dp4a_ss:
      return three<Dp4a<true, true>>();
    case IntOp::dp2a_lo_uu:
      return three<Dp2a<false, false, false>>();
    case IntOp::dp2a_lo_us:
      return three<Dp2a<false, false, true>>();
    case IntOp::dp2a_lo_su:
      return three<Dp2a<false, true, false>>();
    case IntOp::dp2a_lo_ss:
      return three<Dp2a<false, true, true>>();
    case IntOp::dp2a_hi_uu:
      return three<Dp2a<true, false, false>>();
    case IntOp::dp2a_hi_us:
      return three<Dp2a<true, false, true>>();
    case IntOp::dp2a_hi_su:
      return three<Dp2a<true, true, false>>();
    case IntOp::dp2a_hi_ss:
      return three<Dp2a<true, true, true>>();
    case IntOp::select:
      return bits == 64 ? Handler(select<u64>) : select<u32>;
    case IntOp::slct:
      return bits == 64 ? Handler(slct<u64>) : slct<u32>;
    default:
      return nullptr;
  }
}
#include "cgp/emu/core/isa_end.h"

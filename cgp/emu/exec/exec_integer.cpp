// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic on 16-, 32- and 64-bit types. Compiled twice, see isa_begin.h.
#include <algorithm>
#include <bit>
#include <limits>
#include <type_traits>

#include "cgp/emu/core/handlers.h"

#include "cgp/emu/core/isa_begin.h"
namespace {
#include "cgp/emu/core/lanes_impl.h"

template <class T>
using Unsigned = std::make_unsigned_t<T>;
template <class T>
using Wider =
    std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, std::int32_t, std::uint32_t>,
                       std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>;
__extension__ using Int128 = __int128;
__extension__ using Uint128 = unsigned __int128;

template <class T>
static inline T mul_high(T a, T b) {
  if constexpr (sizeof(T) == 8)
    return std::is_signed_v<T> ? T((Int128(a) * Int128(b)) >> 64) : T((Uint128(a) * Uint128(b)) >> 64);
  else
    return T((Wider<T>(a) * Wider<T>(b)) >> (8 * sizeof(T)));
}
// 16-bit products must not be computed in (signed) int.
template <class T>
static inline T mul_low(T a, T b) {
  using U = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  return T(U(a) * U(b));
}
template <class T>
static inline T wrap_add(T a, T b) {
  return T(Unsigned<T>(Unsigned<T>(a) + Unsigned<T>(b)));
}

#define CGP_INT2(NAME, EXPR)                         \
  template <class T>                                 \
  struct NAME {                                      \
    static inline T apply(T a, T b) { return EXPR; } \
  };
#define CGP_INT3(NAME, EXPR)                              \
  template <class T>                                      \
  struct NAME {                                           \
    static inline T apply(T a, T b, T c) { return EXPR; } \
  };
CGP_INT2(Add, wrap_add(a, b))
CGP_INT2(Sub, T(Unsigned<T>(Unsigned<T>(a) - Unsigned<T>(b))))
CGP_INT2(MulLo, mul_low(a, b))
CGP_INT2(MulHi, mul_high(a, b))
CGP_INT2(Min, b < a ? b : a)
CGP_INT2(Max, a < b ? b : a)
CGP_INT2(MinRelu, std::max<T>(0, b < a ? b : a))
CGP_INT2(MaxRelu, std::max<T>(0, a < b ? b : a))
CGP_INT3(MadLo, wrap_add(mul_low(a, b), c))
CGP_INT3(MadHi, wrap_add(mul_high(a, b), c))
CGP_INT3(Sad, wrap_add(c, T(a < b ? Unsigned<T>(b) - Unsigned<T>(a) : Unsigned<T>(a) - Unsigned<T>(b))))

// Division by zero is unspecified in PTX; the hardware gives all ones, as quotient and as remainder.
template <class T>
struct Div {
  static inline T apply(T a, T b) {
    if (b == 0) return T(~T(0));
    if (std::is_signed_v<T> && b == T(-1)) return T(Unsigned<T>(0) - Unsigned<T>(a));
    return T(a / b);
  }
};
template <class T>
struct Rem {
  static inline T apply(T a, T b) {
    if (b == 0) return T(~T(0));
    if (std::is_signed_v<T> && b == T(-1)) return 0;
    return T(a % b);
  }
};
template <class T>
struct Abs {
  static inline T apply(T a) { return a < 0 ? T(Unsigned<T>(0) - Unsigned<T>(a)) : a; }
};
template <class T>
struct Neg {
  static inline T apply(T a) { return T(Unsigned<T>(0) - Unsigned<T>(a)); }
};
template <class T>
struct MulWide {
  static inline Wider<T> apply(T a, T b) { return Wider<T>(a) * Wider<T>(b); }
};
template <class T>
struct MadWide {
  static inline Wider<T> apply(T a, T b, Wider<T> c) {
    using U = Unsigned<Wider<T>>;
    return Wider<T>(U(Wider<T>(a) * Wider<T>(b)) + U(c));
  }
};

static inline std::int32_t clamp32(std::int64_t v) {
  return std::int32_t(v > 0x7fffffff ? 0x7fffffff : v < -0x7fffffffll - 1 ? -0x7fffffffll - 1 : v);
}
struct AddSat {
  static inline std::int32_t apply(std::int32_t a, std::int32_t b) { return clamp32(std::int64_t(a) + b); }
};
struct SubSat {
  static inline std::int32_t apply(std::int32_t a, std::int32_t b) { return clamp32(std::int64_t(a) - b); }
};
struct MadHiSat {
  static inline std::int32_t apply(std::int32_t a, std::int32_t b, std::int32_t c) {
    return clamp32(std::int64_t(mul_high(a, b)) + c);
  }
};

// 24-bit operands, 48-bit product: lo is bits 0-31, hi is bits 16-47.
template <class T>
static inline std::int64_t product24(T a, T b) {
  if constexpr (std::is_signed_v<T>)
    return std::int64_t(std::int32_t(std::uint32_t(a) << 8) >> 8) *
           (std::int32_t(std::uint32_t(b) << 8) >> 8);
  else
    return std::int64_t(std::uint64_t(a & 0xffffffu) * (b & 0xffffffu));
}
CGP_INT2(Mul24Lo, T(product24(a, b)))
CGP_INT2(Mul24Hi, T(product24(a, b) >> 16))
CGP_INT3(Mad24Lo, wrap_add(T(product24(a, b)), c))
CGP_INT3(Mad24Hi, wrap_add(T(product24(a, b) >> 16), c))
struct Mad24HiSat {
  static inline std::int32_t apply(std::int32_t a, std::int32_t b, std::int32_t c) {
    return clamp32(std::int64_t(std::int32_t(product24(a, b) >> 16)) + c);
  }
};

// Two 16-bit values in one register.
template <template <class> class F, class H>
struct Packed {
  static inline std::uint32_t apply(std::uint32_t a, std::uint32_t b) {
    const H lo = F<H>::apply(H(a), H(b)), hi = F<H>::apply(H(a >> 16), H(b >> 16));
    return std::uint32_t(std::uint16_t(lo)) | std::uint32_t(std::uint16_t(hi)) << 16;
  }
};
template <class H>
struct PackedNeg {
  static inline std::uint32_t apply(std::uint32_t a) {
    return std::uint32_t(std::uint16_t(-H(a))) | std::uint32_t(std::uint16_t(-H(a >> 16))) << 16;
  }
};

using ptx::Mod;
using u16 = std::uint16_t;
using s16 = std::int16_t;
using u32 = std::uint32_t;
using s32 = std::int32_t;
using u64 = std::uint64_t;
using s64 = std::int64_t;

template <template <class> class F>
static Handler pick1(Mod t) {
  switch (t) {
    case Mod::s16:
      return unary<F<s16>, s16, s16>;
    case Mod::s32:
      return unary<F<s32>, s32, s32>;
    case Mod::s64:
      return unary<F<s64>, s64, s64>;
    default:
      return nullptr;
  }
}
template <template <class> class F>
static Handler pick2(Mod t) {
  switch (t) {
    case Mod::u16:
      return binary<F<u16>, u16, u16, u16>;
    case Mod::s16:
      return binary<F<s16>, s16, s16, s16>;
    case Mod::u32:
      return binary<F<u32>, u32, u32, u32>;
    case Mod::s32:
      return binary<F<s32>, s32, s32, s32>;
    case Mod::u64:
      return binary<F<u64>, u64, u64, u64>;
    case Mod::s64:
      return binary<F<s64>, s64, s64, s64>;
    case Mod::u16x2:
      return binary<Packed<F, u16>, u32, u32, u32>;
    case Mod::s16x2:
      return binary<Packed<F, s16>, u32, u32, u32>;
    default:
      return nullptr;
  }
}
template <template <class> class F>
static Handler pick3(Mod t) {
  switch (t) {
    case Mod::u16:
      return ternary<F<u16>, u16, u16, u16, u16>;
    case Mod::s16:
      return ternary<F<s16>, s16, s16, s16, s16>;
    case Mod::u32:
      return ternary<F<u32>, u32, u32, u32, u32>;
    case Mod::s32:
      return ternary<F<s32>, s32, s32, s32, s32>;
    case Mod::u64:
      return ternary<F<u64>, u64, u64, u64, u64>;
    case Mod::s64:
      return ternary<F<s64>, s64, s64, s64, s64>;
    default:
      return nullptr;
  }
}
template <template <class> class F>
static Handler pick2_32(Mod t) {
  return t == Mod::u32   ? Handler(binary<F<u32>, u32, u32, u32>)
         : t == Mod::s32 ? Handler(binary<F<s32>, s32, s32, s32>)
                         : nullptr;
}
template <template <class> class F>
static Handler pick3_32(Mod t) {
  return t == Mod::u32   ? Handler(ternary<F<u32>, u32, u32, u32, u32>)
         : t == Mod::s32 ? Handler(ternary<F<s32>, s32, s32, s32, s32>)
                         : nullptr;
}
static Handler pick_wide(Mod t, bool mad) {
  switch (t) {
    case Mod::u16:
      return mad ? Handler(ternary<MadWide<u16>, u32, u16, u16, u32>) : binary<MulWide<u16>, u32, u16, u16>;
    case Mod::s16:
      return mad ? Handler(ternary<MadWide<s16>, s32, s16, s16, s32>) : binary<MulWide<s16>, s32, s16, s16>;
    case Mod::u32:
      return mad ? Handler(ternary<MadWide<u32>, u64, u32, u32, u64>) : binary<MulWide<u32>, u64, u32, u32>;
    case Mod::s32:
      return mad ? Handler(ternary<MadWide<s32>, s64, s32, s32, s64>) : binary<MulWide<s32>, s64, s32, s32>;
    default:
      return nullptr;
  }
}
}  // namespace

Handler integer_handler(IntOp op, ptx::Mod t) {
  switch (op) {
    case IntOp::add:
      return pick2<Add>(t);
    case IntOp::sub:
      return pick2<Sub>(t);
    case IntOp::add_sat:
      return t == Mod::s32 ? Handler(binary<AddSat, s32, s32, s32>) : nullptr;
    case IntOp::sub_sat:
      return t == Mod::s32 ? Handler(binary<SubSat, s32, s32, s32>) : nullptr;
    case IntOp::mul_lo:
      return pick2<MulLo>(t);
    case IntOp::mul_hi:
      return pick2<MulHi>(t);
    case IntOp::mul_wide:
      return pick_wide(t, false);
    case IntOp::mad_lo:
      return pick3<MadLo>(t);
    case IntOp::mad_hi:
      return pick3<MadHi>(t);
    case IntOp::mad_wide:
      return pick_wide(t, true);
    case IntOp::mad_hi_sat:
      return t == Mod::s32 ? Handler(ternary<MadHiSat, s32, s32, s32, s32>) : nullptr;
    case IntOp::mul24_lo:
      return pick2_32<Mul24Lo>(t);
    case IntOp::mul24_hi:
      return pick2_32<Mul24Hi>(t);
    case IntOp::mad24_lo:
      return pick3_32<Mad24Lo>(t);
    case IntOp::mad24_hi:
      return pick3_32<Mad24Hi>(t);
    case IntOp::mad24_hi_sat:
      return t == Mod::s32 ? Handler(ternary<Mad24HiSat, s32, s32, s32, s32>) : nullptr;
    case IntOp::sad:
      return pick3<Sad>(t);
    case IntOp::div:
      return pick2<Div>(t);
    case IntOp::rem:
      return pick2<Rem>(t);
    case IntOp::abs:
      return pick1<Abs>(t);
    case IntOp::neg:
      return t == Mod::s16x2 ? Handler(unary<PackedNeg<s16>, u32, u32>) : pick1<Neg>(t);
    case IntOp::min:
      return pick2<Min>(t);
    case IntOp::max:
      return pick2<Max>(t);
    case IntOp::min_relu:
      return t == Mod::s32     ? Handler(binary<MinRelu<s32>, s32, s32, s32>)
             : t == Mod::s16x2 ? Handler(binary<Packed<MinRelu, s16>, u32, u32, u32>)
                               : nullptr;
    case IntOp::max_relu:
      return t == Mod::s32     ? Handler(binary<MaxRelu<s32>, s32, s32, s32>)
             : t == Mod::s16x2 ? Handler(binary<Packed<MaxRelu, s16>, u32, u32, u32>)
                               : nullptr;
    default:
      return nullptr;
  }
}
#include "cgp/emu/core/isa_end.h"

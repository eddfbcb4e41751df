// SPDX-License-Identifier: Apache-2.0
// f32 and f64 arithmetic with PTX's rounding, flush, saturation and NaN rules. Compiled twice, see
// isa_begin.h.
#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>
#include <type_traits>

#include "cgp/emu/core/handlers.h"

#include "cgp/emu/core/isa_begin.h"
namespace {
#include "cgp/emu/core/lanes_impl.h"
using ptx::Mod;

static inline bool is_nan(float x) { return (std::bit_cast<std::uint32_t>(x) & 0x7fffffffu) > 0x7f800000u; }
static inline bool is_nan(double x) {
  return (std::bit_cast<std::uint64_t>(x) & 0x7fffffffffffffffull) > 0x7ff0000000000000ull;
}
// Every NaN that f32 arithmetic makes has one bit pattern. In f64 an operand's NaN goes on, made quiet (of
// two the second's, but the dividend's; of three b's, then c's); without one it is 0xfff8000000000000.
// Measured.
static inline float canonical(float x) { return is_nan(x) ? std::bit_cast<float>(0x7fffffffu) : x; }
static inline double canonical(double x) {
  return is_nan(x) ? std::bit_cast<double>(0xfff8000000000000ull) : x;
}
static inline double quiet(double x) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) | 1ull << 51);
}
template <class F>
static inline float nan_rule(float r, float, float, float) {
  return canonical(r);
}
template <class F>
static inline double nan_rule(double r, double x, double y, double z) {
  double n = std::bit_cast<double>(0xfff8000000000000ull);
  if (F::kFirst) {
    n = is_nan(y) ? y : n;
    n = is_nan(x) ? x : n;
  } else {
    n = is_nan(x) ? x : n;
    n = is_nan(z) ? z : n;
    n = is_nan(y) ? y : n;
  }
  return is_nan(r) ? quiet(n) : r;
}
static inline float flush(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>(u & 0x7f800000u ? u : u & 0x80000000u);
}
static inline float saturate(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }  // NaN gives +0

// .ftz flushes what is below the smallest normal number after rounding to 24 bits with any exponent
// (measured). The functions tiny() ask that of operands whose result became that number: 2^64 times it rounds
// the same way.
static inline bool too_small(float scaled) { return __builtin_fabsf(scaled) < 0x1p-62f; }
struct Add {
  static constexpr bool kFirst = false;
  template <class T>
  static inline T apply(T a, T b) {
    return a + b;
  }
};
struct Sub {
  static constexpr bool kFirst = false;
  template <class T>
  static inline T apply(T a, T b) {
    return a - b;
  }
};
struct Mul {
  static constexpr bool kFirst = false;
  static inline bool tiny(float a, float b, float) {
    return __builtin_fabsf(a) < __builtin_fabsf(b) ? too_small(a * 0x1p64f * b)
                                                   : too_small(a * (b * 0x1p64f));
  }
  template <class T>
  static inline T apply(T a, T b) {
    return a * b;
  }
};
struct Div {
  static constexpr bool kFirst = true;
  static inline bool tiny(float a, float b, float) { return too_small(a * 0x1p64f / b); }
  template <class T>
  static inline T apply(T a, T b) {
    return a / b;
  }
};
struct Fma {
  static constexpr bool kFirst = false;
  static inline bool tiny(float a, float b, float c) {
    if (__builtin_fabsf(c) > 0x1p-60f) return false;  // cancelled exactly
    const bool first = __builtin_fabsf(a) < __builtin_fabsf(b);
    return too_small(__builtin_fmaf(first ? a * 0x1p64f : a, first ? b : b * 0x1p64f, c * 0x1p64f));
  }
  static inline float apply(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
  static inline double apply(double a, double b, double c) { return __builtin_fma(a, b, c); }
};
struct Rcp {
  static constexpr bool kFirst = false;
  template <class T>
  static inline T apply(T a) {
    return T(1) / a;
  }
};
struct Sqrt {
  static constexpr bool kFirst = false;
  static inline float apply(float a) { return __builtin_sqrtf(a); }
  static inline double apply(double a) { return __builtin_sqrt(a); }
};

// Ftz, Sat: compile-time variants. Arity 1, 2 or 3.
template <class F, class T, bool Ftz, bool Sat, int Arity>
__attribute__((noinline)) static void arithmetic(Warp& w, const Op& op) {
  const auto* a = w.row<Cell<T>>(op.a);
  const auto* b = Arity > 1 ? w.row<Cell<T>>(op.b) : a;
  const auto* c = Arity > 2 ? w.row<Cell<T>>(op.c) : a;
  alignas(64) Cell<T> t[kLanes];
  for (int l = 0; l < kLanes; ++l) {
    T x = std::bit_cast<T>(a[l]), y = std::bit_cast<T>(b[l]), z = std::bit_cast<T>(c[l]), r;
    if constexpr (Ftz) {
      x = flush(x);
      y = flush(y);
      z = flush(z);
    }
    if constexpr (Arity == 1)
      r = F::apply(x);
    else if constexpr (Arity == 2)
      r = F::apply(x, y);
    else
      r = F::apply(x, y, z);
    if constexpr (Ftz) r = flush(r);
    if constexpr (Sat)
      r = saturate(r);
    else
      r = nan_rule<F>(r, x, y, z);
    t[l] = std::bit_cast<Cell<T>>(r);
  }
  if constexpr (Ftz && requires { F::tiny(0.0f, 0.0f, 0.0f); }) {
    constexpr std::uint32_t least = 0x00800000u;
    std::uint32_t any = 0;
    for (int l = 0; l < kLanes; ++l) any |= (t[l] & 0x7fffffffu) == least;
    for (int l = 0; any && l < kLanes; ++l)
      if ((t[l] & 0x7fffffffu) == least &&
          F::tiny(flush(std::bit_cast<T>(a[l])), flush(std::bit_cast<T>(b[l])),
                  flush(std::bit_cast<T>(c[l]))))
        t[l] &= 0x80000000u;
  }
  put(w.row<Cell<T>>(op.d), t, w.active);
}

// Directed rounding: the same loop under the host's rounding mode.
template <class F, class T, bool Ftz, bool Sat, int Arity>
static void directed(Warp& w, const Op& op) {
  constexpr int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
  std::fesetround(modes[op.small & 3]);
  arithmetic<F, T, Ftz, Sat, Arity>(w, op);
  std::fesetround(FE_TONEAREST);
}

template <class F, class T, int Arity>
static Handler rounded(FloatMode m) {
  if constexpr (std::is_same_v<T, double>) {
    return m.rounding ? Handler(directed<F, T, false, false, Arity>) : arithmetic<F, T, false, false, Arity>;
  } else {
    if (m.rounding) {
      if (m.ftz)
        return m.sat ? Handler(directed<F, T, true, true, Arity>) : directed<F, T, true, false, Arity>;
      return m.sat ? Handler(directed<F, T, false, true, Arity>) : directed<F, T, false, false, Arity>;
    }
    if (m.ftz)
      return m.sat ? Handler(arithmetic<F, T, true, true, Arity>) : arithmetic<F, T, true, false, Arity>;
    return m.sat ? Handler(arithmetic<F, T, false, true, Arity>) : arithmetic<F, T, false, false, Arity>;
  }
}

// min and max: the operand that is not NaN (or NaN with .NaN); -0 < +0.
template <class T>
static inline T minimum(T a, T b) {
  const bool less = a < b || (a == b && std::signbit(a));
  return less ? a : b;
}
template <bool Max, bool Nan, bool XorSign>
struct MinMax {
  template <class T>
  static inline T apply(T a, T b) {
    using C = Cell<T>;
    constexpr C sign = C(1) << (8 * sizeof(T) - 1);
    C ua = std::bit_cast<C>(a), ub = std::bit_cast<C>(b);
    const C flip = XorSign ? (ua ^ ub) & sign : 0;
    if (XorSign) {
      a = std::bit_cast<T>(C(ua & ~sign));
      b = std::bit_cast<T>(C(ub & ~sign));
      ua &= ~sign;
      ub &= ~sign;
    }
    const bool an = is_nan(a), bn = is_nan(b);
    // Order as signed magnitudes so that -0 is below +0.
    const bool a_less = a < b || (a == b && (ua & sign) > (ub & sign));
    T r = a_less != Max ? a : b;
    if (a == b && ua == ub) r = a;
    r = an ? b : bn ? a : r;
    const bool nan = Nan ? an || bn : an && bn;
    const T v = std::bit_cast<T>(C(std::bit_cast<C>(r) | flip));
    if constexpr (sizeof(T) == 8) return nan ? quiet(b) : v;
    return nan ? canonical(std::numeric_limits<T>::quiet_NaN()) : v;
  }
};

// A NaN keeps its sign: it becomes the canonical one, in f64 a quiet one.
template <class T>
static inline T unsigned_nan(T a, T r) {
  if constexpr (sizeof(T) == 8) return is_nan(a) ? quiet(a) : r;
  return is_nan(a) ? canonical(a) : r;
}
struct Abs {
  template <class T>
  static inline T apply(T a) {
    return unsigned_nan(a, std::bit_cast<T>(Cell<T>(std::bit_cast<Cell<T>>(a) & (~Cell<T>(0) >> 1))));
  }
};
struct Neg {
  template <class T>
  static inline T apply(T a) {
    return unsigned_nan(
        a, std::bit_cast<T>(Cell<T>(std::bit_cast<Cell<T>>(a) ^ (Cell<T>(1) << (8 * sizeof(T) - 1)))));
  }
};
struct Copysign {  // the sign of a, the value of b
  template <class T>
  static inline T apply(T a, T b) {
    constexpr Cell<T> sign = Cell<T>(1) << (8 * sizeof(T) - 1);
    return std::bit_cast<T>(
        Cell<T>((std::bit_cast<Cell<T>>(a) & sign) | (std::bit_cast<Cell<T>>(b) & ~sign)));
  }
};
// Operations on bits: no rounding, no NaN rule but their own.
template <class F, class T, bool Ftz, int Arity>
static void bitwise(Warp& w, const Op& op) {
  const auto* a = w.row<Cell<T>>(op.a);
  const auto* b = Arity > 1 ? w.row<Cell<T>>(op.b) : a;
  alignas(64) Cell<T> t[kLanes];
  for (int l = 0; l < kLanes; ++l) {
    T x = std::bit_cast<T>(a[l]), y = std::bit_cast<T>(b[l]), r;
    if constexpr (Ftz) {
      x = flush(x);
      y = flush(y);
    }
    if constexpr (Arity == 1)
      r = F::apply(x);
    else
      r = F::apply(x, y);
    t[l] = std::bit_cast<Cell<T>>(r);
  }
  put(w.row<Cell<T>>(op.d), t, w.active);
}
template <class F, class T, int Arity>
static Handler plain(FloatMode m) {
  if constexpr (std::is_same_v<T, float>)
    if (m.ftz) return bitwise<F, T, true, Arity>;
  return bitwise<F, T, false, Arity>;
}

// div.approx multiplies with a reciprocal that is zero beyond 2^126.
struct DivApprox {
  static inline float apply(float a, float b) {
    const float zero = std::copysign(0.0f, b);
    return __builtin_fabsf(b) > 0x1p126f && __builtin_fabsf(b) < std::numeric_limits<float>::infinity()
               ? a * zero
               : a / b;
  }
};
// rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64 look at the high word alone and give one.
template <class F>
static void high_word(Warp& w, const Op& op) {
  constexpr std::uint64_t high = 0xffffffff00000000ull;
  auto flushed = [](double x) { return std::fabs(x) < 0x1p-1022 ? std::copysign(0.0, x) : x; };
  const auto* a = w.row<std::uint64_t>(op.a);
  auto* d = w.row<std::uint64_t>(op.d);
  for_lanes(w.active, [&](int l) {
    const double r = F::apply(flushed(std::bit_cast<double>(a[l] & high)));
    d[l] = r != r ? 0x7fffffff00000000ull : std::bit_cast<std::uint64_t>(flushed(r)) & high;
  });
}

// Approximate instructions: the value in double, rounded once.
struct Rsqrt {
  static inline double apply(double x) {
    return x == 0 ? (std::signbit(x) ? -HUGE_VAL : HUGE_VAL) : 1.0 / __builtin_sqrt(x);
  }
};
struct Sin {
  static inline double apply(double x) { return std::sin(x); }
};
struct Cos {
  static inline double apply(double x) { return std::cos(x); }
};
struct Lg2 {
  static inline double apply(double x) { return std::log2(x); }
};
struct Ex2 {
  static inline double apply(double x) { return std::exp2(x); }
};
struct Tanh {
  static inline double apply(double x) { return std::tanh(x); }
};
template <class F, class T, bool Ftz>
static void approximate(Warp& w, const Op& op) {
  const auto* a = w.row<Cell<T>>(op.a);
  auto* d = w.row<Cell<T>>(op.d);
  for_lanes(w.active, [&](int l) {
    T x = std::bit_cast<T>(a[l]);
    if constexpr (Ftz) x = flush(x);
    T r = T(F::apply(double(x)));
    if constexpr (Ftz) r = flush(r);
    if constexpr (sizeof(T) == 8)
      d[l] = std::bit_cast<Cell<T>>(is_nan(x) ? quiet(x) : canonical(r));
    else
      d[l] = std::bit_cast<Cell<T>>(canonical(r));
  });
}
template <class F>
static Handler approx(ptx::Mod t, FloatMode m) {
  if (t == Mod::f64) return approximate<F, double, false>;
  return m.ftz ? Handler(approximate<F, float, true>) : approximate<F, float, false>;
}

template <class T>
static void testp(Warp& w, const Op& op) {
  const auto* a = w.row<Cell<T>>(op.a);
  constexpr Cell<T> magnitude = ~Cell<T>(0) >> 1;
  constexpr Cell<T> inf = sizeof(T) == 4 ? Cell<T>(0x7f800000u) : Cell<T>(0x7ff0000000000000ull);
  constexpr Cell<T> least = sizeof(T) == 4 ? Cell<T>(0x00800000u) : Cell<T>(0x0010000000000000ull);
  Mask m = 0;
  for (int l = 0; l < kLanes; ++l) {
    const Cell<T> x = a[l] & magnitude;
    bool r = false;
    switch (FloatOp(op.kind)) {
      case FloatOp::testp_finite:
        r = x < inf;
        break;
      case FloatOp::testp_infinite:
        r = x == inf;
        break;
      case FloatOp::testp_number:
        r = x <= inf;
        break;
      case FloatOp::testp_notanumber:
        r = x > inf;
        break;
      case FloatOp::testp_normal:
        r = (x >= least && x < inf) || x == 0;  // measured: zero counts as normal
        break;
      case FloatOp::testp_subnormal:
        r = x != 0 && x < least;
        break;
      default:
        break;
    }
    m |= r ? 1u << l : 0u;
  }
  w.set_pred(op.d, m, w.active);
}

template <class T>
static Handler pick(FloatOp op, ptx::Mod t, FloatMode m) {
  switch (op) {
    case FloatOp::add:
      return rounded<Add, T, 2>(m);
    case FloatOp::sub:
      return rounded<Sub, T, 2>(m);
    case FloatOp::mul:
      return rounded<Mul, T, 2>(m);
    case FloatOp::div:
      return rounded<Div, T, 2>(m);
    case FloatOp::fma:
      return rounded<Fma, T, 3>(m);
    case FloatOp::rcp:
      return rounded<Rcp, T, 1>(m);
    case FloatOp::sqrt:
      return rounded<Sqrt, T, 1>(m);
    case FloatOp::min:
      return plain<MinMax<false, false, false>, T, 2>(m);
    case FloatOp::max:
      return plain<MinMax<true, false, false>, T, 2>(m);
    case FloatOp::min_nan:
      return plain<MinMax<false, true, false>, T, 2>(m);
    case FloatOp::max_nan:
      return plain<MinMax<true, true, false>, T, 2>(m);
    case FloatOp::min_xorsign:
      return plain<MinMax<false, false, true>, T, 2>(m);
    case FloatOp::max_xorsign:
      return plain<MinMax<true, false, true>, T, 2>(m);
    case FloatOp::min_nan_xorsign:
      return plain<MinMax<false, true, true>, T, 2>(m);
    case FloatOp::max_nan_xorsign:
      return plain<MinMax<true, true, true>, T, 2>(m);
    case FloatOp::abs:
      return plain<Abs, T, 1>(m);
    case FloatOp::neg:
      return plain<Neg, T, 1>(m);
    case FloatOp::copysign:
      return plain<Copysign, T, 2>({});
    case FloatOp::div_approx:
      return rounded<DivApprox, float, 2>(m);
    case FloatOp::rcp_high:
      return high_word<Rcp>;
    case FloatOp::rsqrt_high:
      return high_word<Rsqrt>;
    case FloatOp::rsqrt:
      return approx<Rsqrt>(t, m);
    case FloatOp::sin:
      return approx<Sin>(t, m);
    case FloatOp::cos:
      return approx<Cos>(t, m);
    case FloatOp::lg2:
      return approx<Lg2>(t, m);
    case FloatOp::ex2:
      return approx<Ex2>(t, m);
    case FloatOp::tanh:
      return approx<Tanh>(t, m);
    default:
      return testp<T>;
  }
}
}  // namespace

Handler float_handler(FloatOp op, ptx::Mod t, FloatMode m) {
  if (t == Mod::f32) return pick<float>(op, t, m);
  if (t == Mod::f64) return pick<double>(op, t, m);
  return nullptr;
}
#include "cgp/emu/core/isa_end.h"

// SPDX-License-Identifier: Apache-2.0
// f16, bf16 and their packed pairs, and f32x2. Results are rounded once: sums and products in a format wide
// enough, fma through round-to-odd. Compiled twice, see isa_begin.h.
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "cgp/emu/core/handlers.h"

#include "cgp/emu/core/isa_begin.h"
namespace {
#include "cgp/emu/core/lanes_impl.h"
using ptx::Mod;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

struct F16 {
  static constexpr u32 kInf = 0x7c00, kNan = 0x7fff, kOne = 0x3c00;
  static inline float widen(u32 h) {
    const u32 sign = (h & 0x8000u) << 16, e = h >> 10 & 31, m = h & 0x3ff;
    const float small = float(std::int32_t(m)) * 5.9604644775390625e-8f;  // 2^-24, exact
    const u32 normal = (e == 31 ? 0x7f800000u : (e + 112) << 23) | m << 13;
    return std::bit_cast<float>(sign | (e == 0 ? std::bit_cast<u32>(small) : normal));
  }
  // To nearest even from a value that carries at least two bits more, or is exact.
  static inline u32 narrow(float f) {
    const u32 bits = std::bit_cast<u32>(f), sign = bits >> 16 & 0x8000u, u = bits & 0x7fffffffu;
    // Adding 1/2 aligns the last bit with 2^-24, the smallest subnormal.
    const u32 small = std::bit_cast<u32>(std::bit_cast<float>(u) + 0.5f) - 0x3f000000u;
    const u32 normal = (u + 0xfff + (u >> 13 & 1) - (112u << 23)) >> 13;
    u32 h = u < 0x38800000u ? small : normal;
    h = u >= 0x477ff000u ? kInf : h;
    h |= sign;
    return u > 0x7f800000u ? kNan : h;
  }
  static inline u32 flush(u32 h) { return h & 0x7c00u ? h : h & 0x8000u; }
};
struct Bf16 {
  static constexpr u32 kInf = 0x7f80, kNan = 0x7fff, kOne = 0x3f80;
  static inline float widen(u32 h) { return std::bit_cast<float>(h << 16); }
  static inline u32 narrow(float f) {
    const u32 u = std::bit_cast<u32>(f);
    return (u & 0x7fffffffu) > 0x7f800000u ? kNan : (u + 0x7fff + (u >> 16 & 1)) >> 16;
  }
  static inline u32 flush(u32 h) { return h & 0x7f80u ? h : h & 0x8000u; }
};

// double to float so that a later rounding to fewer bits is the rounding of the exact value.
static inline float odd_float(double s) {
  const float f = float(s);
  u32 u = std::bit_cast<u32>(f);
  const double back = double(f);
  u -= std::fabs(back) > std::fabs(s) ? 1 : 0;
  u |= back != s && s == s ? 1u : 0u;
  return std::bit_cast<float>(u);
}
// a * b + c in double, rounded to odd; a * b is exact.
static inline double odd_sum(double p, double c) {
  const double s = p + c, t = s - p, e = (p - (s - t)) + (c - t);
  u64 u = std::bit_cast<u64>(s);
  const bool finite = (u >> 52 & 0x7ff) != 0x7ff;
  // An inexact sum with an even last bit moves one towards the error.
  const bool adjust = finite && e != 0 && !(u & 1);
  const u64 step = (e > 0) == (s > 0) ? 1 : ~0ull;
  u += adjust ? step : 0;
  return std::bit_cast<double>(u);
}

struct Add {
  static inline float apply(float a, float b) { return a + b; }
};
struct Sub {
  static inline float apply(float a, float b) { return a - b; }
};
struct Mul {
  static inline float apply(float a, float b) { return a * b; }
};
// Sums of bf16 may need more than float's bits: exact, or odd.
static inline float odd_add(float a, float b) { return odd_float(odd_sum(double(a), double(b))); }

template <class H, FloatOp O>
static inline u32 element(u32 a, u32 b, u32 c) {
  const float x = H::widen(a & 0xffff), y = H::widen(b & 0xffff), z = H::widen(c & 0xffff);
  constexpr bool bf = std::is_same_v<H, Bf16>;
  if constexpr (O == FloatOp::add) return H::narrow(bf ? odd_add(x, y) : x + y);
  if constexpr (O == FloatOp::sub) return H::narrow(bf ? odd_add(x, -y) : x - y);
  if constexpr (O == FloatOp::mul) return H::narrow(bf ? odd_float(double(x) * double(y)) : x * y);
  if constexpr (O == FloatOp::fma) return H::narrow(odd_float(odd_sum(double(x) * double(y), double(z))));
  if constexpr (O == FloatOp::abs) return (a & 0x7fffu) > H::kInf ? H::kNan : a & 0x7fffu;
  if constexpr (O == FloatOp::neg) return (a & 0x7fffu) > H::kInf ? H::kNan : (a ^ 0x8000u) & 0xffffu;
  if constexpr (O == FloatOp::ex2) return H::narrow(odd_float(std::exp2(double(x))));
  if constexpr (O == FloatOp::tanh) return H::narrow(odd_float(std::tanh(double(x))));
  constexpr bool max = O == FloatOp::max || O == FloatOp::max_nan || O == FloatOp::max_xorsign ||
                       O == FloatOp::max_nan_xorsign;
  constexpr bool nan = O == FloatOp::min_nan || O == FloatOp::max_nan || O == FloatOp::min_nan_xorsign ||
                       O == FloatOp::max_nan_xorsign;
  constexpr bool xorsign = O == FloatOp::min_xorsign || O == FloatOp::max_xorsign ||
                           O == FloatOp::min_nan_xorsign || O == FloatOp::max_nan_xorsign;
  u32 p = a & 0xffff, q = b & 0xffff;
  const u32 flip = xorsign ? (p ^ q) & 0x8000u : 0;
  if (xorsign) {
    p &= 0x7fff;
    q &= 0x7fff;
  }
  const bool pn = (p & 0x7fff) > H::kInf, qn = (q & 0x7fff) > H::kInf;
  // Order of the bit patterns as signed magnitudes.
  const std::int32_t pi = p & 0x8000 ? -std::int32_t(p & 0x7fff) - 1 : std::int32_t(p);
  const std::int32_t qi = q & 0x8000 ? -std::int32_t(q & 0x7fff) - 1 : std::int32_t(q);
  u32 r = (pi < qi) != max ? p : q;
  if (pi == qi) r = p;
  r = pn ? q : qn ? p : r;
  return (nan ? pn || qn : pn && qn) ? H::kNan : r ^ flip;
}

template <class H, FloatOp O, bool Ftz>
static inline u32 finish(u32 a, u32 b, u32 c, u32 sat, u32 relu) {
  if (Ftz) {
    a = H::flush(a & 0xffff);
    b = H::flush(b & 0xffff);
    c = H::flush(c & 0xffff);
  }
  u32 r = element<H, O>(a, b, c);
  if (Ftz) {
    // Below the smallest normal number after rounding with any exponent (measured): 2^8 times it rounds so.
    if constexpr (O == FloatOp::mul || O == FloatOp::fma) {
      if ((r & 0x7fffu) == 0x400u) {
        const double p = double(H::widen(a & 0xffff)) * double(H::widen(b & 0xffff));
        const double s = O == FloatOp::fma ? odd_sum(p, double(H::widen(c & 0xffff))) : p;
        r = (H::narrow(odd_float(s * 256)) & 0x7fffu) < 0x2400u ? r & 0x8000u : r;
      }
    }
    r = H::flush(r);
  }
  const bool negative = r & 0x8000u, nan = (r & 0x7fffu) > H::kInf;
  // sat: [0, 1], NaN gives 0; relu: negative gives 0, NaN stays canonical
  u32 s = negative || nan ? 0 : r > H::kOne ? H::kOne : r;
  u32 t = nan ? H::kNan : negative ? 0 : r;
  return sat ? s : relu ? t : r;
}

template <class H, FloatOp O, bool Ftz, bool Pair, int Arity>
static void halves(Warp& w, const Op& op) {
  const auto* a = w.row<u32>(op.a);
  const auto* b = Arity > 1 ? w.row<u32>(op.b) : a;
  const auto* c = Arity > 2 ? w.row<u32>(op.c) : a;
  const u32 sat = op.small & 1, relu = op.small & 2;
  alignas(64) u32 t[kLanes];
  for (int l = 0; l < kLanes; ++l) t[l] = finish<H, O, Ftz>(a[l], b[l], c[l], sat, relu);
  if (Pair) {
    for (int l = 0; l < kLanes; ++l)
      t[l] |= finish<H, O, Ftz>(a[l] >> 16, b[l] >> 16, c[l] >> 16, sat, relu) << 16;
  }
  put(w.row<u32>(op.d), t, w.active);
}

template <class H, bool Pair, FloatOp O, int Arity>
static Handler flushed(FloatMode m) {
  return m.ftz ? Handler(halves<H, O, true, Pair, Arity>) : halves<H, O, false, Pair, Arity>;
}
template <class H, bool Pair>
static Handler pick(FloatOp op, FloatMode m) {
  switch (op) {
#define CGP_HALF(O, N) \
  case FloatOp::O:     \
    return flushed<H, Pair, FloatOp::O, N>(m);
    CGP_HALF(add, 2)
    CGP_HALF(sub, 2)
    CGP_HALF(mul, 2)
    CGP_HALF(fma, 3)
    CGP_HALF(min, 2)
    CGP_HALF(max, 2)
    CGP_HALF(min_nan, 2)
    CGP_HALF(max_nan, 2)
    CGP_HALF(min_xorsign, 2)
    CGP_HALF(max_xorsign, 2)
    CGP_HALF(min_nan_xorsign, 2)
    CGP_HALF(max_nan_xorsign, 2)
    CGP_HALF(abs, 1)
    CGP_HALF(neg, 1)
    CGP_HALF(ex2, 1)
    CGP_HALF(tanh, 1)
#undef CGP_HALF
    default:
      return nullptr;
  }
}

// f32x2: both halves of a 64-bit register, rounded to nearest.
static inline float flush32(float x) {
  const u32 u = std::bit_cast<u32>(x);
  return std::bit_cast<float>(u & 0x7f800000u ? u : u & 0x80000000u);
}
template <FloatOp O>
static inline u32 single(u32 a, u32 b, u32 c, bool ftz) {
  float x = std::bit_cast<float>(a), y = std::bit_cast<float>(b), z = std::bit_cast<float>(c);
  if (ftz) {
    x = flush32(x);
    y = flush32(y);
    z = flush32(z);
  }
  float r = O == FloatOp::add   ? x + y
            : O == FloatOp::sub ? x - y
            : O == FloatOp::mul ? x * y
                                : __builtin_fmaf(x, y, z);
  if (ftz) r = flush32(r);
  return r != r ? 0x7fffffffu : std::bit_cast<u32>(r);
}
template <FloatOp O>
static void pair32(Warp& w, const Op& op) {
  const auto* a = w.row<u64>(op.a);
  const auto* b = w.row<u64>(op.b);
  const auto* c = O == FloatOp::fma ? w.row<u64>(op.c) : a;
  const bool ftz = op.small & 4;
  alignas(64) u64 t[kLanes];
  for (int l = 0; l < kLanes; ++l)
    t[l] = u64(single<O>(u32(a[l]), u32(b[l]), u32(c[l]), ftz)) |
           u64(single<O>(u32(a[l] >> 32), u32(b[l] >> 32), u32(c[l] >> 32), ftz)) << 32;
  put(w.row<u64>(op.d), t, w.active);
}
}  // namespace

Handler half_handler(FloatOp op, ptx::Mod t, FloatMode m) {
  switch (t) {
    case Mod::f16:
      return pick<F16, false>(op, m);
    case Mod::bf16:
      return pick<Bf16, false>(op, m);
    case Mod::f16x2:
      return pick<F16, true>(op, m);
    case Mod::bf16x2:
      return pick<Bf16, true>(op, m);
    case Mod::f32x2:
      switch (op) {
        case FloatOp::add:
          return pair32<FloatOp::add>;
        case FloatOp::sub:
          return pair32<FloatOp::sub>;
        case FloatOp::mul:
          return pair32<FloatOp::mul>;
        case FloatOp::fma:
          return pair32<FloatOp::fma>;
        default:
          return nullptr;
      }
    default:
      return nullptr;
  }
}
#include "cgp/emu/core/isa_end.h"

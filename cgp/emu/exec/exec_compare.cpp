// SPDX-License-Identifier: Apache-2.0
// setp: comparisons of all types to predicates. Compiled twice, see isa_begin.h.
#include <bit>
#include <type_traits>

#include "cgp/emu/core/handlers.h"

#include "cgp/emu/core/isa_begin.h"
namespace {
#include "cgp/emu/core/lanes_impl.h"
using ptx::Mod;

struct Less {
  template <class T>
  static inline bool apply(T a, T b) {
    return a < b;
  }
};
struct Equal {
  template <class T>
  static inline bool apply(T a, T b) {
    return a == b;
  }
};
struct Greater {
  template <class T>
  static inline bool apply(T a, T b) {
    return a > b;
  }
};

// p = cmp op r, q = !cmp op r
static inline void combine(Warp& w, const Op& op, Mask cmp) {
  Mask p = cmp, q = ~cmp;
  if (op.kind) {
    const Mask r = w.pred(op.c);
    p = op.kind == 1 ? p & r : op.kind == 2 ? p | r : p ^ r;
    q = op.kind == 1 ? q & r : op.kind == 2 ? q | r : q ^ r;
  }
  w.set_pred(op.d, p, w.active);
  if (op.e != kNoLoc) w.set_pred(op.e, q, w.active);
}

template <class T>
static inline Mask compare(const Cell<T>* a, const Cell<T>* b, unsigned bits) {
  switch (bits) {
    case kLess:
      return compare_mask<Less, T>(a, b);
    case kEqual:
      return compare_mask<Equal, T>(a, b);
    case kGreater:
      return compare_mask<Greater, T>(a, b);
    case kLess | kEqual:
      if (!std::is_floating_point_v<T>) return ~compare_mask<Greater, T>(a, b);
      break;
    case kGreater | kEqual:
      if (!std::is_floating_point_v<T>) return ~compare_mask<Less, T>(a, b);
      break;
    case kLess | kGreater:
      if (!std::is_floating_point_v<T>) return ~compare_mask<Equal, T>(a, b);
      break;
    default:
      break;
  }
  const Mask lt = compare_mask<Less, T>(a, b), eq = compare_mask<Equal, T>(a, b),
             gt = compare_mask<Greater, T>(a, b);
  return (bits & kLess ? lt : 0) | (bits & kEqual ? eq : 0) | (bits & kGreater ? gt : 0) |
         (bits & kUnordered ? ~(lt | eq | gt) : 0);
}

template <class T>
static void setp(Warp& w, const Op& op) {
  combine(w, op, compare<T>(w.row<Cell<T>>(op.a), w.row<Cell<T>>(op.b), op.small));
}

static inline std::uint32_t flush(std::uint32_t x) { return (x & 0x7f800000u) ? x : x & 0x80000000u; }
static void setp_ftz(Warp& w, const Op& op) {
  const auto* a = w.row<std::uint32_t>(op.a);
  const auto* b = w.row<std::uint32_t>(op.b);
  alignas(64) std::uint32_t x[kLanes], y[kLanes];
  for (int l = 0; l < kLanes; ++l) {
    x[l] = flush(a[l]);
    y[l] = flush(b[l]);
  }
  combine(w, op, compare<float>(x, y, op.small));
}

static inline std::uint32_t widen_half(std::uint32_t h) {
  const std::uint32_t sign = (h & 0x8000u) << 16, e = h >> 10 & 31, m = h & 0x3ff;
  // Subnormals by an exact integer to float conversion; ordering is all that matters for NaN.
  const float small = float(std::int32_t(m)) * 5.9604644775390625e-8f;
  const std::uint32_t normal = (e == 31 ? 0x7f800000u : (e + 112) << 23) | m << 13;
  return sign | (e == 0 ? std::bit_cast<std::uint32_t>(small) : normal);
}
template <bool Bf16>
static inline std::uint32_t widen(std::uint32_t h, bool ftz) {
  if (Bf16) return h << 16;
  if (ftz && !(h & 0x7c00u)) h &= 0x8000u;
  return widen_half(h);
}
template <bool Bf16, bool Packed>
static void setp_half(Warp& w, const Op& op) {
  const auto* a = w.row<std::uint32_t>(op.a);
  const auto* b = w.row<std::uint32_t>(op.b);
  alignas(64) std::uint32_t x[kLanes], y[kLanes];
  const bool ftz = op.vec == 2;
  for (int l = 0; l < kLanes; ++l) {
    x[l] = widen<Bf16>(a[l] & 0xffff, ftz);
    y[l] = widen<Bf16>(b[l] & 0xffff, ftz);
  }
  const Mask low = compare<float>(x, y, op.small);
  if (!Packed) return combine(w, op, low);
  for (int l = 0; l < kLanes; ++l) {
    x[l] = widen<Bf16>(a[l] >> 16, ftz);
    y[l] = widen<Bf16>(b[l] >> 16, ftz);
  }
  // Packed: p is the low half's result, q the high half's.
  Mask p = low, q = compare<float>(x, y, op.small);
  if (op.kind) {
    const Mask r = w.pred(op.c);
    p = op.kind == 1 ? p & r : op.kind == 2 ? p | r : p ^ r;
    q = op.kind == 1 ? q & r : op.kind == 2 ? q | r : q ^ r;
  }
  w.set_pred(op.d, p, w.active);
  if (op.e != kNoLoc) w.set_pred(op.e, q, w.active);
}
}  // namespace

Handler setp_handler(ptx::Mod t, bool ftz) {
  switch (t) {
    case Mod::b16:
    case Mod::u16:
      return setp<std::uint16_t>;
    case Mod::s16:
      return setp<std::int16_t>;
    case Mod::b32:
    case Mod::u32:
      return setp<std::uint32_t>;
    case Mod::s32:
      return setp<std::int32_t>;
    case Mod::b64:
    case Mod::u64:
      return setp<std::uint64_t>;
    case Mod::s64:
      return setp<std::int64_t>;
    case Mod::f32:
      return ftz ? setp_ftz : Handler(setp<float>);
    case Mod::f64:
      return setp<double>;
    case Mod::f16:
      return setp_half<false, false>;
    case Mod::bf16:
      return setp_half<true, false>;
    case Mod::f16x2:
      return setp_half<false, true>;
    case Mod::bf16x2:
      return setp_half<true, true>;
    default:
      return nullptr;
  }
}
#include "cgp/emu/core/isa_end.h"

// SPDX-License-Identifier: Apache-2.0
#pragma once
// Words of the language. Every modifier and type of PTX is an empty struct of the same name in `mod`; the
// ones that are not also names of functions are spelled without it: cvt<rn, satfinite, e4m3x2>(a, b) and
// atom<relaxed, gpu, op::add>(p, 0, v). Read val.h next.
#include <concepts>
#include <cstdint>
#include <type_traits>

#include "cgp/ptx/module.h"

namespace cgp::dsl {

namespace mod {
#define CGP_MOD(id, text, type_bits)              \
  struct id {                                     \
    static constexpr ptx::Mod mod = ptx::Mod::id; \
    static constexpr int bits = type_bits;        \
  };
#include "cgp/ptx/modifiers.def"
}  // namespace mod
namespace op = mod;  ///< atom<op::add>, redux<op::max>: words that are function names too

// Element types.
using mod::b128, mod::b16, mod::b32, mod::b64, mod::b8, mod::bf16, mod::bf16x2, mod::e2m1x2, mod::e4m3,
    mod::e4m3x2, mod::e4m3x4, mod::e5m2, mod::e5m2x2, mod::e5m2x4, mod::f16, mod::f16x2, mod::f32, mod::f32x2,
    mod::f64, mod::pred, mod::s16, mod::s16x2, mod::s32, mod::s64, mod::s8, mod::tf32, mod::u16, mod::u16x2,
    mod::u32, mod::u64, mod::u8;
using mod::e2m1, mod::e2m1x4, mod::e2m3x2, mod::e2m3x4, mod::e3m2x2, mod::e3m2x4, mod::ue8m0x2;
// State spaces.
using mod::const_, mod::generic, mod::global, mod::local, mod::shared, mod::shared_cluster;
// Rounding, saturation, precision.
using mod::approx, mod::ftz, mod::full, mod::hi, mod::lo, mod::relu, mod::rm, mod::rmi, mod::rn, mod::rna,
    mod::rni, mod::rp, mod::rpi, mod::rs, mod::rz, mod::rzi, mod::sat, mod::satfinite, mod::wide;
using mod::NaN;
// Comparisons.
using mod::eq, mod::equ, mod::ge, mod::geu, mod::gt, mod::gtu, mod::le, mod::leu, mod::lt, mod::ltu, mod::nan,
    mod::ne, mod::neu, mod::num;
// Memory: order, scope, cache.
using mod::acq_rel, mod::acquire, mod::ca, mod::cg, mod::cluster, mod::cs, mod::cta, mod::cv, mod::gpu,
    mod::lu, mod::mmio, mod::nc, mod::relaxed, mod::release, mod::sc, mod::sys, mod::volatile_, mod::wb,
    mod::weak, mod::wt;
using evict_first = mod::L1_evict_first;
using evict_last = mod::L1_evict_last;
using evict_normal = mod::L1_evict_normal;
using evict_unchanged = mod::L1_evict_unchanged;
using no_allocate = mod::L1_no_allocate;
using mod::L1, mod::L2, mod::L2_128B, mod::L2_256B, mod::L2_64B, mod::L2_cache_hint, mod::L2_evict_first,
    mod::L2_evict_last, mod::L2_evict_normal;
// Warp operations.
using mod::all, mod::any, mod::ballot, mod::bfly, mod::down, mod::idx, mod::uni, mod::up;
using mod::b4e, mod::clamp, mod::ecl, mod::ecr, mod::f4e, mod::rc16, mod::rc8, mod::wrap;
using mod::cas, mod::dec, mod::exch, mod::inc;

/// Registers of one class share a prefix and one counter (a name never says two types).
enum class RegClass : std::uint8_t { pred, h, r, f, rd, fd, rq, b };
constexpr RegClass reg_class(ptx::Mod t, int bits) {
  if (t == ptx::Mod::pred) return RegClass::pred;
  if (t == ptx::Mod::f32) return RegClass::f;
  if (t == ptx::Mod::f64) return RegClass::fd;
  if (bits <= 8) return RegClass::b;  // true 8-bit registers: packed and unpacked by mov, converted by cvt
  if (bits <= 16) return RegClass::h;
  if (bits == 32) return RegClass::r;
  return bits == 64 ? RegClass::rd : RegClass::rq;
}

/// What the language knows about an element type.
enum class Kind : std::uint8_t { predicate, bits, unsigned_int, signed_int, floating, packed };
constexpr Kind kind_of(ptx::Mod t) {
  using enum ptx::Mod;
  switch (t) {
    case pred:
      return Kind::predicate;
    case u8:
    case u16:
    case u32:
    case u64:
      return Kind::unsigned_int;
    case s8:
    case s16:
    case s32:
    case s64:
      return Kind::signed_int;
    case f16:
    case bf16:
    case f32:
    case f64:
      return Kind::floating;
    case f16x2:
    case bf16x2:
    case f32x2:
      return Kind::packed;
    default:
      return Kind::bits;
  }
}

template <class T>
concept Element = requires {
  { T::mod } -> std::convertible_to<ptx::Mod>;
  T::bits;
}
&&(T::bits > 0);

template <Element T>
struct Elem {
  static constexpr ptx::Mod mod = T::mod;
  static constexpr int bits = T::bits;
  static constexpr int bytes = (T::bits + 7) / 8;  ///< in memory
  static constexpr Kind kind = kind_of(T::mod);
};

template <class T>
concept Unsigned = Element<T> && kind_of(T::mod)
== Kind::unsigned_int;
template <class T>
concept Signed = Element<T> && kind_of(T::mod)
== Kind::signed_int;
template <class T>
concept Integer = Unsigned<T> || Signed<T>;
template <class T>
concept Bits = Element<T> && kind_of(T::mod)
== Kind::bits;
template <class T>
concept Floating = Element<T> &&(kind_of(T::mod) == Kind::floating || kind_of(T::mod) == Kind::packed);
/// Has + - * in registers: no 8-bit arithmetic exists.
template <class T>
concept Arithmetic = (Integer<T> && T::bits >= 16) || Floating<T>;
/// Has & | ^ ~.
template <class T>
concept Logical = Element<T> &&
    ((Integer<T> && T::bits >= 16) || (Bits<T> && T::bits >= 16 && T::bits <= 64) ||
     kind_of(T::mod) == Kind::predicate);

/// "b32" for a type of 32 bits: what mov, shfl and the logic operations are typed with.
constexpr ptx::Mod bits_mod(int bits) {
  using enum ptx::Mod;
  return bits == 1 ? pred : bits <= 8 ? b8 : bits <= 16 ? b16 : bits == 32 ? b32 : bits == 64 ? b64 : b128;
}
/// The type a load or store is spelled with: half and 8-bit floats travel as bits.
constexpr ptx::Mod memory_mod(ptx::Mod t, int bits) {
  const Kind k = kind_of(t);
  const bool plain =
      k == Kind::unsigned_int || k == Kind::signed_int || t == ptx::Mod::f32 || t == ptx::Mod::f64;
  return plain ? t : bits_mod(bits);
}
template <int Bits>
struct BitsOf;
template <>
struct BitsOf<8> {
  using type = b8;
};
template <>
struct BitsOf<16> {
  using type = b16;
};
template <>
struct BitsOf<32> {
  using type = b32;
};
template <>
struct BitsOf<64> {
  using type = b64;
};
template <>
struct BitsOf<128> {
  using type = b128;
};

/// The modifiers of a list of tags, in the order written.
template <class... Tags>
ptx::Mods mods_of() {
  ptx::Mods m;
  (m.push_back(Tags::mod), ...);
  return m;
}
template <class Tag, class... Tags>
inline constexpr bool has_tag = (std::is_same_v<Tag, Tags> || ...);
template <class... Tags>
struct LastTag;
template <class T>
struct LastTag<T> {
  using type = T;
};
template <class A, class... R>
struct LastTag<A, R...> : LastTag<R...> {};

}  // namespace cgp::dsl

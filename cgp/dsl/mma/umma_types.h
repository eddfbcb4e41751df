// SPDX-License-Identifier: Apache-2.0
#pragma once
// What tcgen05.mma (sm_100a) multiplies, as types and constants: which elements make which kind, the legal
// shapes, and the 32-bit instruction descriptor, which is always derived from the operands' types.
//   TmemAcc<f32, 128, 256>            an accumulator in tensor memory, of one block
//   TmemAcc<f32, 256, 128, CtaPair>   of a pair of blocks: M = 256 rows over both
//   TmemOperand<bf16, 128, 64>        operand A in tensor memory
//   ScaleTile<ue8m0, 128, 4>          block scales in shared memory, TmemScales<...> in tensor memory
// PTX ISA, "Instruction descriptor" and "Matrix shape" of tcgen05.
#include <cstdint>

#include "cgp/dsl/memory/smem_descriptor.h"
#include "cgp/dsl/memory/tile.h"

namespace cgp::dsl {

using mod::e2m3, mod::e3m2, mod::ue4m3, mod::ue8m0;

/// Whose tensor memory an accumulator lies in. A kernel uses one of them throughout.
struct OneCta {
  static constexpr int ctas = 1;
};
/// Two neighbouring blocks (ranks 2i and 2i + 1 of a cluster); the even one leads and multiplies for both.
struct CtaPair {
  static constexpr int ctas = 2;
};

/// e2m1 stored one element per byte, as the kinds that mix 8-, 6- and 4-bit elements read it.
struct e2m1_padded {
  static constexpr ptx::Mod mod = ptx::Mod::e2m1;
  static constexpr int bits = 8;
};

enum class UmmaKind : std::uint8_t { f16, tf32, f8f6f4, i8, mxf8f6f4, mxf4, mxf4nvf4, none };

/// The instruction descriptor, as a value that knows its fields. M is the whole group's.
struct InstructionDescriptor {
  int d = 1;         ///< 0 f16, 1 f32, 2 s32
  int a = 0, b = 0;  ///< formats, whose meaning depends on the kind
  Major a_major = Major::k, b_major = Major::k;
  int m = 128, n = 128;
  bool saturate = false, negate_a = false, negate_b = false;
  bool scaled = false;                 ///< the block-scaled layout of the fields
  bool scale_ue8m0 = false;            ///< else ue4m3
  int scale_a_id = 0, scale_b_id = 0;  ///< byte of the scales' 32-bit columns

  constexpr std::uint32_t encode() const {
    const auto bit = [](bool v, int at) { return std::uint32_t(v) << at; };
    std::uint32_t r = std::uint32_t(a) << 7 | std::uint32_t(b) << 10 | bit(negate_a, 13) | bit(negate_b, 14) |
                      bit(a_major == Major::mn, 15) | bit(b_major == Major::mn, 16) |
                      std::uint32_t(n >> 3) << 17 | std::uint32_t(m >> 4) << 24;
    if (scaled)
      r |= std::uint32_t(scale_b_id) << 4 | bit(scale_ue8m0, 23) | std::uint32_t(scale_a_id) << 29;
    else
      r |= bit(saturate, 3) | std::uint32_t(d) << 4;
    return r;
  }
};

namespace record {
constexpr bool umma_8bit_float(ptx::Mod t) {
  using M = ptx::Mod;
  return t == M::e4m3 || t == M::e5m2 || t == M::e2m3 || t == M::e3m2 || t == M::e2m1;
}
/// The kind that multiplies elements a and b; `scale` is none without block scales.
constexpr UmmaKind umma_kind(ptx::Mod a, ptx::Mod b, ptx::Mod scale) {
  using M = ptx::Mod;
  if (scale == M::ue8m0 && umma_8bit_float(a) && umma_8bit_float(b)) return UmmaKind::mxf8f6f4;
  if (a == M::e2m1x2 && b == M::e2m1x2)
    return scale == M::ue8m0 ? UmmaKind::mxf4 : scale == M::ue4m3 ? UmmaKind::mxf4nvf4 : UmmaKind::none;
  if (scale != M::pred) return UmmaKind::none;
  if ((a == M::f16 || a == M::bf16) && a == b) return UmmaKind::f16;
  if (a == M::tf32 && b == a) return UmmaKind::tf32;
  if (umma_8bit_float(a) && umma_8bit_float(b)) return UmmaKind::f8f6f4;
  if ((a == M::s8 || a == M::u8) && (b == M::s8 || b == M::u8)) return UmmaKind::i8;
  return UmmaKind::none;
}
inline constexpr ptx::Mod kNoScale = ptx::Mod::pred;  ///< umma_kind without block scales

constexpr int umma_format(ptx::Mod t) {
  switch (t) {
    case ptx::Mod::bf16:
    case ptx::Mod::e5m2:
    case ptx::Mod::s8:
    case ptx::Mod::e2m1x2:
      return 1;
    case ptx::Mod::tf32:
      return 2;
    case ptx::Mod::e2m3:
      return 3;
    case ptx::Mod::e3m2:
      return 4;
    case ptx::Mod::e2m1:
      return 5;
    default:
      return 0;  // f16, e4m3, u8
  }
}

struct UmmaShape {
  ptx::Mod a, b, d;
  int m, n, ctas;
  Major a_major, b_major;
  bool a_in_tmem;
  ptx::Mod scale = kNoScale;
};
/// Why PTX has no such product; empty = it has.
constexpr const char* umma_reject(const UmmaShape& s) {
  using M = ptx::Mod;
  const UmmaKind kind = umma_kind(s.a, s.b, s.scale);
  if (kind == UmmaKind::none)
    return "umma multiplies f16, bf16, tf32, 8-, 6- and 4-bit floats (any mix), s8/u8, and with block scales "
           "e4m3 ... e2m1 by ue8m0 or e2m1x2 by ue8m0 or ue4m3";
  const bool bytes = kind == UmmaKind::f8f6f4 || kind == UmmaKind::i8;
  const auto full_byte = [](M t) { return t == M::e4m3 || t == M::e5m2 || t == M::s8 || t == M::u8; };
  const auto may_be_mn = [&](M t) {
    return kind == UmmaKind::f16 || ((bytes || kind == UmmaKind::mxf8f6f4) && full_byte(t));
  };
  if ((s.a_major == Major::mn && !may_be_mn(s.a)) || (s.b_major == Major::mn && !may_be_mn(s.b)))
    return "only 16-bit operands and full bytes may be MN-major";
  if (kind == UmmaKind::i8 ? s.d != M::s32
                           : s.d != M::f32 && !(s.d == M::f16 && (s.a == M::f16 || kind == UmmaKind::f8f6f4)))
    return "umma accumulates f32 (s32 for integers), or f16 for f16 and unscaled 8-bit float operands";
  if (s.scale != kNoScale && s.m != 128 * s.ctas)
    return "block-scaled products have 128 rows a block: M = 128, of a pair 256";
  if (s.ctas == 1 ? s.m != 64 && s.m != 128 : s.m != 128 && s.m != 256)
    return "M is 64 or 128, of a pair 128 or 256";
  const int step = s.ctas == 2 ? (s.a_in_tmem ? 32 : 16) : s.m == 64 && s.scale == kNoScale ? 8 : 16;
  if (s.n < step || s.n > 256 || s.n % step != 0)
    return "N is at most 256, in steps of 8 (M = 64), 16 (else), or 32 (a pair with A in tensor memory)";
  if (kind == UmmaKind::i8 && s.n % 16 != 0 && s.n != 8 && s.n != 24)
    return "8-bit integers have N = 8, 16, 24, 32 and then steps of 16";
  return "";
}
constexpr bool umma_legal(const UmmaShape& s) { return !umma_reject(s)[0]; }

constexpr InstructionDescriptor umma_descriptor(const UmmaShape& s) {
  InstructionDescriptor i;
  i.d = s.d == ptx::Mod::f16 ? 0 : s.d == ptx::Mod::s32 ? 2 : 1;
  i.a = umma_format(s.a), i.b = umma_format(s.b);
  i.a_major = s.a_major, i.b_major = s.b_major;
  i.m = s.m, i.n = s.n;
  i.scaled = s.scale != kNoScale;
  i.scale_ue8m0 = s.scale == ptx::Mod::ue8m0;
  return i;
}

/// The descriptor of tcgen05 differs from wgmma's in a constant and in the layout field, which is one bit
/// wider.
constexpr std::uint64_t umma_smem_descriptor(const SmemDescriptor& d) {
  return d.encode() | std::uint64_t(1) << 46;
}
}  // namespace record

/// M x N sums of element T in tensor memory; a 16-bit element still takes a 32-bit column.
template <class T, int M, int N, class Group = OneCta>
struct TmemAcc {
  static_assert(Group::ctas == 1 ? M == 64 || M == 128 : M == 128 || M == 256,
                "an accumulator has 64 or 128 rows, of a pair 128 or 256");
  static_assert(N >= 8 && N <= 256 && N % 8 == 0, "an accumulator has 8 to 256 columns in steps of 8");
  static_assert(std::is_same_v<T, f32> || std::is_same_v<T, f16> || std::is_same_v<T, s32>,
                "tensor cores accumulate f32, f16 or s32");
  using elem = T;
  using group = Group;
  static constexpr int rows = M, cols = N;
  static constexpr int block_rows = M / Group::ctas;  ///< of one block
  /// A pair's M = 128 leaves 64 rows a block: the second half of N goes to the upper lanes.
  static constexpr bool folded = Group::ctas == 2 && M == 128;
  static constexpr int columns = folded ? N / 2 : N;                       ///< of tensor memory
  static constexpr int warp_rows = M == 64 && Group::ctas == 1 ? 16 : 32;  ///< that one warp reads
};

/// Operand A in tensor memory: M rows of K elements, packed into 32-bit columns.
template <class T, int M, int K, class Group = OneCta>
struct TmemOperand {
  static_assert(M == 128, "operand A in tensor memory has 128 rows a block");
  static_assert(K * T::bits % 256 == 0, "K is whole instructions (32 bytes)");
  using elem = T;
  using group = Group;
  static constexpr int rows = M, cols = K, columns = K * T::bits / 32;
};

/// Block scales of Rows rows, Count scales each, in shared memory: blocks of 512 bytes for 128 rows x 4
/// scales (byte (r % 32) * 16 + r / 32 * 4 + k), along K first. As a tile for TMA: rows of 16 bytes.
template <class S, int Rows, int Count>
struct ScaleTile : Tile<S, Rows * Count / 16, 16, Swizzle::none> {
  static_assert(std::is_same_v<S, ue8m0> || std::is_same_v<S, ue4m3>, "block scales are ue8m0 or ue4m3");
  static_assert(Rows % 128 == 0 && Count % 4 == 0, "block scales come in blocks of 128 rows x 4 scales");
  using scale = S;
  static constexpr int scaled_rows = Rows, scales = Count;
};
/// The same in tensor memory: 4 columns for each block of 128 rows x 4 scales.
template <class S, int Rows, int Count, class Group = OneCta>
struct TmemScales {
  static_assert(Rows % 128 == 0 && Count % 4 == 0, "block scales come in blocks of 128 rows x 4 scales");
  using scale = S;
  using group = Group;
  static constexpr int scaled_rows = Rows, scales = Count, columns = Rows / 128 * Count;
};

/// `Slots` tiles of the same kind: one is read while the next is computed.
template <class TileT, int Slots>
struct TmemSlots {
  static_assert(Slots >= 1 && Slots * TileT::columns <= 512, "tensor memory has 512 columns");
  using tile = TileT;
  using group = typename TileT::group;
  static constexpr int slots = Slots, columns = Slots * TileT::columns;
};

}  // namespace cgp::dsl

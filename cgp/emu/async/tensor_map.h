// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tensor maps of the emulator: our own layout of the 128 opaque bytes that cuTensorMapEncodeTiled makes for a
// GPU, the limits that function has, and the addressing of one box. Enumerators have the values of cuda.h.
//
// Layout (little endian): 0 magic "cgpTMAP1" | 8 type, 9 rank, 10 interleave, 11 swizzle, 12 L2 promotion,
// 13 out-of-bounds fill | 16 global address u64 | 24 dims-1 u32[5] | 48 strides/16 u64[4] of dims 1.. |
// 80 box-1 u8[5] | 85 element strides-1 u8[5] | 90 im2col, 92 pixels u16, 94 lower s16[3], 100 upper s16[3] |
// the rest zero.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace cgp::emu {

enum class TensorMapType : std::uint8_t {
  u8,
  u16,
  u32,
  s32,
  u64,
  s64,
  f16,
  f32,
  f64,
  bf16,
  f32_ftz,
  tf32,
  tf32_ftz,
  u4_align8,
  u4_align16,
  u6_align16
};
enum class TensorMapInterleave : std::uint8_t { none, b16, b32 };
enum class TensorMapSwizzle : std::uint8_t {
  none,
  b32,
  b64,
  b128,
  b128_atom32,
  b128_atom32_flip8,
  b128_atom64
};
enum class TensorMapL2 : std::uint8_t { none, b64, b128, b256 };
enum class TensorMapFill : std::uint8_t { zeros, nan };

int bytes(TensorMapType t);

/// What tensormap.replace changes. Values are the instruction's: the rank less one, sizes in elements,
/// strides in bytes, and the PTX enumerations of element type, interleave, swizzle, swizzle atomicity and
/// fill.
enum class TensorMapField : std::uint8_t {
  global_address,
  rank,
  box,
  global_dim,
  global_stride,
  element_stride,
  type,
  interleave,
  swizzle,
  fill,
  swizzle_atom
};

struct TensorMap {
  static constexpr std::size_t kBytes = 128;
  TensorMapType type = TensorMapType::f32;
  int rank = 1;
  TensorMapInterleave interleave = TensorMapInterleave::none;
  TensorMapSwizzle swizzle = TensorMapSwizzle::none;
  TensorMapL2 l2 = TensorMapL2::none;
  TensorMapFill fill = TensorMapFill::zeros;
  std::uint64_t address = 0;
  std::array<std::uint64_t, 5> dims{1, 1, 1, 1, 1};     ///< elements, innermost first
  std::array<std::uint64_t, 5> strides{0, 0, 0, 0, 0};  ///< bytes; [0] is unused (dense)
  std::array<std::uint32_t, 5> box{1, 1, 1, 1, 1};      ///< elements
  std::array<std::uint32_t, 5> element_strides{1, 1, 1, 1, 1};
  /// im2col mode (cuTensorMapEncodeIm2col): dimensions are C, W, [H, [D,]] N; box[0] is the channels per
  /// pixel, and a column of `pixels` pixels walks the positions from `lower` to the last index + `upper`.
  bool im2col = false;
  std::uint32_t pixels = 0;
  std::array<int, 3> lower{}, upper{};

  /// Why cuTensorMapEncodeTiled refuses it, with the numbers; empty: legal.
  std::string reject() const;
  /// Throws ArgumentError with reject()'s sentence.
  std::array<std::byte, kBytes> encode() const;
  /// The map in 128 bytes; when they are not one (or illegal after tensormap.replace), `why` says so.
  static bool decode(std::span<const std::byte, kBytes> bytes, TensorMap& map, std::string& why);
  /// Writes one field in place. The result is judged when it is used; the answer is empty, or why there is no
  /// tensor map here or no such value.
  static std::string replace(std::span<std::byte, kBytes> bytes, TensorMapField field, int ordinal,
                             std::uint64_t value);

  /// Elements of the box along dimension d that exist: every element_strides[d]-th.
  std::uint32_t box_count(int d) const {
    const std::uint32_t s = d == 0 ? 1 : element_strides[std::size_t(d)];
    return (box[std::size_t(d)] + s - 1) / s;
  }
  /// What one load writes and credits to its mbarrier.
  std::uint64_t box_bytes() const;
};

/// Bits XORed of a shared-memory address: off ^= ((off >> 7) & (2^B - 1)) << 4, B = 1, 2, 3 for 32, 64, 128
/// B.
constexpr std::uint32_t swizzled(std::uint32_t address, int b) {
  return address ^ (((address >> 7) & ((1u << b) - 1)) << 4);
}
constexpr int swizzle_bits(TensorMapSwizzle s) {
  return s == TensorMapSwizzle::b32    ? 1
         : s == TensorMapSwizzle::b64  ? 2
         : s == TensorMapSwizzle::b128 ? 3
                                       : 0;
}

}  // namespace cgp::emu

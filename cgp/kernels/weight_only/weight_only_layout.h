// SPDX-License-Identifier: Apache-2.0
#pragma once
// How the product of quantised weights [n, k] has them in memory: the same bits as in the file, in the order in
// which the lanes of a warp feed them to mma.m16n8k16 and wgmma. The order is a permutation: packing and unpacking lose
// nothing, and the size is that of the file's (scales of K-quants take one byte instead of six bits).
//   tile      16 rows x 256 columns; tiles of a row of tiles lie one after the other; n is padded to 32 rows and k to
//             256 columns with weights of value 0
//   codes     unsigned integers q of `bits` bits; value = scale * (q - zero), or scale * q - min
//             or, of int4, scale * (q - zero of the group); of NF4, MXFP4 and IQ4_NL scale * table[q]
//   in a tile for each step of 64 columns: 32 lanes x 16 bytes of low nibbles (8 bits: twice that), then 32 lanes x 4
//             bytes for each higher bit (Q5, Q6: 1, 2, high_word()); then the scales of the tile, and the zeros of int4, a byte each
// Lane 4 g + c has of each 8 columns 2 c and 2 c + 1, of rows g and g + 8: the order of operand A of mma.m16n8k16, and, for
// the four warps of a warpgroup and four tiles, of wgmma's A in registers.
#include <cstdint>
#include <span>
#include <string_view>

namespace cgp::kernels {

/// Formats of weights: of GGUF files by their names, int4 of GPTQ and AWQ with groups of 32, 64 or 128 columns,
/// NF4 of bitsandbytes with blocks of 64.
enum class WeightFormat : std::uint8_t {
  q4_0,
  q8_0,
  q4_k,
  q5_k,
  q6_k,
  int4_g32,
  int4_g64,
  int4_g128,
  nf4,
  mxfp4,
  iq4_nl
};
inline constexpr std::string_view kWeightFormatNames[] = {
    "q4_0", "q8_0", "q4_k", "q5_k", "q6_k", "int4_g32", "int4_g64", "int4_g128", "nf4", "mxfp4", "iq4_nl"};
/// Those of GGUF files that a device packs too.
inline constexpr WeightFormat kWeightFormats[] = {WeightFormat::q4_0, WeightFormat::q8_0, WeightFormat::q4_k,
                                                  WeightFormat::q5_k, WeightFormat::q6_k};

/// 16 numbers that codes name. E2M1 and IQ4 are exact in f16 and bf16.
enum class WeightTable : std::uint8_t { none, nf4, e2m1, iq4 };

/// What of a format the kernel needs to know.
struct WeightLayout {
  std::string_view name;
  int bits;          ///< of a code
  int group;         ///< columns that share a scale
  bool super_scale;  ///< scale = d * an integer of 8 bits (K-quants); else scale = d of the group
  bool has_min;      ///< value = scale * q - dmin * an integer of 8 bits
  int zero;          ///< value = scale * (q - zero)
  int file_block,
      file_bytes;  ///< columns and bytes of a block in the file; bytes 0: codes and scales are separate
  bool has_zeros = false;                 ///< zero is an integer from 0 to 16 of each group and row
  WeightTable table = WeightTable::none;  ///< value = scale * one of its 16 numbers, rounded to x's type

  int high_bits() const { return bits == 8 ? 0 : bits - 4; }
  /// Of a lane's four runs of 8 codes (32 columns of a row) and their four pairs: which word of 64 columns has the high bits, and
  /// from which bit of its lower half (the pair's second code: of its upper half). The second of two pairs lies 4 bits behind the
  /// first, as its low bits do, so that one shift serves both.
  int high_word(int run) const { return run / (4 / high_bits()); }
  int high_bit(int run, int pair) const {
    const int each = 4 / high_bits(), unit = run % each * 2 + pair / 2;
    return unit / each * 8 + unit % each * high_bits() + pair % 2 * 4;
  }
  int step_words() const {
    return (bits == 8 ? 8 : 4) + high_bits();
  }  ///< 32-bit words of a lane for 64 columns
  /// Bytes of the scales of a tile: f16 of each group and row; or d (and dmin) of each row and bytes of each group.
  int scale_bytes() const {
    return super_scale ? 16 * ((has_min ? 4 : 2) + groups() * (has_min ? 2 : 1))
                       : 16 * groups() *
                             (wide_scales() ? 4
                              : has_zeros   ? 3
                                            : 2);
  }
  /// Numbers that a lane looks up: of E2M1 shifts make them.
  bool looked_up() const { return table == WeightTable::nf4 || table == WeightTable::iq4; }
  bool wide_scales() const {
    return table == WeightTable::nf4;
  }                                                     ///< f32; of E2M1 the upper half of one, else f16
  int groups() const { return 256 / group; }            ///< of a row of a tile
  int part() const { return group < 32 ? group : 32; }  ///< columns whose x is added up
  int parts() const { return 256 / part(); }            ///< of a row of a tile
  int loaded_columns() const {
    return group > 32 && !wide_scales() ? 256 : 128;
  }  ///< whose scales a lane reads at once
  int tile_bytes() const { return 4 * 32 * 4 * step_words() + scale_bytes(); }
};
const WeightLayout& layout(WeightFormat f);

/// Bytes of packed weights [n, k].
std::uint64_t packed_bytes(WeightFormat f, std::uint64_t n, std::uint64_t k);
/// `file`: n rows of k / file_block blocks. ArgumentError when sizes do not fit; int4: weight_only_tensors.h.
void pack_weights(WeightFormat f, std::uint64_t n, std::uint64_t k, std::span<const std::byte> file,
                  std::span<std::byte> packed);

}  // namespace cgp::kernels

// SPDX-License-Identifier: Apache-2.0
#pragma once
// The two descriptors of tcgen05.mma: the 32-bit instruction descriptor (types, shape, options; PTX ISA
// 9.7.16.4.2) and the 64-bit shared-memory descriptor in the form of sm_100 (9.7.16.4.1).
#include <cstdint>
#include <string>

#include "cgp/emu/async/tensor_map.h"
#include "cgp/ptx/module.h"

namespace cgp::emu {

enum class MmaKind : std::uint8_t { f16, tf32, f8f6f4, i8, mxf8f6f4, mxf4, mxf4nvf4 };
constexpr bool is_block_scaled(MmaKind k) { return k >= MmaKind::mxf8f6f4; }
std::string_view name(MmaKind k);

struct InstructionDescriptor {
  ptx::Mod a{}, b{}, d{};  ///< element types
  int m = 0, n = 0, k = 0;
  bool sparse = false, saturate = false, negate_a = false, negate_b = false;
  bool a_mn_major = false, b_mn_major = false;
  int sparse_id = 0, sfa_id = 0, sfb_id = 0;
  bool ue8m0 = false;  ///< type of the scale factors, else ue4m3
  int max_shift = 0;   ///< .ws: the largest column shift announced for B
};

/// How the instruction is written, as far as the descriptor must agree with it.
struct MmaForm {
  MmaKind kind = MmaKind::f16;
  int group = 1;
  bool weight_stationary = false, sparse = false, a_in_tensor = false;
  int scale_vector = 0;  ///< scale factors of 32 bytes of K: 1, 2 or 4 (.scale_vec::NX); 0: none
};

/// Fills `d`; returns an empty string, or which bits are wrong and what is legal.
std::string decode_instruction_descriptor(std::uint32_t bits, const MmaForm& form, InstructionDescriptor& d);

/// The zero-column mask of tcgen05.mma.ws (9.7.16.4.3): columns of B that count as zeros whatever they hold,
/// and the column that B starts with. The text calls the spans the other way round than its examples; these
/// follow the examples: `Use Span` + 1 columns of B, then `Skip Span` + 1 of zeros.
class ColumnMask {
 public:
  /// Returns an empty string, or what is wrong.
  static std::string decode(std::uint64_t bits, const InstructionDescriptor& d, ColumnMask& m);
  /// The column of B in shared memory that column `n` takes.
  int source(int n) const { return n + shift_; }
  bool zero(int n) const;

 private:
  std::uint64_t bits_ = 0;
  int shift_ = 0, columns_ = 1;  ///< columns of a sub-mask
};

/// Where an operand's elements are in shared memory. Offsets are within the CTA's shared memory.
struct MatrixDescriptor {
  std::uint32_t start = 0, leading = 0, stride = 0;  ///< bytes
  int swizzle_bits = 0;                              ///< 0 none, 1, 2, 3 for 32, 64, 128 bytes
  bool atom32 = false;                               ///< 128-byte swizzle of 32-byte pieces

  /// Returns an empty string, or what is wrong.
  static std::string decode(std::uint64_t bits, MatrixDescriptor& d);
  /// What is wrong with the bits that are the same in all descriptors: of no consequence for where elements
  /// are, and left 0 by compilers (Triton up to 3.5) whose kernels run.
  static std::string wrong_constant(std::uint64_t bits);

  std::uint32_t span() const { return atom32 ? 128u : 16u << swizzle_bits; }
  std::uint32_t permute(std::uint32_t address) const {
    return atom32 ? address ^ (((address >> 7) & 3) << 5) : swizzled(address, swizzle_bits);
  }
  /// K-major operand: byte `b` along K (within the instruction) of row `row` (of M or N).
  std::uint32_t k_major(std::uint32_t row, std::uint32_t b) const {
    if (span() == 16) return start + row / 8 * stride + row % 8 * 16 + b / 16 * leading + b % 16;
    return permute(start + row / 8 * stride + row % 8 * span() + b);
  }
  /// MN-major operand: row `k`, byte `b` along M or N.
  std::uint32_t mn_major(std::uint32_t k, std::uint32_t b) const {
    if (span() == 16) return start + b / 16 * stride + b % 16 + k / 8 * leading + k % 8 * 16;
    const std::uint32_t rows = atom32 ? 4 : 8;
    return permute(start + b / span() * leading + b % span() + k / rows * stride + k % rows * span());
  }
};

}  // namespace cgp::emu

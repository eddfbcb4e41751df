// SPDX-License-Identifier: Apache-2.0
#pragma once
// mma.sync and wmma.mma decoded: the registers of each fragment and where their elements go in the arrays of
// tensor_core.h. The arrays hold the transposed problem (rows = n, columns = m): m is the longer side of most
// shapes and columns are what the vector code runs along.
#include <vector>

#include "cgp/emu/core/machine.h"
#include "cgp/emu/tensor/tensor_core.h"

namespace cgp::emu {

struct Shape {
  int m = 0, n = 0, k = 0;
};
/// .rn .rz .rm .rp among the modifiers.
Round matrix_rounding(const ptx::Inst& i);
/// "m16n8k16" among the modifiers; calls d.unsupported when there is none.
Shape matrix_shape(Decoder& d, const ptx::Inst& i);

enum class MatrixKind : std::uint8_t { floating, integer, bits, f64 };

struct MatrixPlan {
  Shape shape;
  MatrixKind kind = MatrixKind::floating;
  ptx::Mod a_type{}, b_type{};
  Round rounding = Round::rn;  ///< of f64
  bool f16_c = false, f16_d = false, saturate = false;
  BitOperation bit_operation = BitOperation::xor_popc;
  int k_cells = 0;                              ///< k, or k / 32 words for b1
  int a_elements = 1, b_elements = 1;           ///< per register
  std::vector<Loc> a, b, c, d;                  ///< registers in fragment order
  std::vector<std::uint16_t> a_at, b_at, d_at;  ///< [register][lane][element] -> index in the array
  /// sm_120: 4- and 6-bit elements of kind::f8f6f4 and kind::mxf8f6f4 lie in bytes, e2m1 in bits 2 to 5.
  bool in_bytes = false;
  /// Block-scaled kinds: scales per row of A and column of B; 0 without. Their registers, and byte and thread
  /// that hold them: {byte of a, thread of a, byte of b, thread of b}.
  int scale_blocks = 0;
  bool ue8m0 = false, four_bit_kind = false;
  Loc scale_a = kNoLoc, scale_b = kNoLoc;
  std::array<Loc, 4> scale_ids{};
  int element_bits() const { return in_bytes ? 8 : ptx::type_bits(a_type); }
  bool sparse = false;  ///< A is stored as its half; `metadata` and `selector` say which
  Loc metadata = kNoLoc;
  int selector = 0;
  FusedRule rule[5];  ///< by Generation
};

/// Fills kind, types, k_cells, the index arrays and the rules; the register lists are the caller's.
void plan_matrix(Decoder& d, MatrixPlan& p, ptx::Mod type_d, ptx::Mod type_a, ptx::Mod type_b,
                 ptx::Mod type_c);
/// Registers that each operand of the plan needs.
struct FragmentSizes {
  int a = 0, b = 0, c = 0, d = 0;
};
FragmentSizes fragment_sizes(const MatrixPlan& p);

/// D = A*B + C on the registers of one warp.
void run_matrix(Warp& w, const MatrixPlan& p);
/// The generation of the device that runs this warp.
Generation generation_of(const Warp& w);
/// Options::fast_matrix of the launch.
MatrixPrecision precision_of(const Warp& w);
/// Scratch of this host thread.
MatrixOperands& matrix_scratch();
/// Reports an instruction that needs all 32 lanes of a warp and has fewer. True if it may go on.
bool need_full_warp(Warp& w, const Op& op);

}  // namespace cgp::emu

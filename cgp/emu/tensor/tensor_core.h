// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a tensor core computes, to the bit: D = A*B + C of one mma.sync or wgmma instruction on plain arrays.
// The floating-point rule (one fused sum, every term cut towards zero at F bits below the largest term) was
// checked bit for bit on an H200 for Hopper; other generations follow the published models of the same units
// (Fasi et al. 2021; Khattak and Mikaitis 2025). Who owns which element of a fragment is in fragments.h.
#include <cstdint>
#include <string_view>
#include <vector>

#include "cgp/emu/core/rounding.h"
#include "cgp/ptx/module.h"

namespace cgp::emu {

enum class Generation : std::uint8_t { turing, ampere, ada, hopper, blackwell };
/// From ".target": sm_75 turing, sm_80..87 ampere, sm_89 ada, sm_90* hopper, sm_100 and later blackwell.
Generation generation_of(std::string_view target);

enum class MatrixUnit : std::uint8_t { mma, wgmma };

/// How the unit adds the products of one instruction.
struct FusedRule {
  int fraction_bits = 25;  ///< F: bits kept below the exponent of the largest term
  int mantissa_bits = 23;  ///< of an f32 result (cut towards zero)
  int step = 16;           ///< products per fused sum; a longer K is a chain of sums
  /// sm_90's mma.sync on 8-bit floats: two f16 accumulators from zero, then C added in f32.
  bool widened_fp8 = false;
  int widened_run = 2;  ///< neighbours along K that stay in one of the two accumulators; 4 when A is sparse
  bool f16_result = false;  ///< every sum is rounded to nearest even to f16
  friend bool operator==(const FusedRule&, const FusedRule&) = default;
};
/// `element` is the type of A (f16, bf16, tf32, e4m3, e5m2); throws Unsupported for others.
FusedRule fused_rule(MatrixUnit unit, ptx::Mod element, Generation generation, bool f16_result);

/// `exact` is the unit's arithmetic; `f32` is plain single-precision fma in k order, faster and closer to a
/// reference but not what a card returns.
enum class MatrixPrecision : std::uint8_t { exact, f32 };

/// Exponents that mark operands outside the numbers; sums of two of them stay apart from real exponents.
inline constexpr int kZeroExponent = -7000, kSpecialExponent = 15000;

/// Decoded operands of one instruction. A is [rows][k]; B is [k][padded columns] so that one vector holds
/// neighbouring columns. A value is stored as f32 and as the exponent of its significand (subnormals keep the
/// format's lowest one).
class MatrixOperands {
 public:
  /// Sets the shape and clears nothing; columns are padded to a multiple of 16 with zeros.
  void resize(int rows, int columns, int k);
  int rows() const { return rows_; }
  int columns() const { return columns_; }
  int padded_columns() const { return padded_; }
  int k() const { return k_; }

  /// Bits of one element (low bits of `bits`), row-major A [row][k] and B [k][column].
  std::uint32_t& a_bits(int row, int k) { return a_bits_[std::size_t(row * k_ + k)]; }
  std::uint32_t& b_bits(int k, int column) { return b_bits_[std::size_t(k * padded_ + column)]; }
  /// Accumulator: C before, D after. f16 accumulators are held as the f32 of the same value.
  float& d(int row, int column) { return d_[std::size_t(row * padded_ + column)]; }
  std::int32_t& d_int(int row, int column) { return d_int_[std::size_t(row * padded_ + column)]; }
  double& d_f64(int row, int column) { return d_f64_[std::size_t(row * padded_ + column)]; }

  // The same arrays whole, for precomputed indices.
  std::uint32_t* a_data() { return a_bits_.data(); }
  std::uint32_t* b_data() { return b_bits_.data(); }
  float* d_data() { return d_.data(); }
  std::int32_t* d_int_data() { return d_int_.data(); }
  std::uint64_t* a_data64() { return a_wide_.data(); }
  std::uint64_t* b_data64() { return b_wide_.data(); }
  double* d_data64() { return d_f64_.data(); }

 private:
  friend class MatrixCore;
  int rows_ = 0, columns_ = 0, padded_ = 0, k_ = 0;
  std::vector<std::uint32_t> a_bits_, b_bits_;
  std::vector<float> a_, b_, d_;
  std::vector<std::int16_t> b_exponent_;
  std::vector<std::int32_t> a_exponent_;  // twice in one word, so that a word broadcast fills 16-bit lanes
  std::vector<std::int32_t> d_int_;
  std::vector<double> d_f64_;
  std::vector<std::uint64_t> a_wide_, b_wide_;

 public:
  /// 64-bit elements (f64), same indexing.
  std::uint64_t& a_bits64(int row, int k) { return a_wide_[std::size_t(row * k_ + k)]; }
  std::uint64_t& b_bits64(int k, int column) { return b_wide_[std::size_t(k * padded_ + column)]; }
  void use_wide();
};

enum class BitOperation : std::uint8_t { and_popc, xor_popc };

/// The arithmetic of one instruction; operands come from MatrixOperands and results go back there.
class MatrixCore {
 public:
  /// Floating point with f32 or f16 accumulation. `scale_a`/`scale_b` are wgmma's +1/-1.
  static void multiply(MatrixOperands& m, ptx::Mod a, ptx::Mod b, const FusedRule& rule,
                       MatrixPrecision precision, int scale_a = 1, int scale_b = 1);
  /// The same when one operand was stored as its half: `present` marks its elements that exist, laid out like
  /// them ([row][k] of A when `sparse_a`, else [k][padded column] of B); the others are zero. They meet no
  /// element of the other operand, so that 0 * infinity does not arise.
  static void multiply_sparse(MatrixOperands& m, ptx::Mod a, ptx::Mod b, const FusedRule& rule,
                              MatrixPrecision precision, const std::uint8_t* present, bool sparse_a,
                              int scale_a = 1, int scale_b = 1);
  /// s8 u8 s4 u4 (mixed signs allowed) into s32; `saturate` clamps the final sum.
  static void multiply_int(MatrixOperands& m, ptx::Mod a, ptx::Mod b, bool saturate);
  /// b1: k() counts 32-bit words of 32 bits each.
  static void multiply_bits(MatrixOperands& m, BitOperation operation);
  /// f64: IEEE fma chain in k order; rn, rz, rm or rp.
  static void multiply_f64(MatrixOperands& m, Round rounding = Round::rn);
  /// Name of the vector code in use ("avx512" or "portable"), and a switch for tests.
  static std::string_view vector_code();
  static void use_portable(bool on);
};

/// Decodes one operand element: its value (tf32 ignores the low 13 bits) and exponent class.
struct Decoded {
  float value;
  int exponent;
};
Decoded decode_element(ptx::Mod type, std::uint32_t bits);

/// The fused sum for one output, term by term in 64-bit integers: any exponents, infinities and NaN.
/// `value`/`exponent` as in MatrixOperands; a has stride 1, b has stride `b_stride`.
float fused_sum(const float* a, const std::int32_t* a_exponent, const float* b,
                const std::int16_t* b_exponent, int b_stride, int k, float c, const FusedRule& rule);

}  // namespace cgp::emu

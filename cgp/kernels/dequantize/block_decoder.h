// SPDX-License-Identifier: Apache-2.0
#pragma once
// Eight consecutive elements of a quantised block in registers, in the arithmetic of cgp/quant/decode.cpp: products and
// sums are rounded one by one, so no multiplication is fused.
#include <vector>

#include "cgp/dsl/kernel.h"
#include "cgp/quant/formats.h"

namespace cgp::kernels::dequantize_code {

using Word = dsl::Val<dsl::u32>;
using Number = dsl::Val<dsl::f32>;
using Eight = std::vector<Number>;

/// Bytes at a pointer whose alignment is known.
class Bytes {
 public:
  /// align: of the address, in bytes.
  Bytes(const dsl::In<dsl::b8>& at, int align) : at_(at), align_(align) {}
  Word u8(const Word& more, int at) const;
  /// `more` is a multiple of `unit`.
  Word u16(const Word& more, int at, int unit) const;
  std::vector<Word> words(int count, const Word& more, int at, int unit) const;

 private:
  dsl::In<dsl::b8> at_;
  int align_;
};

/// x - zero, both below 2^23; zero is a whole number.
Number number(const Word& x, float zero = 0);
/// The same for byte i of `codes`.
Number number_of_byte(const Word& codes, int i, float zero = 0);
Number from_half(const Word& bits);
/// A byte of E4M3 or E5M2.
Number from_e4m3(const Word& byte);
Number from_e5m2(const Word& byte);
/// v, negative where bit i of signs is set.
Number with_sign(const Number& v, const Word& signs, int i);
Number product(const Number& a, const Number& b);
Number sum(const Number& a, const Number& b);

/// Elements e to e + 7 of a block; e is a multiple of 8. The scales that were read are added to `scales`: finite if the
/// block is well formed.
Eight decode_eight(dsl::Kernel& k, quant::Format f, const Bytes& block, const Word& e,
                   std::vector<Number>& scales);

/// The 16 values of NF4 in shared memory: all threads of the block call it, and wait behind it.
dsl::Ptr<dsl::shared, dsl::f32> nf4_table(dsl::Kernel& k);
/// Of eight codes, high nibble of each byte first.
Eight nf4_values(const dsl::Ptr<dsl::shared, dsl::f32>& table, const Word& codes, const Number& absmax);

}  // namespace cgp::kernels::dequantize_code

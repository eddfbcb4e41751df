// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a pure instruction gives for constant operands, to the bit, or nothing: division by zero, overflowing
// conversions and everything with a NaN in it are left to the machine.
#include <cstdint>
#include <functional>
#include <optional>

#include "cgp/ptx/module.h"

namespace cgp::ptx::passes {

/// Bits of a source operand (of a predicate: 0 or 1, before the operand's own `negated`), or nothing.
using OperandValue = std::function<std::optional<std::uint64_t>(const Operand&)>;

/// The value of the first operand after the instruction, zero-extended from the width of its result.
std::optional<std::uint64_t> evaluate(const Inst& i, const OperandValue& value);
/// Bits of the result that evaluate() gives: 1 for predicates, 2 x the type's for mul.wide; 0 when unknown.
int result_bits(const Inst& i);

constexpr std::uint64_t low_bits(std::uint64_t v, int bits) {
  return bits >= 64 ? v : v & ((1ull << bits) - 1);
}
constexpr std::int64_t sign_extend(std::uint64_t v, int bits) {
  return std::int64_t(v << (64 - bits)) >> (64 - bits);
}

}  // namespace cgp::ptx::passes

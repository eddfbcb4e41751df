// SPDX-License-Identifier: Apache-2.0
#pragma once
// Integer instructions on numbers. Values are 64-bit patterns; a register of fewer bits is sign-extended.
#include <cstdint>
#include <optional>
#include <vector>

#include "cgp/ptx/module.h"

namespace cgp::ptx::exact {

/// The value as the type reads it: sign- or zero-extended from its bits.
std::int64_t extend(std::int64_t v, Mod type);
bool is_relation(Mod m);
/// eq ne lt le gt ge, and lo ls hi hs.
bool relate(Mod relation, std::int64_t a, std::int64_t b, bool is_signed);
/// Whether compute() knows the instruction: integers only, one result, no carry.
bool computes(const Inst& i);
/// The result for these operands (the destination apart), sign-extended from the result's bits. Absent where
/// the ISA leaves it open (division by zero).
std::optional<std::int64_t> compute(const Inst& i, const std::vector<std::int64_t>& in);

}  // namespace cgp::ptx::exact

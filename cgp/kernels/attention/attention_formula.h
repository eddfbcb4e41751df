// SPDX-License-Identifier: Apache-2.0
#pragma once
// A score modification from text, for callers that have no C++ compiler: the formula is recorded like a
// lambda, and its derivative from what it records.
//   numbers    score, b, h, q, k (batch, head, query, key: exact up to 2^24), inf, literals
//   operators  + - * / (to 2 units in the last place) // % (which round down) and unary -; < <= > >= == !=;
//              and, or, not
//   functions  abs floor exp log sqrt sin cos tanh sigmoid (one argument), min max (two), where(condition,
//              this, that)
//   data[i, j] an element of the caller's f32 array, an index for each of its dimensions; clamped to it
// For example "where(data[b, q] == data[b, k], 30 * tanh(score / 30), -inf)".
#include <cstdint>
#include <span>
#include <string_view>

#include "cgp/kernels/attention/attention.h"

namespace cgp::kernels {

/// `data_shape`: of the dense array behind AttentionAddresses::data, empty: there is none. A kernel is built
/// for each pair of the two. ArgumentError names the place where the formula makes no sense.
ScoreModification score_formula(std::string_view formula, std::span<const std::uint64_t> data_shape = {});

}  // namespace cgp::kernels

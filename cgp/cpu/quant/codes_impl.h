// SPDX-License-Identifier: Apache-2.0
#pragma once
// The codes in a block, one by one.
#include "cgp/cpu/quant/gemv_impl.h"

namespace cgp::cpu {
namespace {

/// Of element e of sub-block s.
[[maybe_unused]] int code(const BlockQ4K& b, int s, int e) {
  return b.qs[32 * (s / 2) + e] >> (4 * (s % 2)) & 15;
}
[[maybe_unused]] int code(const BlockQ5K& b, int s, int e) {
  return (b.qs[32 * (s / 2) + e] >> (4 * (s % 2)) & 15) + 16 * (b.qh[e] >> s & 1);
}
/// Here s counts runs of 32 elements.
[[maybe_unused]] int code(const BlockQ6K& b, int s, int e) {
  const int h = s / 4, t = s % 4;
  return (b.ql[64 * h + 32 * (t % 2) + e] >> (4 * (t / 2)) & 15) | (b.qh[32 * h + e] >> (2 * t) & 3) << 4;
}

}  // namespace
}  // namespace cgp::cpu

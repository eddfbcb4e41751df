// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a version of gemm consists of. Sources for an instruction set include nothing else of ours, and
// nothing of the standard library but <cstdint>.
#include <cstdint>

namespace cgp::cpu::gemm_versions {

/// c (rows x columns, both at most the tile's) = alpha * a b + beta * c, where a holds `mr` rows for each of
/// k steps and b `nr` columns every `b_stride` floats. With beta 0 c is not read.
using Kernel = void (*)(std::int64_t k, const float* a, const float* b, std::int64_t b_stride, float alpha,
                        float beta, float* c, std::int64_t ldc, std::int64_t columns, const float* ahead);

/// Writes a panel: for each of k steps `width` elements, of which the first `count` come from the source and
/// the others are 0. The element of line i and step p is source[i * ld + p] if `steps_contiguous`, else
/// source[p * ld + i].
using Pack = void (*)(bool steps_contiguous, const float* source, std::int64_t ld, std::int64_t count,
                      std::int64_t k, float* panel);

inline constexpr int kMostRows = 14;

struct Version {
  int mr, nr, lanes, registers, operands;
  Kernel kernel[kMostRows + 1];  ///< by rows, from 1 to mr
  Pack pack_a, pack_b;
};
extern const Version scalar, avx2, avx512;

}  // namespace cgp::cpu::gemm_versions

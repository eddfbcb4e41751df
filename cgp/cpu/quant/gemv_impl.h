// SPDX-License-Identifier: Apache-2.0
#pragma once
// Products of one row, by format. Sources for an instruction set include nothing of the standard library but
// <cstdint>.
#include <cstdint>

#include "cgp/quant/blocks.h"

namespace cgp::cpu {
using quant::BlockNf4, quant::BlockQ4K, quant::BlockQ5K, quant::BlockQ6K, quant::BlockQ80, quant::BlockQ8K,
    quant::kNf4, quant::PackedScales, quant::scales_of;
}

namespace cgp::cpu::quant_versions {

/// `sums[j]` is the sum of x[16j .. 16j+15].
using DotF32 = float (*)(const void* row, std::int64_t blocks, const float* x, const float* sums);
/// Exactly: q8_k(row, blocks, x): a and b start at 0; for each block, with integers A = sum over sub-blocks
/// of 16 of scale * (q . x) and B = sum of offset * bsums, a += (d * x.d) * float(A), b += (dmin * x.d) *
/// float(B), each operation rounded; a - b. Offsets are the mins, or 32 * scale with dmin = d.
using DotQ8K = float (*)(const void* row, std::int64_t blocks, const BlockQ8K* x);
/// Exactly: lane l of 8 sums (d * x.d) * float(q[4l..] . x[4l..]) over the blocks; then lanes l and l+4 are
/// added, of these 0 and 2, 1 and 3, and those two.
using DotQ80 = float (*)(const void* row, std::int64_t blocks, const BlockQ80* x);

struct Version {
  DotF32 f32[5];  ///< by QuantType
  DotQ8K q8k[3];
  DotQ80 q80;
};
extern const Version scalar, avx2, avx512;  ///< avx512: the integer products need VNNI

}  // namespace cgp::cpu::quant_versions

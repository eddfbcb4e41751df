// SPDX-License-Identifier: Apache-2.0
#pragma once
// The versions of loops.h. A source that is compiled for an instruction set includes nothing whose inline
// functions the linker might keep for everybody: no standard library beyond <cstddef> and <cstdint>.
#include <cstddef>

namespace cgp::cpu {
struct Loops;
namespace loops_versions {
extern const Loops scalar, sse2, avx2, avx512;
}
}  // namespace cgp::cpu

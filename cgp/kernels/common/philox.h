// SPDX-License-Identifier: Apache-2.0
#pragma once
// Philox4x32-10 on the device (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): key seed, counter
// (block, offset), low halves first.
#include <vector>

#include "cgp/dsl/core/arith.h"
#include "cgp/dsl/core/convert.h"

namespace cgp::kernels {

inline std::vector<dsl::Val<dsl::u32>> philox(const dsl::Val<dsl::u64>& block, const dsl::Val<dsl::u64>& seed,
                                              const dsl::Val<dsl::u64>& offset) {
  using namespace dsl;
  std::vector<Val<u32>> c{to<u32>(block), to<u32>(block >> 32), to<u32>(offset), to<u32>(offset >> 32)};
  const auto low = to<u32>(seed), high = to<u32>(seed >> 32);
  for (std::uint32_t round = 0; round < 10; ++round) {
    const auto k0 = low + round * 0x9e3779b9u, k1 = high + round * 0xbb67ae85u;
    const auto a_high = mul<hi>(c[0], 0xd2511f53u), a_low = c[0] * 0xd2511f53u;
    const auto b_high = mul<hi>(c[2], 0xcd9e8d57u), b_low = c[2] * 0xcd9e8d57u;
    std::vector<Val<u32>> next{b_high ^ c[1] ^ k0, b_low, a_high ^ c[3] ^ k1, a_low};
    c.swap(next);
  }
  return c;
}

}  // namespace cgp::kernels

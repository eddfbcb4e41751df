// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the host must encode in the CUtensorMap behind a TmaIn or TmaOut parameter. Everything else (address,
// extents, strides) belongs to the tensor that is passed.
#include <array>
#include <cstdint>

#include "cgp/dsl/memory/swizzle.h"
#include "cgp/ptx/module.h"

namespace cgp::dsl {

struct TensorMapSchema {
  ptx::Mod element = ptx::Mod::b8;     ///< of the tile (e4m3, tf32, s8, ...); b8 when it is no parameter
  int rank = 0;                        ///< 1 to 5
  std::array<std::uint32_t, 5> box{};  ///< elements of one copy, innermost first; no interleave, dense
  Swizzle swizzle = Swizzle::none;     ///< b16 and none both mean SWIZZLE_NONE
  friend bool operator==(const TensorMapSchema&, const TensorMapSchema&) = default;
};

}  // namespace cgp::dsl

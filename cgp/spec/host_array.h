// SPDX-License-Identifier: Apache-2.0
#pragma once
// A typed array on the host: what files hold, what generators make and what comparisons read.
#include <cstdint>
#include <string>
#include <vector>

#include "cgp/base/dtype.h"

namespace cgp::spec {

struct HostArray {
  DType dtype = DType::f32;
  std::vector<std::uint64_t> shape;  ///< row-major; empty is a scalar (one element)
  std::vector<std::uint8_t> bytes;   ///< count() * bytes(dtype), little-endian

  std::uint64_t count() const { return bytes.size() / std::uint64_t(cgp::bytes(dtype)); }
};

}  // namespace cgp::spec

// SPDX-License-Identifier: Apache-2.0
#include "cgp/emu/async/tensor_map.h"

#include <algorithm>
#include <cstring>

#include "cgp/runtime/emu_device_impl.h"

namespace cgp::runtime {

// The enumerators on both sides have the driver's values.
TensorMap EmuBackend::encode(const TensorMapSpec& s, std::uint64_t address) {
  emu::TensorMap m;
  m.type = emu::TensorMapType(s.type);
  m.rank = int(s.rank());
  m.interleave = emu::TensorMapInterleave(s.interleave);
  m.swizzle = emu::TensorMapSwizzle(s.swizzle);
  m.l2 = emu::TensorMapL2(s.l2);
  m.fill = emu::TensorMapFill(s.oob);
  m.address = address;
  std::copy(s.dims.begin(), s.dims.end(), m.dims.begin());
  std::copy(s.box.begin(), s.box.end(), m.box.begin());
  std::copy(s.element_strides.begin(), s.element_strides.end(), m.element_strides.begin());
  std::uint64_t inner = s.dims[0] * std::uint64_t(bytes(s.type));
  for (std::size_t i = 1; i < s.rank(); ++i) {
    m.strides[i] = s.strides.empty() ? inner : s.strides[i - 1];
    inner = m.strides[i] * s.dims[i];
  }
  const auto bits = m.encode();
  TensorMap out;
  static_assert(sizeof out.words == sizeof bits);
  std::memcpy(out.words, bits.data(), sizeof bits);
  return out;
}

}  // namespace cgp::runtime

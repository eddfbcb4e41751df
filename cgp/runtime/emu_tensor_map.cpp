// SPDX-License-Identifier: Apache-2.0
#include "cgp/runtime/emu_device_impl.h"
namespace cgp::runtime {
TensorMap EmuBackend::encode(const TensorMapSpec&, std::uint64_t) {
  throw Unsupported("the emulator has no tensor maps");
}
}  // namespace cgp::runtime

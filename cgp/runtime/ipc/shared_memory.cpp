// SPDX-License-Identifier: Apache-2.0
#include "cgp/runtime/ipc/shared_memory.h"

#include <utility>

#include "cgp/base/error.h"
#include "cgp/runtime/backend_impl.h"

namespace cgp::runtime {
namespace {
Backend& shared_backend(const Device& d) {
  if (!d) throw ArgumentError("shared memory belongs to a device, and none was given");
  return *d.backend();
}
}  // namespace

SharedMemory share(const Device& device, std::uint64_t address) {
  return shared_backend(device).share(address);
}

OpenedMemory::OpenedMemory(const Device& device, const SharedMemory& memory)
    : device_(device), memory_(memory), address_(shared_backend(device).open_shared(memory)) {}
OpenedMemory::OpenedMemory(OpenedMemory&& o) noexcept
    : device_(o.device_), memory_(o.memory_), address_(std::exchange(o.address_, 0)) {}
OpenedMemory::~OpenedMemory() {
  if (address_) device_.backend()->close_shared(address_, memory_);
}

}  // namespace cgp::runtime

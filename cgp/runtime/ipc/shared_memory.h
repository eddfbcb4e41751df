// SPDX-License-Identifier: Apache-2.0
#pragma once
// Memory of a GPU that several processes of one host use (CUDA IPC). Who owns it shares it and sends the result to the others, which
// open it:
//   SharedMemory mine = share(device, buffer.address());       owner
//   OpenedMemory theirs(device, mine);                         another process; theirs.address() is for its kernels
// The owner frees the memory after the others have closed it.
#include <array>
#include <cstddef>
#include <cstdint>

#include "cgp/runtime/device.h"

namespace cgp::runtime {

/// Plain bytes, to be sent to another process.
struct SharedMemory {
  std::array<std::byte, 64> handle{};  ///< CUipcMemHandle of the allocation
  std::uint64_t offset = 0;            ///< of the address in it
};
/// `address`: of memory that `device` allocated. Throws Unsupported for a device without CUDA.
SharedMemory share(const Device& device, std::uint64_t address);

class OpenedMemory {
 public:
  /// Throws DriverError for a handle of this process, and where the owner has gone.
  OpenedMemory(const Device& device, const SharedMemory& memory);
  ~OpenedMemory();
  OpenedMemory(OpenedMemory&& o) noexcept;
  OpenedMemory& operator=(OpenedMemory&&) = delete;
  std::uint64_t address() const { return address_; }

 private:
  Device device_;
  SharedMemory memory_;
  std::uint64_t address_ = 0;  ///< 0: moved from
};

}  // namespace cgp::runtime

// SPDX-License-Identifier: Apache-2.0
#include "cgp/runtime/buffer.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/runtime/backend_impl.h"

namespace cgp::runtime {

Memory Memory::alloc(const Device& device, std::size_t count, std::size_t element_bytes) {
  if (!device)
    throw ArgumentError({"a Buffer needs a device", {}, "the Device is empty", "Device::open(\"emu\")"});
  if (element_bytes && count > std::size_t(-1) / 2 / element_bytes)
    throw ArgumentError({"a Buffer's size in bytes must fit 63 bits",
                         {},
                         text::cat(count, " elements of ", element_bytes, " bytes each"),
                         {}});
  const std::size_t bytes = count * element_bytes;
  // The address is owned by nobody between alloc and the constructor, which cannot throw.
  const std::uint64_t address = bytes ? device.backend()->alloc(bytes) : 0;
  return Memory(device, device.backend(), address, bytes);
}

namespace detail {

void bad_range(std::size_t offset, std::size_t count, std::size_t size) {
  throw ArgumentError({"a slice must lie inside its buffer",
                       {},
                       text::cat("elements ", offset, " to ", offset, " + ", count, " of ", size),
                       {}});
}
void check_copy(std::size_t destination, std::size_t source) {
  if (destination != source)
    throw ArgumentError({"a copy needs as many elements in the destination as in the source",
                         {},
                         text::cat("destination ", destination, ", source ", source),
                         "copy a slice: buffer.slice(offset, count)"});
}
void copy_to_device(Region dst, const void* src) {
  if (dst.bytes) dst.backend->copy_to_device(dst.address, src, dst.bytes);
}
void copy_to_host(void* dst, Region src) {
  if (src.bytes) src.backend->copy_to_host(dst, src.address, src.bytes);
}
void copy_on_device(Region dst, Region src) {
  if (!dst.bytes) return;
  if (dst.backend == src.backend) return dst.backend->copy(dst.address, src.address, dst.bytes);
  if (dst.backend->copy_from_peer(dst.address, *src.backend, src.address, dst.bytes)) return;
  std::vector<std::byte> host(dst.bytes);
  src.backend->copy_to_host(host.data(), src.address, src.bytes);
  dst.backend->copy_to_device(dst.address, host.data(), dst.bytes);
}
void fill_bytes(Region dst, std::uint8_t value) {
  if (dst.bytes) dst.backend->fill(dst.address, value, dst.bytes);
}

}  // namespace detail
}  // namespace cgp::runtime

// SPDX-License-Identifier: Apache-2.0
#include "cgp/runtime/buffer.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/runtime/backend_impl.h"

namespace cgp::runtime {

std::size_t detail::checked_bytes(std::size_t count, std::size_t element_bytes) {
  if (element_bytes && count > std::size_t(-1) / 2 / element_bytes)
    throw ArgumentError({"a size in bytes must fit 63 bits",
                         {},
                         text::cat(count, " elements of ", element_bytes, " bytes each"),
                         {}});
  return count * element_bytes;
}

Memory Memory::alloc(const Device& device, std::size_t count, std::size_t element_bytes,
                     std::string_view name) {
  if (!device)
    throw ArgumentError({"a Buffer needs a device", {}, "the Device is empty", "Device::open(\"emu\")"});
  const std::size_t bytes = detail::checked_bytes(count, element_bytes);
  // The address is owned by nobody between alloc and the constructor, which cannot throw.
  const std::uint64_t address = bytes ? device.backend()->alloc(bytes, name) : 0;
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

// ---------------------------------------------------------------- pinned and managed
namespace {
Backend& backend_of(const Device& d) {
  if (!d) throw ArgumentError({"memory needs a device", {}, "the Device is empty", "Device::open(\"emu\")"});
  return *d.backend();
}
}  // namespace

void* alloc_pinned(const Device& d, std::size_t bytes) {
  return bytes ? backend_of(d).alloc_pinned(bytes) : nullptr;
}
void free_pinned(const Device& d, void* p) noexcept { d.backend()->free_pinned(p); }
Memory alloc_managed(const Device& d, std::size_t bytes) {
  Backend& b = backend_of(d);
  if (!b.info().managed_memory) throw Unsupported(text::cat(b.info().spec, " has no managed memory"));
  if (const MemoryUse use = b.memory(); bytes > use.free_bytes)
    throw Unsupported({"managed memory must fit the device: over-subscription can hang a GPU",
                       {},
                       text::cat(text::bytes(bytes), " wanted, ", text::bytes(use.free_bytes), " free"),
                       {}});
  return Memory(d, d.backend(), bytes ? b.alloc_managed(bytes) : 0, bytes);
}
std::byte* managed_pointer(const Memory& m) {
  return m.bytes() ? m.device().backend()->host_pointer(m.address(), m.bytes()) : nullptr;
}
void prefetch(Stream& s, const Memory& m, bool to_host) {
  if (m.bytes()) m.device().backend()->prefetch(s.queue(), m.address(), m.bytes(), to_host);
}
void attach(Stream& s, const Memory& m) {
  if (m.bytes()) m.device().backend()->attach(s.queue(), m.address());
}
void advise(const Memory& m, MemoryAdvice advice) {
  if (m.bytes()) m.device().backend()->advise(m.address(), m.bytes(), advice);
}

}  // namespace detail
}  // namespace cgp::runtime

// SPDX-License-Identifier: Apache-2.0
#pragma once
// Device memory with a type, a length and an owner. Copies check lengths and offsets; a Buffer of no elements
// is legal everywhere. The copies here wait (they are for tests, set-up and results); the ones in stream.h
// are queued.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "cgp/base/dtype.h"
#include "cgp/runtime/device.h"

namespace cgp::runtime {

/// Whoever gives out device addresses: a device, or a pool on top of one (pool.h).
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  virtual void release(std::uint64_t address) noexcept = 0;
};

/// Untyped owned device memory. Move-only.
class Memory {
 public:
  Memory() = default;
  Memory(Device device, std::shared_ptr<MemorySource> source, std::uint64_t address, std::uint64_t bytes)
      : device_(std::move(device)), source_(std::move(source)), address_(address), bytes_(bytes) {}
  /// count * element_bytes fresh bytes; throws ArgumentError if that overflows, DriverError or EmuFault if
  /// the device is out of memory. Zero bytes allocate nothing.
  static Memory alloc(const Device& device, std::size_t count, std::size_t element_bytes,
                      std::string_view name = {});
  Memory(Memory&& o) noexcept { swap(o); }
  Memory& operator=(Memory&& o) noexcept {
    Memory(std::move(o)).swap(*this);
    return *this;
  }
  ~Memory() {
    if (source_ && address_) source_->release(address_);
  }
  const Device& device() const { return device_; }
  std::uint64_t address() const { return address_; }  ///< 0 when empty
  std::uint64_t bytes() const { return bytes_; }
  /// Whoever calls this has taken over the duty to release.
  void disown() noexcept { source_.reset(); }

 private:
  void swap(Memory& o) noexcept {
    std::swap(device_, o.device_);
    std::swap(source_, o.source_);
    std::swap(address_, o.address_);
    std::swap(bytes_, o.bytes_);
  }
  Device device_;
  std::shared_ptr<MemorySource> source_;
  std::uint64_t address_ = 0, bytes_ = 0;
};

/// A range of device memory as the untyped core sees it. Not owning.
struct Region {
  Backend* backend = nullptr;  ///< null for an empty range
  std::uint64_t address = 0, bytes = 0;
};

namespace detail {
[[noreturn]] void bad_range(std::size_t offset, std::size_t count, std::size_t size);
void check_copy(std::size_t destination, std::size_t source);
void copy_to_device(Region dst, const void* src);
void copy_to_host(void* dst, Region src);
void copy_on_device(Region dst, Region src);
void fill_bytes(Region dst, std::uint8_t value);
}  // namespace detail

/// `count` elements from `offset` on of somebody else's Buffer; valid as long as that one. Slice<const T>
/// reads.
template <class T>
class Slice {
 public:
  using value_type = std::remove_const_t<T>;
  Slice() = default;
  Slice(Backend* backend, std::uint64_t address, std::size_t count)
      : backend_(backend), address_(address), count_(count) {}
  template <class U>
  requires std::is_same_v<const U, T> Slice(const Slice<U>& o)
      : backend_(o.backend()), address_(o.address()), count_(o.size()) {}
  std::size_t size() const { return count_; }
  std::uint64_t bytes() const { return count_ * sizeof(T); }
  std::uint64_t address() const { return address_; }
  Backend* backend() const { return backend_; }  ///< identity of the device
  Slice slice(std::size_t offset, std::size_t count) const {
    if (offset > count_ || count > count_ - offset) detail::bad_range(offset, count, count_);
    Slice s = *this;
    s.address_ += offset * sizeof(T);
    s.count_ = count;
    return s;
  }
  Region region() const { return {backend_, address_, bytes()}; }

  /// Host to device; `host` must have exactly size() elements.
  void upload(std::span<const value_type> host) const requires(!std::is_const_v<T>) {
    detail::check_copy(count_, host.size());
    detail::copy_to_device(region(), host.data());
  }
  void download(std::span<value_type> host) const {
    detail::check_copy(host.size(), count_);
    detail::copy_to_host(host.data(), region());
  }
  std::vector<value_type> to_vector() const {
    std::vector<value_type> v(count_);
    download(v);
    return v;
  }

 private:
  Backend* backend_ = nullptr;
  std::uint64_t address_ = 0;
  std::size_t count_ = 0;
};

/// An owned array of T on a device. Move-only; freed on destruction (after the work that uses it: freeing
/// waits).
template <class T>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>,
                "device memory holds trivially copyable, non-const elements");

 public:
  using value_type = T;
  Buffer() = default;
  /// `name` is what findings of the emulator call it.
  Buffer(const Device& device, std::size_t count, std::string_view name = {})
      : memory_(Memory::alloc(device, count, sizeof(T), name)), count_(count) {}
  /// Takes over memory that came from elsewhere (a pool); it must hold at least `count` elements.
  Buffer(Memory memory, std::size_t count) : memory_(std::move(memory)), count_(count) {
    if (count > memory_.bytes() / sizeof(T)) detail::bad_range(0, count, memory_.bytes() / sizeof(T));
  }
  Buffer(Buffer&& o) noexcept : memory_(std::move(o.memory_)), count_(std::exchange(o.count_, 0)) {}
  Buffer& operator=(Buffer&& o) noexcept {
    memory_ = std::move(o.memory_);
    count_ = std::exchange(o.count_, 0);
    return *this;
  }

  std::size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  std::uint64_t bytes() const { return count_ * sizeof(T); }
  std::uint64_t address() const { return memory_.address(); }  ///< 0 when empty
  const Device& device() const { return memory_.device(); }

  Slice<T> all() { return {memory_.device().backend().get(), address(), count_}; }
  Slice<const T> all() const { return {memory_.device().backend().get(), address(), count_}; }
  Slice<T> slice(std::size_t offset, std::size_t count) { return all().slice(offset, count); }
  Slice<const T> slice(std::size_t offset, std::size_t count) const { return all().slice(offset, count); }
  operator Slice<T>() { return all(); }
  operator Slice<const T>() const { return all(); }

  /// Replaces all elements; the lengths must agree.
  void upload(std::span<const T> host) { all().upload(host); }
  /// Replaces host.size() elements from `offset` on.
  void upload(std::span<const T> host, std::size_t offset) { slice(offset, host.size()).upload(host); }
  void download(std::span<T> host) const { all().download(host); }
  void download(std::span<T> host, std::size_t offset) const { slice(offset, host.size()).download(host); }
  std::vector<T> to_vector() const { return all().to_vector(); }
  void copy_from(const Buffer& src) {  ///< any device; staged through the host when there is no direct way
    detail::check_copy(count_, src.size());
    detail::copy_on_device(all().region(), src.all().region());
  }
  Memory into_memory() && {
    count_ = 0;
    return std::move(memory_);
  }
  void zero() { detail::fill_bytes(all().region(), 0); }
  void fill_bytes(std::uint8_t value) { detail::fill_bytes(all().region(), value); }

 private:
  Memory memory_;
  std::size_t count_ = 0;
};

template <class T>
Buffer<T> Device::alloc(std::size_t count, std::string_view name) const {
  return Buffer<T>(*this, count, name);
}
template <class T>
Buffer<T> Device::zeros(std::size_t count, std::string_view name) const {
  Buffer<T> b(*this, count, name);
  b.zero();
  return b;
}
template <class T>
Buffer<T> Device::upload(std::type_identity_t<std::span<const T>> host, std::string_view name) const {
  Buffer<T> b(*this, host.size(), name);
  b.upload(host);
  return b;
}
template <class T>
TensorMap Device::tensor_map(const TensorMapSpec& spec, const Buffer<T>& base) const {
  return tensor_map(spec, base.address());
}

}  // namespace cgp::runtime

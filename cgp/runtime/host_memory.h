// SPDX-License-Identifier: Apache-2.0
#pragma once
// Host memory with a relation to a device. Pinned: page-locked, so that a stream's copies overlap with the
// host and with kernels, and can be captured in graphs. Managed: one address for both sides, migrated on use.
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "cgp/runtime/buffer.h"
#include "cgp/runtime/stream.h"

namespace cgp::runtime {

enum class MemoryAdvice : std::uint8_t { read_mostly, prefer_device, prefer_host, accessed_by_device };

namespace detail {
std::size_t checked_bytes(std::size_t count, std::size_t element_bytes);
void* alloc_pinned(const Device& d, std::size_t bytes);
void free_pinned(const Device& d, void* p) noexcept;
Memory alloc_managed(const Device& d, std::size_t bytes);
std::byte* managed_pointer(const Memory& m);
void prefetch(Stream& s, const Memory& m, bool to_host);
void attach(Stream& s, const Memory& m);
void advise(const Memory& m, MemoryAdvice advice);
}  // namespace detail

template <class T>
class Pinned {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>);

 public:
  Pinned(const Device& device, std::size_t count)
      : device_(device),
        data_(static_cast<T*>(detail::alloc_pinned(device, detail::checked_bytes(count, sizeof(T))))),
        count_(count) {}
  Pinned(Pinned&& o) noexcept
      : device_(std::move(o.device_)),
        data_(std::exchange(o.data_, nullptr)),
        count_(std::exchange(o.count_, 0)) {}
  Pinned& operator=(Pinned&& o) noexcept {
    std::swap(device_, o.device_);
    std::swap(data_, o.data_);
    std::swap(count_, o.count_);
    return *this;
  }
  ~Pinned() {
    if (data_) detail::free_pinned(device_, data_);
  }
  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return count_; }
  std::span<T> span() { return {data_, count_}; }
  std::span<const T> span() const { return {data_, count_}; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }

 private:
  Device device_;
  T* data_ = nullptr;
  std::size_t count_ = 0;
};

/// Throws Unsupported where the device has no managed memory, and when it is larger than what is free:
/// over-subscription can hang a GPU. The host may touch it only while no kernel that uses it runs.
template <class T>
class Managed {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>);

 public:
  Managed(const Device& device, std::size_t count)
      : memory_(detail::alloc_managed(device, detail::checked_bytes(count, sizeof(T)))), count_(count) {}
  std::size_t size() const { return count_; }
  std::span<T> span() { return {reinterpret_cast<T*>(detail::managed_pointer(memory_)), count_}; }
  Slice<T> all() { return {memory_.device().backend().get(), memory_.address(), count_}; }
  operator Slice<T>() { return all(); }
  void prefetch_to_device(Stream& s) { detail::prefetch(s, memory_, false); }
  void prefetch_to_host(Stream& s) { detail::prefetch(s, memory_, true); }
  /// Only work of this stream will use it: the host may touch it while other streams run.
  void attach_to(Stream& s) { detail::attach(s, memory_); }
  void advise(MemoryAdvice advice) { detail::advise(memory_, advice); }

 private:
  Memory memory_;
  std::size_t count_ = 0;
};

}  // namespace cgp::runtime

// SPDX-License-Identifier: Apache-2.0
#pragma once
// A WebGPU device with its queue. What WebGPU reports as an error, of validation or of memory, is a DriverError of the call
// that caused it. One thread at a time uses a device and what is of it.
#include <memory>
#include <span>
#include <utility>

#include "cgp/wgpu/api.h"

namespace cgp::wgpu {

/// Owns one handle. `release` is one of the Api's release functions.
class Owned {
 public:
  Owned() = default;
  Owned(Handle h, void (*release)(Handle)) : handle_(h), release_(release) {}
  Owned(Owned&& o) noexcept : handle_(o.handle_), release_(o.release_) { o.handle_ = nullptr; }
  Owned& operator=(Owned&& o) noexcept {
    std::swap(handle_, o.handle_);
    std::swap(release_, o.release_);
    return *this;
  }
  ~Owned() {
    if (handle_) release_(handle_);
  }
  Handle get() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  Handle handle_ = nullptr;
  void (*release_)(Handle) = nullptr;
};

class Device {
 public:
  /// All limits of the adapter, and timestamps where it has them. Throws Unsupported if there is no such adapter, DriverError.
  Device(ApiPtr api, std::size_t ordinal);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// Throws DriverError with what WebGPU has reported since the last call of check(), naming `call`.
  void check(const char* call, const std::string& detail = {}) const;
  Owned buffer(std::uint64_t bytes, Flags usage, const std::string& detail = {}) const;
  /// A buffer that holds `data`, whose size is a multiple of 4.
  Owned buffer_of(std::span<const std::byte> data, Flags usage) const;
  /// The pipeline's layout comes from the shader. The message of a shader that is not valid has line and column.
  Owned pipeline(const std::string& wgsl, const std::string& entry) const;
  Owned encoder() const;
  void submit(Owned encoder) const;
  void wait() const;  ///< for all that was submitted
  /// Bytes of a buffer with kMapRead, once all that was submitted is done.
  void read(Handle buffer, std::span<std::byte> out) const;

  const ApiPtr api;
  const Adapter adapter;
  Handle handle = nullptr, queue = nullptr;
  float timestamp_period = 0;  ///< nanoseconds a tick

 private:
  static void on_error(const Handle*, std::uint32_t type, StringView message, void* self, void*);
  static void on_lost(const Handle*, std::uint32_t reason, StringView message, void* self, void*);
  mutable std::string error_;
  mutable std::uint32_t error_type_ = 0;
};
using DevicePtr = std::shared_ptr<const Device>;

}  // namespace cgp::wgpu

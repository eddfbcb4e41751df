// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Vulkan device with one compute queue: buffers that have device addresses, pipelines from SPIR-V, batches of commands
// with timestamps. Objects keep their device alive. One thread at a time uses a device and what is of it.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cgp/vulkan/physical_devices.h"

namespace cgp::vulkan {

class Device {
 public:
  /// Throws Unsupported naming what is missing: a compute queue, bufferDeviceAddress, shaderInt64.
  Device(ApiPtr api, PhysicalDevice physical);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const ApiPtr api;
  const PhysicalDevice physical;
  const VkDevice handle;
  const DeviceApi fn;
  VkQueue queue = nullptr;
};
using DevicePtr = std::shared_ptr<const Device>;

enum class Location : std::uint8_t {
  device,    ///< fast for kernels; the host cannot see it
  upload,    ///< the host writes it
  download,  ///< the host reads it, cached if there is such memory
};

/// A buffer with memory of its own. It can be copied from and to, and be accessed by kernels at address().
class Buffer {
 public:
  /// At least one byte. Throws DriverError (out of memory) with the size and `name`.
  Buffer(DevicePtr device, std::uint64_t bytes, Location where, const std::string& name = {});
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::uint64_t address() const { return address_; }  ///< at least at a 16-byte boundary
  std::uint64_t bytes() const { return bytes_; }
  VkHandle handle() const { return buffer_; }
  std::byte* host() const { return host_; }  ///< null for Location::device

 private:
  void drop() noexcept;
  const DevicePtr device_;
  const std::uint64_t bytes_;
  VkHandle buffer_ = 0, memory_ = 0;
  std::uint64_t address_ = 0;
  std::byte* host_ = nullptr;
};

/// A compute pipeline whose only input are push constants.
class Pipeline {
 public:
  Pipeline(DevicePtr device, std::span<const std::uint32_t> spirv, const std::string& entry,
           std::uint32_t push_constant_bytes);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;
  VkHandle handle() const { return pipeline_; }
  VkHandle layout() const { return layout_; }

 private:
  void drop() noexcept;
  const DevicePtr device_;
  VkHandle layout_ = 0, pipeline_ = 0;
};

/// Commands that are recorded, submitted once, waited for, and recorded anew. Each command sees the writes of the earlier ones, of
/// this batch and of batches that were submitted before.
class Commands {
 public:
  static constexpr std::uint32_t kTimestamps = 64;  ///< at most, in one batch

  explicit Commands(DevicePtr device);
  ~Commands();  ///< waits
  Commands(const Commands&) = delete;
  Commands& operator=(const Commands&) = delete;

  void begin();  ///< forgets what was recorded; not while submitted
  void copy(VkHandle source, VkHandle destination, std::span<const BufferCopy> regions);
  /// `offset` and `bytes` are multiples of 4.
  void fill(VkHandle buffer, std::uint64_t offset, std::uint64_t bytes, std::uint8_t value);
  void dispatch(const Pipeline& pipeline, std::span<const std::byte> push_constants, std::uint32_t x,
                std::uint32_t y, std::uint32_t z);
  /// When all earlier commands are done. Gives the index of its tick in ticks().
  std::uint32_t timestamp();
  std::uint32_t timestamps() const { return timestamps_; }
  void submit();
  bool done();  ///< of what was submitted; throws DriverError if the device is lost
  void wait();
  /// Of the batch, once it is done; only the queue family's timestamp_bits count.
  std::vector<std::uint64_t> ticks() const;

 private:
  void drop() noexcept;
  void barrier();
  const DevicePtr device_;
  VkHandle pool_ = 0, fence_ = 0, queries_ = 0;
  VkCommandBuffer commands_ = nullptr;
  std::uint32_t timestamps_ = 0;
  bool submitted_ = false;
};

}  // namespace cgp::vulkan

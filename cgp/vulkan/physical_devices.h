// SPDX-License-Identifier: Apache-2.0
#pragma once
// The physical devices that the machine's Vulkan loader lists, with their limits for compute (Vulkan 1.3
// specification, "Physical Device Enumeration" and "Limits"). The loader is opened with dlopen, never linked.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace cgp::vulkan {

struct PhysicalDevice {
  std::string name;
  std::uint32_t api_version = 0;         ///< VK_MAKE_API_VERSION: variant 3 bits, major 7, minor 10, patch 12
  std::uint32_t type = 0;                ///< VkPhysicalDeviceType: 1 integrated, 2 discrete, 3 virtual, 4 CPU
  std::int64_t compute_family = -1;      ///< first queue family with compute; -1 if there is none
  std::uint32_t timestamp_bits = 0;      ///< of that family; 0 if it has no timestamps
  float timestamp_period = 0;            ///< nanoseconds a tick
  std::uint64_t local_memory = 0;        ///< bytes of the largest device-local heap
  std::uint32_t max_storage_buffer = 0;  ///< bytes
  std::uint32_t max_push_constants = 0;  ///< bytes
  std::uint32_t max_shared_memory = 0;   ///< bytes a workgroup
  std::uint32_t max_block_threads = 0;   ///< threads a workgroup
  std::uint64_t storage_buffer_alignment = 0;  ///< bytes; an offset of a bound buffer is a multiple of it
  std::array<std::uint32_t, 3> max_grid{};     ///< workgroups a dispatch: x, y, z
  std::array<std::uint32_t, 3> max_block{};    ///< threads a workgroup: x, y, z
};

/// All devices, in the loader's order. Throws Unsupported if `library` cannot be loaded or lacks an entry point,
/// DriverError (code() is the VkResult) with the call's name if a call fails. No device is an empty list.
std::vector<PhysicalDevice> physical_devices(const std::string& library = "libvulkan.so.1");

}  // namespace cgp::vulkan

// SPDX-License-Identifier: Apache-2.0
#pragma once
// The physical devices that the machine's Vulkan loader lists, with their limits and features for compute (Vulkan 1.3
// specification, "Physical Device Enumeration", "Features" and "Limits").
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cgp/vulkan/api.h"

namespace cgp::vulkan {

struct PhysicalDevice {
  VkPhysicalDevice handle = nullptr;  ///< valid as long as the Api
  std::string name;
  std::uint32_t api_version = 0;         ///< VK_MAKE_API_VERSION: variant 3 bits, major 7, minor 10, patch 12
  std::uint32_t vendor = 0;              ///< PCI vendor: 0x10de is NVIDIA, 0x10005 Mesa's software
  std::uint32_t type = 0;                ///< VkPhysicalDeviceType: 1 integrated, 2 discrete, 3 virtual, 4 CPU
  std::int64_t compute_family = -1;      ///< first queue family with compute; -1 if there is none
  std::uint32_t timestamp_bits = 0;      ///< of that family; 0 if it has no timestamps
  float timestamp_period = 0;            ///< nanoseconds a tick
  std::uint64_t local_memory = 0;        ///< bytes of the largest device-local heap
  MemoryProperties memory{};             ///< types and heaps
  std::uint64_t max_allocation = 0;      ///< bytes
  std::uint32_t max_storage_buffer = 0;  ///< bytes
  std::uint32_t max_push_constants = 0;  ///< bytes
  std::uint32_t max_shared_memory = 0;   ///< bytes a workgroup
  std::uint32_t max_block_threads = 0;   ///< threads a workgroup
  std::uint64_t storage_buffer_alignment = 0;  ///< bytes; an offset of a bound buffer is a multiple of it
  std::array<std::uint32_t, 3> max_grid{};     ///< workgroups a dispatch: x, y, z
  std::array<std::uint32_t, 3> max_block{};    ///< threads a workgroup: x, y, z
  bool int64 = false;                          ///< shaderInt64
  bool storage16 = false, storage8 = false;    ///< storageBuffer16BitAccess, storageBuffer8BitAccess
  /// shaderFloat16, with subnormals kept and rounding to nearest even for f16 alone.
  bool float16 = false;
  bool device_address = false;  ///< bufferDeviceAddress
  /// workgroupMemoryExplicitLayout, and with it 8- and 16-bit access.
  bool wide_shared = false, narrow_shared = false;
  /// VK_KHR_cooperative_matrix: a subgroup multiplies 16 x 16 and 16 x this (8, or 16) elements of f16, or of bf16
  /// (VK_KHR_shader_bfloat16), into f32; 0: neither.
  int matrix_f16 = 0, matrix_bf16 = 0;
  std::uint32_t subgroup_size = 0;        ///< invocations
  std::uint32_t subgroup_operations = 0;  ///< VkSubgroupFeatureFlagBits of compute shaders
  std::optional<std::uint32_t> sm_count;  ///< VK_NV_shader_sm_builtins
};

inline constexpr const char* kExtensionWideShared = "VK_KHR_workgroup_memory_explicit_layout";
inline constexpr const char* kExtensionMatrices = "VK_KHR_cooperative_matrix";
inline constexpr const char* kExtensionBfloat16 = "VK_KHR_shader_bfloat16";

/// All devices, in the loader's order. No device is an empty list. Features and subgroups of a device before Vulkan 1.2
/// count as absent.
std::vector<PhysicalDevice> physical_devices(const Api& api);

}  // namespace cgp::vulkan

// SPDX-License-Identifier: Apache-2.0
#include "cgp/vulkan/physical_devices.h"

#include <algorithm>
#include <cstring>

namespace cgp::vulkan {
namespace {

constexpr std::uint32_t kVulkan12 = (1u << 22) | (2u << 12);

std::vector<ExtensionProperties> extensions(const Api& api, VkPhysicalDevice device) {
  std::uint32_t count = 0;
  check(api.vkEnumerateDeviceExtensionProperties(device, nullptr, &count, nullptr),
        "vkEnumerateDeviceExtensionProperties");
  std::vector<ExtensionProperties> all(count);
  check(api.vkEnumerateDeviceExtensionProperties(device, nullptr, &count, all.data()),
        "vkEnumerateDeviceExtensionProperties");
  return all;
}
bool has(const std::vector<ExtensionProperties>& all, const char* name) {
  return std::any_of(all.begin(), all.end(), [&](const auto& e) { return std::strcmp(e.name, name) == 0; });
}

/// Columns of B in products of 16 x 16 of the type into f32 of a subgroup: 8, or 16, or 0.
int product_columns(const std::vector<CooperativeMatrixProperties>& all, std::uint32_t type) {
  for (const std::uint32_t n : {8u, 16u})
    if (std::any_of(all.begin(), all.end(), [&](const auto& p) {
          return p.m == 16 && p.n == n && p.k == 16 && p.a == type && p.b == type && p.c == kFloat32 &&
                 p.result == kFloat32 && p.scope == kScopeSubgroup;
        }))
      return int(n);
  return 0;
}
std::vector<CooperativeMatrixProperties> matrices(const Api& api, VkPhysicalDevice device) {
  std::uint32_t count = 0;
  if (!api.vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR) return {};
  check(api.vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR(device, &count, nullptr),
        "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
  std::vector<CooperativeMatrixProperties> all(count);
  check(api.vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR(device, &count, all.data()),
        "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
  return all;
}

void describe_queues(const Api& api, PhysicalDevice& d) {
  std::uint32_t n = 0;
  api.vkGetPhysicalDeviceQueueFamilyProperties(d.handle, &n, nullptr);
  std::vector<QueueFamily> families(n);
  api.vkGetPhysicalDeviceQueueFamilyProperties(d.handle, &n, families.data());
  const auto family =
      std::find_if(families.begin(), families.end(), [](auto& f) { return f.flags & kQueueCompute; });
  if (family == families.end()) return;
  d.compute_family = family - families.begin();
  d.timestamp_bits = family->timestamp_bits;
}

void describe_features(const Api& api, PhysicalDevice& d, const std::vector<ExtensionProperties>& known) {
  Vulkan12Features v12;
  Vulkan11Features v11;
  v11.next = &v12;
  Features2 all;
  all.next = &v11;
  WorkgroupMemoryExplicitLayoutFeatures layout;
  CooperativeMatrixFeatures matrix;
  ShaderBfloat16Features bf16;
  const auto ask = [&](auto& feature, const char* extension) {
    if (has(known, extension)) feature.next = v12.next, v12.next = &feature;
  };
  ask(layout, kExtensionWideShared);
  ask(matrix, kExtensionMatrices);
  ask(bf16, kExtensionBfloat16);
  api.vkGetPhysicalDeviceFeatures2(d.handle, &all);
  d.int64 = all.features.int64;
  d.storage16 = v11.storage16;
  d.storage8 = v12.storage8;
  d.float16 = v12.float16;
  d.device_address = v12.device_address;
  d.wide_shared = layout.layout;
  d.narrow_shared = layout.layout && layout.access8 && layout.access16;
  if (matrix.matrices) {
    const auto products = matrices(api, d.handle);
    d.matrix_f16 = product_columns(products, kFloat16);
    if (bf16.bf16 && bf16.matrices) d.matrix_bf16 = product_columns(products, kBfloat16);
  }
}

PhysicalDevice describe(const Api& api, VkPhysicalDevice handle) {
  PhysicalDevice d;
  d.handle = handle;
  Properties2 all;
  api.vkGetPhysicalDeviceProperties2(handle, &all);
  const bool v12 = all.properties.api_version >= kVulkan12;
  Vulkan11Properties v11;
  SmBuiltinsProperties sm;
  if (v12) {
    const auto known = extensions(api, handle);
    const bool nv = has(known, "VK_NV_shader_sm_builtins");
    if (nv) v11.next = &sm;
    FloatControlsProperties floats;
    floats.next = v11.next, v11.next = &floats;
    all.next = &v11;
    api.vkGetPhysicalDeviceProperties2(handle, &all);
    if (nv && sm.sm_count) d.sm_count = sm.sm_count;
    d.subgroup_size = v11.subgroup_size;
    if (v11.subgroup_stages & kStageCompute) d.subgroup_operations = v11.subgroup_operations;
    d.max_allocation = v11.max_allocation;
    describe_features(api, d, known);
    d.float16 = d.float16 && floats.denormals16 && floats.nearest16 &&
                floats.denormal_independence != kIndependenceNone &&
                floats.rounding_independence != kIndependenceNone;
    if (!d.float16) d.matrix_f16 = d.matrix_bf16 = 0;
  }
  const Properties& p = all.properties;
  d.name = p.name;
  d.api_version = p.api_version;
  d.vendor = p.vendor;
  d.type = p.type;
  describe_queues(api, d);
  api.vkGetPhysicalDeviceMemoryProperties(handle, &d.memory);
  for (std::uint32_t i = 0; i < d.memory.heap_count; ++i)
    if (d.memory.heaps[i].flags & kHeapDeviceLocal)
      d.local_memory = std::max(d.local_memory, d.memory.heaps[i].size);
  const Limits& l = p.limits;
  d.timestamp_period = l.timestamp_period;
  d.max_storage_buffer = l.max_storage_buffer;
  d.max_push_constants = l.max_push_constants;
  d.max_shared_memory = l.max_shared_memory;
  d.max_block_threads = l.max_block_threads;
  d.storage_buffer_alignment = l.storage_buffer_alignment;
  std::copy_n(l.max_grid, 3, d.max_grid.begin());
  std::copy_n(l.max_block, 3, d.max_block.begin());
  return d;
}

}  // namespace

std::vector<PhysicalDevice> physical_devices(const Api& api) {
  std::uint32_t count = 0;
  check(api.vkEnumeratePhysicalDevices(api.instance, &count, nullptr), "vkEnumeratePhysicalDevices");
  std::vector<VkPhysicalDevice> handles(count);
  check(api.vkEnumeratePhysicalDevices(api.instance, &count, handles.data()), "vkEnumeratePhysicalDevices");
  handles.resize(count);
  std::vector<PhysicalDevice> out;
  for (VkPhysicalDevice handle : handles) out.push_back(describe(api, handle));
  return out;
}

}  // namespace cgp::vulkan

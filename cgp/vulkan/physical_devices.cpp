// SPDX-License-Identifier: Apache-2.0
#include "cgp/vulkan/physical_devices.h"

#include <algorithm>
#include <cstring>

namespace cgp::vulkan {
namespace {

constexpr std::uint32_t kVulkan12 = (1u << 22) | (2u << 12);

bool has_extension(const Api& api, VkPhysicalDevice device, const char* name) {
  std::uint32_t count = 0;
  check(api.vkEnumerateDeviceExtensionProperties(device, nullptr, &count, nullptr),
        "vkEnumerateDeviceExtensionProperties");
  std::vector<ExtensionProperties> all(count);
  check(api.vkEnumerateDeviceExtensionProperties(device, nullptr, &count, all.data()),
        "vkEnumerateDeviceExtensionProperties");
  return std::any_of(all.begin(), all.end(), [&](const auto& e) { return std::strcmp(e.name, name) == 0; });
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

void describe_features(const Api& api, PhysicalDevice& d) {
  Vulkan12Features v12;
  Vulkan11Features v11;
  v11.next = &v12;
  Features2 all;
  all.next = &v11;
  api.vkGetPhysicalDeviceFeatures2(d.handle, &all);
  d.int64 = all.features.int64;
  d.storage16 = v11.storage16;
  d.storage8 = v12.storage8;
  d.float16 = v12.float16;
  d.device_address = v12.device_address;
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
    const bool nv = has_extension(api, handle, "VK_NV_shader_sm_builtins");
    if (nv) v11.next = &sm;
    FloatControlsProperties floats;
    floats.next = v11.next, v11.next = &floats;
    all.next = &v11;
    api.vkGetPhysicalDeviceProperties2(handle, &all);
    if (nv && sm.sm_count) d.sm_count = sm.sm_count;
    d.subgroup_size = v11.subgroup_size;
    if (v11.subgroup_stages & kStageCompute) d.subgroup_operations = v11.subgroup_operations;
    d.max_allocation = v11.max_allocation;
    describe_features(api, d);
    d.float16 = d.float16 && floats.denormals16 && floats.nearest16 &&
                floats.denormal_independence != kIndependenceNone &&
                floats.rounding_independence != kIndependenceNone;
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

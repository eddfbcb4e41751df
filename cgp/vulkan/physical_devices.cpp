// SPDX-License-Identifier: Apache-2.0
#include "cgp/vulkan/physical_devices.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <memory>

#include "cgp/base/error.h"

namespace cgp::vulkan {
namespace {

// Structures of the Vulkan 1.0 ABI on 64-bit machines. Members that are not read are padding.
using Instance = void*;
using Physical = void*;
using Function = void (*)();

struct ApplicationInfo {
  std::uint32_t type = 0;  // VK_STRUCTURE_TYPE_APPLICATION_INFO
  const void* next = nullptr;
  const char* application = "cgp";
  std::uint32_t application_version = 0;
  const char* engine = nullptr;
  std::uint32_t engine_version = 0;
  std::uint32_t api_version = (1u << 22) | (2u << 12);  // 1.2: buffer device addresses are core
};
struct InstanceCreateInfo {
  std::uint32_t type = 1;  // VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO
  const void* next = nullptr;
  std::uint32_t flags = 0;
  const ApplicationInfo* application = nullptr;
  std::uint32_t layer_count = 0;
  const char* const* layers = nullptr;
  std::uint32_t extension_count = 0;
  const char* const* extensions = nullptr;
};
struct Limits {
  std::uint32_t unused0[7];
  std::uint32_t max_storage_buffer, max_push_constants;
  std::uint32_t unused1[45];
  std::uint32_t max_shared_memory, max_grid[3], max_block_threads, max_block[3];
  std::uint32_t unused2[20];
  std::uint64_t storage_buffer_alignment;
  std::uint32_t unused3[22];
  float timestamp_period;
  std::uint32_t unused4[19];
};
static_assert(offsetof(Limits, max_storage_buffer) == 28 && offsetof(Limits, max_shared_memory) == 216);
static_assert(offsetof(Limits, storage_buffer_alignment) == 328 && offsetof(Limits, timestamp_period) == 424);
static_assert(sizeof(Limits) == 504);
struct Properties {
  std::uint32_t api_version, driver_version, vendor, device, type;
  char name[256];
  std::uint8_t uuid[16];
  Limits limits;
  std::uint32_t sparse[5];
};
static_assert(offsetof(Properties, limits) == 296 && sizeof(Properties) == 824);
struct QueueFamily {
  std::uint32_t flags, count, timestamp_bits, granularity[3];
};
struct MemoryProperties {
  std::uint32_t type_count, types[32][2], heap_count;
  struct {
    std::uint64_t size;
    std::uint32_t flags;
  } heaps[16];
};
static_assert(sizeof(MemoryProperties) == 520);
constexpr std::uint32_t kQueueCompute = 2, kHeapDeviceLocal = 1;

void check(int result, const char* call) {
  // A positive result is a status, such as VK_INCOMPLETE, and not an error.
  if (result < 0)
    throw DriverError(result,
                      {std::string(call) + " failed", call, "VkResult " + std::to_string(result), {}});
}

PhysicalDevice describe(const Properties& p, const std::vector<QueueFamily>& families,
                        const MemoryProperties& memory) {
  PhysicalDevice d;
  d.name = p.name;
  d.api_version = p.api_version;
  d.type = p.type;
  const auto family =
      std::find_if(families.begin(), families.end(), [](auto& f) { return f.flags & kQueueCompute; });
  if (family != families.end()) {
    d.compute_family = family - families.begin();
    d.timestamp_bits = family->timestamp_bits;
  }
  for (std::uint32_t i = 0; i < memory.heap_count; ++i) {
    if (memory.heaps[i].flags & kHeapDeviceLocal)
      d.local_memory = std::max(d.local_memory, memory.heaps[i].size);
  }
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

std::vector<PhysicalDevice> physical_devices(const std::string& library) {
  // Never closed: drivers leave threads and exit handlers behind.
  void* so = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!so)
    throw Unsupported(
        {"Vulkan needs its loader", library, dlerror(), "install the package libvulkan1 and a driver"});
  const auto get = reinterpret_cast<Function (*)(Instance, const char*)>(dlsym(so, "vkGetInstanceProcAddr"));
  if (!get)
    throw Unsupported({"A Vulkan loader has vkGetInstanceProcAddr", library, "the library lacks it", {}});
  const auto load = [&](auto& function, Instance instance, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(get(instance, name));
    if (!function)
      throw Unsupported({"A Vulkan loader has " + std::string(name), library, "the library lacks it", {}});
  };
  int (*create)(const InstanceCreateInfo*, const void*, Instance*) = nullptr;
  load(create, nullptr, "vkCreateInstance");
  const ApplicationInfo application;
  InstanceCreateInfo info;
  info.application = &application;
  Instance raw = nullptr;
  check(create(&info, nullptr, &raw), "vkCreateInstance");
  void (*destroy)(Instance, const void*) = nullptr;
  load(destroy, raw, "vkDestroyInstance");
  const auto drop = [&](Instance i) { destroy(i, nullptr); };
  const std::unique_ptr<void, decltype(drop)> instance(raw, drop);

  int (*enumerate)(Instance, std::uint32_t*, Physical*) = nullptr;
  void (*properties)(Physical, Properties*) = nullptr;
  void (*queue_families)(Physical, std::uint32_t*, QueueFamily*) = nullptr;
  void (*memory_properties)(Physical, MemoryProperties*) = nullptr;
  load(enumerate, raw, "vkEnumeratePhysicalDevices");
  load(properties, raw, "vkGetPhysicalDeviceProperties");
  load(queue_families, raw, "vkGetPhysicalDeviceQueueFamilyProperties");
  load(memory_properties, raw, "vkGetPhysicalDeviceMemoryProperties");

  std::uint32_t count = 0;
  check(enumerate(raw, &count, nullptr), "vkEnumeratePhysicalDevices");
  std::vector<Physical> handles(count);
  check(enumerate(raw, &count, handles.data()), "vkEnumeratePhysicalDevices");
  handles.resize(count);
  std::vector<PhysicalDevice> out;
  for (Physical handle : handles) {
    Properties p{};
    properties(handle, &p);
    std::uint32_t n = 0;
    queue_families(handle, &n, nullptr);
    std::vector<QueueFamily> families(n);
    queue_families(handle, &n, families.data());
    MemoryProperties memory{};
    memory_properties(handle, &memory);
    out.push_back(describe(p, families, memory));
  }
  return out;
}

}  // namespace cgp::vulkan

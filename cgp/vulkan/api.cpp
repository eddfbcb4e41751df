// SPDX-License-Identifier: Apache-2.0
#include "cgp/vulkan/api.h"

#include <dlfcn.h>

#include <mutex>
#include <type_traits>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::vulkan {
namespace {

[[noreturn]] void lacks(const std::string& library, const char* name) {
  throw Unsupported({text::cat("Vulkan needs ", name), library, "the library lacks it", {}});
}
constexpr VkResult kIncompatibleDriver = -9;

}  // namespace

std::string result_name(VkResult r) {
  const char* name = r == -1    ? "VK_ERROR_OUT_OF_HOST_MEMORY"
                     : r == -2  ? "VK_ERROR_OUT_OF_DEVICE_MEMORY"
                     : r == -3  ? "VK_ERROR_INITIALIZATION_FAILED"
                     : r == -4  ? "VK_ERROR_DEVICE_LOST"
                     : r == -5  ? "VK_ERROR_MEMORY_MAP_FAILED"
                     : r == -6  ? "VK_ERROR_LAYER_NOT_PRESENT"
                     : r == -7  ? "VK_ERROR_EXTENSION_NOT_PRESENT"
                     : r == -8  ? "VK_ERROR_FEATURE_NOT_PRESENT"
                     : r == -9  ? "VK_ERROR_INCOMPATIBLE_DRIVER"
                     : r == -10 ? "VK_ERROR_TOO_MANY_OBJECTS"
                     : r == -13 ? "VK_ERROR_UNKNOWN"
                                : nullptr;
  return name ? text::cat(name, " (", r, ")") : text::cat("VkResult ", r);
}

void check(VkResult r, const char* call, const std::string& detail) {
  if (r >= 0) return;
  throw DriverError(
      r, {text::cat(call, " failed"), call, text::cat(result_name(r), detail.empty() ? "" : ": ", detail),
          r == kDeviceLost ? "the device is gone: open it again; a kernel that does not end, or "
                             "accesses memory out of bounds, is the usual cause"
                           : ""});
}

std::shared_ptr<const Api> Api::load(const std::string& library) {
  auto api = std::make_shared<Api>();
  api->path = library.empty() ? "libvulkan.so.1" : library;
  // Never closed: drivers leave threads and exit handlers behind.
  void* so = dlopen(api->path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!so)
    throw Unsupported(
        {"Vulkan needs its loader", api->path, dlerror(), "install the package libvulkan1 and a driver"});
  const auto get =
      reinterpret_cast<VkFunction (*)(VkInstance, const char*)>(dlsym(so, "vkGetInstanceProcAddr"));
  if (!get) lacks(api->path, "vkGetInstanceProcAddr");
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(get(api->instance, name));
    if (!function) lacks(api->path, name);
  };
#define CGP_VULKAN_FN(level, result, name, parameters) CGP_VULKAN_##level(name)
#define CGP_VULKAN_device(name)
#define CGP_VULKAN_instance(name)
#define CGP_VULKAN_extension(name)
#define CGP_VULKAN_global(name) find(api->name, #name);
#include "cgp/vulkan/api.def"
#undef CGP_VULKAN_global
  const ApplicationInfo application;
  InstanceCreateInfo info;
  info.application = &application;
  const VkResult r = api->vkCreateInstance(&info, nullptr, &api->instance);
  if (r == kIncompatibleDriver)
    throw Unsupported({"Vulkan needs a driver", api->path,
                       "the loader finds none that works (vkCreateInstance)",
                       "install one, such as mesa-vulkan-drivers; VK_ICD_FILENAMES names a driver's file"});
  check(r, "vkCreateInstance");
#define CGP_VULKAN_FN(level, result, name, parameters) CGP_VULKAN_##level(name)
#define CGP_VULKAN_global(name)
#undef CGP_VULKAN_instance
#undef CGP_VULKAN_extension
#define CGP_VULKAN_instance(name) find(api->name, #name);
#define CGP_VULKAN_extension(name) \
  api->name = reinterpret_cast<decltype(api->name)>(get(api->instance, #name));
#include "cgp/vulkan/api.def"
#undef CGP_VULKAN_global
#undef CGP_VULKAN_instance
#undef CGP_VULKAN_extension
#undef CGP_VULKAN_device
  return api;
}

std::shared_ptr<const Api> Api::get() {
  static std::mutex mutex;
  // Never destroyed: at the end of the process drivers may be gone before we are.
  static auto& api = *new std::shared_ptr<const Api>;
  std::lock_guard lock(mutex);
  if (!api) api = load();
  return api;
}

Api::~Api() {
  if (instance && vkDestroyInstance) vkDestroyInstance(instance, nullptr);
}

DeviceApi::DeviceApi(const Api& api, VkDevice device) {
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(api.vkGetDeviceProcAddr(device, name));
    if (!function) lacks(api.path, name);
  };
#define CGP_VULKAN_FN(level, result, name, parameters) CGP_VULKAN_##level(name)
#define CGP_VULKAN_global(name)
#define CGP_VULKAN_instance(name)
#define CGP_VULKAN_extension(name)
#define CGP_VULKAN_device(name) find(name, #name);
#include "cgp/vulkan/api.def"
#undef CGP_VULKAN_global
#undef CGP_VULKAN_instance
#undef CGP_VULKAN_extension
#undef CGP_VULKAN_device
}

}  // namespace cgp::vulkan

// SPDX-License-Identifier: Apache-2.0
#pragma once
// The Vulkan loader, opened with dlopen, and its entry points (api.def) as members.
#include <memory>
#include <string>

#include "cgp/vulkan/abi.h"

namespace cgp::vulkan {

/// Throws DriverError (code() is the VkResult) naming the call if `r` is an error. Positive results are states, such as
/// VK_INCOMPLETE, and no errors. `detail` is what the caller knows: sizes, names.
void check(VkResult r, const char* call, const std::string& detail = {});
/// "VK_ERROR_DEVICE_LOST (-4)"; unknown codes give the number alone.
std::string result_name(VkResult r);

/// The loader with one instance of Vulkan 1.2.
struct Api {
  std::string path;  ///< what was opened
  VkInstance instance = nullptr;
#define CGP_VULKAN_FN(level, result, name, parameters) CGP_VULKAN_##level(result, name, parameters)
#define CGP_VULKAN_global(result, name, parameters) result(*name) parameters = nullptr;
#define CGP_VULKAN_instance(result, name, parameters) result(*name) parameters = nullptr;
#define CGP_VULKAN_extension(result, name, parameters) result(*name) parameters = nullptr;
#define CGP_VULKAN_device(result, name, parameters)
#include "cgp/vulkan/api.def"
#undef CGP_VULKAN_global
#undef CGP_VULKAN_instance
#undef CGP_VULKAN_extension
#undef CGP_VULKAN_device

  /// Opens `library` (empty: libvulkan.so.1) and makes an instance. Throws Unsupported if it cannot be loaded, lacks an entry
  /// point or finds no driver, DriverError if the instance cannot be made.
  static std::shared_ptr<const Api> load(const std::string& library = {});
  /// The process's loader, loaded once. Throws as load() does, each time.
  static std::shared_ptr<const Api> get();
  Api() = default;
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;
  ~Api();
};
using ApiPtr = std::shared_ptr<const Api>;

/// The entry points of one device.
struct DeviceApi {
#define CGP_VULKAN_FN(level, result, name, parameters) CGP_VULKAN_##level(result, name, parameters)
#define CGP_VULKAN_global(result, name, parameters)
#define CGP_VULKAN_instance(result, name, parameters)
#define CGP_VULKAN_extension(result, name, parameters)
#define CGP_VULKAN_device(result, name, parameters) result(*name) parameters = nullptr;
#include "cgp/vulkan/api.def"
#undef CGP_VULKAN_global
#undef CGP_VULKAN_instance
#undef CGP_VULKAN_extension
#undef CGP_VULKAN_device
  /// Throws Unsupported naming the entry point that the driver lacks.
  DeviceApi(const Api& api, VkDevice device);
};

}  // namespace cgp::vulkan

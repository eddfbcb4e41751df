// SPDX-License-Identifier: Apache-2.0
#pragma once
// wgpu-native, opened with dlopen, its functions (api.def) as members, and the adapters that it lists.
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "cgp/wgpu/abi.h"

namespace cgp::wgpu {

struct Api {
  std::string path;  ///< what was opened
  Handle instance = nullptr;
#define CGP_WGPU_FN(result, name, parameters) result(*name) parameters = nullptr;
#include "cgp/wgpu/api.def"

  /// Opens `library`. Empty: $CGP_WGPU_NATIVE if it is set, else the library of an installed Python package `wgpu`, else
  /// libwgpu_native.so. Throws Unsupported if it cannot be loaded, lacks a function, or has another major version.
  static std::shared_ptr<const Api> load(const std::string& library = {});
  /// The process's library, loaded once. Throws as load() does, each time.
  static std::shared_ptr<const Api> get();
};
using ApiPtr = std::shared_ptr<const Api>;

struct Adapter {
  std::string name, driver;
  bool cpu = false;
  bool timestamps = false;
  std::uint64_t max_buffer = 0, max_storage_binding = 0;  ///< bytes
  std::uint32_t max_storage_buffers = 0;                  ///< bindings
  std::uint32_t max_shared_memory = 0;                    ///< bytes a workgroup
  std::uint32_t max_block_threads = 0;
  std::array<std::uint32_t, 3> max_block{};
  std::uint32_t max_grid = 0;  ///< workgroups in each dimension
  std::uint32_t subgroup_min = 0, subgroup_max = 0;
};

/// Those of Vulkan, Metal and Direct3D 12, in the library's order.
std::vector<Adapter> adapters(const Api& api);

std::string text_of(StringView s);

}  // namespace cgp::wgpu

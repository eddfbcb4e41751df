// SPDX-License-Identifier: Apache-2.0
#include "cgp/wgpu/api.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <type_traits>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::wgpu {
namespace {
namespace fs = std::filesystem;

/// The library in a Python installation with the package `wgpu`; empty: there is none.
std::string in_python() {
  std::vector<std::string> prefixes;
  if (const char* v = std::getenv("VIRTUAL_ENV")) prefixes.emplace_back(v);
  if (const char* home = std::getenv("HOME")) prefixes.push_back(text::cat(home, "/.local"));
  prefixes.insert(prefixes.end(), {"/usr/local", "/usr"});
  std::error_code ec;
  for (const std::string& prefix : prefixes)
    for (const auto& python : fs::directory_iterator(prefix + "/lib", ec)) {
      if (!python.path().filename().string().starts_with("python3")) continue;
      for (const char* packages : {"site-packages", "dist-packages"}) {
        const fs::path p = python.path() / packages / "wgpu/resources/libwgpu_native-release.so";
        if (fs::exists(p, ec)) return p.string();
      }
    }
  return {};
}

}  // namespace

std::string text_of(StringView s) {
  if (!s.data) return {};
  return {s.data, s.length == kToTheEnd ? std::strlen(s.data) : s.length};
}

std::shared_ptr<const Api> Api::load(const std::string& library) {
  auto api = std::make_shared<Api>();
  const char* chosen = std::getenv("CGP_WGPU_NATIVE");
  api->path = !library.empty() ? library : chosen && *chosen ? chosen : in_python();
  if (api->path.empty()) api->path = "libwgpu_native.so";
  // Never closed: drivers leave threads and exit handlers behind.
  void* so = dlopen(api->path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!so)
    throw Unsupported({"WebGPU needs wgpu-native", api->path, dlerror(),
                       "set CGP_WGPU_NATIVE to the library; the Python package wgpu contains it"});
#define CGP_WGPU_FN(result, name, parameters)                                        \
  api->name = reinterpret_cast<std::decay_t<decltype(api->name)>>(dlsym(so, #name)); \
  if (!api->name)                                                                    \
    throw Unsupported({text::cat("WebGPU needs ", #name), api->path, "the library lacks it", {}});
#include "cgp/wgpu/api.def"
  if (const std::uint32_t major = api->wgpuGetVersion() >> 24; major != kVersion)
    throw Unsupported({text::cat("WebGPU needs wgpu-native ", kVersion), api->path,
                       text::cat("this is version ", major), "the Python package wgpu 0.32 contains it"});
  InstanceExtras extras;  // OpenGL writes to stderr where there is no display
  extras.backends = kBackendsPrimary;
  InstanceDescriptor instance;
  instance.next = &extras.chain;
  api->instance = api->wgpuCreateInstance(&instance);
  if (!api->instance) throw Unsupported({"wgpu-native cannot make an instance", api->path, {}, {}});
  return api;
}

std::shared_ptr<const Api> Api::get() {
  static std::mutex mutex;
  static std::shared_ptr<const Api> api;
  std::lock_guard lock(mutex);
  if (!api) api = load();
  return api;
}

std::vector<Adapter> adapters(const Api& api) {
  const EnumerateAdapterOptions options{nullptr, kBackendsPrimary};
  std::vector<Handle> handles(api.wgpuInstanceEnumerateAdapters(api.instance, &options, nullptr));
  api.wgpuInstanceEnumerateAdapters(api.instance, &options, handles.data());
  std::vector<Adapter> out;
  for (Handle h : handles) {
    Adapter a;
    AdapterInfo info;
    api.wgpuAdapterGetInfo(h, &info);
    a.name = text_of(info.device);
    a.driver = text_of(info.description);
    a.cpu = info.adapter_type == kAdapterCpu;
    a.subgroup_min = info.subgroup_min, a.subgroup_max = info.subgroup_max;
    api.wgpuAdapterInfoFreeMembers(info);
    a.timestamps = api.wgpuAdapterHasFeature(h, Feature::timestamp_query);
    Limits l;
    api.wgpuAdapterGetLimits(h, &l);
    a.max_buffer = l.max_buffer, a.max_storage_binding = l.max_storage_binding;
    a.max_storage_buffers = l.max_storage_buffers;
    a.max_shared_memory = l.max_shared_memory;
    a.max_block_threads = l.max_block_threads;
    a.max_block = {l.max_block[0], l.max_block[1], l.max_block[2]};
    a.max_grid = l.max_grid;
    out.push_back(std::move(a));
    api.wgpuAdapterRelease(h);
  }
  return out;
}

}  // namespace cgp::wgpu

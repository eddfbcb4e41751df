// SPDX-License-Identifier: Apache-2.0
#pragma once
// A device that runs translated kernels (Vulkan, WebGPU): its transfers, the bandwidth of a copy on it, and a kernel of the
// catalogue beside that. For `cgp profile wgpu`.
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cgp/kernels/catalog/catalog.h"
#include "cgp/profile/measure/stats.h"

namespace cgp::profile {

struct ShaderProfileOptions {
  std::string device = "wgpu:0";      ///< or "vulkan:0"
  std::string kernel;                 ///< empty: transfers alone
  std::vector<std::string> settings;  ///< NAME=VALUE
  int repeat = 20;                    ///< samples of each time
  std::uint64_t bytes = 16 << 20;     ///< of a transfer
};

struct ShaderProfile {
  runtime::DeviceInfo device;
  bool timestamps =
      false;  ///< else copy and kernel are timed by the host's clock, with what it takes to submit them
  std::uint64_t bytes = 0;                  ///< of a transfer
  measure::Summary upload, download, copy;  ///< milliseconds; upload and download by the host's clock
  double copy_gbps() const { return 2.0 * double(bytes) / copy.median * 1e-6; }  ///< read and written
  struct Kernel {
    std::string name, variant;
    measure::Summary time;  ///< milliseconds
    double flops = 0, bytes = 0;
    kernels::Check check;
    double gbps() const { return bytes / time.median * 1e-6; }
  };
  std::optional<Kernel> kernel;
};

/// Throws Unsupported where there is no such device, or the kernel cannot be translated; ArgumentError for a device
/// of another kind.
ShaderProfile profile_shaders(const ShaderProfileOptions& o);
nlohmann::ordered_json to_json(const ShaderProfile& p);
std::string to_text(const ShaderProfile& p);

}  // namespace cgp::profile

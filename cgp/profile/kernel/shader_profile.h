// SPDX-License-Identifier: Apache-2.0
#pragma once
// A device that runs translated kernels (Vulkan, WebGPU): its transfers, its roofline from a copy and a ladder of multiply-adds
// measured on it, and a kernel of the catalogue under that. For `cgp profile wgpu`.
#include <optional>
#include <string>
#include <vector>

#include "cgp/kernels/catalog/catalog.h"
#include "cgp/profile/measure/compare.h"
#include "cgp/profile/view/document.h"

namespace cgp::profile {

struct ShaderProfileOptions {
  std::string device = "wgpu:0";      ///< or "vulkan:0"
  std::string kernel;                 ///< empty: the device alone
  std::vector<std::string> settings;  ///< NAME=VALUE
  int repeat = 20;                    ///< samples of each time
  std::uint64_t bytes = 16 << 20;     ///< of a transfer
};

struct ShaderProfile {
  runtime::DeviceInfo device;
  bool timestamps =
      false;  ///< else the device's work is timed by the host's clock, with what it takes to submit it
  std::uint64_t bytes = 0;       ///< of a transfer
  std::uint64_t copy_bytes = 0;  ///< of a copy on the device: more than its caches hold, where it is fast
  double ladder_flops = 0;
  measure::Timing upload, download;  ///< by the host's clock
  measure::Timing copy, ladder;
  /// Read and written, and operations, in the shortest sample: a ceiling is a maximum.
  double copy_gbps() const { return 2.0 * double(copy_bytes) / copy.summary.min * 1e-6; }
  double peak_gflops() const { return ladder_flops / ladder.summary.min * 1e-6; }
  struct Kernel {
    std::string name, variant;
    measure::Timing time;
    double flops = 0, bytes = 0;  ///< of the algorithm
    kernels::Check check;
    double gbps() const { return bytes / time.summary.median * 1e-6; }
    double gflops() const { return flops / time.summary.median * 1e-6; }
  };
  std::optional<Kernel> kernel;
  /// The kernel's time at the roof (the longer of its bytes at the copy's rate and its operations at the ladder's) over
  /// the time it took.
  double of_roofline() const;
};

/// Throws Unsupported where there is no such device, or the kernel cannot be translated; ArgumentError for a device
/// of another kind.
ShaderProfile profile_shaders(const ShaderProfileOptions& o);
/// What --save writes and the other commands read; its section "wgpu" is to_json.
Document to_document(const ShaderProfile& p, std::vector<std::string> command);
nlohmann::ordered_json to_json(const ShaderProfile& p);
std::string to_text(const ShaderProfile& p);

}  // namespace cgp::profile

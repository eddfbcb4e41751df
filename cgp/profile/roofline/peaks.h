// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ceilings of known devices, from NVIDIA's data sheets: dense, without sparsity, fp32 sums.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cgp::profile {

struct DevicePeaks {
  std::string name;  ///< part of the device's name that identifies it
  double fp64 = 0, fp64_tensor = 0, fp32 = 0, tf32 = 0, bf16 = 0, fp8 = 0,
         int8 = 0;                                       ///< TFLOP/s; 0: it has none
  double memory_gbps = 0, l2_gbps = 0, shared_gbps = 0;  ///< 0: not in the data sheet
  double peak(std::string_view type) const;              ///< "f32", "bf16", ...; 0: unknown
};
/// nullptr for a device that is not in the table.
const DevicePeaks* device_peaks(std::string_view device_name);
std::vector<std::string> known_devices();

}  // namespace cgp::profile

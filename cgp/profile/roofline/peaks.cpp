// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/roofline/peaks.h"

namespace cgp::profile {
namespace {

const DevicePeaks kDevices[] = {
    {"H200", 34, 67, 67, 494.7, 989.4, 1978.9, 1978.9, 4800, 0, 0},
    {"H100 PCIe", 26, 51, 51, 378, 756, 1513, 1513, 2000, 0, 0},
    {"H100", 34, 67, 67, 494.7, 989.4, 1978.9, 1978.9, 3350, 0, 0},
    {"A100", 9.7, 19.5, 19.5, 156, 312, 0, 624, 2039, 0, 0},
    {"L40S", 1.4, 0, 91.6, 183, 362, 733, 733, 864, 0, 0},
    // with fp32 sums; fp16 sums would give 330.3
    {"RTX 4090", 1.3, 0, 82.6, 82.6, 165.2, 330.3, 660.6, 1008, 0, 0},
    {"T4", 0.25, 0, 8.1, 0, 65, 0, 130, 320, 0, 0},
    {"B200", 40, 40, 80, 1100, 2250, 4500, 4500, 8000, 0, 0},
};

}  // namespace

double DevicePeaks::peak(std::string_view type) const {
  if (type == "f64" || type == "fp64") return fp64;
  if (type == "f32" || type == "fp32") return fp32;
  if (type == "tf32") return tf32;
  if (type == "bf16" || type == "f16" || type == "fp16") return bf16;
  if (type == "e4m3" || type == "e5m2" || type == "fp8") return fp8;
  if (type == "s8" || type == "u8" || type == "int8") return int8;
  return 0;
}

const DevicePeaks* device_peaks(std::string_view device_name) {
  for (const auto& d : kDevices)
    if (device_name.find(d.name) != std::string_view::npos) return &d;
  return nullptr;
}

std::vector<std::string> known_devices() {
  std::vector<std::string> out;
  for (const auto& d : kDevices) out.push_back(d.name);
  return out;
}

}  // namespace cgp::profile

// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/gemm/select/gemm_calibration.h"

#include "cgp/base/text.h"

namespace cgp::kernels {
namespace {

constexpr GemmCalibration kH200{
#include "cgp/kernels/gemm/select/gemm_calibration_h200.def"
};

}  // namespace

bool is_calibrated(const runtime::DeviceInfo& d) { return d.name.find("H200") != std::string::npos; }
const GemmCalibration& gemm_calibration(const runtime::DeviceInfo&) { return kH200; }
int gemm_sms(const runtime::DeviceInfo& d) { return d.sm_count ? d.sm_count : gemm_calibration(d).sms; }

std::string describe_calibration(const runtime::DeviceInfo& d) {
  const auto& c = gemm_calibration(d);
  return is_calibrated(d) ? text::cat("measured on ", c.device)
                          : text::cat("measured on ", c.device, ", not on ", d.name.empty() ? d.arch : d.name,
                                      ": predicted times rank tilings");
}

}  // namespace cgp::kernels

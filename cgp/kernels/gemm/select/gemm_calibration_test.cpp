// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/gemm/select/gemm_calibration.h"

#include <gtest/gtest.h>

#include "cgp/kernels/gemm/select/gemm_tilings_sm90.h"

namespace cgp::kernels {
namespace {

runtime::DeviceInfo device(std::string name, int sms) {
  runtime::DeviceInfo d;
  d.name = std::move(name), d.arch = "sm_90a", d.cc_major = 9, d.sm_count = sms;
  return d;
}

TEST(GemmCalibration, SaysWhoseConstantsItTakes) {
  EXPECT_EQ(describe_calibration(device("NVIDIA H200", 132)), "measured on NVIDIA H200");
  EXPECT_EQ(describe_calibration(device("NVIDIA H100 PCIe", 114)),
            "measured on NVIDIA H200, not on NVIDIA H100 PCIe: predicted times rank tilings");
  EXPECT_EQ(gemm_sms(device("NVIDIA H100 PCIe", 114)), 114);
  EXPECT_EQ(gemm_sms(device("NVIDIA H100 PCIe", 0)), gemm_calibration({}).sms);
}

// Every constant has a value: one that was left out would be 0.
TEST(GemmCalibration, NoConstantIsZero) {
  const auto& c = gemm_calibration(device("NVIDIA H200", 132));
  const auto positive = [](const auto& group) {
    const auto* first = reinterpret_cast<const double*>(&group);
    for (std::size_t i = 0; i < sizeof group / sizeof(double); ++i) EXPECT_GT(first[i], 0) << i;
  };
  positive(c.tilings), positive(c.non_persistent), positive(c.split_k), positive(c.misaligned);
  positive(c.pack), positive(c.mixed), positive(c.slices), positive(c.sm80);
}

// The prediction that the fitted constants give.
TEST(GemmCalibration, PredictsAsFitted) {
  const auto d = device("NVIDIA H200", 132);
  const auto best = select_sm90({.trans_b = true, .m = 4096, .n = 4096, .k = 4096}, {}, d);
  EXPECT_NEAR(best.microseconds, 183.909, 0.01) << best.variant.name;
}

}  // namespace
}  // namespace cgp::kernels

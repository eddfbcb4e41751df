// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/counters/nvml.h"

#include <gtest/gtest.h>

#include "cgp/base/error.h"
#include "cgp/runtime/device.h"

namespace cgp::measure {
namespace {

TEST(Nvml, IsNotForTheEmulator) {
  const auto device = runtime::Device::open("emu");
  EXPECT_THROW(Nvml{device.info()}, Unsupported);
  GpuSampler sampler(device.info());
  EXPECT_NE(sampler.absent(), "");
  EXPECT_FALSE(sampler.take().sm_mhz);
}

TEST(Nvml, SaysWhyClocksAreLow) {
  EXPECT_EQ(slowed_text(0), "");
  EXPECT_EQ(slowed_text(1), "");  // idle
  EXPECT_EQ(slowed_text(0x24), "power cap, thermal");
}

TEST(Nvml, KnowsWhatALinkCarries) {
  EXPECT_NEAR(pcie_gbps(5, 16), 63.0, 0.1);
  EXPECT_NEAR(pcie_gbps(3, 8), 7.88, 0.01);
  EXPECT_EQ(pcie_gbps(1, 4), 1.0);
  EXPECT_EQ(pcie_gbps(99, 16), 0);
}

TEST(Nvml, ReadsTheGpuWhereThereIsOne) {
  runtime::DeviceInfo info;
  for (const auto& d : runtime::devices())
    if (d.kind == runtime::DeviceKind::cuda) info = d;
  if (info.kind != runtime::DeviceKind::cuda) GTEST_SKIP() << "no GPU";
  try {
    const auto s = Nvml(info).read();
    ASSERT_TRUE(s.sm_mhz && s.watts);
    EXPECT_GT(*s.sm_mhz, 50);
    EXPECT_GT(*s.watts, 5);
  } catch (const Unsupported& e) {
    GTEST_SKIP() << e.what();
  }
}

}  // namespace
}  // namespace cgp::measure

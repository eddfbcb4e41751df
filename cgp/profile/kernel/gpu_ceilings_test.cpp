// SPDX-License-Identifier: Apache-2.0
// The kernels that measure ceilings compute what they should, and assemble for every target.
#include "cgp/profile/kernel/gpu_ceilings.h"

#include <gtest/gtest.h>

#include "cgp/base/error.h"

using namespace cgp;

TEST(ceilings, kernels_compute_on_the_emulator) {
  for (const char* device : {"emu:sm_80", "emu:sm_90a"})
    EXPECT_EQ(profile::check_ceiling_kernels(runtime::Device::open(device)), "") << device;
}

TEST(ceilings, kernels_compute_on_a_gpu) {
  try {
    EXPECT_EQ(profile::check_ceiling_kernels(runtime::Device::open("cuda")), "");
  } catch (const Unsupported& e) {
    GTEST_SKIP() << e.what();
  }
}

TEST(ceilings, every_target_has_them) {
  for (const auto arch : kernels::kTargets)
    for (const auto& v : profile::ceiling_variants())
      if (kernels::reject(v, arch).empty()) {
        EXPECT_FALSE(kernels::image(v, arch).ptx->empty()) << v.name;
      }
}

TEST(ceilings, the_emulator_has_no_clock) {
  EXPECT_THROW(profile::gpu_ceilings(runtime::Device::open("emu")), Unsupported);
}

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

TEST(ceilings, a_measured_bandwidth_goes_before_the_data_sheet) {
  using measure::Metric;
  measure::MetricSet declared, measured, unknown;
  profile::add_ceilings("NVIDIA H200", "bf16", {}, declared);
  EXPECT_EQ(declared[Metric::peak_bandwidth_gbps].source, measure::Source::declared);
  EXPECT_NE(declared[Metric::peak_bandwidth_gbps].from.find("data sheet"), std::string::npos);
  profile::add_ceilings("NVIDIA H200", "bf16", profile::Ceiling{"HBM read", true, 4321, "4 GiB", {}},
                        measured);
  EXPECT_EQ(measured[Metric::peak_bandwidth_gbps].source, measure::Source::measured);
  EXPECT_EQ(measured[Metric::peak_bandwidth_gbps].number(), 4321);
  profile::add_ceilings("no such GPU", "bf16", {}, unknown);
  EXPECT_FALSE(unknown.has(Metric::peak_bandwidth_gbps));
  EXPECT_THROW(profile::memory_ceiling(runtime::Device::open("emu")), Unsupported);
}

TEST(ceilings, a_gpu_has_one_total_of_memory) {
  using measure::Metric;
  measure::MetricSet m;
  profile::add_gpu_memory(100'000'000, 40'000'000, m);
  EXPECT_EQ(m[Metric::vram_total_mb].number(), m[Metric::gpu_memory_total_mb].number());
  EXPECT_EQ(m[Metric::vram_used_mb].number(), 60);
  EXPECT_EQ(m[Metric::vram_used_mb].number() + m[Metric::vram_free_mb].number(),
            m[Metric::vram_total_mb].number());
}

TEST(ceilings, the_emulator_has_no_clock) {
  EXPECT_THROW(profile::gpu_ceilings(runtime::Device::open("emu")), Unsupported);
}

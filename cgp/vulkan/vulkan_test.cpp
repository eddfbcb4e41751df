// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "cgp/base/error.h"
#include "cgp/vulkan/physical_devices.h"

namespace cgp::vulkan {
namespace {

TEST(Vulkan, ALibraryThatIsNotThereIsUnsupported) {
  EXPECT_THROW(Api::load("libvulkan_that_is_not_there.so"), Unsupported);
}

TEST(Vulkan, ALibraryThatIsNoLoaderIsUnsupported) { EXPECT_THROW(Api::load("libm.so.6"), Unsupported); }

TEST(Vulkan, DevicesMeetTheLimitsThatTheSpecificationRequires) {
  std::vector<PhysicalDevice> devices;
  try {
    devices = physical_devices(*Api::get());
  } catch (const Error& e) {
    GTEST_SKIP() << e.what();
  }
  if (devices.empty()) GTEST_SKIP() << "the Vulkan loader lists no device";
  for (const PhysicalDevice& d : devices) {
    SCOPED_TRACE(d.name);
    EXPECT_FALSE(d.name.empty());
    EXPECT_EQ(d.api_version >> 22, 1u);
    EXPECT_LE(d.type, 4u);
    EXPECT_GE(d.compute_family, 0);
    EXPECT_GT(d.local_memory, 0u);
    // "Required Limits" of the specification. A wrong offset in our declarations breaks these.
    EXPECT_GE(d.max_storage_buffer, 1u << 27);
    EXPECT_GE(d.max_push_constants, 128u);
    EXPECT_LE(d.max_push_constants, 65536u);
    EXPECT_GE(d.max_shared_memory, 16384u);
    EXPECT_GE(d.max_block_threads, 128u);
    EXPECT_LE(d.storage_buffer_alignment, 256u);
    EXPECT_EQ(d.storage_buffer_alignment & (d.storage_buffer_alignment - 1), 0u);
    for (auto g : d.max_grid) EXPECT_GE(g, 65535u);
    EXPECT_GE(d.max_block[0], 128u);
    EXPECT_GE(d.max_block[1], 128u);
    EXPECT_GE(d.max_block[2], 64u);
    EXPECT_GT(d.timestamp_period, 0.f);
    EXPECT_LT(d.timestamp_period, 1e6f);
  }
}

}  // namespace
}  // namespace cgp::vulkan

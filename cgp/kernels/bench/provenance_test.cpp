// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/bench/provenance.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <regex>

#include "cgp/base/file.h"

namespace cgp::kernels {
namespace {

TEST(Provenance, says_what_a_result_file_needs) {
  const std::string file = testing::TempDir() + "cgp_driver_version";
  write_file(
      file,
      "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\nGCC version:  gcc "
      "version 12.2.0\n");
  runtime::DeviceInfo device;
  device.name = "NVIDIA \"H200\"";
  device.driver_version = 13010;
  unsetenv("CGP_COMMIT");
  Provenance p = provenance(device, {"bench", "--rounds", "3"}, "cold L2", file);
  EXPECT_EQ(p.driver, "580.159.04");
  EXPECT_EQ(p.how, "bench --rounds 3: cold L2");
  EXPECT_TRUE(std::regex_match(p.date, std::regex("20\\d\\d-\\d\\d-\\d\\d"))) << p.date;
  EXPECT_TRUE(std::regex_match(p.commit, std::regex("[0-9a-f]{7,}(-dirty)?|unknown"))) << p.commit;
  EXPECT_EQ(provenance(device, {}, "", file + "_none").driver, "CUDA 13.1");
  setenv("CGP_COMMIT", "abc1234", 1);
  p = provenance(device, {"b"}, "m", file);
  unsetenv("CGP_COMMIT");
  p.date = "2026-11-21";
  EXPECT_EQ(json_fields(p),
            "\"gpu\": \"NVIDIA \\\"H200\\\"\", \"driver\": \"580.159.04\", \"date\": \"2026-11-21\", "
            "\"commit\": \"abc1234\", \"how\": \"b: m\"");
}

}  // namespace
}  // namespace cgp::kernels

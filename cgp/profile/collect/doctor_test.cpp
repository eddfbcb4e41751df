// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/collect/doctor.h"

#include <gtest/gtest.h>

namespace cgp::profile {
namespace {

TEST(doctor, a_loaded_machine_is_not_quiet) {
  EXPECT_TRUE(is_quiet(0.01, 0.2, 2));
  EXPECT_FALSE(is_quiet(0.01, 10, 2)) << "identical work may still look alike while others wait";
  EXPECT_FALSE(is_quiet(0.2, 0, 2));
}

}  // namespace
}  // namespace cgp::profile

// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/softmax/softmax.h"

#include <gtest/gtest.h>

#include "cgp/base/error.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;
using namespace cgp::testing;

TEST(softmax, every_variant_assembles_without_spills) { expect_assembles(softmax_entry()); }

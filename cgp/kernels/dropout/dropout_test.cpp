// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/dropout/dropout.h"

#include <gtest/gtest.h>

#include "cgp/base/error.h"
#include "cgp/kernels/dropout/dropout_ref.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;
using namespace cgp::testing;

TEST(dropout, the_reference_gives_the_known_answers) {  // of the Random123 distribution
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox_ref({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const std::uint32_t f = 0xffffffff;
  EXPECT_EQ(philox_ref({f, f, f, f}, {f, f}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(dropout, the_same_bits_by_every_path) {
  for (const char* t : {"f32", "f16", "bf16"})
    for (auto [r, c] : {std::pair{"3", "64"}, {"5", "7"}, {"1", "4099"}, {"0", "5"}})
      expect_right(
          dropout_entry(),
          {{"dtype", t}, {"rows", r}, {"cols", c}, {"p", "0.3"}, {"seed", "12345678901"}, {"offset", "7"}});
  for (const char* p : {"0", "1"}) expect_right(dropout_entry(), {{"rows", "2"}, {"cols", "64"}, {"p", p}});
}

TEST(dropout, bad_arguments_are_named) {
  auto device = runtime::Device::open("emu");
  auto x = device.zeros<float>(8);
  Dropout d;
  d.x = x, d.y = x, d.rows = 1, d.cols = 8, d.p = 1.5;
  EXPECT_THROW(dropout(device.stream(), d), ArgumentError);
}

TEST(dropout, right_and_repeatable_on_a_gpu) {
  expect_right_on_gpu(dropout_entry(), {{{"rows", "640"}, {"cols", "1024"}},
                                        {{"rows", "33"}, {"cols", "777"}, {"dtype", "f32"}}});
}

TEST(dropout, every_variant_assembles_without_spills) { expect_assembles(dropout_entry()); }

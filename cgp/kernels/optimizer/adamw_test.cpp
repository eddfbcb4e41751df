// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/optimizer/adamw.h"

#include <gtest/gtest.h>

#include "cgp/base/error.h"
#include "cgp/kernels/optimizer/adamw_ref.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;
using namespace cgp::testing;

TEST(adamw, the_reference_gives_pytorchs_numbers) {
  // torch.optim.AdamW([1.0], lr=0.1, weight_decay=0.01), gradients 0.5 and -1, by hand in double.
  AdamW a;
  a.rate = 0.1;
  auto e = adamw_ref(a, {1, 0, 0}, 0.5);
  EXPECT_NEAR(e.weight, 0.999 - 0.1, 1e-8) << "the first step is the rate, whatever the gradient";
  EXPECT_NEAR(e.m, 0.05, 1e-15);
  EXPECT_NEAR(e.v, 0.00025, 1e-15);
  a.step = 2;
  e = adamw_ref(a, e, -1);
  EXPECT_NEAR(e.m, -0.055, 1e-15);
  EXPECT_NEAR(e.v, 0.00124975, 1e-15);
  EXPECT_NEAR(e.weight, 0.999 * 0.899 + 0.1 * (0.055 / 0.19) / std::sqrt(0.00124975 / 0.001999), 1e-7);
}

TEST(adamw, right_for_any_count) {
  for (const char* n : {"0", "1", "3", "4", "257", "1030"}) expect_right(adamw_entry(), {{"n", n}});
  expect_right(adamw_entry(),
               {{"n", "130"}, {"rate", "0.3"}, {"beta1", "0"}, {"decay", "0"}, {"step", "1000"}}, "sm_80");
}

TEST(adamw, slices_that_are_not_aligned_give_the_same) {
  const auto device = runtime::Device::open("emu");
  std::vector<float> w(21, 1.f), g(21, 0.5f), zero(21);
  auto weight = device.upload<float>(w), m = device.upload<float>(zero), v = device.upload<float>(zero);
  const auto gradient = device.upload<float>(g);
  AdamW a;
  a.count = 20;
  a.weight = weight.all().slice(1, 20), a.m = m.all().slice(1, 20), a.v = v.all().slice(0, 20);
  a.gradient = gradient.all().slice(1, 20);
  adamw(device.stream(), a);
  device.sync();
  EXPECT_EQ(weight.to_vector()[0], 1.f);
  for (int i = 1; i < 21; ++i) EXPECT_NEAR(weight.to_vector()[std::size_t(i)], 1 - 1e-5 - 1e-3, 1e-7);
}

TEST(adamw, bad_arguments_are_named) {
  const auto device = runtime::Device::open("emu");
  auto x = device.zeros<float>(8), y = device.zeros<float>(8), z = device.zeros<float>(8);
  const auto g = device.zeros<float>(7);
  AdamW a;
  a.weight = x, a.m = y, a.v = z, a.gradient = g, a.count = 8;
  EXPECT_THROW(adamw(device.stream(), a), ArgumentError);
  a.count = 7, a.beta2 = 1;
  EXPECT_THROW(adamw(device.stream(), a), ArgumentError);
  a.beta2 = 0.9, a.step = 0;
  EXPECT_THROW(adamw(device.stream(), a), ArgumentError);
  a.step = 1, a.weight = g;
  EXPECT_THROW(adamw(device.stream(), a), ArgumentError);
}

TEST(adamw, right_and_repeatable_on_a_gpu) { expect_right_on_gpu(adamw_entry(), {{{"n", "100001"}}}); }

TEST(adamw, every_variant_assembles_without_spills) { expect_assembles(adamw_entry()); }

// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/vecadd/vecadd.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cgp/base/error.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;
using namespace cgp::testing;

TEST(vecadd, every_length_and_type_matches_the_oracle) {
  for (const char* t : {"f32", "f16", "bf16"})
    for (const char* n : {"0", "1", "7", "8", "255", "1000", "4099"})
      expect_right(vecadd_entry(), {{"dtype", t}, {"n", n}});
}

TEST(vecadd, runs_on_every_architecture) {
  for (auto arch : kTargets) expect_right(vecadd_entry(), {{"n", "1001"}}, arch);
}

TEST(vecadd, aligned_data_moves_in_whole_sectors) {
  const auto c = expect_right(vecadd_entry(), {{"n", "4096"}});
  EXPECT_EQ(c.global_load_sectors, 2u * 4096 * 4 / 32);
  EXPECT_EQ(c.global_store_sectors, 4096u * 4 / 32);
  EXPECT_EQ(c.divergent_branches, 0u);
}

TEST(vecadd, unaligned_slices_are_right_too) {
  auto device = runtime::Device::open("emu:sm_80");
  const auto a = random_array(DType::f32, {101}, 1), b = random_array(DType::f32, {103}, 2);
  auto da = device.upload<float>(typed<float>(a)), db = device.upload<float>(typed<float>(b));
  auto dc = device.zeros<float>(100);
  vecadd<float>(device.stream(), std::as_const(da).slice(1, 99), std::as_const(db).slice(3, 99),
                dc.slice(0, 99));
  device.sync();
  const auto c = dc.to_vector();
  for (std::size_t i = 0; i < 99; ++i) EXPECT_EQ(c[i], float(a.at(i + 1)) + float(b.at(i + 3)));
  EXPECT_EQ(c[99], 0.f);
}

TEST(vecadd, lengths_that_differ_are_refused) {
  auto device = runtime::Device::open("emu");
  auto a = device.zeros<float>(4), b = device.zeros<float>(5), c = device.zeros<float>(4);
  EXPECT_THROW(vecadd<float>(device.stream(), a, b, c), ArgumentError);
}

TEST(vecadd, nan_and_infinity_propagate) {
  HostArray a(DType::f32, {3}), b(DType::f32, {3});
  a.set(0, NAN), a.set(1, INFINITY), a.set(2, INFINITY), b.set(2, -INFINITY);
  expect_right(vecadd_entry(), {}, "sm_90a", {{"a", a}, {"b", b}});
}

TEST(vecadd, right_and_repeatable_on_a_gpu) {
  expect_right_on_gpu(
      vecadd_entry(),
      {{{"n", "1000003"}}, {{"dtype", "bf16"}, {"n", "100000"}}, {{"dtype", "f16"}, {"n", "77"}}});
}

TEST(vecadd, every_variant_assembles_without_spills) { expect_assembles(vecadd_entry()); }

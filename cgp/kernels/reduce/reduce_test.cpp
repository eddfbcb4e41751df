// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/reduce/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cgp/base/error.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;
using namespace cgp::testing;

TEST(reduce, every_shape_matches_the_oracle) {
  for (const char* op : {"sum", "max"})
    for (const char* t : {"f32", "f16", "bf16"}) {
      for (const char* shape : {"1", "31", "4096", "70001"})
        expect_right(reduce_entry(), {{"op", op}, {"dtype", t}, {"shape", shape}});
      for (const char* dim : {"0", "1", "-1"})
        for (const char* shape : {"3x40x24", "5x7x9"})
          expect_right(reduce_entry(), {{"op", op}, {"dtype", t}, {"shape", shape}, {"dim", dim}});
    }
  expect_right(reduce_entry(), {{"shape", "2000x24"}, {"dim", "1"}});  // many short rows
  expect_right(reduce_entry(), {{"shape", "1077x3"}, {"dim", "1"}, {"op", "max"}});
  expect_right(reduce_entry(), {{"shape", "1100x300"}, {"dim", "1"}, {"dtype", "bf16"}});
  expect_right(reduce_entry(), {{"shape", "0x5"}, {"dim", "1"}});  // no outputs
}

TEST(reduce, runs_on_every_architecture) {
  for (auto arch : kTargets) {
    expect_right(reduce_entry(), {{"op", "max"}, {"shape", "3000"}}, arch);
    expect_right(reduce_entry(), {{"shape", "70x50"}, {"dim", "0"}}, arch);
  }
}

TEST(reduce, half_precision_does_not_stagnate) {  // 1 + 1 + ... in f16 stops at 2048
  HostArray ones(DType::f16, {10000});
  for (std::uint64_t i = 0; i < 10000; ++i) ones.set(i, 1);
  auto device = runtime::Device::open("emu");
  Options o("reduce", reduce_entry().options);
  auto c = reduce_entry().prepare(device, o, {{"in", ones}}, 1);
  c->launch(device.stream());
  device.sync();
  EXPECT_EQ(c->outputs()[0].array.at(0), 10000);
}

TEST(reduce, a_maximum_finds_the_one_and_keeps_nan) {
  for (std::uint64_t n : {5u, 4096u}) {
    HostArray x(DType::f32, {n});
    for (std::uint64_t i = 0; i < n; ++i) x.set(i, -double(i) - 10);
    x.set(n - 1, -3);
    expect_right(reduce_entry(), {{"op", "max"}}, "sm_90a", {{"in", x}});
    x.set(n / 2, NAN);
    expect_right(reduce_entry(), {{"op", "max"}}, "sm_90a", {{"in", x}});
    expect_right(reduce_entry(), {{"op", "max"}}, "sm_75", {{"in", x}});
    expect_right(reduce_entry(), {{"op", "sum"}}, "sm_90a", {{"in", x}});
  }
}

TEST(reduce, dimensions_are_checked) {
  const auto s = reduce_dim({2, 3, 4}, -2);
  EXPECT_EQ(s.outer, 2u);
  EXPECT_EQ(s.n, 3u);
  EXPECT_EQ(s.inner, 4u);
  EXPECT_THROW(reduce_dim({2, 3}, 2), ArgumentError);
  EXPECT_THROW(reduce_dim({2, 3}, -3), ArgumentError);
  auto device = runtime::Device::open("emu");
  auto in = device.zeros<float>(0), out = device.zeros<float>(1);
  EXPECT_THROW(reduce<float>(device.stream(), ReduceOp::sum, in, out, {1, 0, 1}, {}), ArgumentError);
  auto five = device.zeros<float>(5);
  EXPECT_THROW(reduce<float>(device.stream(), ReduceOp::sum, in, five, {1, 0, 5}, {}), ArgumentError);
  for (const char* shape : {"0x5x3", "2x5x0", "0x5x1"})  // no outputs
    expect_right(reduce_entry(), {{"shape", shape}, {"dim", "1"}});
  EXPECT_EQ(reduce_workspace(plan_reduce(DType::f32, {1, 0, 5}, true, device.info()), {1, 0, 5}), 0u);
}

TEST(reduce, right_and_repeatable_on_a_gpu) {
  expect_right_on_gpu(reduce_entry(),
                      {{{"shape", "3000001"}},
                       {{"dtype", "bf16"}, {"shape", "4096x4096"}},
                       {{"op", "max"}, {"dtype", "f16"}, {"shape", "300x77x130"}, {"dim", "1"}},
                       {{"shape", "1000x1000"}, {"dim", "0"}},
                       {{"shape", "100000x64"}, {"dim", "1"}}});
}

TEST(reduce, every_variant_assembles_without_spills) { expect_assembles(reduce_entry()); }

// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/topk/topk.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "cgp/base/error.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;
using namespace cgp::testing;

namespace {
constexpr double kInf = std::numeric_limits<double>::infinity(),
                 kNaN = std::numeric_limits<double>::quiet_NaN();
}

TEST(topk, shapes_match_the_oracle) {
  for (auto [r, c, k] : {std::tuple{"0", "5", "2"}, {"2", "5", "0"}, {"2", "1", "1"}, {"2", "64", "64"}})
    expect_right(topk_entry(), {{"rows", r}, {"cols", c}, {"k", k}});
  for (const char* t : {"f32", "f16", "bf16"})
    for (auto [c, k] : {std::pair{"77", "5"}, {"1000", "65"}, {"4099", "300"}, {"2304", "1024"}})
      expect_right(topk_entry(), {{"dtype", t}, {"rows", "1"}, {"cols", c}, {"k", k}, {"wide", "0"}});
  expect_right(topk_entry(), {{"rows", "1"}, {"cols", "33000"}, {"k", "50"}});
}

TEST(topk, runs_on_every_architecture) {
  for (auto arch : kTargets)
    expect_right(topk_entry(), {{"dtype", "f16"}, {"rows", "1"}, {"cols", "200"}, {"k", "20"}}, arch);
}

TEST(topk, equals_nans_and_infinities) {
  for (const std::uint64_t cols : {16u, 601u}) {
    const std::uint64_t rows = 6;
    HostArray x(DType::f32, {rows, cols});
    for (std::uint64_t i = 0; i < cols; ++i) {
      x.set(i, 3);                                                 // all equal
      x.set(cols + i, -kInf);                                      // all -inf
      x.set(2 * cols + i, double(i % 3));                          // many equals at the end of the list
      x.set(3 * cols + i, i % 5 == 2 ? kNaN : i % 2 ? kInf : -1);  // NaN, then infinity
      x.set(4 * cols + i, i % 2 ? 0.0 : -0.0);                     // zeros of both signs
      x.set(5 * cols + i, -double(i));                             // negative
    }
    for (const char* k : {"1", "7", "16"}) expect_right(topk_entry(), {{"k", k}}, "sm_90a", {{"x", x}});
    auto device = runtime::Device::open("emu");
    auto in = device.upload<float>(typed<float>(x));
    auto index = device.zeros<std::int64_t>(rows * 3);
    auto values = device.zeros<float>(rows * 3);
    TopK t;
    t.in = std::as_const(in), t.values = values, t.index = index, t.rows = rows, t.cols = cols, t.k = 3;
    topk(device.stream(), t);
    device.sync();
    EXPECT_EQ(index.to_vector(),
              (std::vector<std::int64_t>{0, 1, 2, 0, 1, 2, 2, 5, 8, 2, 7, 12, 0, 1, 2, 0, 1, 2}));
    EXPECT_TRUE(std::signbit(values.to_vector()[12]) && !std::signbit(values.to_vector()[13]));
  }
}

TEST(topk, rows_with_a_pitch) {
  auto device = runtime::Device::open("emu");
  const std::uint64_t rows = 3, cols = 24, pitch = 40;
  std::vector<float> host(rows * pitch, 1e30f);  // what lies between rows is larger
  for (std::uint64_t r = 0; r < rows; ++r)
    for (std::uint64_t c = 0; c < cols; ++c) host[r * pitch + c] = float(c);
  auto in = device.upload<float>(host);
  auto index = device.zeros<std::int32_t>(rows * 2);
  auto values = device.zeros<float>(rows * 2);
  TopK t;
  t.in = std::as_const(in), t.values = values, t.index = index, t.rows = rows, t.cols = cols, t.k = 2;
  t.layout.pitch = pitch;
  topk(device.stream(), t);
  device.sync();
  EXPECT_EQ(index.to_vector(), (std::vector<std::int32_t>{23, 22, 23, 22, 23, 22}));
  EXPECT_EQ(values.to_vector(), (std::vector<float>{23, 22, 23, 22, 23, 22}));
}

TEST(topk, bad_arguments_are_named) {
  auto device = runtime::Device::open("emu");
  auto x = device.zeros<float>(2048);
  auto i = device.zeros<std::int32_t>(2048);
  TopK t;
  t.in = x, t.values = x, t.index = i, t.rows = 1, t.cols = 4, t.k = 5;
  EXPECT_THROW(topk(device.stream(), t), ArgumentError);
  t.cols = 2048, t.k = 1025;
  EXPECT_THROW(topk(device.stream(), t), ArgumentError);
  t.k = 3, t.index = x;
  EXPECT_THROW(topk(device.stream(), t), ArgumentError);
}

TEST(topk, right_and_repeatable_on_a_gpu) {
  expect_right_on_gpu(topk_entry(), {{{"rows", "64"}, {"cols", "1024"}},
                                     {{"rows", "100"}, {"cols", "32000"}, {"k", "1024"}},
                                     {{"rows", "7"}, {"cols", "151936"}, {"k", "40"}},
                                     {{"dtype", "f32"}, {"rows", "33"}, {"cols", "777"}, {"wide", "0"}},
                                     {{"dtype", "f16"}, {"rows", "3"}, {"cols", "500001"}, {"k", "100"}}});
}

TEST(topk, every_variant_assembles_without_spills) { expect_assembles(topk_entry()); }

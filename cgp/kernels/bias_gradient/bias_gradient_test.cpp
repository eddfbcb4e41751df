// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/bias_gradient/bias_gradient.h"

#include <gtest/gtest.h>

#include "cgp/base/error.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;
using namespace cgp::testing;

TEST(bias_gradient, any_shape) {
  for (const char* t : {"f32", "f16", "bf16"})
    for (auto [r, c] :
         {std::pair{"300", "520"}, {"1", "7"}, {"129", "33"}, {"1000", "8"}, {"0", "5"}, {"3", "0"}})
      for (const char* accumulate : {"no", "yes"})
        expect_right(bias_gradient_entry(),
                     {{"dtype", t}, {"rows", r}, {"cols", c}, {"accumulate", accumulate}});
  expect_right(bias_gradient_entry(), {{"dtype", "f16"}, {"rows", "200"}, {"cols", "40"}}, "sm_75");
}

// The workspace is left as it was found: a second launch needs no zeros.
TEST(bias_gradient, launches_follow_each_other) {
  auto device = runtime::Device::open("emu:sm_90a");
  const std::uint64_t rows = 500, cols = 96;
  std::vector<float> values(rows * cols);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = float(int(i % 7) - 3);
  std::vector<float> want(cols);
  for (std::size_t i = 0; i < values.size(); ++i) want[i % cols] += values[i];
  const auto x = device.upload<float>(values);
  auto out = device.alloc<float>(cols);
  auto workspace = device.zeros<float>(bias_gradient_workspace(DType::f32, rows, cols, device.info()));
  BiasGradient b;
  b.dy = x, b.out = out, b.workspace = workspace, b.rows = rows, b.cols = cols;
  bias_gradient(device.stream(), b);
  b.accumulate = true;
  bias_gradient(device.stream(), b);
  for (float& v : want) v *= 2;
  EXPECT_EQ(out.to_vector(), want);
}

TEST(bias_gradient, bad_arguments_are_named) {
  auto device = runtime::Device::open("emu");
  auto x = device.zeros<float>(64), out = device.zeros<float>(8), small = device.zeros<float>(4);
  const auto message = [&](auto&& change) -> std::string {
    BiasGradient b;
    b.dy = x, b.out = out, b.workspace = small, b.rows = 8, b.cols = 8;
    change(b);
    try {
      bias_gradient(device.stream(), b);
    } catch (const ArgumentError& e) {
      return e.what();
    }
    return "taken";
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(message([](BiasGradient&) {}), "workspace"));
  EXPECT_TRUE(has(message([](BiasGradient& b) { b.rows = 9; }), "dy"));
  EXPECT_TRUE(has(message([](BiasGradient& b) { b.cols = 9, b.rows = 1; }), "out"));
  EXPECT_TRUE(has(message([&](BiasGradient& b) { b.out = View(); }), "out"));
}

TEST(bias_gradient, assembles_everywhere) { expect_assembles(bias_gradient_entry()); }

TEST(bias_gradient, right_on_a_gpu) {
  expect_right_on_gpu(bias_gradient_entry(), {{{"rows", "8192"}, {"cols", "3072"}},
                                              {{"rows", "8192"}, {"cols", "2304"}, {"accumulate", "yes"}},
                                              {{"dtype", "f32"}, {"rows", "777"}, {"cols", "1001"}},
                                              {{"dtype", "f16"}, {"rows", "33"}, {"cols", "16"}}});
}

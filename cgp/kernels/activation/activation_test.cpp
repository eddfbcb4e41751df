// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>

#include "cgp/base/error.h"
#include "cgp/kernels/activation/activation_ref.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;
using namespace cgp::testing;

namespace {
const KernelEntry kAll[] = {activation_entry(), activation_backward_entry(), gated_entry(),
                            gated_backward_entry()};
}

TEST(activation, every_shape_and_function_matches_the_oracle) {
  for (const auto& kernel : kAll) {
    for (const char* f : {"relu", "silu", "gelu", "gelu_tanh"})
      for (auto [r, c] : {std::pair{"3", "7"}, {"5", "64"}, {"1", "4099"}})
        expect_right(kernel, {{"f", f}, {"rows", r}, {"cols", c}});
    for (const char* t : {"f32", "f16"}) expect_right(kernel, {{"dtype", t}, {"rows", "9"}, {"cols", "130"}});
    expect_right(kernel, {{"rows", "0"}, {"cols", "5"}});
  }
  for (const char* cols : {"64", "77"}) {
    expect_right(kAll[0], {{"bias", "1"}, {"rows", "9"}, {"cols", cols}, {"f", "gelu"}});
    expect_right(kAll[1], {{"bias", "1"}, {"rows", "9"}, {"cols", cols}, {"f", "gelu_tanh"}});
  }
}

// A sum, a product and a multiple of elements.
TEST(activation, identity_with_bias_gate_and_scale) {
  for (const char* cols : {"64", "77"}) {
    expect_right(kAll[0], {{"f", "identity"}, {"bias", "1"}, {"rows", "5"}, {"cols", cols}});
    expect_right(kAll[0],
                 {{"f", "identity"}, {"scale", "-1.7"}, {"rows", "5"}, {"cols", cols}, {"dtype", "f16"}});
    expect_right(kAll[0], {{"f", "gelu"}, {"scale", "0.3"}, {"bias", "1"}, {"rows", "5"}, {"cols", cols}});
    for (int k : {1, 2, 3}) expect_right(kAll[k], {{"f", "identity"}, {"rows", "5"}, {"cols", cols}});
  }
}

TEST(activation, relu_selects_and_does_not_branch) {
  const auto c = expect_right(kAll[0], {{"f", "relu"}, {"rows", "7"}, {"cols", "1000"}, {"dtype", "f32"}});
  EXPECT_EQ(c.divergent_branches, 0u);
}

// What activation.h says about them.
TEST(activation, approximations_of_gelu_differ_by_a_known_bound) {
  double by_tanh = 0, by_sigmoid = 0;
  for (double x = -8; x < 8; x += 1e-3) {
    const double exact = activation_value(Activation::gelu, x);
    by_tanh = std::max(by_tanh, std::fabs(activation_value(Activation::gelu_tanh, x) - exact));
    by_sigmoid = std::max(by_sigmoid, std::fabs(x / (1 + std::exp(-1.702 * x)) - exact));
  }
  EXPECT_TRUE(by_tanh > 4.7e-4 && by_tanh <= 4.8e-4) << by_tanh;
  EXPECT_TRUE(by_sigmoid > 2.0e-2 && by_sigmoid <= 2.1e-2) << by_sigmoid;
}

TEST(activation, slopes_are_finite_differences) {
  for (int f = 1; f < 5; ++f)
    for (double x : {-7.0, -2.0, -0.3, 0.2, 1.0, 3.0, 9.0}) {
      const double h = 1e-6;
      const auto at = [&](double v) { return activation_value(Activation(f), v); };
      EXPECT_NEAR(activation_slope(Activation(f), x), (at(x + h) - at(x - h)) / (2 * h), 1e-8);
    }
}

TEST(activation, a_wide_range_of_values) {
  HostArray x(DType::f32, {1, 4000});
  for (std::uint64_t i = 0; i < 4000; ++i) x.set(i, (double(i) - 2000) / 200);
  for (const char* f : {"silu", "gelu", "gelu_tanh"}) {
    expect_right(kAll[0], {{"f", f}}, "sm_90a", {{"x", x}});
    expect_right(kAll[1], {{"f", f}}, "sm_90a", {{"x", x}});
  }
}

TEST(activation, halves_of_one_matrix_and_special_values) {
  auto device = runtime::Device::open("emu");
  const std::uint64_t rows = 3, cols = 16;
  const auto x = random_array(DType::bf16, {rows, 2 * cols}, 5);
  auto in = device.upload<bfloat16>(typed<bfloat16>(x));
  auto out = device.zeros<bfloat16>(rows * cols);
  Gate g;
  g.gate = in, g.up = View(in).from(cols), g.out = out, g.rows = rows, g.cols = cols;
  g.gate_layout = g.up_layout = {2 * cols};
  gated(device.stream(), g);
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  auto special = device.upload<float>(std::vector<float>{inf, -inf, nan, -100, 0}),
       y = device.zeros<float>(5);
  Activate a;
  a.x = special, a.y = y, a.rows = 1, a.cols = 5;
  activate(device.stream(), a);
  device.sync();
  HostArray got(DType::bf16, {rows, cols});
  out.download(typed<bfloat16>(got));
  for (std::uint64_t r = 0; r < rows; ++r)
    for (std::uint64_t c = 0; c < cols; ++c) {
      const double want =
          activation_value(Activation::silu, x.at(r * 2 * cols + c)) * x.at((r * 2 + 1) * cols + c);
      EXPECT_NEAR(got.at(r * cols + c), want, std::fabs(want) * 0x1p-8 + 1e-7);
    }
  const auto s = y.to_vector();
  EXPECT_EQ(s[0], inf);
  EXPECT_TRUE(std::isnan(s[1]) && std::isnan(s[2]));
  EXPECT_NEAR(s[3], 0, 1e-37);
  EXPECT_EQ(s[4], 0.f);
  g.up = View();
  EXPECT_THROW(gated(device.stream(), g), ArgumentError);
}

TEST(activation, runs_on_every_architecture) {
  for (auto arch : kTargets)
    expect_right(kAll[3], {{"dtype", "f16"}, {"rows", "5"}, {"cols", "200"}, {"f", "gelu"}}, arch);
}

TEST(activation, right_and_repeatable_on_a_gpu) {
  for (const auto& kernel : kAll)
    expect_right_on_gpu(kernel, {{{"rows", "640"}, {"cols", "1024"}},
                                 {{"rows", "33"}, {"cols", "777"}, {"f", "gelu"}},
                                 {{"dtype", "f32"}, {"rows", "100"}, {"cols", "1001"}, {"f", "gelu_tanh"}}});
}

TEST(activation, every_variant_assembles_without_spills) {
  for (const auto& kernel : kAll) expect_assembles(kernel);
}

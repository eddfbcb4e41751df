// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/softmax/softmax_rows.h"

#include <gtest/gtest.h>

#include "cgp/base/error.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;
using namespace cgp::testing;

namespace {
const KernelEntry kAll[] = {log_softmax_entry(), softmax_backward_entry(), log_softmax_backward_entry()};
}

TEST(softmax_rows, every_row_length_matches_the_oracle) {
  for (const auto& kernel : kAll) {
    for (auto [r, c] :
         {std::pair{"0", "5"}, {"3", "1"}, {"17", "7"}, {"9", "64"}, {"6", "1000"}, {"3", "4097"}})
      expect_right(kernel, {{"rows", r}, {"cols", c}});
    for (const char* t : {"f32", "f16"}) expect_right(kernel, {{"dtype", t}, {"rows", "7"}, {"cols", "264"}});
  }
  expect_right(kAll[0], {{"dtype", "f32"}, {"rows", "1"}, {"cols", "66000"}});
  for (const auto& kernel : kAll) {  // rows that begin anywhere
    for (const char* t : {"f32", "bf16"})
      expect_right(kernel, {{"dtype", t}, {"rows", "21"}, {"cols", "517"}});
    expect_right(kernel, {{"rows", "3"}, {"cols", "35001"}});
  }
}

TEST(softmax_rows, gradients_are_finite_differences) {
  auto device = runtime::Device::open("emu");
  const std::vector<float> x{0.3f, -1.2f, 0.8f, 2.1f, -0.4f}, dy{0.5f, -0.25f, 1.5f, 0.75f, -2.f};
  const auto probabilities = [](const std::vector<double>& v, bool log) {
    double sum = 0;
    for (double a : v) sum += std::exp(a);
    std::vector<double> p;
    for (double a : v) p.push_back(log ? a - std::log(sum) : std::exp(a) / sum);
    return p;
  };
  const std::vector<double> at(x.begin(), x.end());
  for (bool log : {false, true}) {
    const auto p = probabilities(at, log);
    const std::vector<float> y(p.begin(), p.end());
    auto in = device.upload<float>(y), d = device.upload<float>(dy), out = device.zeros<float>(5);
    SoftmaxRows r;
    r.in = in, r.dy = d, r.out = out, r.rows = 1, r.cols = 5;
    log ? log_softmax_backward(device.stream(), r) : softmax_backward(device.stream(), r);
    device.sync();
    const auto got = out.to_vector();
    for (std::size_t i = 0; i < 5; ++i) {
      double slope = 0;
      for (double h : {1e-5, -1e-5}) {
        auto moved = at;
        moved[i] += h;
        const auto q = probabilities(moved, log);
        for (std::size_t j = 0; j < 5; ++j) slope += q[j] * double(dy[j]) / (2 * h);
      }
      EXPECT_NEAR(got[i], slope, 1e-5) << log << i;
    }
  }
  SoftmaxRows bad;
  EXPECT_THROW(softmax_backward(device.stream(), bad), ArgumentError);
}

TEST(softmax_rows, right_and_repeatable_on_a_gpu) {
  for (const auto& kernel : kAll)
    expect_right_on_gpu(kernel, {{{"rows", "64"}, {"cols", "1024"}},
                                 {{"rows", "300"}, {"cols", "32768"}},
                                 {{"rows", "300"}, {"cols", "131072"}},
                                 {{"dtype", "f32"}, {"rows", "33"}, {"cols", "777"}}});
}

TEST(softmax_rows, every_variant_assembles_without_spills) {
  for (const auto& kernel : kAll) expect_assembles(kernel);
}

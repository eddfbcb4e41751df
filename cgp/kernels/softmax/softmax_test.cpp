// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/softmax/softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cgp/base/error.h"
#include "cgp/kernels/softmax/softmax_ref.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;
using namespace cgp::testing;

namespace {
const KernelEntry kOthers[] = {log_softmax_entry(), softmax_backward_entry(), log_softmax_backward_entry()};
}

TEST(softmax, every_row_length_matches_the_oracle) {
  for (const char* t : {"f32", "f16", "bf16"})
    for (auto [r, c] : {std::pair{"0", "5"},
                        {"5", "0"},
                        {"3", "1"},
                        {"17", "7"},
                        {"9", "64"},
                        {"20", "33"},
                        {"2", "1000"},
                        {"3", "1024"},
                        {"1", "4097"}})
      expect_right(softmax_entry(), {{"dtype", t}, {"rows", r}, {"cols", c}});
  expect_right(softmax_entry(), {{"rows", "2"}, {"cols", "8192"}});
  for (const char* t : {"f32", "f16", "bf16"})  // rows that begin anywhere
    expect_right(softmax_entry(), {{"dtype", t}, {"rows", "9"}, {"cols", "1037"}});
  expect_right(softmax_entry(), {{"rows", "3"}, {"cols", "35001"}});
  expect_right(softmax_entry(), {{"dtype", "f32"}, {"rows", "1"}, {"cols", "66000"}});  // read twice
}

TEST(softmax, runs_on_every_architecture) {
  for (auto arch : kTargets)
    expect_right(softmax_entry(), {{"dtype", "f32"}, {"rows", "5"}, {"cols", "200"}}, arch);
}

TEST(softmax, a_row_that_fits_is_read_once) {
  const auto c = expect_right(softmax_entry(), {{"dtype", "bf16"}, {"rows", "4"}, {"cols", "4096"}});
  EXPECT_EQ(c.global_load_bytes, 4u * 4096 * 2);
  EXPECT_EQ(c.global_store_bytes, 4u * 4096 * 2);
}

TEST(softmax, special_rows_are_defined) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (std::uint64_t cols : {8u, 40u, 203u, 2000u}) {
    HostArray x(DType::f32, {6, cols});
    for (std::uint64_t i = 0; i < cols; ++i) {
      x.set(i, 3);                                // all equal
      x.set(cols + i, -inf);                      // nothing allowed: NaN
      x.set(2 * cols + i, i == 5 ? nan : 1);      // NaN poisons its row alone
      x.set(3 * cols + i, i == 2 ? inf : 0);      // inf - inf
      x.set(4 * cols + i, i == 7 ? 2 : -inf);     // one allowed
      x.set(5 * cols + i, i % 2 ? 3e38 : -3e38);  // no overflow
    }
    expect_right(softmax_entry(), {}, "sm_90a", {{"x", x}});
  }
}

TEST(softmax, strided_rows_and_bad_slices) {
  auto device = runtime::Device::open("emu");
  const auto x = random_array(DType::f32, {3, 20}, 1);
  auto dx = device.upload<float>(typed<float>(x)), dy = device.zeros<float>(60);
  Softmax s;
  s.in = dx, s.out = dy, s.rows = 3, s.cols = 16, s.in_layout.pitch = s.out_layout.pitch = 20;
  softmax(device.stream(), s);
  device.sync();
  const auto y = dy.to_vector();
  for (std::size_t r = 0; r < 3; ++r) {
    double sum = 0, want = 0;
    for (std::size_t c = 0; c < 16; ++c) sum += y[r * 20 + c], want += std::exp(x.at(r * 20 + c));
    EXPECT_NEAR(sum, 1, 1e-6);
    EXPECT_NEAR(y[r * 20 + 3], std::exp(x.at(r * 20 + 3)) / want, 1e-7);
    for (std::size_t c = 16; c < 20; ++c) EXPECT_EQ(y[r * 20 + c], 0.f);  // between the rows
  }
  auto bad = s;
  bad.cols = 20, bad.in_layout.pitch = 16;
  EXPECT_THROW(softmax(device.stream(), bad), ArgumentError);
  bad = s, bad.rows = 4;
  EXPECT_THROW(softmax(device.stream(), bad), ArgumentError);
}

// Forms and lengths that selection does not bring together.
TEST(softmax, every_skeleton_takes_ragged_rows) {
  auto device = runtime::Device::open("emu");
  for (DType type : {DType::f32, DType::bf16}) {
    const int e = 16 / cgp::bytes(type);
    row::RowConfig overlapping{e, 32, 1, 2, 2, 3, 1}, persistent{e, 32, 1, 2, 4, 0, 1};
    overlapping.overlap_exchange = true, persistent.persistent = true;
    for (const row::RowConfig& t : {row::RowConfig{e, 64, 1, 2, 1, 2, 2},
                                    row::RowConfig{e, 64, 1, 1, 2, 3, 1}, overlapping, persistent}) {
      const auto fits = std::uint64_t(t.threads * t.loads * t.cluster * e);
      for (std::uint64_t cols : {fits, fits - 24, fits / 2 + 8, std::uint64_t(8)}) {
        const std::uint64_t rows = 60;
        const auto x = random_array(type, {rows, cols}, 7);
        HostArray y(type, x.shape);
        auto in = device.alloc<std::byte>(x.bytes.size()), out = device.alloc<std::byte>(x.bytes.size());
        in.upload(x.bytes);
        Softmax s;
        const auto view = [&](const auto& b) {
          return View(b.address(), rows * cols, type, true, device.backend().get());
        };
        s.in = view(in), s.out = view(out), s.rows = rows, s.cols = cols, s.config = t;
        softmax(device.stream(), s);
        device.sync();
        out.download(y.bytes);
        const auto want = softmax_ref(x, rows, cols);
        const auto check = compare(y, want, [&](std::uint64_t i) {
          return softmax_tolerance(type, want[i], -std::log2(want[i]) + 8, cols);
        });
        EXPECT_TRUE(check.pass) << check.describe() << " " << name(type) << " " << cols << " " << describe(t);
      }
    }
  }
}

TEST(softmax, right_and_repeatable_on_a_gpu) {
  expect_right_on_gpu(softmax_entry(), {{{"rows", "64"}, {"cols", "1024"}},
                                        {{"rows", "16"}, {"cols", "32768"}},
                                        {{"rows", "300"}, {"cols", "50257"}},
                                        {{"rows", "7"}, {"cols", "100000"}},
                                        {{"dtype", "f32"}, {"rows", "33"}, {"cols", "777"}},
                                        {{"dtype", "f16"}, {"rows", "3"}, {"cols", "65536"}}});
}

TEST(softmax, every_variant_assembles_without_spills) { expect_assembles(softmax_entry()); }

TEST(softmax, logarithms_and_gradients_match_the_oracle) {
  for (const auto& kernel : kOthers) {
    for (auto [r, c] :
         {std::pair{"0", "5"}, {"3", "1"}, {"17", "7"}, {"9", "64"}, {"6", "1000"}, {"3", "4097"}})
      expect_right(kernel, {{"rows", r}, {"cols", c}});
    for (const char* t : {"f32", "f16"}) expect_right(kernel, {{"dtype", t}, {"rows", "7"}, {"cols", "264"}});
  }
  expect_right(kOthers[0], {{"dtype", "f32"}, {"rows", "1"}, {"cols", "66000"}});
  for (const auto& kernel : kOthers) {  // rows that begin anywhere
    for (const char* t : {"f32", "bf16"})
      expect_right(kernel, {{"dtype", t}, {"rows", "21"}, {"cols", "517"}});
    expect_right(kernel, {{"rows", "3"}, {"cols", "35001"}});
  }
}

TEST(softmax, gradients_are_finite_differences) {
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
    Softmax r;
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
  Softmax bad;
  EXPECT_THROW(softmax_backward(device.stream(), bad), ArgumentError);
}

TEST(softmax, logarithms_and_gradients_are_right_and_repeatable_on_a_gpu) {
  for (const auto& kernel : kOthers)
    expect_right_on_gpu(kernel, {{{"rows", "64"}, {"cols", "1024"}},
                                 {{"rows", "300"}, {"cols", "32768"}},
                                 {{"rows", "300"}, {"cols", "131072"}},
                                 {{"dtype", "f32"}, {"rows", "33"}, {"cols", "777"}}});
}

TEST(softmax, logarithms_and_gradients_assemble_without_spills) {
  for (const auto& kernel : kOthers) expect_assembles(kernel);
}

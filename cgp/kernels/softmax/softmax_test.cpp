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
  softmax<float>(device.stream(), dx, dy, {3, 16, 20, 20});
  device.sync();
  const auto y = dy.to_vector();
  for (std::size_t r = 0; r < 3; ++r) {
    double sum = 0, want = 0;
    for (std::size_t c = 0; c < 16; ++c) sum += y[r * 20 + c], want += std::exp(x.at(r * 20 + c));
    EXPECT_NEAR(sum, 1, 1e-6);
    EXPECT_NEAR(y[r * 20 + 3], std::exp(x.at(r * 20 + 3)) / want, 1e-7);
    for (std::size_t c = 16; c < 20; ++c) EXPECT_EQ(y[r * 20 + c], 0.f);  // between the rows
  }
  EXPECT_THROW(softmax<float>(device.stream(), dx, dy, {3, 20, 16, 20}), ArgumentError);
  EXPECT_THROW(softmax<float>(device.stream(), dx, dy, {4, 20}), ArgumentError);
}

TEST(softmax, rings_take_any_aligned_row) {
  auto device = runtime::Device::open("emu");
  for (DType type : {DType::f32, DType::bf16})
    for (const SoftmaxTuning& t : {SoftmaxTuning{64, 1, 2, 1, 2, 2}, SoftmaxTuning{64, 1, 1, 2, 3, 1},
                                   SoftmaxTuning{32, 1, 2, 4, 2, 1}}) {
      const std::uint64_t fits =
          std::uint64_t(t.lanes) * t.loads * t.cluster * 16 / std::uint64_t(cgp::bytes(type));
      for (std::uint64_t cols : {fits, fits - 24, fits / 2 + 8, std::uint64_t(8)}) {
        const SoftmaxShape shape{300, cols, cols, cols};
        const auto x = random_array(type, {shape.rows, cols}, 7);
        HostArray y(type, x.shape);
        auto in = device.alloc<std::byte>(x.bytes.size()), out = device.alloc<std::byte>(x.bytes.size());
        in.upload(x.bytes);
        run_softmax(device.stream(), {softmax_variant(type, true, t), t, {}}, shape,
                    runtime::arg(std::as_const(in)), runtime::arg(out));
        device.sync();
        out.download(y.bytes);
        const auto want = softmax_ref(x, shape.rows, cols);
        const auto check = compare(y, want, [&](std::uint64_t i) {
          return softmax_tolerance(type, want[i], -std::log2(want[i]) + 8, cols);
        });
        EXPECT_TRUE(check.pass) << check.describe() << " " << name(type) << " " << cols << " lanes "
                                << t.lanes << " cluster " << t.cluster;
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

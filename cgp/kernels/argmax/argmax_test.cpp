// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/argmax/argmax.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <limits>

#include "cgp/base/error.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;
using namespace cgp::testing;

namespace {
constexpr double kInf = std::numeric_limits<double>::infinity(),
                 kNaN = std::numeric_limits<double>::quiet_NaN();
}

TEST(argmax, every_row_length_matches_the_oracle) {
  for (auto [r, c] : {std::pair{"0", "5"},
                      {"3", "1"},
                      {"17", "7"},
                      {"9", "64"},
                      {"6", "1000"},
                      {"3", "4097"},
                      {"2", "16384"},
                      {"1", "70001"},
                      {"2", "65544"}})
    expect_right(argmax_entry(), {{"rows", r}, {"cols", c}, {"values", "1"}});
  for (const char* t : {"f32", "f16"})
    expect_right(argmax_entry(), {{"dtype", t}, {"rows", "7"}, {"cols", "264"}, {"wide", "0"}});
}

TEST(argmax, runs_on_every_architecture) {
  for (auto arch : kTargets)
    expect_right(argmax_entry(), {{"dtype", "f16"}, {"rows", "5"}, {"cols", "200"}}, arch);
}

TEST(argmax, equals_nans_and_infinities) {
  for (std::uint64_t cols : {5u, 64u, 1000u, 4096u, 33000u}) {
    const std::uint64_t rows = 8;
    HostArray x(DType::f32, {rows, cols});
    for (std::uint64_t i = 0; i < cols; ++i) {
      const double v = double(i * 7919 % cols) / double(cols);
      x.set(i, 3);                                                     // all equal
      x.set(cols + i, -kInf);                                          // all -inf
      x.set(2 * cols + i, i % 3 == 2 ? kInf : v);                      // infinities from 2 on
      x.set(3 * cols + i, i == cols / 2 || i == cols - 1 ? kNaN : v);  // two NaNs
      x.set(4 * cols + i, i == cols - 1 ? -kInf : kNaN);               // NaNs but for the last
      x.set(5 * cols + i, i % 2 ? 0.0 : -0.0);                         // zeros of both signs
      x.set(6 * cols + i, i == cols - 1 ? 5 : i == 0 ? kInf : kNaN);   // NaN beats infinity
      x.set(7 * cols + i, i == cols - 1 ? -1 : -2);                    // the last
    }
    expect_right(argmax_entry(), {{"dtype", "f32"}}, "sm_90a", {{"x", x}});
    auto device = runtime::Device::open("emu");
    auto in = device.upload<float>(typed<float>(x));
    auto index = device.zeros<std::int64_t>(rows);
    ArgMax a;
    a.in = std::as_const(in), a.index = index, a.rows = rows, a.cols = cols;
    argmax(device.stream(), a);
    device.sync();
    const auto last = std::int64_t(cols - 1);
    EXPECT_EQ(index.to_vector(),
              (std::vector<std::int64_t>{0, 0, 2, last == 4 ? 2 : last / 2 + 1, 0, 0, 1, last}));
  }
}

TEST(argmax, rows_with_a_pitch_and_in_groups) {
  auto device = runtime::Device::open("emu");
  const std::uint64_t rows = 6, cols = 24, pitch = 40;
  std::vector<float> host(rows * pitch, 1e30f);  // what lies between rows is larger
  for (std::uint64_t r = 0; r < rows; ++r)
    for (std::uint64_t c = 0; c < cols; ++c) host[r * pitch + c] = float((c * 5 + r * 3) % cols);
  auto in = device.upload<float>(host);
  auto index = device.zeros<std::int32_t>(rows);
  ArgMax a;
  a.in = std::as_const(in), a.index = index, a.rows = rows, a.cols = cols, a.layout.pitch = pitch;
  const auto expect = [&](const std::vector<std::uint64_t>& starts) {
    argmax(device.stream(), a);
    device.sync();
    const auto got = index.to_vector();
    for (std::uint64_t r = 0; r < a.rows; ++r) {
      std::uint64_t best = 0;
      for (std::uint64_t c = 1; c < cols; ++c)
        if (host[starts[r] + c] > host[starts[r] + best]) best = c;
      EXPECT_EQ(got[r], std::int32_t(best)) << r;
    }
  };
  expect({0, 40, 80, 120, 160, 200});
  a.rows = 4, a.layout.inner = 2, a.layout.outer = 120;
  expect({0, 40, 120, 160});
}

// Equal maxima in every part of a row: before, among and behind its wide accesses. What lies between rows is
// larger.
TEST(argmax, rows_that_begin_anywhere) {
  auto device = runtime::Device::open("emu");
  const auto none = [](std::uint64_t, std::uint64_t cols) { return std::vector<std::uint64_t>{cols}; };
  const auto ends = [](std::uint64_t r, std::uint64_t cols) {
    return std::vector<std::uint64_t>{r % 17, cols - 1 - r % 7, cols / 2 + r};
  };
  const auto late = [](std::uint64_t r, std::uint64_t cols) {
    return std::vector<std::uint64_t>{cols - 1, cols - 1 - r % 9};
  };
  for (DType type : {DType::f16, DType::f32})
    for (auto [rows, cols, before, gap] : {std::array<std::uint64_t, 4>{37, 130, 3, 0},
                                           {19, 517, 0, 6},
                                           {18, 1001, 1, 0},
                                           {9, 4099, 5, 2},
                                           {3, 40003, 7, 0}})
      for (const auto& where :
           {std::function<std::vector<std::uint64_t>(std::uint64_t, std::uint64_t)>(none), {ends}, {late}}) {
        const std::uint64_t pitch = cols + gap;
        HostArray x(type, {before + rows * pitch});
        std::vector<std::int32_t> want;
        for (std::uint64_t i = 0; i < x.size(); ++i) x.set(i, 9);
        for (std::uint64_t r = 0; r < rows; ++r) {
          std::uint64_t best = cols;
          for (std::uint64_t c = 0; c < cols; ++c) x.set(before + r * pitch + c, -kInf);
          for (const auto c : where(r, cols))
            if (c < cols) x.set(before + r * pitch + c, 5), best = std::min(best, c);
          want.push_back(best < cols ? std::int32_t(best) : 0);
        }
        auto memory = device.alloc<std::byte>(x.bytes.size());
        memory.upload(x.bytes);
        auto index = device.zeros<std::int32_t>(rows);
        ArgMax a;
        a.in = View(memory.address(), x.size(), type, false, memory.all().backend()).from(before);
        a.index = index, a.rows = rows, a.cols = cols, a.layout.pitch = pitch;
        EXPECT_TRUE(argmax_variant(a, device.info(), nullptr).name.find("edges") != std::string::npos);
        argmax(device.stream(), a);
        device.sync();
        EXPECT_EQ(index.to_vector(), want) << cols;
      }
}

TEST(argmax, bad_arguments_are_named) {
  auto device = runtime::Device::open("emu");
  auto x = device.zeros<float>(8);
  auto i = device.zeros<std::int32_t>(2);
  ArgMax a;
  a.in = x, a.index = i, a.rows = 2, a.cols = 0;
  EXPECT_THROW(argmax(device.stream(), a), ArgumentError);
  a.cols = 5;
  EXPECT_THROW(argmax(device.stream(), a), ArgumentError);
  a.cols = 4, a.index = x;
  EXPECT_THROW(argmax(device.stream(), a), ArgumentError);
}

// WebGPU promises 256.
TEST(argmax, blocks_are_no_larger_than_the_device_allows) {
  auto device = runtime::Device::open("emu:sm_75").info();
  ArgMax a;
  a.in = View::stand_in(DType::f32), a.index = View::stand_in(DType::s32), a.rows = 1, a.cols = 49152;
  EXPECT_NE(argmax_variant(a, device, nullptr).name.find("_512x1_"), std::string::npos);
  device.max_threads_per_block = 256;
  EXPECT_NE(argmax_variant(a, device, nullptr).name.find("_256x1_"), std::string::npos);
}

TEST(argmax, right_and_repeatable_on_a_gpu) {
  expect_right_on_gpu(argmax_entry(), {{{"rows", "64"}, {"cols", "1024"}},
                                       {{"rows", "300"}, {"cols", "32000"}, {"values", "1"}},
                                       {{"rows", "30"}, {"cols", "151936"}},
                                       {{"dtype", "f32"}, {"rows", "33"}, {"cols", "777"}, {"wide", "0"}},
                                       {{"dtype", "f16"}, {"rows", "3"}, {"cols", "500001"}}});
}

TEST(argmax, every_variant_assembles_without_spills) { expect_assembles(argmax_entry()); }

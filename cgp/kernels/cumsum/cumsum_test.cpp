// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/cumsum/cumsum.h"

#include <gtest/gtest.h>

#include <limits>

#include "cgp/base/error.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;
using namespace cgp::testing;

TEST(cumsum, every_row_length_matches_the_oracle) {
  for (const char* exclusive : {"0", "1"})
    for (auto [r, c] : {std::pair{"0", "5"},
                        {"3", "0"},
                        {"3", "1"},
                        {"17", "7"},
                        {"6", "64"},
                        {"3", "1000"},
                        {"2", "2056"},
                        {"2", "4097"},
                        {"1", "24584"}})
      expect_right(cumsum_entry(), {{"rows", r}, {"cols", c}, {"exclusive", exclusive}});
  for (const char* t : {"f32", "f16"})
    for (const char* c : {"264", "131", "3000"})
      expect_right(cumsum_entry(), {{"dtype", t}, {"rows", "5"}, {"cols", c}});
}

TEST(cumsum, runs_on_every_architecture) {
  for (auto arch : kTargets)
    for (const char* c : {"200", "4096"})
      expect_right(cumsum_entry(), {{"dtype", "f16"}, {"rows", "2"}, {"cols", c}}, arch);
}

TEST(cumsum, whole_numbers_are_exact_in_place_and_by_a_pitch) {
  auto device = runtime::Device::open("emu");
  for (bool exclusive : {false, true})
    for (std::uint64_t cols : {12u, 1500u}) {
      const std::uint64_t rows = 3, pitch = cols + 4;
      std::vector<float> host(rows * pitch, 1000.f);
      for (std::uint64_t r = 0; r < rows; ++r)
        for (std::uint64_t c = 0; c < cols; ++c) host[r * pitch + c] = float(c % 7 + r);
      auto x = device.upload<float>(host);
      CumSum p;
      p.x = std::as_const(x), p.out = x, p.rows = rows, p.cols = cols, p.exclusive = exclusive;
      p.x_layout.pitch = p.out_layout.pitch = pitch;
      cumsum(device.stream(), p);
      device.sync();
      const auto got = x.to_vector();
      for (std::uint64_t r = 0; r < rows; ++r) {
        float sum = 0;
        for (std::uint64_t c = 0; c < pitch; ++c) {
          const float before = sum;
          sum += host[r * pitch + c];
          EXPECT_EQ(got[r * pitch + c], c >= cols ? 1000.f : exclusive ? before : sum) << r << " " << c;
        }
      }
    }
}

TEST(cumsum, an_infinity_starts_at_its_place) {
  auto device = runtime::Device::open("emu");
  for (std::uint64_t cols : {40u, 5000u}) {
    const std::uint64_t at = cols / 2 + 1;
    std::vector<float> host(cols, 1.f);
    host[at] = std::numeric_limits<float>::infinity();
    auto x = device.upload<float>(host);
    auto y = device.zeros<float>(cols);
    CumSum p;
    p.x = std::as_const(x), p.out = y, p.rows = 1, p.cols = cols, p.exclusive = true;
    cumsum(device.stream(), p);
    device.sync();
    const auto got = y.to_vector();
    for (std::uint64_t c = 0; c < cols; ++c) EXPECT_EQ(got[c], c <= at ? float(c) : host[at]) << c;
  }
}

TEST(cumsum, bad_arguments_are_named) {
  auto device = runtime::Device::open("emu");
  auto x = device.zeros<float>(8);
  CumSum p;
  p.x = x, p.out = x, p.rows = 2, p.cols = 5;
  EXPECT_THROW(cumsum(device.stream(), p), ArgumentError);
  p.cols = 2, p.x_layout.pitch = 4;
  EXPECT_THROW(cumsum(device.stream(), p), ArgumentError);
  p.out = View();
  EXPECT_THROW(cumsum(device.stream(), p), ArgumentError);
}

TEST(cumsum, right_and_repeatable_on_a_gpu) {
  expect_right_on_gpu(cumsum_entry(),
                      {{{"rows", "640"}, {"cols", "1024"}},
                       {{"rows", "33"}, {"cols", "777"}, {"dtype", "f32"}, {"exclusive", "1"}},
                       {{"rows", "20"}, {"cols", "100000"}, {"dtype", "f32"}},
                       {{"rows", "7"}, {"cols", "5003"}, {"dtype", "f16"}}});
}

TEST(cumsum, every_variant_assembles_without_spills) { expect_assembles(cumsum_entry()); }

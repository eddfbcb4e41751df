// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/transpose/transpose.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cgp/base/error.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;
using namespace cgp::testing;

TEST(transpose, every_shape_matches_the_oracle) {
  for (const char* t : {"u8", "f16", "f32", "f64"})
    for (auto [r, c] : {std::pair{"0", "5"},
                        {"1", "1"},
                        {"1", "300"},
                        {"300", "1"},
                        {"33", "65"},
                        {"64", "64"},
                        {"136", "72"},
                        {"127", "130"}})
      expect_right(transpose_entry(), {{"dtype", t}, {"rows", r}, {"cols", c}});
  expect_right(transpose_entry(), {{"dtype", "bf16"}, {"batch", "3"}, {"rows", "40"}, {"cols", "24"}});
}

TEST(transpose, runs_on_every_architecture) {
  for (auto arch : kTargets) expect_right(transpose_entry(), {{"rows", "68"}, {"cols", "100"}}, arch);
}

TEST(transpose, the_vector_variant_has_no_bank_conflicts_and_whole_sectors) {
  for (auto [t, bytes] : {std::pair{"f16", 2u}, {"f32", 4u}, {"f64", 8u}, {"u8", 1u}}) {
    const auto c = expect_right(transpose_entry(), {{"dtype", t}, {"rows", "256"}, {"cols", "256"}});
    EXPECT_EQ(c.shared_load_conflicts, 0u) << t;
    EXPECT_EQ(c.shared_store_conflicts, 0u) << t;
    EXPECT_EQ(c.global_load_sectors, 256u * 256 * bytes / 32) << t;
    EXPECT_EQ(c.global_store_sectors, 256u * 256 * bytes / 32) << t;
  }
}

TEST(transpose, large_ragged_matrices) {
  for (const char* t : {"u8", "f16", "f32", "f64"})
    expect_right(transpose_entry(), {{"dtype", t}, {"batch", "2"}, {"rows", "259"}, {"cols", "405"}});
}

// Wherever the rows of the output begin: compulsory sectors, and of each row the two that the matrix's edges
// share with its neighbours. The kernel of single accesses needs a fifth more on both sides.
TEST(transpose, misaligned_rows_are_stored_in_whole_sectors) {
  const std::uint64_t rows = 389, cols = 645, floor = rows * cols * 4 / 32;
  const auto run = [&](const char* arch) {
    return expect_right(transpose_entry(), {{"rows", "389"}, {"cols", "645"}}, arch);
  };
  const auto sectors = run("sm_90a"), elementwise = run("sm_80");
  EXPECT_LE(sectors.global_store_sectors, floor + 2 * cols);
  EXPECT_EQ(sectors.shared_load_conflicts, 0u);
  EXPECT_LT(sectors.global_load_sectors * 100, floor * 116);
  EXPECT_GT(elementwise.global_store_sectors * 100, floor * 120);
  EXPECT_LT(sectors.warp_instructions, elementwise.warp_instructions);
}

TEST(transpose, slices_may_start_anywhere) {
  auto device = runtime::Device::open("emu");
  for (auto [rows, cols] : {std::pair{200u, 131u}, {300u, 261u}}) {
    const std::size_t n = rows * cols;
    const auto host = random_array(DType::u16, {1 + n}, 3);
    auto in = device.upload<std::uint16_t>(typed<std::uint16_t>(host)),
         out = device.zeros<std::uint16_t>(3 + n + 2);
    transpose<std::uint16_t>(device.stream(), in.slice(1, n), out.slice(3, n), {1, rows, cols});
    device.sync();
    const auto got = out.to_vector();
    for (std::size_t i : {std::size_t(0), std::size_t(1), std::size_t(2), 3 + n, 4 + n}) EXPECT_EQ(got[i], 0);
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t c = 0; c < cols; ++c)
        ASSERT_EQ(got[3 + c * rows + r], std::uint16_t(host.at(1 + r * cols + c))) << r << " " << c;
  }
}

TEST(transpose, selection_says_why) {
  const auto ragged = select_transpose(4, {1, 5, 8}, 0, 0, {}),
             odd = select_transpose(2, {1, 8, 8}, 2, 0, {});
  EXPECT_EQ(ragged.variant.name, "transpose_b32_32x32");
  EXPECT_NE(ragged.why.find("multiples of 4"), std::string::npos);
  EXPECT_NE(odd.why.find("does not start"), std::string::npos);
  EXPECT_EQ(select_transpose(8, {1, 2, 2}, 256, 0, {}).variant.name,
            "transpose_b64_vector_32x32_strip0_min_blocks8");
}

TEST(transpose, overlapping_and_wrong_sizes_are_refused) {
  auto device = runtime::Device::open("emu");
  auto a = device.zeros<float>(12), b = device.zeros<float>(12);
  EXPECT_THROW(transpose<float>(device.stream(), a, b, {1, 3, 5}), ArgumentError);
  EXPECT_THROW(transpose<float>(device.stream(), a, a, {1, 3, 4}), ArgumentError);
}

TEST(transpose, right_and_repeatable_on_a_gpu) {
  expect_right_on_gpu(transpose_entry(),
                      {{{"rows", "1000"}, {"cols", "2001"}},
                       {{"dtype", "bf16"}, {"rows", "1003"}, {"cols", "777"}},
                       {{"dtype", "u8"}, {"rows", "1003"}, {"cols", "777"}},
                       {{"dtype", "f64"}, {"rows", "300"}, {"cols", "301"}, {"batch", "3"}},
                       {{"dtype", "bf16"}, {"rows", "1024"}, {"cols", "768"}},
                       {{"dtype", "u8"}, {"rows", "256"}, {"cols", "512"}},
                       {{"dtype", "f64"}, {"batch", "3"}}});
}

TEST(transpose, every_variant_assembles_without_spills) { expect_assembles(transpose_entry()); }

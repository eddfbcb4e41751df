// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/rope/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cgp/base/error.h"
#include "cgp/kernels/common/variant.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;
using namespace cgp::testing;

TEST(rope, every_form_matches_the_oracle) {
  for (const char* interleaved : {"0", "1"})
    for (const char* tables : {"0", "1"})
      for (auto [tokens, heads, dim] :
           {std::tuple{"3", "2", "128"}, {"7", "9", "36"}, {"5", "1", "2"}, {"0", "3", "8"}})
        expect_right(rope_entry(), {{"tokens", tokens},
                                    {"heads", heads},
                                    {"dim", dim},
                                    {"interleaved", interleaved},
                                    {"tables", tables}});
  for (const char* t : {"f32", "f16"})
    expect_right(rope_entry(), {{"dtype", t}, {"tokens", "9"}, {"inverse", "1"}, {"rotary", "64"}});
  for (const char* s : {"linear", "ntk", "yarn", "llama3"})
    expect_right(
        rope_entry(),
        {{"tokens", "5"}, {"heads", "2"}, {"dim", "64"}, {"scaling", s}, {"factor", "8"}, {"dtype", "f32"}});
}

TEST(rope, angles_are_exact_for_huge_positions) {
  for (const char* offset : {"1000000", "100000000000"})
    expect_right(rope_entry(),
                 {{"tokens", "2"}, {"heads", "1"}, {"dim", "64"}, {"offset", offset}, {"dtype", "f32"}});
}

TEST(rope, properties) {
  auto device = runtime::Device::open("emu");
  const std::uint64_t dim = 32, tokens = 6;
  const auto x = random_array(DType::f32, {tokens, dim}, 1);
  auto in = device.upload<float>(typed<float>(x)), y = device.zeros<float>(tokens * dim),
       z = device.zeros<float>(tokens * dim);
  Rope r;
  r.x = in, r.y = y, r.tokens = tokens, r.heads = 1, r.dim = dim;
  rope(device.stream(), r);
  Rope back = r;
  back.x = y, back.y = z, back.inverse = true;
  rope(device.stream(), back);
  const std::vector<std::int64_t> zeros(tokens, 0);
  auto positions = device.upload<std::int64_t>(zeros);
  auto same = device.zeros<float>(tokens * dim);
  Rope still = r;
  still.y = same, still.positions = positions;
  rope(device.stream(), still);
  device.sync();
  const auto rotated = y.to_vector(), again = z.to_vector(), unturned = same.to_vector();
  for (std::uint64_t t = 0; t < tokens; ++t) {
    double before = 0, after = 0;
    for (std::uint64_t i = 0; i < dim; ++i) {
      const auto at = t * dim + i;
      before += x.at(at) * x.at(at), after += double(rotated[at]) * rotated[at];
      EXPECT_NEAR(again[at], x.at(at), 1e-5);     // the inverse
      EXPECT_NEAR(unturned[at], x.at(at), 1e-6);  // position 0
    }
    EXPECT_NEAR(before, after, 1e-4);  // the norm
  }
  // The product of a query at m and a key at n depends on m - n only.
  const auto product = [&](std::uint64_t m, std::uint64_t n) {
    RopeFrequencies f;
    f.rotary = dim;
    const auto w = rope_frequencies(f);
    double sum = 0;
    for (std::uint64_t i = 0; i < dim / 2; ++i) {
      const auto angle = [&](std::uint64_t p) { return double(w[i]) * double(p); };
      sum += std::cos(angle(m)) * std::cos(angle(n)) + std::sin(angle(m)) * std::sin(angle(n));
    }
    return sum;
  };
  EXPECT_NEAR(product(5, 2), product(103, 100), 1e-9);
}

TEST(rope, bad_arguments_are_named) {
  auto device = runtime::Device::open("emu");
  auto x = device.zeros<float>(64), table = device.zeros<float>(8);
  Rope r;
  r.x = x, r.y = x, r.tokens = 2, r.heads = 2, r.dim = 16;
  rope(device.stream(), r);
  const auto message = [&](const Rope& bad) -> std::string {
    try {
      rope(device.stream(), bad);
    } catch (const ArgumentError& e) {
      return e.what();
    }
    return "";
  };
  auto bad = r;
  bad.dim = 15;
  EXPECT_NE(message(bad).find("dim must be even"), std::string::npos);
  bad = r, bad.frequencies.base = 0;
  EXPECT_NE(message(bad).find("base must be above 1"), std::string::npos);
  bad = r, bad.cos = table, bad.sin = table;
  EXPECT_NE(message(bad).find("must reach the last position"), std::string::npos);
  const auto kernel = rope_entry();
  for (const char* offset : {"4294967296", "18446744073709551615"}) {
    Options o("rope", kernel.options);
    o.set("tables", "1"), o.set("offset", offset);
    EXPECT_THROW((void)kernel.prepare(device, o, {}, 1), ArgumentError) << offset;
  }
  bad = r, bad.tokens = 3;
  EXPECT_NE(message(bad).find("x must hold all heads"), std::string::npos);
}

TEST(rope, runs_on_every_architecture) {
  for (auto arch : kTargets)
    expect_right(rope_entry(), {{"dtype", "f16"}, {"tokens", "5"}, {"heads", "2"}, {"dim", "32"}}, arch);
}

TEST(rope, right_and_repeatable_on_a_gpu) {
  expect_right_on_gpu(rope_entry(), {{{"tokens", "512"}},
                                     {{"tokens", "100"}, {"interleaved", "1"}, {"offset", "1000000"}},
                                     {{"tokens", "100"}, {"dim", "36"}, {"dtype", "f32"}, {"tables", "1"}}});
}

TEST(rope, every_variant_assembles_without_spills) { expect_assembles(rope_entry()); }

// SPDX-License-Identifier: Apache-2.0
// decode_linear between ranks: h w' is summed over them in the launch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cgp/base/error.h"
#include "cgp/base/float16.h"
#include "cgp/emu/policy.h"
#include "cgp/kernels/collective/test_group.h"
#include "cgp/kernels/decode_linear/decode_linear.h"

using namespace cgp;
using namespace cgp::kernels;
using cgp::testing::Group;
using ::testing::HasSubstr;

namespace {

float value(std::uint64_t i, int seed) { return float((i * 37 + std::uint64_t(seed) * 11) % 17) / 8 - 1; }

struct Layer {
  std::uint64_t m, k;  ///< k: of one rank
  std::vector<std::uint64_t> n;
  bool gated = false, bias = false, residual = false, pdl = false;
};

// One layer thrice: both slots, and the first again; y is the same on all ranks.
void check(Group& g, const Layer& l) {
  const auto ranks = std::size_t(g.all->size());
  std::uint64_t rows = 0;
  for (auto n : l.n) rows += n;
  const std::uint64_t columns = l.gated ? rows / 2 : rows;
  std::vector<runtime::Buffer<bfloat16>> memory;
  const auto put = [&](std::size_t r, std::uint64_t count, int seed) {
    std::vector<bfloat16> host;
    for (std::uint64_t i = 0; i < count; ++i) host.emplace_back(value(i, seed));
    memory.push_back(g.devices[r].upload<bfloat16>(host));
    return memory.back().address();
  };
  std::vector<DecodeLinear> calls(ranks);
  std::vector<std::size_t> y(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    DecodeLinear& p = calls[r];
    p.m = l.m, p.k = l.k, p.gated = l.gated, p.pdl = l.pdl, p.all = &*g.all, p.rank = int(r);
    if (l.gated) p.activation = Activation::silu;
    p.x = put(r, l.m * l.k, 100 + int(r));
    for (std::size_t w = 0; w < l.n.size(); ++w)
      p.weights.push_back(
          {put(r, l.n[w] * l.k, int(10 * r + w)), l.bias ? put(r, l.n[w], 200 + int(w)) : 0, l.n[w]});
    if (l.residual) p.residual = put(r, l.m * columns, 300);
    p.y = put(r, l.m * columns, 400);
    y[r] = memory.size() - 1;
  }
  for (int round = 0; round < 3; ++round)
    g.together([&](int r, runtime::Stream& s) { decode_linear(s, calls[std::size_t(r)]); });

  const auto of = [&](std::uint64_t i, std::size_t w, std::uint64_t j) {
    double sum = l.bias ? value(j, 200 + int(w)) : 0;
    for (std::size_t r = 0; r < ranks; ++r)
      for (std::uint64_t e = 0; e < l.k; ++e)
        sum += double(value(i * l.k + e, 100 + int(r))) * value(j * l.k + e, int(10 * r + w));
    return sum;
  };
  const auto first = memory[y[0]].to_vector();
  for (std::size_t r = 1; r < ranks; ++r) {
    const auto other = memory[y[r]].to_vector();
    for (std::size_t i = 0; i < first.size(); ++i)
      ASSERT_EQ(float(other[i]), float(first[i])) << r << " " << i;
  }
  for (std::uint64_t i = 0; i < l.m; ++i) {
    std::uint64_t column = 0;
    for (std::size_t w = 0; w < (l.gated ? 1 : l.n.size()); ++w)
      for (std::uint64_t j = 0; j < l.n[w]; ++j, ++column) {
        double want = of(i, w, j);
        if (l.gated) want = want / (1 + std::exp(-want)) * of(i, 1, j);
        if (l.residual) want += value(i * columns + column, 300);
        ASSERT_NEAR(float(first[i * columns + column]), want, 0.006 * std::fabs(want) + 1e-3)
            << i << " " << column;
      }
  }
}

const std::vector<Layer>& layers() {
  static const std::vector<Layer> all{{1, 64, {37}, false, false, true, true},
                                      {3, 136, {24, 5, 17}, false, true, false, false},
                                      {8, 72, {21, 21}, true, true, true, true},
                                      {2, 8, {4100}, false, false, true, false}};
  return all;
}

}  // namespace

TEST(decode_linear_ranks, adds_over_two_to_eight_devices) {
  for (int n : {1, 2, 4, 8}) {
    Group g(n);
    for (const auto& l : layers())
      if (n < 4 || l.n[0] < 1000) check(g, l);
  }
}

TEST(decode_linear_ranks, holds_under_every_schedule) {
  for (const char* schedule : {"fair", "random", "adversarial", "diverge"}) {
    Group g(3);
    for (auto& d : g.devices) {
      auto o = d.emulator_options();
      emu::parse_schedule(schedule).apply(o);
      d.set_emulator_options(o);
    }
    check(g, layers()[0]);
    check(g, layers()[2]);
  }
}

TEST(decode_linear_ranks, bad_arguments_name_the_argument) {
  Group g(2);
  DecodeLinear p;
  p.m = 1, p.k = 64, p.weights = {{16, 0, 8}}, p.x = p.y = 16, p.all = &*g.all;
  EXPECT_EQ(reject(p), "");
  p.rank = 2;
  EXPECT_THAT(reject(p), HasSubstr("rank = 2"));
  p.rank = 1, p.norm = DecodeLinearNorm::rms, p.norm_weight = 16;
  EXPECT_THAT(reject(p), HasSubstr("norm"));
  p.norm = DecodeLinearNorm::none, p.m = 8, p.weights[0].n = 40000;
  EXPECT_THAT(reject(p), HasSubstr("320000 values"));
  p.m = 1;
  try {
    decode_linear(g.streams[1], p);
    ADD_FAILURE() << "more blocks than fit";
  } catch (const Unsupported& e) {
    EXPECT_THAT(e.what(), HasSubstr("1250 blocks"));
  }
  p.weights[0].n = 8;
  EXPECT_THROW(decode_linear(g.streams[0], p), ArgumentError) << "rank 1 has another device";
}

// On one GPU that the ranks share.
TEST(decode_linear_ranks, right_on_a_gpu) {
  try {
    for (int n : {2, 3}) {
      Group g(n, 1 << 20, "cuda:0");
      for (const auto& l : layers())
        if (l.n[0] < 1000) check(g, l);
    }
  } catch (const Unsupported& e) {
    GTEST_SKIP() << e.what();
  }
}

// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/gemm_collective/gemm_collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cgp/base/error.h"
#include "cgp/base/float16.h"
#include "cgp/emu/policy.h"
#include "cgp/kernels/collective/test_group.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;
using namespace cgp::testing;
using ::testing::HasSubstr;

namespace {

float value(std::uint64_t i, int seed) { return float((i * 37 + std::uint64_t(seed) * 11) % 13) / 8 - 0.75f; }

struct Shape {
  std::uint64_t m, n, k;
  bool transposed = true;
};

struct Matrices {
  Matrices(Group& g, const Shape& shape, bool gathers, bool whole = false)
      : s(shape), ranks(std::uint64_t(g.all->size())) {
    for (std::uint64_t r = 0; r < ranks; ++r) {
      const auto put = [&](std::uint64_t count, int seed) {
        std::vector<bfloat16> host;
        for (std::uint64_t i = 0; i < count; ++i) host.emplace_back(value(i, seed));
        memory.push_back(g.devices[r].upload<bfloat16>(host));
        return View(memory.back());
      };
      GemmCollective p;
      p.m = s.m, p.n = s.n, p.k = s.k, p.transposed = s.transposed;
      p.x = put((gathers ? s.m / ranks : s.m) * s.k, int(r));
      p.weight = put(s.n * s.k, 100 + int(r));
      p.y = put((gathers || whole ? s.m : s.m / ranks) * s.n, 200);
      calls.push_back(p);
    }
  }
  double weight(std::uint64_t r, std::uint64_t j, std::uint64_t e) const {
    return value(s.transposed ? j * s.k + e : e * s.n + j, 100 + int(r));
  }
  std::vector<bfloat16> y(std::uint64_t r) { return memory[3 * r + 2].to_vector(); }
  Shape s;
  std::uint64_t ranks;
  std::vector<runtime::Buffer<bfloat16>> memory;  // x, weight, y of each rank
  std::vector<GemmCollective> calls;
};

// Three times: both slots, and the first again.
void check_gather(Group& g, const Shape& s) {
  Matrices a(g, s, true);
  for (int round = 0; round < 3; ++round)
    g.together([&](int r, runtime::Stream& t) { all_gather_gemm(t, *g.all, r, a.calls[std::size_t(r)]); });
  const auto part = s.m / a.ranks;
  for (std::uint64_t r = 0; r < a.ranks; ++r) {
    const auto got = a.y(r);
    for (std::uint64_t i = 0; i < s.m; ++i)
      for (std::uint64_t j = 0; j < s.n; ++j) {
        double want = 0;
        for (std::uint64_t e = 0; e < s.k; ++e)
          want += value(i % part * s.k + e, int(i / part)) * a.weight(r, j, e);
        ASSERT_NEAR(float(got[i * s.n + j]), want, 0.005 * std::fabs(want) + 1e-3)
            << "rank " << r << " of " << a.ranks << ", row " << i << ", column " << j;
      }
  }
}

// gemm_reduce_scatter or, all: gemm_all_reduce.
void check_scatter(Group& g, const Shape& s, bool all = false) {
  Matrices a(g, s, false, all);
  for (int round = 0; round < 3; ++round)
    g.together([&](int r, runtime::Stream& t) {
      const auto& p = a.calls[std::size_t(r)];
      all ? gemm_all_reduce(t, *g.all, r, p) : gemm_reduce_scatter(t, *g.all, r, p);
    });
  const auto part = all ? s.m : s.m / a.ranks;
  for (std::uint64_t r = 0; r < a.ranks; ++r) {
    const auto got = a.y(r);
    for (std::uint64_t i = 0; i < part; ++i)
      for (std::uint64_t j = 0; j < s.n; ++j) {
        double want = 0, size = 0;
        for (std::uint64_t q = 0; q < a.ranks; ++q) {
          double own = 0;
          for (std::uint64_t e = 0; e < s.k; ++e)
            own += value((all ? i : r * part + i) * s.k + e, int(q)) * a.weight(q, j, e);
          want += own, size += std::fabs(own);
        }
        ASSERT_NEAR(float(got[i * s.n + j]), want, 0.008 * size + 1e-3)
            << "rank " << r << " of " << a.ranks << ", row " << i << ", column " << j;
      }
  }
}

void set_schedule(Group& g, std::string_view schedule) {
  for (auto& d : g.devices) {
    auto o = d.emulator_options();
    emu::parse_schedule(schedule).apply(o);
    d.set_emulator_options(o);
  }
}

}  // namespace

TEST(gemm_collective, gathers_over_two_to_eight_devices) {
  for (int n : {1, 2, 4, 8}) {
    Group g(n);
    check_gather(g, {.m = std::uint64_t(24 * n), .n = 40, .k = 72});
  }
  Group g(2);
  check_gather(g, {.m = 2 * 150, .n = 264, .k = 8});  // clusters, several tiles
  check_gather(g, {.m = 2 * 33, .n = 24, .k = 136, .transposed = false});
  Group small(3, 3 * 2 * 2 * 72 * 40);  // in pieces of 40 rows
  check_gather(small, {.m = 3 * 100, .n = 8, .k = 72});
}

TEST(gemm_collective, scatters_over_two_to_eight_devices) {
  for (int n : {1, 2, 4, 8}) {
    Group g(n);
    check_scatter(g, {.m = std::uint64_t(24 * n), .n = 40, .k = 72});
  }
  Group g(2);
  check_scatter(g, {.m = 2 * 150, .n = 264, .k = 8});
  check_scatter(g, {.m = 2 * 33, .n = 24, .k = 136, .transposed = false});
  Group small(3, 3 * 2 * 2 * 24 * 40);
  check_scatter(small, {.m = 3 * 100, .n = 24, .k = 16});
}

TEST(gemm_collective, all_ranks_get_the_sum_of_any_shape) {
  Group g(3);
  for (const auto& s :
       {Shape{.m = 5, .n = 40, .k = 72}, Shape{.m = 1, .n = 9, .k = 16}, Shape{.m = 48, .n = 24, .k = 40},
        Shape{.m = 25, .n = 24, .k = 40}, Shape{.m = 12, .n = 21, .k = 13},
        Shape{.m = 7, .n = 24, .k = 40, .transposed = false}, Shape{.m = 0, .n = 8, .k = 8}})
    check_scatter(g, s, true);
  Group older(2, 1 << 20, "emu:sm_80");
  check_scatter(older, {.m = 20, .n = 24, .k = 40}, true);
}

TEST(gemm_collective, holds_under_every_schedule) {
  for (const char* schedule : {"fair", "random", "adversarial", "diverge"}) {
    Group g(3);
    set_schedule(g, schedule);
    check_gather(g, {.m = 3 * 40, .n = 16, .k = 72});
    check_scatter(g, {.m = 3 * 40, .n = 16, .k = 72});
  }
}

TEST(gemm_collective, bad_arguments_are_named) {
  Group g(2);
  Matrices a(g, {.m = 16, .n = 8, .k = 8}, true);
  const auto refused = [&](auto&& change) -> std::string {
    auto p = a.calls[0];
    change(p);
    try {
      all_gather_gemm(g.streams[0], *g.all, 0, p);
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refused([](auto& p) { p.m = 15; }), HasSubstr("m is a multiple of the ranks"));
  EXPECT_THAT(refused([](auto& p) { p.k = 16; }), HasSubstr("x has 8 x 16 elements"));
  EXPECT_THAT(refused([](auto& p) { p.y = View(); }), HasSubstr("y must be given"));
  EXPECT_THAT(refused([](auto& p) { p.type = DType::f16; }), HasSubstr("bf16 and f16"));
  EXPECT_THAT(refused([](auto& p) { p.x.address += 2; }), HasSubstr("multiples of 16 bytes"));
  EXPECT_THROW(all_gather_gemm(g.streams[1], *g.all, 0, a.calls[0]), ArgumentError) << "another device";
  Group other(2, 1 << 20, "emu:sm_80");
  Matrices b(other, {.m = 16, .n = 8, .k = 8}, true);
  try {
    all_gather_gemm(other.streams[0], *other.all, 0, b.calls[0]);
    ADD_FAILURE();
  } catch (const Unsupported& e) {
    EXPECT_THAT(e.what(), HasSubstr("sm_80"));
  }
}

// On one GPU that the ranks share.
TEST(gemm_collective, right_on_a_gpu) {
  try {
    for (int n : {1, 2, 3}) {
      Group g(n, 16 << 20, "cuda:0");
      for (const auto& s : {Shape{.m = 24 * std::uint64_t(n), .n = 40, .k = 72},
                            Shape{.m = 300 * std::uint64_t(n), .n = 520, .k = 264},
                            Shape{.m = 150 * std::uint64_t(n), .n = 264, .k = 136, .transposed = false}}) {
        check_gather(g, s);
        check_scatter(g, s);
        check_scatter(g, s, true);
      }
      check_scatter(g, {.m = 6, .n = 512, .k = 264}, true);
    }
  } catch (const Unsupported& e) {
    GTEST_SKIP() << e.what();
  }
}

TEST(gemm_collective, every_variant_assembles_without_spills) {
  expect_assemble(images_for({"sm_90a"}, gemm_collective_variants()));
}

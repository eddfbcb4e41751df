// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/collective/collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cgp/base/error.h"
#include "cgp/base/float16.h"
#include "cgp/emu/emu.h"
#include "cgp/kernels/collective/test_group.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;
using namespace cgp::testing;
using ::testing::HasSubstr;

namespace {

using Values = std::vector<std::vector<float>>;  // by rank

float value(int rank, std::uint64_t i, int round = 0) {
  return float((i * 7 + std::uint64_t(rank) * 13 + std::uint64_t(round)) % 31) - 15;
}

// Whole numbers: every sum of them is exact in f32. `shift`: elements that x and out begin behind an aligned address.
struct Buffers {
  Buffers(Group& g, std::uint64_t x_elements, std::uint64_t out_elements, std::uint64_t shift = 0,
          int round = 0)
      : shift(shift) {
    for (std::size_t r = 0; r < g.devices.size(); ++r) {
      std::vector<float> host(shift + x_elements);
      for (std::uint64_t i = 0; i < x_elements; ++i) host[shift + i] = value(int(r), i, round);
      x.push_back(g.devices[r].upload<float>(host, "x"));
      out.push_back(g.devices[r].alloc<float>(shift + out_elements, "out"));
    }
  }
  View x_of(int r) { return x[std::size_t(r)].slice(shift, x[std::size_t(r)].size() - shift); }
  View out_of(int r) { return out[std::size_t(r)].slice(shift, out[std::size_t(r)].size() - shift); }
  std::vector<float> got(int r) {
    auto all = out[std::size_t(r)].to_vector();
    return {all.begin() + std::ptrdiff_t(shift), all.end()};
  }
  std::uint64_t shift;
  std::vector<runtime::Buffer<float>> x, out;
};

void check_all_reduce(int n, std::uint64_t count, AllReduce how, std::uint64_t shift = 0,
                      std::uint64_t bytes = 1 << 20, const std::optional<emu::Options>& options = {},
                      std::string_view spec = "emu:sm_90a") {
  Group g(n, bytes, spec);
  for (auto& d : g.devices)
    if (options) d.set_emulator_options(*options);
  for (int round = 0; round < 3; ++round) {  // both slots, and the first again
    Buffers b(g, count, count, shift, round);
    g.together([&](int r, runtime::Stream& s) { all_reduce(s, *g.all, r, b.x_of(r), b.out_of(r), how); });
    std::vector<float> want(count);
    for (std::uint64_t i = 0; i < count; ++i)
      for (int r = 0; r < n; ++r) want[i] += value(r, i, round);
    for (int r = 0; r < n; ++r)
      ASSERT_EQ(b.got(r), want) << n << " ranks, " << count << " elements, rank " << r;
  }
}

}  // namespace

TEST(collective, sums_over_two_to_eight_devices) {
  for (int n : {1, 2, 4, 8})
    for (AllReduce how : {AllReduce::one_shot, AllReduce::two_shot})
      for (std::uint64_t count : {0, 7, 2051}) check_all_reduce(n, count, how);
  check_all_reduce(3, 2050, AllReduce::two_shot, 1);
  check_all_reduce(3, 1021, AllReduce::one_shot, 3);
  check_all_reduce(5, 5000, AllReduce::two_shot, 0, 32 << 10);  // in pieces
  check_all_reduce(2, 5000, AllReduce::choose, 0, 16 << 10);
}

TEST(collective, holds_under_every_schedule) {
  for (auto schedule :
       {emu::SchedulePolicy::diverge, emu::SchedulePolicy::random, emu::SchedulePolicy::adversarial})
    for (AllReduce how : {AllReduce::one_shot, AllReduce::two_shot}) {
      emu::Options o;
      o.schedule = schedule;
      o.schedule_seed = 5;
      check_all_reduce(3, 3001, how, 0, 1 << 20, o);
    }
}

namespace {
void check_moves(std::string_view spec) {
  for (int n : {2, 5})
    for (auto [count, shift] : {std::pair{0, 0}, {1, 0}, {5, 1}, {1024, 0}, {2051, 0}}) {
      const auto each = std::uint64_t(count), ranks = std::uint64_t(n);
      Group g(n, 64 << 10, spec);
      Buffers gather(g, each, each * ranks, std::uint64_t(shift)),
          scatter(g, each * ranks, each, std::uint64_t(shift)),
          exchange(g, each * ranks, each * ranks, std::uint64_t(shift)),
          one(g, each, each, std::uint64_t(shift));
      g.together([&](int r, runtime::Stream& s) {
        all_gather(s, *g.all, r, gather.x_of(r), gather.out_of(r));
        reduce_scatter(s, *g.all, r, scatter.x_of(r), scatter.out_of(r));
        all_to_all(s, *g.all, r, exchange.x_of(r), exchange.out_of(r));
        broadcast(s, *g.all, r, n - 1, one.x_of(r));
        barrier(s, *g.all, r);
      });
      for (int r = 0; r < n; ++r) {
        const auto gathered = gather.got(r), reduced = scatter.got(r), exchanged = exchange.got(r);
        const auto sent = one.x[std::size_t(r)].to_vector();
        for (std::uint64_t i = 0; i < each; ++i) {
          float sum = 0;
          for (int p = 0; p < n; ++p) {
            sum += value(p, std::uint64_t(r) * each + i);
            ASSERT_EQ(gathered[std::uint64_t(p) * each + i], value(p, i));
            ASSERT_EQ(exchanged[std::uint64_t(p) * each + i], value(p, std::uint64_t(r) * each + i));
          }
          ASSERT_EQ(reduced[i], sum);
          ASSERT_EQ(sent[std::uint64_t(shift) + i], value(n - 1, i));
        }
      }
    }
}
}  // namespace

TEST(collective, moves_parts_between_the_ranks) { check_moves("emu:sm_90a"); }

// On one GPU that the ranks share.
TEST(collective, right_on_a_gpu) {
  try {
    for (int n : {2, 4})
      for (AllReduce how : {AllReduce::one_shot, AllReduce::two_shot})
        for (std::uint64_t count : {7, 2051, 300001})
          check_all_reduce(n, count, how, 0, 1 << 20, {}, "cuda:0");
    check_moves("cuda:0");
  } catch (const Unsupported& e) {
    GTEST_SKIP() << e.what();
  }
}

TEST(collective, narrow_floats_are_summed_in_f32_and_in_place) {
  Group g(4);
  std::vector<runtime::Buffer<bfloat16>> x;
  for (int r = 0; r < 4; ++r) {
    std::vector<bfloat16> host;
    for (std::uint64_t i = 0; i < 777; ++i) host.push_back(bfloat16(r == 0 ? 256.f : 1.f));
    x.push_back(g.devices[std::size_t(r)].upload<bfloat16>(host));
  }
  g.together(
      [&](int r, runtime::Stream& s) { all_reduce(s, *g.all, r, x[std::size_t(r)], x[std::size_t(r)]); });
  for (auto& b : x)
    for (bfloat16 v : b.to_vector()) ASSERT_EQ(float(v), 260.f);  // 257 rounded on the way would end at 258
}

TEST(collective, ranks_may_be_aligned_differently) {
  Group g(3);
  Buffers b(g, 2100, 2100);
  const auto at = [&](std::vector<runtime::Buffer<float>>& v, int r) {
    return v[std::size_t(r)].slice(std::size_t(r), 2090);
  };
  g.together([&](int r, runtime::Stream& s) {
    all_reduce(s, *g.all, r, at(b.x, r), at(b.out, r), AllReduce::two_shot);
  });
  for (int r = 0; r < 3; ++r) {
    std::vector<float> got(2090);
    at(b.out, r).download(got);
    for (std::uint64_t i = 0; i < 2090; ++i)
      ASSERT_EQ(got[i], value(0, i) + value(1, i + 1) + value(2, i + 2)) << r;
  }
}

TEST(collective, graphs_are_replayed) {
  Group g(2);
  Buffers b(g, 100, 100);
  std::vector<runtime::Graph> graphs;
  for (int r = 0; r < 2; ++r)
    graphs.push_back(g.streams[std::size_t(r)].capture(
        [&](runtime::Stream& s) { all_reduce(s, *g.all, r, b.x_of(r), b.x_of(r)); }));
  for (int again = 0; again < 3; ++again)
    g.together([&](int r, runtime::Stream& s) { s.replay(graphs[std::size_t(r)]); });
  EXPECT_EQ(b.x[0].to_vector()[9], 4 * (value(0, 9) + value(1, 9)));
  EXPECT_EQ(b.x[1].to_vector(), b.x[0].to_vector());
}

TEST(collective, runs_on_every_architecture) {
  for (auto arch : kTargets) {
    Group g(2, 1 << 20, text::cat("emu:", arch));
    Buffers b(g, 70, 70);
    g.together([&](int r, runtime::Stream& s) { all_reduce(s, *g.all, r, b.x_of(r), b.out_of(r)); });
    EXPECT_EQ(b.got(1)[5], value(0, 5) + value(1, 5)) << arch;
  }
}

TEST(collective, one_rank_that_stays_away_is_a_deadlock) {
  Group g(2);
  Buffers b(g, 8, 8);
  try {
    all_reduce(g.devices[1].stream(), *g.all, 1, b.x_of(1), b.out_of(1));
    g.devices[1].sync();
    ADD_FAILURE() << "rank 0 never came";
  } catch (const EmuFault& e) {
    EXPECT_THAT(e.what(), HasSubstr("deadlock"));
    EXPECT_THAT(e.what(), HasSubstr("'signals'"));
  }
}

TEST(collective, bad_arguments_are_named) {
  Group g(2);
  Buffers b(g, 8, 8);
  auto& s = g.devices[0].stream();
  const auto refused = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const ArgumentError& e) {
      return e.what();
    } catch (const Unsupported& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refused([&] { all_reduce(s, *g.all, 2, b.x_of(0), b.out_of(0)); }), HasSubstr("rank 2 of 2"));
  EXPECT_THAT(refused([&] { all_reduce(s, *g.all, 1, b.x_of(0), b.out_of(0)); }),
              HasSubstr("another device"));
  EXPECT_THAT(refused([&] { broadcast(s, *g.all, 0, -1, b.x_of(0)); }), HasSubstr("root -1"));
  EXPECT_THAT(refused([&] { all_gather(s, *g.all, 0, b.x_of(0), b.out_of(0)); }), HasSubstr("out 2 times"));
  EXPECT_THAT(refused([&] { all_to_all(s, *g.all, 0, b.x_of(0), b.x[0].slice(4, 4)); }),
              HasSubstr("x has 2 times"));
  auto whole = g.devices[0].zeros<std::int32_t>(8);
  EXPECT_THAT(refused([&] { all_reduce(s, *g.all, 0, whole, whole); }), HasSubstr("f32, f16 or bf16"));
  EXPECT_THAT(refused([&] { all_reduce(s, *g.all, 0, b.x[0].slice(0, 6), b.x[0].slice(2, 6)); }),
              HasSubstr("overlap"));
  EXPECT_THAT(refused([&] { Communicator({g.devices[0], g.devices[0]}); }), HasSubstr("share one"));
  EXPECT_THAT(refused([&] { Communicator({}); }), HasSubstr("1 to 16"));
  EXPECT_THAT(refused([&] {
                Group small(2, 0);
                Buffers c(small, 8, 8);
                all_reduce(small.devices[0].stream(), *small.all, 0, c.x_of(0), c.out_of(0));
              }),
              HasSubstr("too small"));
}

TEST(collective, every_variant_assembles_without_spills) { expect_assembles(collective_entry()); }

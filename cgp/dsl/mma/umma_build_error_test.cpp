// SPDX-License-Identifier: Apache-2.0
// Rules of tensor memory, tcgen05 and cluster launch control that only the whole kernel shows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cgp/dsl/mma/umma_gemms_test.h"

namespace cgp::dsl {
namespace {

using testing::HasSubstr;
using T = Tile<bf16, 128, 64>;
using Sums = TmemAcc<f32, 128, 128>;
using Accs = Accumulators<Sums, 2>;
using RingT = Ring<ByUmma, T, T>;

template <class F>
BuildError error_of(F f, const char* target = "sm_100a") {
  try {
    build("k", target, f);
  } catch (const BuildError& e) {
    return e;
  }
  ADD_FAILURE() << "the kernel was accepted";
  return BuildError("accepted", Here{});
}
std::string line_of(int line) { return text::cat("cgp/dsl/mma/umma_build_error_test.cpp:", line); }

/// A kernel of three roles with tensor memory; `multiply` and `read` are what a test gets wrong.
template <class Multiply, class Read>
auto with_roles(Multiply multiply, Read read) {
  return [=](Kernel& k, TmaIn<T> a, TmaIn<T> b, Val<u32> n) {
    auto drain = k.role<Warpgroup>(1);
    auto load = k.role<Warp>(1);
    auto mma = k.role<Warp>(1);
    RingT ring(k, 2, load, mma);
    with_tmem<TmemSlots<Sums, 2>>(k, [&](auto& tmem) {
      Accs accs(k, tmem.template get<0>(), mma, drain);
      load.one_thread(
          [&](Thread& t) { k.loop(n, [&](Val<u32> i) { ring.fill(t, at(a, 0, i), at(b, 0, i)); }); });
      mma.one_thread([&](Thread& t) { multiply(k, t, accs, ring, n); });
      drain.run([&](Warpgroup& wg) { read(k, wg, accs); });
    });
  };
}
const auto commit_one = [](Kernel&, Thread& t, Accs& accs, RingT& ring, Val<u32>) {
  umma(t, accs.acquire(t), ring.take(t)).commit(t);
};
const auto read_one = [](Kernel&, Warpgroup& wg, Accs& accs) { accs.take(wg).release(wg); };

TEST(umma_build_error, the_right_twin_builds) {
  EXPECT_NO_THROW(build("k", "sm_100a", with_roles(commit_one, read_one)));
}

TEST(umma_build_error, products_that_are_never_committed_name_the_line) {
  int line = 0;
  const auto e = error_of(with_roles(
      [&](Kernel&, Thread& t, Accs& accs, RingT& ring, Val<u32>) {
        line = __LINE__ + 1;
        auto d = umma(t, accs.acquire(t), ring.take(t));
      },
      read_one));
  EXPECT_THAT(e.rule(), HasSubstr("acquired and never committed"));
  EXPECT_EQ(e.where(), line_of(line));
}

TEST(umma_build_error, sums_that_are_never_released) {
  EXPECT_THAT(
      error_of(with_roles(commit_one, [](Kernel&, Warpgroup& wg, Accs& accs) { auto acc = accs.take(wg); }))
          .rule(),
      HasSubstr("taken and never released"));
}

TEST(umma_build_error, a_stage_that_is_never_multiplied) {
  EXPECT_THAT(error_of(with_roles(
                           [](Kernel&, Thread& t, Accs& accs, RingT& ring, Val<u32>) {
                             accs.acquire(t).commit(t);
                             auto stage = ring.take(t);
                           },
                           read_one))
                  .rule(),
              HasSubstr("taken but never released"));
}

TEST(umma_build_error, a_load_that_is_never_waited_for) {
  EXPECT_THAT(error_of(with_roles(commit_one,
                                  [](Kernel&, Warpgroup& wg, Accs& accs) {
                                    auto acc = accs.take(wg);
                                    auto late = acc.load<32>(wg, 0);
                                    std::move(acc).release(wg);
                                  }))
                  .rule(),
              HasSubstr("loaded and never waited for"));
}

TEST(umma_build_error, columns_outside_and_divergent_reads) {
  EXPECT_THAT(error_of(with_roles(commit_one,
                                  [](Kernel&, Warpgroup& wg, Accs& accs) {
                                    auto acc = accs.take(wg);
                                    (void)acc.load<32>(wg, 112).wait(wg);
                                    std::move(acc).release(wg);
                                  }))
                  .why(),
              HasSubstr("columns 112 to 143 of 128"));
  EXPECT_THAT(error_of(with_roles(commit_one,
                                  [](Kernel& k, Warpgroup& wg, Accs& accs) {
                                    auto acc = accs.take(wg);
                                    k.if_(k.tid() < 3, [&] { (void)acc.load<32>(wg, 0).wait(wg); });
                                    std::move(acc).release(wg);
                                  }))
                  .rule(),
              HasSubstr("tcgen05.ld needs every thread of its warpgroup"));
}

TEST(umma_build_error, an_accumulator_acquired_inside_a_body_stays_there) {
  EXPECT_THAT(error_of(with_roles(
                           [](Kernel& k, Thread& t, Accs& accs, RingT& ring, Val<u32> n) {
                             k.loop(n, accs.acquire(t), [&](Val<u32>, auto d) {
                                std::move(d).commit(t);
                                return umma(t, accs.acquire(t), ring.take(t));
                              }).commit(t);
                           },
                           read_one))
                  .rule(),
              HasSubstr("hands back the accumulator it received"));
}

TEST(umma_build_error, tensor_memory_needs_its_architecture_and_is_allocated_once) {
  EXPECT_THAT(error_of(with_roles(commit_one, read_one), "sm_90a").rule(), HasSubstr("needs sm_100"));
  const auto alone = [](Kernel& k) {
    k.block(128);
    with_tmem<Sums>(k, [](auto&) {});
  };
  EXPECT_THAT(error_of(alone, "sm_100").rule(), HasSubstr("sm_100a and its family only"));
  EXPECT_THAT(error_of(alone, "sm_120a").rule(), HasSubstr("sm_100a and its family only"));
  EXPECT_THAT(error_of([](Kernel& k) {
                k.block(128);
                with_tmem<Sums>(k, [](auto&) {});
                with_tmem<Sums>(k, [](auto&) {});
              }).rule(),
              HasSubstr("allocates tensor memory once"));
  EXPECT_THAT(error_of([](Kernel& k, Val<u32> n) {
                k.block(128);
                k.if_(k.tid() < n, [&] { with_tmem<Sums>(k, [](auto&) {}); });
              }).rule(),
              HasSubstr("with_tmem needs every thread of its block"));
}

TEST(umma_build_error, addresses_do_not_outlive_their_memory) {
  EXPECT_THAT(error_of([](Kernel& k, Out<u32> c) {
                k.block(128);
                std::optional<Val<u32>> kept;
                with_tmem<Sums>(k, [&](auto& tmem) { kept.emplace(tmem.template get<0>().address()); });
                c.st(0, *kept);
              }).rule(),
              HasSubstr("does not exist outside it"));
}

TEST(umma_build_error, pairs_need_clusters_of_pairs) {
  using Pair = TmemAcc<f32, 256, 128, CtaPair>;
  EXPECT_THAT(error_of([](Kernel& k) {
                k.block(128);
                with_tmem<Pair>(k, [](auto&) {});
              }).rule(),
              HasSubstr("pairs of blocks lie along x"));
  EXPECT_THAT(error_of([](Kernel& k, TmaIn<T> a) {
                k.cluster(2);
                auto load = k.role<Warp>(1), mma = k.role<Warp>(1);
                Ring<ByUmmaPair, T, T> ring(k, 2, load, mma, a, a.multicast(Axis::x));
              }).rule(),
              HasSubstr("a ring of pairs multicasts along y or z"));
}

TEST(umma_build_error, one_warpgroup_reads_accumulators) {
  EXPECT_THAT(error_of([](Kernel& k) {
                auto drain = k.role<Warpgroup>(2);
                auto mma = k.role<Warp>(1);
                with_tmem<TmemSlots<Sums, 1>>(
                    k, [&](auto& tmem) { Accumulators accs(k, tmem.template get<0>(), mma, drain); });
              }).why(),
              HasSubstr("has 2 members"));
  EXPECT_THAT(error_of([](Kernel& k) {
                k.block(256);
                Cta cta = k.cta();
                with_tmem<TmemSlots<Sums, 1>>(
                    k, [&](auto& tmem) { Accumulators accs(k, tmem.template get<0>(), cta); });
              }).why(),
              HasSubstr("256 x 1 x 1"));
}

TEST(umma_build_error, everybody_in_a_work_queue_takes_part) {
  const auto e = error_of([](Kernel& k) {
    auto load = k.role<Warp>(1);
    auto math = k.role<Warp>(1);
    WorkQueue queue(k, load, math);
    load.one_thread([&](Thread& t) { queue.lead(t, [](Val<u32>) {}); });
    math.run([](Warp&) {});
  });
  EXPECT_THAT(e.rule(), HasSubstr("2 arrivals are expected in an even block, 1 were recorded"));
  EXPECT_THAT(error_of([](Kernel& k) {
                k.cluster(2, 2);
                auto load = k.role<Warp>(1);
                WorkQueue queue(k, load);
              }).rule(),
              HasSubstr("counts clusters along x"));
}

}  // namespace
}  // namespace cgp::dsl

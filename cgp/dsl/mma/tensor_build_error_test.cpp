// SPDX-License-Identifier: Apache-2.0
// Rules of the tensor side that only the whole kernel shows, refused at the author's line with the numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cgp/dsl/mma/dyn_acc.h"
#include "cgp/dsl/mma/epilogue.h"
#include "cgp/dsl/mma/gemms_test.h"
#include "cgp/dsl/pipeline/cluster.h"
#include "cgp/dsl/pipeline/handoff.h"
#include "cgp/dsl/pipeline/held_stage.h"
#include "cgp/dsl/pipeline/tensor_map_edit.h"
#include "cgp/dsl/pipeline/tile_slots.h"
#include "cgp/dsl/pipeline/warp_ring.h"

namespace cgp::dsl {
namespace {

using testing::HasSubstr;
using T = Tile<bf16, 64, 64>;
using PairRing = Ring<ByThreads, T, T>;

template <class F>
BuildError error_of(F f, const char* target = "sm_90a") {
  try {
    build("k", target, f);
  } catch (const BuildError& e) {
    return e;
  }
  ADD_FAILURE() << "the kernel was accepted";
  return BuildError("accepted", Here{});
}
std::string line_of(int line) { return text::cat("cgp/dsl/mma/tensor_build_error_test.cpp:", line); }

/// A kernel with one producer that fills and one math warpgroup that does `body`.
template <class Body>
auto with_ring(Body body) {
  return [body](Kernel& k, TmaIn<T> a, TmaIn<T> b, Val<u32> n) {
    auto math = k.role<Warpgroup>(1);
    auto load = k.role<Warp>(1);
    PairRing ring(k, 2, load, math);
    load.one_thread(
        [&](Thread& t) { k.loop(n, [&](Val<u32> i) { ring.fill(t, at(a, 0, i), at(b, 0, i)); }); });
    math.run([&](Warpgroup& wg) { body(k, wg, ring, n); });
  };
}

TEST(tensor_build_error, a_stage_released_twice_names_both_lines) {
  int line = 0;
  const auto e = error_of(with_ring([&](Kernel& k, Warpgroup& wg, PairRing& ring, Val<u32> n) {
    k.loop(n, [&](Val<u32>) {
      auto stage = ring.take(wg);
      line = __LINE__ + 1;
      std::move(stage).release(wg);
      std::move(stage).release(wg);
    });
  }));
  EXPECT_THAT(e.rule(), HasSubstr("freed once"));
  EXPECT_EQ(e.where(), line_of(line + 1));
  EXPECT_THAT(e.what(), HasSubstr(text::cat(":", line)));
}

TEST(tensor_build_error, a_leaked_stage_names_the_line_of_its_take) {
  int take = 0;
  const auto e = error_of(with_ring([&](Kernel& k, Warpgroup& wg, PairRing& ring, Val<u32> n) {
    k.loop(n, [&](Val<u32>) {
      take = __LINE__ + 1;
      auto stage = ring.take(wg);
    });
  }));
  EXPECT_THAT(e.rule(), HasSubstr("taken but never released"));
  EXPECT_EQ(e.where(), line_of(take));
}

TEST(tensor_build_error, a_product_that_is_never_waited_for_leaks_its_stage) {
  EXPECT_THAT(error_of(with_ring([](Kernel&, Warpgroup& wg, PairRing& ring, Val<u32>) {
                auto busy = wgmma(wg, fresh<f32, 64, 64>(wg), ring.take(wg));
              })).rule(),
              HasSubstr("never released"));
}

/// The same with tiles of build-time shapes: 64 x 64 of A and 200 x 64 of B.
template <class Body>
auto with_dyn_ring(Body body) {
  return [body](Kernel& k, Val<u32> n) {
    const auto a = DynTmaIn::declare(k, DynTile::operand(ptx::Mod::bf16, 2, Major::k, 64), {1, 64, 64});
    const auto b = DynTmaIn::declare(k, DynTile::operand(ptx::Mod::bf16, 2, Major::k, 200), {1, 200, 64});
    auto math = k.role<Warpgroup>(1);
    auto load = k.role<Warpgroup>(1);
    DynRing ring(k, 2, load, math, {{a}, {b}});
    load.one_thread([&](Thread& t) {
      k.loop(n, [&](Val<u32> i) {
        ring.fill(t, [&](int tile) { return tile == 0 ? at(a, 0, 0, i * 64u) : at(b, 0, 0, i * 64u); });
      });
    });
    math.run([&](Warpgroup& wg) { body(wg, ring); });
  };
}

TEST(tensor_build_error, dynamic_tiles_that_are_used_rightly_are_accepted) {
  EXPECT_NO_THROW(build("k", "sm_90a", with_dyn_ring([](Warpgroup& wg, DynRing& ring) {
                          auto fresh = fresh_accumulator(wg, ptx::Mod::f32, 64, 200);
                          (void)wgmma(wg, std::move(fresh), ring.take(wg), DynProducts{{0, 1}}).wait(wg);
                        })));
}

TEST(tensor_build_error, dynamic_tiles_that_do_not_fit) {
  const auto e = error_of(with_dyn_ring([](Warpgroup& wg, DynRing& ring) {
    auto fresh = fresh_accumulator(wg, ptx::Mod::f32, 64, 128);
    (void)wgmma(wg, std::move(fresh), ring.take(wg), DynProducts{{0, 1}}).wait(wg);
  }));
  EXPECT_THAT(e.why(), HasSubstr("the tile of B has 200, the accumulator 128"));
}

TEST(tensor_build_error, a_product_is_waited_for_once) {
  const auto e = error_of(with_dyn_ring([](Warpgroup& wg, DynRing& ring) {
    auto fresh = fresh_accumulator(wg, ptx::Mod::f32, 64, 200);
    auto busy = wgmma(wg, std::move(fresh), ring.take(wg), DynProducts{{0, 1}});
    (void)std::move(busy).wait(wg);
    (void)std::move(busy).wait(wg);
  }));
  EXPECT_THAT(e.rule(), HasSubstr("a product is waited for once"));
}

TEST(tensor_build_error, a_stage_is_released_once) {
  const auto e = error_of(with_ring([](Kernel&, Warpgroup& wg, PairRing& ring, Val<u32>) {
    auto stage = ring.take(wg);
    std::move(stage).release(wg);
    std::move(stage).release(wg);
  }));
  EXPECT_THAT(e.rule(), HasSubstr("a stage of a ring is freed once"));
  EXPECT_THAT(error_of(with_dyn_ring([](Warpgroup& wg, DynRing& ring) {
                auto again = ring.take(wg);
                std::move(again).release(wg);
                std::move(again).release(wg);
              })).rule(),
              HasSubstr("a stage of a ring is freed once"));
}

TEST(tensor_build_error, a_dynamic_accumulator_that_was_given_away) {
  const auto e = error_of(with_dyn_ring([](Warpgroup& wg, DynRing& ring) {
    auto fresh = fresh_accumulator(wg, ptx::Mod::f32, 64, 200);
    auto acc = wgmma(wg, std::move(fresh), ring.take(wg), DynProducts{{0, 1}}).wait(wg);
    auto other = std::move(acc);
    (void)acc.values();
  }));
  EXPECT_THAT(e.rule(), HasSubstr("given away"));
}

TEST(tensor_build_error, a_held_stage_that_is_never_freed) {
  EXPECT_THAT(error_of(with_ring([](Kernel&, Warpgroup& wg, PairRing& ring, Val<u32>) {
                const HeldStage<T, T> stage(ring.take(wg));
              })).rule(),
              HasSubstr("taken but never released"));
}

TEST(tensor_build_error, a_stage_of_a_warp_ring_is_published) {
  const auto e = error_of([](Kernel& k, Val<u32>) {
    auto math = k.role<Warpgroup>(1);
    auto fill = k.role<Warp>(1);
    WarpRing<T> ring(k, 2, 1, math);
    fill.run([&](Warp& w) { auto stage = ring.open(w); });
    math.run([&](Warpgroup& wg) { ring.take(wg).release(wg); });
  });
  EXPECT_THAT(e.rule(), HasSubstr("opened but never published"));
}

TEST(tensor_build_error, tile_slots_are_taken_and_released_in_turn) {
  const auto with = [](auto body) {
    return error_of([body](Kernel& k, TmaIn<T> a) {
             auto math = k.role<Warpgroup>(1);
             auto load = k.role<Warp>(1);
             TileSlots<T> own(k);
             own.start(math);
             load.one_thread([&](Thread& t) { own.fill<0>(t, at(a, 0, 0)); });
             math.run([&](Warpgroup& wg) { body(own, wg); });
           })
        .rule();
  };
  EXPECT_THAT(with([](auto& own, Warpgroup& wg) { own.template release<0>(wg); }),
              HasSubstr("taken before it is released"));
  EXPECT_THAT(with([](auto& own, Warpgroup& wg) {
                (void)own.template take<0>(wg);
                (void)own.template take<0>(wg);
              }),
              HasSubstr("released before it is taken again"));
}

TEST(tensor_build_error, bulk_stores_are_waited_for) {
  const auto e = error_of([](Kernel& k, Out<f32> out) {
    const auto from = k.block(32).shared<f32>(64, 128);
    k.cta().one_thread([&](Thread& t) {
      BulkStores stores(t);
      stores.add(out, from, Val<u32>(256));
      stores.wait_read();  // the memory may be written again, but nothing says that the sums are there
    });
  });
  EXPECT_THAT(e.rule(), HasSubstr("never waited for"));
}

TEST(tensor_build_error, take_in_a_divergent_branch) {
  int branch = 0;
  const auto e = error_of(with_ring([&](Kernel& k, Warpgroup& wg, PairRing& ring, Val<u32> n) {
    branch = __LINE__ + 1;
    k.if_(k.tid() < n, [&] { ring.take(wg).release(wg); });
  }));
  EXPECT_THAT(e.rule(),
              HasSubstr("ring.take needs every thread of its warpgroup, but sits inside a divergent if_"));
  EXPECT_THAT(e.rule(), HasSubstr(line_of(branch)));
}

TEST(tensor_build_error, products_carried_at_another_age) {
  const auto e = error_of(with_ring([](Kernel& k, Warpgroup& wg, PairRing& ring, Val<u32> n) {
    // The older of two products goes round, but the body hands back the younger.
    auto one = wgmma(wg, fresh<f32, 64, 64>(wg), ring.take(wg));
    auto two = wgmma(wg, fresh<f32, 64, 64>(wg), ring.take(wg));
    auto last = k.loop(n, std::move(one),
                       [&](Val<u32>, auto busy) { return std::move(busy).then(wg, ring.take(wg)); });
    (void)std::move(last).wait(wg);
    (void)std::move(two).wait(wg);
  }));
  EXPECT_THAT(e.rule(), HasSubstr("as old at the bottom as at the top"));
}

TEST(tensor_build_error, register_budgets_are_added_up) {
  const auto budget = [](int producer, int consumer) {
    return [=](Kernel& k) {
      k.role<Warpgroup>(1, producer).run([](Warpgroup&) {});
      k.role<Warpgroup>(2, consumer).run([](Warpgroup&) {});
    };
  };
  EXPECT_NO_THROW(build("k", "sm_90a", budget(40, 232)));
  EXPECT_NO_THROW(build("k", "sm_90a", budget(24, 240)));
  const auto e = error_of(budget(32, 240));
  EXPECT_EQ(e.why(),
            "128 x 32 + 256 x 240 = 65536; 65536 registers over 384 threads are 168 each, 64512 in all");
  EXPECT_THAT(error_of(budget(0, 176)).why(), HasSubstr("128 x 168 + 256 x 176"));
}

TEST(tensor_build_error, wgmma_needs_its_architecture) {
  EXPECT_EQ(error_of(with_ring([](Kernel&, Warpgroup& wg, PairRing& ring, Val<u32>) {
                       (void)wgmma(wg, fresh<f32, 64, 64>(wg), ring.take(wg)).wait(wg);
                     }),
                     "sm_90")
                .rule(),
            "wgmma exists on sm_90a only");
  EXPECT_THAT(error_of([](Kernel& k, TmaIn<T>) { k.sync(); }, "sm_80").rule(), HasSubstr("needs sm_90"));
}

TEST(tensor_build_error, shared_memory_of_too_many_stages) {
  const auto e = error_of(with_ring([](Kernel& k, Warpgroup& wg, PairRing& ring, Val<u32>) {
    ring.take(wg).release(wg);
    (void)k.smem(220 * 1024, 16);
  }));
  EXPECT_THAT(e.rule(), HasSubstr("shared memory must fit"));
}

TEST(tensor_build_error, ring_without_a_known_block_or_with_two_producers) {
  EXPECT_THAT(error_of([](Kernel& k, TmaIn<T> a) {
                Cta cta = k.cta();
                Ring<ByThreads, T> ring(k, 2, cta, a);
              }).rule(),
              HasSubstr("how many warps free its stages"));
  EXPECT_EQ(error_of([](Kernel& k, TmaIn<T>) {
              auto load = k.role<Warp>(4);
              auto math = k.role<Warp>(4);
              Ring<ByThreads, T> ring(k, 2, load, math);
            }).rule(),
            "a ring has one producer");
}

TEST(tensor_build_error, multicast_must_be_announced_and_cut_evenly) {
  EXPECT_THAT(error_of([](Kernel& k, TmaIn<T> a) {
                k.cluster(2);
                auto math = k.role<Warp>(1);
                auto load = k.role<Warp>(1);
                Ring<ByThreads, T> ring(k, 2, load, math);  // the map is not passed
                load.one_thread([&](Thread& t) { ring.fill(t, at(a.multicast(Axis::x), 0, 0)); });
                math.run([&](Warp& w) { ring.take(w).release(w); });
              }).rule(),
              HasSubstr("which of its maps are multicast"));
  EXPECT_THAT(error_of([](Kernel& k, TmaIn<Tile<bf16, 24, 64>> a) {
                k.cluster(5);
                (void)a.multicast(Axis::x);
              }).why(),
              HasSubstr("24 rows over 5 blocks"));
  EXPECT_THAT(error_of([](Kernel& k, TmaIn<Tile<bf16, 24, 32>> a) {  // rows of 64 bytes
                k.cluster(2);
                (void)a.multicast(Axis::x);
              })
                  .why(),
              HasSubstr("24 rows over 2 blocks"));
  EXPECT_THAT(error_of([](Kernel& k, Out<u32> c) {
                k.block(32).cluster(2);
                mapa(k.shared<u32>(4), 5).st(0, 1);
                (void)c;
              }).why(),
              HasSubstr("rank 5 of 2 blocks"));
}

TEST(tensor_build_error, staged_stores_must_end_and_turn_evenly) {
  using C = Tile<bf16, 64, 32>;
  EXPECT_THAT(error_of([](Kernel& k, TmaOut<C> c) {
                auto math = k.role<Warpgroup>(1);
                Staging<C> staging(k, math);
                math.run([&](Warpgroup& wg) {
                  auto pending = staging.store(wg, staging.idle(), at(c, 0, 0), [](auto&) {});
                });
              }).rule(),
              HasSubstr("never waited for"));
  EXPECT_THAT(error_of([](Kernel& k, TmaOut<C> c, Val<u32> n) {
                auto math = k.role<Warpgroup>(1);
                Staging<C> staging(k, math, 2);
                math.run([&](Warpgroup& wg) {
                  k.loop(n, staging.idle(), [&](Val<u32>, PendingStore p) {
                     return staging.store(wg, std::move(p), at(c, 0, 0), [](auto&) {});
                   }).wait(wg);
                });
              }).why(),
              HasSubstr("the next buffer is 0 at the top and 1 at the bottom"));
}

TEST(tensor_build_error, pipelines_views_and_boxes) {
  EXPECT_THAT(error_of([](Kernel& k) { AsyncRing<T>(k, 1); }).rule(), HasSubstr("at least two stages"));
  EXPECT_THAT(error_of([](Kernel& k, In<bf16> a) {
                Cta cta = k.cta();
                TileSource<T> source(cta, a, 64);
              }).rule(),
              HasSubstr("a known number of threads"));
  EXPECT_THAT(error_of([](Kernel& k) { (void)shared_tile<T>(k).template rows<8>(12); }).why(),
              HasSubstr("rows 12 to 19 of 64; the first must be a multiple of 8"));
  EXPECT_THAT(error_of([](Kernel& k, TmaIn<Tile<f32, 8, 272, Swizzle::none>>) { k.sync(); }).why(),
              HasSubstr("dimension 0 (innermost is 0) has 272"));
  EXPECT_THAT(error_of([](Kernel& k, TmaIn<Tile<bf16, 262, 64>>) { k.sync(); }).rule(),
              HasSubstr("more than 256 rows"));
  EXPECT_THAT(error_of([](Kernel& k, Out<u32> c) {
                k.block(32);
                Cta cta = k.cta();
                cta.one_thread([&](Thread& t) { bulk_store(t, c, k.shared<u32>(16, 16), 40).wait(t); });
              }).rule(),
              HasSubstr("positive multiple of 16 bytes"));
}

TEST(tensor_build_error, cluster_barrier_left_half_way) {
  int arrive = 0;
  const auto e = error_of([&](Kernel& k) {
    k.block(32).cluster(2);
    Cta cta = k.cta();
    arrive = __LINE__ + 1;
    auto arrived = cluster_arrive(cta);
  });
  EXPECT_THAT(e.rule(), HasSubstr("never waited"));
  EXPECT_EQ(e.where(), line_of(arrive));
}

}  // namespace
}  // namespace cgp::dsl

// SPDX-License-Identifier: Apache-2.0
// Asynchronous copies, barriers and clusters on the emulator: what arrives, in every order of completion.
#include "cgp/dsl/core/on_emulator_test.h"
#include "cgp/dsl/mma/epilogue.h"
#include "cgp/dsl/mma/gemms_test.h"
#include "cgp/dsl/mma/matrices_test.h"
#include "cgp/dsl/pipeline/cluster.h"

namespace cgp::dsl {
namespace {

using std::uint32_t;
constexpr emu::AsyncPolicy kPolicies[] = {emu::AsyncPolicy::eager, emu::AsyncPolicy::late,
                                          emu::AsyncPolicy::random};

std::vector<uint32_t> counting(std::size_t n) {
  std::vector<uint32_t> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = uint32_t(i * 2654435761u);
  return v;
}

TEST(cp_async, bytes_and_zero_fill) {
  const auto k = build("c", "sm_80", [](Kernel& k, In<u32> a, Out<u32> c) {
    k.block(32);
    auto s = k.shared<u32>(32 * 4, 16);
    const auto t = k.tid();
    cp_async<4>(s.at(t * 4), a.at(t * 4));
    cp_async<4>(s.at(t * 4 + 1), a.at(t * 4 + 1));
    cp_async<8>(s.at(t * 4 + 2), a.at(t * 4 + 2));
    cp_async_commit(k);
    cp_async_wait(k, 0);
    c.st<4>(t, s.ld<4>(t));
    cp_async_zfill<16>(s.at(t * 4), a.at(t * 4), (t & 3) * 4);
    cp_async_wait_all(k);
    c.st<4>(t + 32, s.ld<4>(t));
  });
  auto a = counting(128);
  for (const auto policy : kPolicies) {
    std::vector<uint32_t> c(256);
    EmulatorRun run(k);
    run.options.async = policy;
    RUN_OR_SKIP(run, (emu::Dim3{1, 1, 1}), (emu::Dim3{32, 1, 1}), buf(a), buf(c));
    for (std::size_t i = 0; i < 128; ++i) EXPECT_EQ(c[i], a[i]);
    for (std::size_t i = 0; i < 128; ++i) EXPECT_EQ(c[128 + i], i % 4 < (i / 4 & 3) ? a[i] : 0);
  }
}

TEST(mbarrier, arrivals_tokens_and_copies) {
  const auto k = build("m", "sm_90a", [](Kernel& k, In<u32> a, Out<u32> c) {
    k.block(64);
    Cta cta = k.cta();
    auto s = k.shared<u32>(64);
    auto bar = mbarrier<ByArrivals>(k).init(cta, 64);
    const auto t = k.tid();
    cp_async<4>(s.at(t), a.at(t));
    bar.arrive_when_copied();
    bar.wait(0);
    c.st(t, s.ld(63 - t));
    const auto token = bar.arrive_token();
    bar.wait(token);
    s.st(t, t * 3);
    bar.arrive();
    bar.wait(0);
    k.if_(bar.test(0), [&] { c.st(t + 64, s.ld(63 - t)); });
    std::move(bar).invalidate(cta);
  });
  auto a = counting(64);
  for (const auto policy : kPolicies) {
    std::vector<uint32_t> c(128);
    EmulatorRun run(k);
    run.options.async = policy;
    RUN_OR_SKIP(run, (emu::Dim3{1, 1, 1}), (emu::Dim3{64, 1, 1}), buf(a), buf(c));
    for (uint32_t i = 0; i < 64; ++i) {
      EXPECT_EQ(c[i], a[63 - i]);
      EXPECT_EQ(c[64 + i], (63 - i) * 3);
    }
  }
}

TEST(bulk, loads_stores_and_adds) {
  const auto k = build("b", "sm_90a", [](Kernel& k, In<u32> a, Out<u32> c, InOut<u32> sum) {
    k.block(32);
    Cta cta = k.cta();
    auto s = k.shared<u32>(256, 128);
    auto bar = mbarrier<ByBytes>(k).init(cta, 1);
    cta.one_thread([&](Thread& t) {
      bar.arrive_expect(t, 1024);
      bulk_load(t, s, a, 1024, bar, L2Hint::evict_first);
    });
    bar.wait(0);
    cta.one_thread([&](Thread& t) {
      bulk_store(t, c, s, 512).wait_read(t);
      bulk_add(t, Ptr<global, u32>(sum), s.at(128), 512).wait(t);
    });
  });
  auto a = counting(256);
  for (const auto policy : kPolicies) {
    std::vector<uint32_t> c(128), sum(128, 5);
    EmulatorRun run(k);
    run.options.async = policy;
    RUN_OR_SKIP(run, (emu::Dim3{1, 1, 1}), (emu::Dim3{32, 1, 1}), buf(a), buf(c), buf(sum));
    for (std::size_t i = 0; i < 128; ++i) {
      EXPECT_EQ(c[i], a[i]);
      EXPECT_EQ(sum[i], a[128 + i] + 5);
    }
  }
}

// A 3-D tensor [2][20][40] in boxes [1][8][32]: whole boxes, edges filled with zeros, out through a 2-D map.
TEST(tma, three_dimensions_with_edges) {
  using T = Tile<f32, 8, 32>;
  const auto k = build("t", "sm_90a", [](Kernel& k, TmaIn<T, 1, 8, 32> a, TmaOut<T> c) {
    k.block(128);
    Cta cta = k.cta();
    Ring<ByThreads, T> ring(k, 2, cta, a);
    Warpgroup wg = k.warpgroup();
    cta.one_thread([&](Thread& t) {
      a.prefetch_descriptor(t);
      prefetch(t, at(a, 1, 0, 0));
      ring.fill(t, at(a, 1, 16, 32));
      ring.fill(t, at(a.hint(L2Hint::evict_last), 0, -4, -8));
    });
    for (int i = 0; i < 2; ++i) {
      auto stage = ring.take(wg);
      fence_async_shared(k);
      k.sync();
      cta.one_thread([&](Thread& t) { tma_store(t, at(c, 8 * i, 0), stage.get<0>()).wait(t); });
      std::move(stage).release(wg);
    }
  });
  std::vector<float> a(2 * 20 * 40);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = float(i);
  for (const auto policy : kPolicies) {
    std::vector<float> c(16 * 32, -1.f);
    EmulatorRun run(k);
    run.options.async = policy;
    RUN_OR_SKIP(run, (emu::Dim3{1, 1, 1}), (emu::Dim3{128, 1, 1}), tensor(a, {2, 20, 40}),
                tensor(c, {16, 32}));
    for (int i = 0; i < 2; ++i)
      for (int r = 0; r < 8; ++r)
        for (int x = 0; x < 32; ++x) {
          const int batch = 1 - i, row = i ? r - 4 : 16 + r, col = i ? x - 8 : 32 + x;
          const bool inside = row >= 0 && row < 20 && col >= 0 && col < 40;
          ASSERT_EQ(c[std::size_t((8 * i + r) * 32 + x)], inside ? float((batch * 20 + row) * 40 + col) : 0.f)
              << i << " " << r << " " << x;
        }
  }
}

// Tiles wider than the swizzle and taller than a box, read back by ldmatrix: the generic consumer of a ring.
TEST(tma, tall_and_wide_tiles_arrive_where_ldmatrix_looks) {
  using TA = Tile<bf16, 16, 128>;
  using TB = Tile<bf16, 320, 128>;
  const auto k = build("t", "sm_90a", [](Kernel& k, TmaIn<TA> a, TmaIn<TB> b, Out<f32> c) {
    auto math = k.role<Warp>(4);
    auto load = k.role<Warp>(1);
    Ring<ByThreads, TA, TB> ring(k, 1, load, math);
    load.one_thread([&](Thread& t) {
      k.loop(2, [&](Val<u32> i) { ring.fill(t, at(a, 0, i * 128), at(b, 0, i * 128)); });
    });
    math.run([&](Warp& w) {
      WarpA<TA, 16> a_rows(w, 0);
      WarpB<TB, 80> b_rows(w, w.index * 80);
      auto acc = k.loop(2, zeros<f32, 16, 80>(w), [&](Val<u32>, auto acc) {
        auto stage = ring.take(w);
        auto next =
            multiply(w, std::move(acc), a_rows, stage.template get<0>(), b_rows, stage.template get<1>());
        std::move(stage).release(w);
        return next;
      });
      std::move(acc).each_pair(w, [&](Val<u32> r, Val<u32> col, Val<f32> lo, Val<f32> hi) {
        c.st<2>((r * 320 + w.index * 80 + col) / 2, Vec<f32, 2>(lo, hi));
      });
    });
  });
  EXPECT_EQ(k.params[1].tensor_map->box, (std::array<uint32_t, 5>{64, 160}));
  auto a = small_matrix<bf16>(16, 256, 1), b = small_matrix<bf16>(320, 256, 2);
  for (const auto policy : kPolicies) {
    std::vector<float> c(16 * 320);
    EmulatorRun run(k);
    run.options.async = policy;
    RUN_OR_SKIP(run, (emu::Dim3{1, 1, 1}), (emu::Dim3{160, 1, 1}), tensor(a, {16, 256}),
                tensor(b, {320, 256}), buf(c));
    expect_product(a, b, c, 16, 320, 256);
  }
}

// Staged reduction: every block adds its tile to the same output.
TEST(epilogue, reducing_stores_and_eight_bit_outputs) {
  using T = Tile<f32, 64, 32>;
  const auto k = build("r", "sm_90a", [](Kernel& k, TmaOut<T> c, TmaOut<Tile<e4m3, 64, 32>> d) {
    auto all = k.role<Warpgroup>(1);
    Staging<T> sums(k, all);
    Staging<Tile<e4m3, 64, 32>> bytes(k, all);
    all.run([&](Warpgroup& wg) {
      auto acc = zeros<f32, 64, 32>(wg).map([](Val<f32> x) { return x + 0.75f; });
      auto s = sums.store(
          wg, sums.idle(), at(c, 0, 0), [&](auto& tile) { store_tile(wg, acc, tile); }, StoreOp::add);
      auto b = bytes.store(wg, bytes.idle(), at(d, k.ctaid() * 64, 0),
                           [&](auto& tile) { store_tile(wg, acc, tile); });
      std::move(s).wait(wg);
      std::move(b).wait(wg);
    });
  });
  std::vector<float> c(64 * 32);
  std::vector<float8_e4m3> d(192 * 32);
  EmulatorRun run(k);
  run.options.async = emu::AsyncPolicy::late;
  RUN_OR_SKIP(run, (emu::Dim3{3, 1, 1}), (emu::Dim3{128, 1, 1}), tensor(c, {64, 32}), tensor(d, {192, 32}));
  for (const float x : c) ASSERT_EQ(x, 2.25f);
  for (std::size_t i = 0; i < d.size(); ++i) ASSERT_EQ(as_double(d, i), 0.75);
}

// Each block writes to its neighbour: plain, asynchronous, reducing and bulk.
TEST(cluster, distributed_shared_memory) {
  const auto k = build("d", "sm_90a", [](Kernel& k, Out<u32> c) {
    k.block(32).cluster(2);
    Cta cta = k.cta();
    auto mine = k.shared<u32>(64 + 8, 16);
    auto sent = k.shared<u32>(32, 16);
    const auto t = k.tid(), rank = k.cluster_ctarank(), other = rank ^ 1;
    auto bar = mbarrier<ByBytes>(k).init(cta, 1);
    mine.st(64 + (t & 7), 0);
    cta.one_thread([&](Thread& th) { bar.arrive_expect(th, 32 * 4 + 32 * 4 + 4 * 8 * 4); });
    cluster_sync(cta);
    auto theirs = mapa(mine, other);
    auto their_bar = mapa(bar, other);
    st_async(theirs.at(t), t + rank * 1000, their_bar);
    red_async<op::add>(theirs.at(64 + (t & 7)), t + 1, their_bar);
    sent.st(t, t * 7 + rank);
    fence_async_shared(k);
    k.sync();
    cta.one_thread([&](Thread& th) { bulk_copy(th, theirs.at(32), sent, 128, their_bar); });
    bar.wait(0);
    c.st(rank * 128 + t, mine.ld(t));
    c.st(rank * 128 + 32 + t, mine.ld(32 + t));
    c.st(rank * 128 + 64 + t, mine.ld(64 + (t & 7)));
    auto arrived = cluster_arrive(cta);
    c.st(rank * 128 + 96 + t, mapa(sent, other).ld(t));
    std::move(arrived).wait(cta);
    cluster_sync(cta);
  });
  for (const auto policy : kPolicies) {
    std::vector<uint32_t> c(256);
    EmulatorRun run(k);
    run.options.async = policy;
    RUN_OR_SKIP(run, (emu::Dim3{2, 1, 1}), (emu::Dim3{32, 1, 1}), buf(c));
    for (uint32_t rank = 0; rank < 2; ++rank)
      for (uint32_t i = 0; i < 32; ++i) {
        const uint32_t other = rank ^ 1;
        uint32_t sum = 0;
        for (uint32_t x = i & 7; x < 32; x += 8) sum += x + 1;
        EXPECT_EQ(c[rank * 128 + i], i + other * 1000);
        EXPECT_EQ(c[rank * 128 + 32 + i], i * 7 + other);
        EXPECT_EQ(c[rank * 128 + 64 + i], sum);
        EXPECT_EQ(c[rank * 128 + 96 + i], i * 7 + other);
      }
  }
}

// A 2 x 2 cluster: A is shared along x, B along y; every stage is freed towards three blocks.
TEST(cluster, two_dimensional_multicast) {
  using TA = Tile<bf16, 64, 32>;
  using TB = Tile<bf16, 32, 32>;
  const auto k =
      build("g", "sm_90a",
            [](Kernel& k, TmaIn<TA> a_all, TmaIn<TB> b_all, Out<f32> c, Val<u32> n, Val<u32> k_tiles) {
              k.cluster(2, 2);
              auto math = k.role<Warpgroup>(1);
              auto load = k.role<Warp>(1);
              auto a = a_all.multicast(Axis::x);
              auto b = b_all.multicast(Axis::y);
              Ring<ByThreads, TA, TB> ring(k, 2, load, math, a, b);
              const auto m0 = k.ctaid_y() * 64, n0 = k.ctaid_x() * 32;
              load.one_thread([&](Thread& t) {
                k.loop(k_tiles, [&](Val<u32> kt) { ring.fill(t, at(a, m0, kt * 32), at(b, n0, kt * 32)); });
              });
              math.run([&](Warpgroup& wg) {
                auto acc = k.loop(k_tiles, zeros<f32, 64, 32>(wg), [&](Val<u32>, auto acc) {
                  return wgmma(wg, std::move(acc), ring.take(wg)).wait(wg);
                });
                std::move(acc).each_pair(wg, [&](Val<u32> r, Val<u32> col, Val<f32> lo, Val<f32> hi) {
                  c.st<2>(((m0 + r) * n + n0 + col) / 2, Vec<f32, 2>(lo, hi));
                });
              });
            });
  EXPECT_EQ(k.params[0].tensor_map->box[1], 32u);
  EXPECT_EQ(k.params[1].tensor_map->box[1], 16u);
  auto a = small_matrix<bf16>(128, 160, 1), b = small_matrix<bf16>(128, 160, 2);
  for (const auto policy : kPolicies)
    for (const auto schedule : {emu::SchedulePolicy::fair, emu::SchedulePolicy::random}) {
      std::vector<float> c(128 * 128);
      EmulatorRun run(k);
      run.options.async = policy;
      run.options.schedule = schedule;
      RUN_OR_SKIP(run, (emu::Dim3{4, 2, 1}), (emu::Dim3{160, 1, 1}), tensor(a, {128, 160}),
                  tensor(b, {128, 160}), buf(c), 128u, 5u);
      expect_product(a, b, c, 128, 128, 160);
    }
}

}  // namespace
}  // namespace cgp::dsl

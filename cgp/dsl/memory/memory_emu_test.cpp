// SPDX-License-Identifier: Apache-2.0
// Loads, stores, conversions, collectives and block operations on the emulator, against host arithmetic.
#include <cmath>
#include <numeric>

#include "cgp/dsl/core/on_emulator_test.h"

namespace cgp::dsl {
namespace {

using std::uint32_t;

TEST(memory, bytes_and_halves_survive_vector_accesses) {
  const auto k = build(
      "k", "sm_80",
      [](Kernel& k, In<u8> a, In<s8> b, In<bf16> h, Out<u8> ca, Out<s8> cb, Out<bf16> ch, Out<s32> sums) {
        const auto i = k.tid();
        const auto x = a.ld<16>(i);
        const auto y = b.ld<16>(i);
        const auto z = h.ld<8>(i);
        ca.st<16>(i, x);
        cb.st<16>(i, y);
        ch.st<8>(i, z);
        auto sum = to<s32>(x[0]) + to<s32>(y[0]);
        std::vector<Val<s32>> s{sum};
        for (int j = 1; j < 16; ++j) s.push_back(s.back() + to<s32>(x[j]) + to<s32>(y[j]));
        sums.st(i, s.back());
      });
  std::vector<std::uint8_t> a(512), ca(512);
  std::vector<std::int8_t> b(512), cb(512);
  std::vector<std::uint16_t> h(256), ch(256);
  std::vector<std::int32_t> sums(32);
  for (std::size_t i = 0; i < 512; ++i) a[i] = std::uint8_t(i * 7), b[i] = std::int8_t(i * 11);
  for (std::size_t i = 0; i < 256; ++i) h[i] = std::uint16_t(i * 129);
  EmulatorRun run(k);
  RUN_OR_SKIP(run, (emu::Dim3{1, 1, 1}), (emu::Dim3{32, 1, 1}), buf(a), buf(b), buf(h), buf(ca), buf(cb),
              buf(ch), buf(sums));
  EXPECT_EQ(a, ca);
  EXPECT_EQ(b, cb);
  EXPECT_EQ(h, ch);
  for (std::size_t t = 0; t < 32; ++t) {
    int want = 0;
    for (std::size_t j = 0; j < 16; ++j) want += a[t * 16 + j] + b[t * 16 + j];
    ASSERT_EQ(sums[t], want);
  }
}

TEST(memory, predicated_accesses_touch_nothing_outside) {
  const auto k = build("k", "sm_80", [](Kernel& k, In<f32> a, Out<f32> c, Val<u32> n) {
    const auto i = k.tid();
    const auto x = a.ld_if(i < n, i, -1.f)[0];
    c.st(i, x);
    c.st_if(i + 32 < n + 32, i + 32, x * 2.f);
  });
  std::vector<float> a(20), c(52, 5.f);
  std::iota(a.begin(), a.end(), 1.f);
  EmulatorRun run(k);
  RUN_OR_SKIP(run, (emu::Dim3{1, 1, 1}), (emu::Dim3{32, 1, 1}), buf(a), buf(c),
              20u);  // out of bounds would be a finding
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(c[i], i < 20 ? a[i] : -1.f);
  for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(c[32 + i], 2 * a[i]);
}

TEST(memory, conversions_round_as_c_does) {
  const auto k = build(
      "k", "sm_90", [](Kernel& k, In<f32> a, Out<s32> s, Out<u32> u, Out<f16> h, Out<bf16> b, Out<f32> back) {
        const auto i = k.tid();
        const auto x = a.ld(i);
        s.st(i, to<s32>(x));
        u.st(i, to<u32>(x));
        h.st(i, to<f16>(x));
        b.st(i, to<bf16>(x));
        back.st(i, to<f32>(to<bf16>(x)) + to<f32>(to<f16>(x)));
      });
  std::vector<float> a{0.f,  1.5f, -1.5f, 2.999f,  -0.25f,        100.75f,
                       3e9f, 5e9f, 1e-6f, 65504.f, 1.0009765625f, 0.1f},
      back(12);
  std::vector<std::int32_t> s(12);
  std::vector<uint32_t> u(12);
  std::vector<std::uint16_t> h(12), b(12);
  EmulatorRun run(k);
  RUN_OR_SKIP(run, (emu::Dim3{1, 1, 1}), (emu::Dim3{12, 1, 1}), buf(a), buf(s), buf(u), buf(h), buf(b),
              buf(back));
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double t = std::trunc(double(a[i]));
    EXPECT_EQ(s[i], std::int32_t(std::fmin(std::fmax(t, -2147483648.0), 2147483647.0))) << a[i];
    EXPECT_EQ(u[i], uint32_t(std::fmin(std::fmax(t, 0.0), 4294967295.0))) << a[i];
    EXPECT_EQ(h[i], half(double(a[i])).bits) << a[i];
    EXPECT_EQ(b[i], bfloat16(double(a[i])).bits) << a[i];
  }
}

TEST(memory, bf16_to_f32_before_sm_90) {
  const auto k =
      build("k", "sm_80", [](Kernel& k, In<bf16> a, Out<f32> c) { c.st(k.tid(), to<f32>(a.ld(k.tid()))); });
  std::vector<std::uint16_t> a{0x3f80, 0xc000, 0x7f80, 0x0001};
  std::vector<float> c(4);
  EmulatorRun run(k);
  RUN_OR_SKIP(run, (emu::Dim3{1, 1, 1}), (emu::Dim3{4, 1, 1}), buf(a), buf(c));
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(std::bit_cast<uint32_t>(c[i]), uint32_t(a[i]) << 16);
}

TEST(memory, local_and_constant_arrays) {
  const auto k = build("k", "sm_80", [](Kernel& k, Out<f32> c) {
    const auto table = k.constant<f32>(std::vector<float>{1.f, 4.f, 9.f, 16.f});
    const auto mine = k.local_array<f32>(8);
    const auto i = k.tid();
    for (int j = 0; j < 8; ++j) mine.st(j, to<f32>(i) + float(j));
    c.st(i, mine.ld(i % 8) + table.ld(i % 4));
  });
  std::vector<float> c(32);
  EmulatorRun run(k);
  RUN_OR_SKIP(run, (emu::Dim3{1, 1, 1}), (emu::Dim3{32, 1, 1}), buf(c));
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(c[i], float(i + i % 8) + float((i % 4 + 1) * (i % 4 + 1)));
}

TEST(memory, atomics_count_every_thread) {
  const auto k = build("k", "sm_80", [](Kernel& k, InOut<u32> hist, InOut<f32> sum, InOut<u32> best) {
    k.block(64);
    const auto counts = k.shared<u32>(4);
    k.if_(k.tid() < 4, [&] { counts.st(k.tid(), 0); });
    k.sync();
    red<op::add>(counts, k.tid() % 4, 1);
    k.sync();
    k.if_(k.tid() < 4, [&] { red<relaxed, gpu, op::add>(hist, k.tid(), counts.ld(k.tid())); });
    red<op::add>(sum, 0, 0.5f);
    red<op::max>(best, 0, k.ctaid() * 64 + k.tid());
  });
  std::vector<uint32_t> hist(4, 0), best(1, 0);
  std::vector<float> sum(1, 0);
  EmulatorRun run(k);
  RUN_OR_SKIP(run, (emu::Dim3{5, 1, 1}), (emu::Dim3{64, 1, 1}), buf(hist), buf(sum), buf(best));
  EXPECT_EQ(hist, (std::vector<uint32_t>{80, 80, 80, 80}));
  EXPECT_EQ(sum[0], 160.f);
  EXPECT_EQ(best[0], 319u);
}

TEST(memory, warp_collectives) {
  const auto k = build("k", "sm_90",
                       [](Kernel& k, In<u32> a, Out<u32> sum, Out<u32> scan, Out<f64> wide, Out<u32> ballots,
                          Out<u8> bytes, Out<u32> leader) {
                         k.block(64);
                         auto w = k.warp();
                         const auto i = k.tid();
                         const auto x = a.ld(i);
                         const auto add = [](auto p, auto q) { return p + q; };
                         sum.st(i, redux<op::add>(w, x) + reduce(w, x, add, 8));
                         scan.st(i, inclusive_scan(w, x, add));
                         wide.st(i, shfl<idx>(w, to<f64>(x) * 1e10, (i + 1) & 31));
                         ballots.st(i, vote<ballot>(w, x % 3 == 0) ^ match_any(w, x % 5));
                         bytes.st(i, shfl<bfly>(w, bits<u8>(unpack<u8>(x)[0]), 1));
                         w.one_thread([&](Thread&) { leader.st(w.index, x); });
                       });
  std::vector<uint32_t> a(64), sum(64), scan(64), ballots(64), leader(2);
  std::vector<double> wide(64);
  std::vector<std::uint8_t> bytes(64);
  for (uint32_t i = 0; i < 64; ++i) a[i] = i * i + 3;
  EmulatorRun run(k);
  RUN_OR_SKIP(run, (emu::Dim3{1, 1, 1}), (emu::Dim3{64, 1, 1}), buf(a), buf(sum), buf(scan), buf(wide),
              buf(ballots), buf(bytes), buf(leader));
  for (uint32_t i = 0; i < 64; ++i) {
    const uint32_t base = i & 32;
    uint32_t all = 0, seg = 0, upto = 0, votes = 0, same = 0;
    for (uint32_t l = 0; l < 32; ++l) {
      all += a[base + l];
      seg += l / 8 == (i & 31) / 8 ? a[base + l] : 0;
      upto += l <= (i & 31) ? a[base + l] : 0;
      votes |= uint32_t(a[base + l] % 3 == 0) << l;
      same |= uint32_t(a[base + l] % 5 == a[i] % 5) << l;
    }
    ASSERT_EQ(sum[i], all + seg) << i;
    ASSERT_EQ(scan[i], upto) << i;
    ASSERT_EQ(wide[i], double(a[base + ((i + 1) & 31)]) * 1e10) << i;
    ASSERT_EQ(ballots[i], votes ^ same) << i;
    ASSERT_EQ(bytes[i], std::uint8_t(a[i ^ 1])) << i;
  }
  EXPECT_NE(leader[0], leader[1]);
}

TEST(memory, block_reductions_of_every_size) {
  for (const int threads : {32, 64, 96, 256, 1024}) {
    const auto k = build("k", "sm_80", [=](Kernel& k, In<f32> a, Out<f32> c, Out<f32> m) {
      k.block(threads);
      auto cta = k.cta();
      const auto x = a.ld(k.tid());
      const auto s = reduce(
          cta, x, [](auto p, auto q) { return p + q; }, 0.f);
      c.st(k.tid(), s);
      m.st(k.tid(), reduce(
                        cta, x, [](auto p, auto q) { return max(p, q); }, -1e30f));
    });
    std::vector<float> a(static_cast<std::size_t>(threads)), c(a.size()), m(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = float((i * 37) % 101) - 50;
    EmulatorRun run(k);
    RUN_OR_SKIP(run, (emu::Dim3{1, 1, 1}), (emu::Dim3{1, 1, 1}), buf(a), buf(c), buf(m));
    const float sum = std::accumulate(a.begin(), a.end(), 0.f), top = *std::max_element(a.begin(), a.end());
    for (std::size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(c[i], sum) << threads;
      ASSERT_EQ(m[i], top) << threads;
    }
  }
}

TEST(memory, roles_hand_data_over_a_named_barrier) {
  const auto k = build("k", "sm_90a", [](Kernel& k, In<u32> a, Out<u32> c) {
    auto load = k.role<Warpgroup>(1, 40);
    auto use = k.role<Warpgroup>(2, 232);
    const auto stage = k.shared<u32>(128);
    auto full = k.named_barrier(384);
    load.run([&](Warpgroup&) {
      stage.st(k.tid() % 128, a.ld(k.tid() % 128));
      full.arrive();
    });
    use.run([&](Warpgroup& wg) {
      full.sync();
      c.st(wg.index * 128 + k.tid() % 128, stage.ld(k.tid() % 128) + wg.index);
    });
  });
  EXPECT_EQ(k.block[0], 384);
  std::vector<uint32_t> a(128), c(256);
  std::iota(a.begin(), a.end(), 100u);
  EmulatorRun run(k);
  RUN_OR_SKIP(run, (emu::Dim3{1, 1, 1}), (emu::Dim3{1, 1, 1}), buf(a), buf(c));
  for (uint32_t i = 0; i < 256; ++i) ASSERT_EQ(c[i], 100 + i % 128 + i / 128);
}

void gemm(Kernel& k, In<f32> a, In<f32> b, Out<f32> c, Val<u32> m, Val<u32> n, Val<u32> depth) {
  k.block(64);
  auto cta = k.cta();
  const SharedMatrix<f32> ta(k, 32, 8, 9), tb(k, 8, 32);
  const auto r0 = k.ctaid_y() * 32, c0 = k.ctaid_x() * 32;
  const auto row = k.tid() / 8 * 4, col = k.tid() % 8 * 4;
  const auto acc = k.loop(range(0, depth, 8), zeros<f32, 16>(), [&](Val<u32> k0, RegGroup<f32, 16> acc) {
    load_tile_to_shared(cta, ta, a, r0, k0, m, depth, depth);
    load_tile_to_shared(cta, tb, b, k0, c0, depth, n, n);
    k.sync();
    auto next = gemm_shared<4, 4>(ta, tb, acc, row, col);
    k.sync();
    return next;
  });
  const SharedMatrix<f32> tc(k, 32, 32);
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) tc.st(row + i, col + j, acc[i * 4 + j]);
  k.sync();
  store_tile_from_shared(cta, tc, c, r0, c0, m, n, n);
}

TEST(memory, shared_memory_product_of_ragged_sizes) {
  const auto k = build("gemm", "sm_80", gemm);
  for (const auto& [m, n, depth] : {std::array<uint32_t, 3>{32, 32, 8}, {33, 70, 19}, {1, 5, 3}}) {
    std::vector<float> a(m * depth), b(depth * n), c(m * n, -1);
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = float(int(i % 7) - 3);
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = float(int(i % 5) - 2);
    EmulatorRun run(k);
    RUN_OR_SKIP(run, (emu::Dim3{(n + 31) / 32, (m + 31) / 32, 1}), (emu::Dim3{1, 1, 1}), buf(a), buf(b),
                buf(c), m, n, depth);
    for (uint32_t i = 0; i < m; ++i)
      for (uint32_t j = 0; j < n; ++j) {
        float want = 0;
        for (uint32_t kk = 0; kk < depth; ++kk) want += a[i * depth + kk] * b[kk * n + j];
        ASSERT_EQ(c[i * n + j], want) << m << "x" << n << "x" << depth << " at " << i << ", " << j;
      }
  }
}

TEST(memory, rows_of_a_tile) {
  const auto k = build("k", "sm_80", [](Kernel& k, In<f32> a, Out<f32> sums, Out<f32> tops) {
    k.block(128);
    auto cta = k.cta();
    const SharedMatrix<f32> tile(k, 4, 45);
    load_tile_to_shared(cta, tile, a, 0, 0, 4, 45, 45);
    k.sync();
    auto w = k.warp();
    const auto s = row_sum(w, tile, w.index), t = row_max(w, tile, w.index);
    sums.st(w.index, s);
    tops.st(w.index, t);
  });
  std::vector<float> a(180), sums(4), tops(4);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = -float((i * 29) % 64) - 1;
  EmulatorRun run(k);
  RUN_OR_SKIP(run, (emu::Dim3{1, 1, 1}), (emu::Dim3{1, 1, 1}), buf(a), buf(sums), buf(tops));
  for (std::size_t r = 0; r < 4; ++r) {
    EXPECT_EQ(sums[r], std::accumulate(a.begin() + long(r) * 45, a.begin() + long(r + 1) * 45, 0.f));
    EXPECT_EQ(tops[r], *std::max_element(a.begin() + long(r) * 45, a.begin() + long(r + 1) * 45));
  }
}

}  // namespace
}  // namespace cgp::dsl

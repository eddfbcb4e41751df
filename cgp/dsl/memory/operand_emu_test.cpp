// SPDX-License-Identifier: Apache-2.0
// Operands of mma, wgmma and wmma in every place they may sit: K-major and MN-major tiles, registers, several
// instructions per tile. Executed on the emulator, compared exactly with host loops.
#include "cgp/dsl/core/on_emulator_test.h"
#include "cgp/dsl/mma/gemms_test.h"
#include "cgp/dsl/mma/matrices_test.h"
#include "cgp/dsl/mma/wmma.h"

namespace cgp::dsl {
namespace {

using std::uint32_t;

template <class H>
std::vector<H> transposed(const std::vector<H>& v, uint32_t rows, uint32_t cols) {
  std::vector<H> t(v.size());
  for (uint32_t r = 0; r < rows; ++r)
    for (uint32_t c = 0; c < cols; ++c) t[std::size_t(c) * rows + r] = v[std::size_t(r) * cols + c];
  return t;
}

struct Product {
  int m, n, k;
};

// ---------------------------------------------------------------- wgmma
template <class T, class TC, Product P, Major MA, Major MB, Swizzle SA, Swizzle SB>
struct OneTile {
  using A = std::conditional_t<MA == Major::k, Tile<T, P.m, P.k, SA>, Tile<T, P.k, P.m, SA>>;
  using B = std::conditional_t<MB == Major::k, Tile<T, P.n, P.k, SB>, Tile<T, P.k, P.n, SB>>;
  static void kernel(Kernel& k, TmaIn<A> a, TmaIn<B> b, Out<TC> c) {
    auto math = k.role<Warpgroup>(1);
    auto load = k.role<Warp>(1);
    Ring<ByThreads, A, B> ring(k, 1, load, math);
    load.one_thread([&](Thread& t) { ring.fill(t, at(a, 0, 0), at(b, 0, 0)); });
    math.run([&](Warpgroup& wg) {
      auto acc = wgmma<MA, MB>(wg, fresh<TC, P.m, P.n>(wg), ring.take(wg)).wait(wg);
      if constexpr (decltype(acc)::packed) {
        std::move(acc).each_packed(wg, [&](Val<u32> r, Val<u32> col, Val<b32> both) {
          c.template as<b32>().st((r * P.n + col) / 2, both);
        });
      } else {
        std::move(acc).each_pair(wg, [&](Val<u32> r, Val<u32> col, Val<TC> lo, Val<TC> hi) {
          c.st(r * P.n + col, lo);
          c.st(r * P.n + col + 1, hi);
        });
      }
    });
  }
};

template <class T, class TC, Product P, Major MA = Major::k, Major MB = Major::k,
          Swizzle SA = widest_swizzle((MA == Major::k ? P.k : P.m) * T::bits / 8),
          Swizzle SB = widest_swizzle((MB == Major::k ? P.k : P.n) * T::bits / 8)>
void run_tile() {
  const auto k = build("tile", "sm_90a", OneTile<T, TC, P, MA, MB, SA, SB>::kernel);
  const auto a = small_matrix<T>(P.m, P.k, 1), b = small_matrix<T>(P.n, P.k, 2);
  auto a_in = MA == Major::k ? a : transposed(a, P.m, P.k),
       b_in = MB == Major::k ? b : transposed(b, P.n, P.k);
  std::vector<HostOf<TC>> c(std::size_t(P.m) * P.n);
  EmulatorRun run(k);
  run.options.async = emu::AsyncPolicy::late;
  const auto extents = [](Major m, uint32_t mn, uint32_t kk) {
    return m == Major::k ? std::vector<std::uint64_t>{mn, kk} : std::vector<std::uint64_t>{kk, mn};
  };
  RUN_OR_SKIP(run, (emu::Dim3{1, 1, 1}), (emu::Dim3{160, 1, 1}), tensor(a_in, extents(MA, P.m, P.k)),
              tensor(b_in, extents(MB, P.n, P.k)), buf(c));
  expect_product(a, b, c, P.m, P.n, P.k);
}

TEST(wgmma, mn_major_operands) {
  run_tile<bf16, f32, Product{64, 64, 64}, Major::k, Major::mn>();
  run_tile<bf16, f32, Product{64, 128, 32}, Major::mn, Major::mn>();
  run_tile<f16, f32, Product{128, 192, 32}, Major::mn, Major::k>();
  run_tile<bf16, f32, Product{64, 32, 32}, Major::mn, Major::mn, Swizzle::b64, Swizzle::b64>();
  run_tile<bf16, f32, Product{64, 48, 32}, Major::mn, Major::mn, Swizzle::b32, Swizzle::b32>();
  run_tile<bf16, f32, Product{64, 16, 32}, Major::mn, Major::mn, Swizzle::b16, Swizzle::b16>();
}
TEST(wgmma, tall_and_wide_accumulators_take_several_instructions) {
  run_tile<bf16, f32, Product{128, 64, 32}>();
  run_tile<bf16, f32, Product{64, 320, 16}>();
  run_tile<bf16, f32, Product{128, 512, 16}, Major::k, Major::mn>();
}
TEST(wgmma, narrow_shapes_and_half_accumulators) {
  run_tile<bf16, f32, Product{64, 8, 64}>();
  run_tile<f16, f16, Product{64, 24, 32}>();
  run_tile<e4m3, f16, Product{64, 16, 64}>();
  run_tile<s8, s32, Product{64, 24, 32}>();
}

// D[m,n] = bf16(A B^T) V: the first accumulator becomes the second product's A operand in registers.
void chained(Kernel& k, TmaIn<Tile<bf16, 64, 64>> a, TmaIn<Tile<bf16, 32, 64>> b, TmaIn<Tile<bf16, 32, 64>> v,
             Out<f32> d) {
  auto math = k.role<Warpgroup>(1);
  auto load = k.role<Warp>(1);
  Ring<ByThreads, Tile<bf16, 64, 64>> q(k, 1, load, math);
  Ring<ByThreads, Tile<bf16, 32, 64>> kv(k, 2, load, math);
  load.one_thread([&](Thread& t) {
    q.fill(t, at(a, 0, 0));
    kv.fill(t, at(b, 0, 0));
    kv.fill(t, at(v, 0, 0));
  });
  math.run([&](Warpgroup& wg) {
    auto query = q.take(wg);
    auto s = wgmma(wg, fresh<f32, 64, 32>(wg), query.get<0>(), kv.take(wg)).wait(wg);
    auto p = to_operand<bf16>(s);
    auto o = wgmma<Major::k, Major::mn>(wg, fresh<f32, 64, 64>(wg), p, kv.take(wg)).wait(wg);
    std::move(query).release(wg);
    std::move(o).each_pair(wg, [&](Val<u32> r, Val<u32> col, Val<f32> lo, Val<f32> hi) {
      d.st<2>((r * 64 + col) / 2, Vec<f32, 2>(lo, hi));
    });
  });
}

TEST(wgmma, accumulator_feeds_the_next_product_from_registers) {
  const auto k = build("chained", "sm_90a", chained);
  auto a = small_matrix<bf16>(64, 64, 1), b = small_matrix<bf16>(32, 64, 2),
       v = small_matrix<bf16>(32, 64, 3);
  std::vector<float> d(64 * 64);
  EmulatorRun run(k);
  run.options.async = emu::AsyncPolicy::late;
  RUN_OR_SKIP(run, (emu::Dim3{1, 1, 1}), (emu::Dim3{160, 1, 1}), tensor(a, {64, 64}), tensor(b, {32, 64}),
              tensor(v, {32, 64}), buf(d));
  for (std::size_t i = 0; i < 64; ++i)
    for (std::size_t j = 0; j < 64; ++j) {
      double sum = 0;
      for (std::size_t n = 0; n < 32; ++n) {
        double s = 0;
        for (std::size_t x = 0; x < 64; ++x) s += as_double(a, i * 64 + x) * as_double(b, n * 64 + x);
        sum += as_double(std::vector<bfloat16>{bfloat16(s)}, 0) * as_double(v, n * 64 + j);
      }
      ASSERT_EQ(double(d[i * 64 + j]), sum) << i << "," << j;
    }
}

// Two products in flight at once: the older is waited for while the younger runs on; a predicate instead of a
// fresh accumulator decides whether the first product overwrites.
void two_in_flight(Kernel& k, TmaIn<Tile<bf16, 64, 64>> a, TmaIn<Tile<bf16, 64, 64>> b, Out<f32> c,
                   Val<u32> k_tiles) {
  using T = Tile<bf16, 64, 64>;
  auto math = k.role<Warpgroup>(1);
  auto load = k.role<Warp>(1);
  Ring<ByThreads, T, T> ring(k, 3, load, math);
  load.one_thread([&](Thread& t) {
    k.loop(k_tiles * 2, [&](Val<u32> kt) {
      ring.fill(t, at(a, 0, (kt >> 1) * 64), at(b, (kt & 1) * 64, (kt >> 1) * 64));
    });
  });
  math.run([&](Warpgroup& wg) {
    auto left = zeros<f32, 64, 64>(wg), right = zeros<f32, 64, 64>(wg);
    using Pair = std::pair<Acc<f32, 64, 64>, Acc<f32, 64, 64>>;
    auto both = k.loop(k_tiles, Pair(std::move(left), std::move(right)), [&](Val<u32> kt, Pair acc) {
      auto l = wgmma_if(wg, std::move(acc.first), ring.take(wg), kt != 0);
      auto r = wgmma(wg, std::move(acc.second), ring.take(wg));
      auto done = std::move(l).wait(wg);
      return Pair(std::move(done), std::move(r).wait(wg));
    });
    std::move(both.first).each_pair(wg, [&](Val<u32> r, Val<u32> col, Val<f32> lo, Val<f32> hi) {
      c.st<2>(r * 64 + col / 2, Vec<f32, 2>(lo, hi));
    });
    std::move(both.second)
        .map([](Val<f32> x) { return x * 2.f; })
        .each_pair(wg, [&](Val<u32> r, Val<u32> col, Val<f32> lo, Val<f32> hi) {
          c.st<2>(r * 64 + 32 + col / 2, Vec<f32, 2>(lo, hi));
        });
  });
}

TEST(wgmma, two_products_in_flight) {
  const auto k = build("two", "sm_90a", two_in_flight);
  EXPECT_THAT(k.ptx(), testing::HasSubstr("wgmma.wait_group.sync.aligned 1;"));
  auto a = small_matrix<bf16>(64, 192, 1), b = small_matrix<bf16>(128, 192, 2);
  for (const auto policy : {emu::AsyncPolicy::eager, emu::AsyncPolicy::late, emu::AsyncPolicy::random}) {
    std::vector<float> c(64 * 128);
    EmulatorRun run(k);
    run.options.async = policy;
    RUN_OR_SKIP(run, (emu::Dim3{1, 1, 1}), (emu::Dim3{160, 1, 1}), tensor(a, {64, 192}),
                tensor(b, {128, 192}), buf(c), 3u);
    for (std::size_t i = 0; i < 64; ++i)
      for (std::size_t j = 64; j < 128; ++j) c[i * 128 + j] /= 2;
    expect_product(a, b, c, 64, 128, 192);
  }
}

// ---------------------------------------------------------------- mma.sync
// C = A B with A stored [k][m] and B stored [k][n]: transposed ldmatrix on both.
template <int M, int N, int K>
void mn_major_mma(Kernel& k, In<bf16> a, In<bf16> b, Out<f32> c) {
  k.block(32);
  using TA = Tile<bf16, K, M>;
  using TB = Tile<bf16, K, N>;
  Cta cta = k.cta();
  Warp w = k.warp();
  AsyncRing<TA, TB> ring(k, 2);
  TileSource<TA> a_src(cta, a, M);
  TileSource<TB> b_src(cta, b, N);
  WarpA<TA, M, Major::mn> a_cols(w, 0);
  WarpB<TB, N, Major::mn> b_cols(w, 0);
  auto acc = ring.loop(
      cta, Val<u32>(1), zeros<f32, M, N>(w),
      [&](auto& stage, const Val<u32>&) {
        stage.template copy<0>(a_src, 0, 0);
        stage.template copy<1>(b_src, 0, 0);
      },
      [&](const auto& stage, const Val<u32>&, auto acc) {
        return multiply(w, std::move(acc), a_cols, stage.template get<0>(), b_cols, stage.template get<1>());
      });
  std::move(acc).each_pair(w, [&](Val<u32> r, Val<u32> col, Val<f32> lo, Val<f32> hi) {
    c.template st<2>((r * N + col) / 2, Vec<f32, 2>(lo, hi));
  });
}
template <int M, int N, int K>
void run_mn_major() {
  const auto k = build("mn", "sm_80", mn_major_mma<M, N, K>);
  const auto a = small_matrix<bf16>(M, K, 1), b = small_matrix<bf16>(N, K, 2);
  auto a_in = transposed(a, M, K), b_in = transposed(b, N, K);
  std::vector<float> c(M * N);
  EmulatorRun run(k);
  RUN_OR_SKIP(run, (emu::Dim3{1, 1, 1}), (emu::Dim3{32, 1, 1}), buf(a_in), buf(b_in), buf(c));
  expect_product(a, b, c, M, N, K);
}
TEST(mma, transposed_operands) {
  run_mn_major<64, 64, 32>();
  run_mn_major<32, 16, 16>();
  run_mn_major<16, 32, 48>();
}

// One instruction per shape, fragments filled by hand from the ISA's formulas.
TEST(mma, f64_and_half_accumulators) {
  const auto k = build("f64", "sm_80", [](Kernel& k, In<f64> a, In<f64> b, Out<f64> c) {
    k.block(32);
    Warp w = k.warp();
    const auto g = w.lane() / 4, q = w.lane() % 4;
    FragA<f64, 8, 4> fa({a.ld(g * 4 + q)});
    FragB<f64, 4, 8> fb({b.ld(g * 4 + q)});
    FragC<f64, 8, 8> zero(record::zero_registers(k, f64::mod, 2, k.here()));
    const auto d = mma(w, fa, fb, std::move(zero));
    c.st(g * 8 + q * 2, d[0]);
    c.st(g * 8 + q * 2 + 1, d[1]);
  });
  auto a = small_matrix<f64>(8, 4, 1), b = small_matrix<f64>(8, 4, 2);
  std::vector<double> c(64);
  EmulatorRun run(k);
  RUN_OR_SKIP(run, (emu::Dim3{1, 1, 1}), (emu::Dim3{32, 1, 1}), buf(a), buf(b), buf(c));
  expect_product(a, b, c, 8, 8, 4);
}

TEST(ldmatrix, round_trip_through_registers_and_movmatrix) {
  // 8x8 matrix in, transposed in registers, stored back with stmatrix.
  const auto k = build("t", "sm_90a", [](Kernel& k, In<u32> a, Out<u32> c) {
    k.block(32);
    Warp w = k.warp();
    using T = Tile<bf16, 8, 8>;
    auto in = shared_tile<T>(k), out = shared_tile<T>(k);
    const auto word = in.address(w.lane() / 4, (w.lane() % 4) * 2);
    Ptr<shared, u32>(word).st(0, a.ld(w.lane()));
    w.sync();
    const auto r = ldmatrix<x1>(w, in.address((w.lane() & 7), 0));
    stmatrix<x1>(w, out.address((w.lane() & 7), 0), std::array<Val<b32>, 1>{movmatrix(w, r[0])});
    w.sync();
    c.st(w.lane(), Ptr<shared, u32>(out.address(w.lane() / 4, (w.lane() % 4) * 2)).ld(0));
  });
  std::vector<std::uint16_t> a(64), c(64);
  for (std::size_t i = 0; i < 64; ++i) a[i] = std::uint16_t(i * 7 + 1);
  EmulatorRun run(k);
  RUN_OR_SKIP(run, (emu::Dim3{1, 1, 1}), (emu::Dim3{32, 1, 1}), buf(a), buf(c));
  for (std::size_t i = 0; i < 8; ++i)
    for (std::size_t j = 0; j < 8; ++j) ASSERT_EQ(c[i * 8 + j], a[j * 8 + i]);
}

// ---------------------------------------------------------------- wmma
template <class T, class TC, int M, int N, int K>
void run_wmma(const char* target) {
  const auto k = build("wmma", target, [](Kernel& k, In<T> a, In<T> b, Out<TC> c) {
    k.block(32);
    Warp w = k.warp();
    auto acc = wmma_mma(w, wmma_load_a<T, M, N, K>(w, a, K * 2), wmma_load_b<T, M, N, K>(w, b, K * 2),
                        wmma_zeros<TC, M, N, K>(w));
    auto sum = wmma_mma(w, wmma_load_a<T, M, N, K>(w, a.at(K), K * 2),
                        wmma_load_b<T, M, N, K>(w, b.at(K), K * 2), std::move(acc));
    wmma_store(w, c, sum, N);
  });
  auto a = small_matrix<T>(M, K * 2, 1), b = small_matrix<T>(N, K * 2, 2);
  std::vector<HostOf<TC>> c(M * N);
  EmulatorRun run(k);
  RUN_OR_SKIP(run, (emu::Dim3{1, 1, 1}), (emu::Dim3{32, 1, 1}), buf(a), buf(b), buf(c));
  expect_product(a, b, c, M, N, K * 2);
}
TEST(wmma, types_and_shapes) {
  run_wmma<f16, f32, 16, 16, 16>("sm_80");
  run_wmma<f16, f16, 32, 8, 16>("sm_80");
  run_wmma<bf16, f32, 8, 32, 16>("sm_80");
  run_wmma<bf16, f32, 32, 8, 16>("sm_80");
  run_wmma<tf32, f32, 16, 16, 8>("sm_80");
  run_wmma<s8, s32, 16, 16, 16>("sm_80");
  run_wmma<u8, s32, 8, 32, 16>("sm_80");
  run_wmma<f64, f64, 8, 8, 4>("sm_80");
}

}  // namespace
}  // namespace cgp::dsl

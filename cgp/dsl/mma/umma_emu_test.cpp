// SPDX-License-Identifier: Apache-2.0
// What products in tensor memory compute, on the emulator, against host loops. The data are small dyadic
// numbers: every product and sum is exact, so results are compared for equality, and every order of
// asynchronous completion and every schedule must give them.
#include <cmath>

#include "cgp/dsl/core/on_emulator_test.h"
#include "cgp/dsl/mma/matrices_test.h"
#include "cgp/dsl/mma/umma_gemms_test.h"

namespace cgp::dsl {
namespace {

struct Policy {
  emu::AsyncPolicy async;
  emu::SchedulePolicy schedule;
};
constexpr Policy kPolicies[] = {{emu::AsyncPolicy::eager, emu::SchedulePolicy::fair},
                                {emu::AsyncPolicy::late, emu::SchedulePolicy::fair},
                                {emu::AsyncPolicy::random, emu::SchedulePolicy::random},
                                {emu::AsyncPolicy::late, emu::SchedulePolicy::adversarial}};
constexpr emu::Dim3 kFree{0, 0, 0};  // the block size is the kernel's

void set(EmulatorRun& run, const Policy& p) {
  run.options.async = p.async;
  run.options.schedule = p.schedule;
  run.options.seed = run.options.schedule_seed = 7;
}

template <class T, class TC, UmmaTestShape S, int Slots, Swizzle Sw = widest_swizzle(S.bk* T::bits / 8)>
void run_gemm(std::uint32_t m, std::uint32_t n, std::uint32_t k_tiles, int stages, std::uint32_t blocks) {
  const auto k = build("gemm", "sm_100a", gemm_sm100<T, TC, S, Slots, Sw>, stages);
  const std::uint32_t kk = k_tiles * S.bk;
  for (const auto& policy : kPolicies) {
    auto a = small_matrix<T>(m, kk, 1), b = small_matrix<T>(n, kk, 2);
    std::vector<HostOf<TC>> c(std::size_t(m) * n);
    EmulatorRun run(k);
    set(run, policy);
    RUN_OR_SKIP(run, (emu::Dim3{blocks, 1, 1}), kFree, tensor(a, {m, kk}), tensor(b, {n, kk}), buf(c), n,
                k_tiles, m / S.bm, n / S.bn);
    expect_product(a, b, c, m, n, kk);
  }
}

TEST(umma, rings_wrap_and_accumulators_take_turns) {
  run_gemm<bf16, f32, UmmaTestShape{128, 64, 64}, 2>(256, 192, 3, 2, 2);
  run_gemm<bf16, f32, UmmaTestShape{128, 256, 32}, 1>(128, 512, 1, 2, 1);
}
TEST(umma, sixty_four_rows) { run_gemm<f16, f32, UmmaTestShape{64, 24, 64}, 2>(128, 48, 2, 2, 1); }
TEST(umma, swizzles) {
  run_gemm<bf16, f32, UmmaTestShape{128, 32, 32}, 1>(128, 32, 3, 2, 1);
  run_gemm<bf16, f32, UmmaTestShape{128, 32, 16}, 1>(128, 32, 3, 2, 1);
  run_gemm<bf16, f32, UmmaTestShape{128, 32, 32}, 1, Swizzle::b16>(128, 32, 2, 2, 1);
}
TEST(umma, element_types) {
  run_gemm<f16, f32, UmmaTestShape{128, 64, 64}, 1>(128, 64, 2, 2, 1);
  run_gemm<tf32, f32, UmmaTestShape{128, 64, 32}, 1>(128, 64, 2, 2, 1);
  run_gemm<e4m3, f32, UmmaTestShape{128, 64, 128}, 1>(128, 64, 2, 2, 1);
  run_gemm<e5m2, f32, UmmaTestShape{128, 64, 64}, 1>(128, 64, 2, 2, 1);
  run_gemm<s8, s32, UmmaTestShape{128, 64, 128}, 1>(128, 64, 2, 2, 1);
}

template <class T, class TC, int M, int N, int K, Major MA, Major MB>
void run_one() {
  const auto k = build("one", "sm_100a", one_tile<T, TC, M, N, K, MA, MB>);
  const auto transposed = [](const auto& v, std::uint32_t rows, std::uint32_t cols) {
    auto t = v;
    for (std::uint32_t r = 0; r < rows; ++r)
      for (std::uint32_t c = 0; c < cols; ++c) t[std::size_t(c) * rows + r] = v[std::size_t(r) * cols + c];
    return t;
  };
  for (const auto& policy : kPolicies) {
    const auto a = small_matrix<T>(M, K, 1), b = small_matrix<T>(N, K, 2);
    auto stored_a = MA == Major::k ? a : transposed(a, M, K),
         stored_b = MB == Major::k ? b : transposed(b, N, K);
    std::vector<HostOf<TC>> c(M * N);
    EmulatorRun run(k);
    set(run, policy);
    const std::vector<std::uint64_t> da =
        MA == Major::k ? std::vector<std::uint64_t>{M, K} : std::vector<std::uint64_t>{K, M};
    const std::vector<std::uint64_t> db =
        MB == Major::k ? std::vector<std::uint64_t>{N, K} : std::vector<std::uint64_t>{K, N};
    RUN_OR_SKIP(run, (emu::Dim3{1, 1, 1}), kFree, tensor(stored_a, da), tensor(stored_b, db), buf(c));
    expect_product(a, b, c, M, N, K);
  }
}
TEST(umma, either_operand_transposed) {
  run_one<bf16, f32, 128, 128, 64, Major::k, Major::mn>();
  run_one<bf16, f32, 128, 64, 64, Major::mn, Major::k>();
  run_one<f16, f32, 64, 128, 32, Major::mn, Major::mn>();
  run_one<e4m3, f32, 128, 128, 64, Major::mn, Major::mn>();
}
TEST(umma, sixteen_bit_sums) { run_one<f16, f16, 128, 64, 32, Major::k, Major::mn>(); }

TEST(umma, a_in_tensor_memory) {
  const auto k = build("ts", "sm_100a", a_in_tensor_memory);
  for (const auto& policy : kPolicies) {
    auto a = small_matrix<bf16>(128, 64, 1), b = small_matrix<bf16>(64, 64, 2);
    std::vector<float> c(128 * 64);
    EmulatorRun run(k);
    set(run, policy);
    RUN_OR_SKIP(run, (emu::Dim3{1, 1, 1}), kFree, buf(a), tensor(b, {64, 64}), buf(c));
    expect_product(a, b, c, 128, 64, 64);
  }
}

template <class T, UmmaTestShape S, int Slots>
void run_pair(std::uint32_t m, std::uint32_t n, std::uint32_t k_tiles, PairTuning tune, std::uint32_t pairs) {
  const auto k = build("pair", "sm_100a", gemm_sm100_pair<T, S, Slots>, tune);
  const std::uint32_t kk = k_tiles * S.bk;
  for (const auto& policy : kPolicies) {
    auto a = small_matrix<T>(m, kk, 1), b = small_matrix<T>(n, kk, 2);
    std::vector<HostOf<T>> c(std::size_t(m) * n);
    EmulatorRun run(k);
    set(run, policy);
    RUN_OR_SKIP(run, (emu::Dim3{2 * pairs, 1, 1}), kFree, tensor(a, {m, kk}), tensor(b, {n, kk}),
                tensor(c, {m, n}), k_tiles, m / (2 * S.bm), n / S.bn);
    expect_product(a, b, c, m, n, kk);
  }
}
TEST(umma, pairs_of_blocks) {
  run_pair<bf16, UmmaTestShape{128, 128, 64}, 2>(256, 384, 3, {2, false}, 1);
  run_pair<f16, UmmaTestShape{128, 128, 64}, 1>(512, 128, 1, {3, false}, 2);
}
TEST(umma, work_stealing) { run_pair<bf16, UmmaTestShape{128, 128, 64}, 2>(256, 512, 1, {2, true}, 4); }

// Scales are powers of two, 2^-2 .. 2^2: exact. ue8m0 is the exponent + 127, ue4m3 of a power of two is
// (exponent + 7) << 3.
template <class T, class S, UmmaTestShape Shape>
void run_scaled(std::uint32_t k_tiles) {
  using G = ScaledGemm<T, S, Shape>;
  constexpr bool nibbles = T::mod == ptx::Mod::e2m1x2, block16 = S::mod == ptx::Mod::ue4m3;
  constexpr std::uint32_t M = Shape.bm, N = Shape.bn, length = block16 ? 16 : 32;
  const std::uint32_t K = k_tiles * std::uint32_t(G::elements);
  const auto k = build("scaled", "sm_100a", G::kernel);
  std::uint32_t seed = 99;
  const auto random = [&](std::uint32_t below) {
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 16) % below;
  };
  // 0, 0.5, 1, 1.5, 2 and their negatives: e2m1 bits 0 to 4, e4m3 by hand.
  constexpr double values[] = {0, 0.5, 1, 1.5, 2};
  constexpr std::uint8_t as_e4m3[] = {0x00, 0x30, 0x38, 0x3c, 0x40};
  struct Operand {
    std::vector<double> value;
    std::vector<std::uint8_t> data, scales;
  };
  const auto operand = [&](std::uint32_t rows, std::uint32_t scale_rows) {
    Operand o;
    o.data.resize(std::size_t(rows) * K / (nibbles ? 2 : 1));
    o.scales.resize(std::size_t(scale_rows) * K / length);
    const std::uint32_t along = G::count / 4, across = scale_rows / 128;
    std::vector<int> exponent(std::size_t(rows) * K / length);
    for (std::uint32_t r = 0; r < scale_rows; ++r)
      for (std::uint32_t s = 0; s < K / length; ++s) {
        const int e = int(random(5)) - 2;
        if (r < rows) exponent[std::size_t(r) * (K / length) + s] = e;
        // Stage by stage, blocks of 128 rows x 4 scales, along K first.
        const std::uint32_t stage = s / G::count, in = s % G::count;
        const std::uint32_t block = (stage * across + r / 128) * along + in / 4;
        o.scales[std::size_t(block) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + in % 4] =
            std::uint8_t(block16 ? (e + 7) << 3 : e + 127);
      }
    for (std::uint32_t r = 0; r < rows; ++r)
      for (std::uint32_t x = 0; x < K; ++x) {
        const std::uint32_t v = random(5), negative = random(2);
        const std::size_t i = std::size_t(r) * K + x;
        if (nibbles)
          o.data[i / 2] |= std::uint8_t((v | negative << 3) << (i % 2 * 4));
        else
          o.data[i] = std::uint8_t(as_e4m3[v] | negative << 7);
        o.value.push_back((negative ? -values[v] : values[v]) *
                          std::ldexp(1.0, exponent[std::size_t(r) * (K / length) + x / length]));
      }
    return o;
  };
  Operand a = operand(M, M), b = operand(N, (N + 127) / 128 * 128);
  for (const auto& policy : kPolicies) {
    std::vector<float> c(M * N);
    EmulatorRun run(k);
    set(run, policy);
    RUN_OR_SKIP(run, (emu::Dim3{1, 1, 1}), kFree, tensor(a.data, {M, a.data.size() / M}),
                tensor(b.data, {N, b.data.size() / N}), tensor(a.scales, {a.scales.size() / 16, 16}),
                tensor(b.scales, {b.scales.size() / 16, 16}), buf(c), k_tiles);
    expect_product(a.value, b.value, c, M, N, K);
  }
}
TEST(umma, block_scales_of_bytes) { run_scaled<e4m3, ue8m0, UmmaTestShape{128, 32, 128}>(2); }
TEST(umma, block_scales_of_nibbles) {
  run_scaled<e2m1x2, ue8m0, UmmaTestShape{128, 32, 128}>(2);
  run_scaled<e2m1x2, ue4m3, UmmaTestShape{128, 144, 64}>(2);
}

}  // namespace
}  // namespace cgp::dsl

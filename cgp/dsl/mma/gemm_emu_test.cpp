// SPDX-License-Identifier: Apache-2.0
// What the GEMMs compute, on the emulator, against host loops. The data are small dyadic numbers: every
// product and sum is exact, so results are compared for equality, and every order of asynchronous completion
// must give them.
#include "cgp/dsl/core/on_emulator_test.h"
#include "cgp/dsl/mma/gemms_test.h"
#include "cgp/dsl/mma/matrices_test.h"

namespace cgp::dsl {
namespace {

template <class T, class TC, AmpereShape S>
void run_sm80(std::uint32_t m, std::uint32_t n, std::uint32_t kk, int stages) {
  const auto k = build("gemm", "sm_90a", gemm_sm80<T, TC, S>, stages);
  for (const auto policy : {emu::AsyncPolicy::eager, emu::AsyncPolicy::late}) {
    auto a = small_matrix<T>(m, kk, 1), b = small_matrix<T>(n, kk, 2);
    std::vector<HostOf<TC>> c(std::size_t(m) * n);
    EmulatorRun run(k);
    run.options.async = policy;
    const emu::Dim3 grid{(n + S.bn - 1) / S.bn, (m + S.bm - 1) / S.bm, 1};
    RUN_OR_SKIP(run, grid, (emu::Dim3{128, 1, 1}), buf(a), buf(b), buf(c), m, n, kk);
    expect_product(a, b, c, m, n, kk);
  }
}

TEST(gemm_sm80, bf16_of_whole_and_ragged_tiles) {
  run_sm80<bf16, f32, AmpereShape{64, 64, 64}>(64, 64, 128, 3);
  run_sm80<bf16, f32, AmpereShape{64, 32, 32}>(70, 41, 104, 4);
  run_sm80<bf16, f32, AmpereShape{32, 48, 16}>(32, 48, 16, 2);
}
TEST(gemm_sm80, element_types) {
  run_sm80<f16, f32, AmpereShape{64, 32, 32}>(64, 32, 96, 3);
  run_sm80<tf32, f32, AmpereShape{64, 32, 32}>(64, 32, 72, 3);
  run_sm80<s8, s32, AmpereShape{64, 32, 64}>(64, 32, 160, 3);
  run_sm80<e4m3, f32, AmpereShape{64, 32, 64}>(64, 32, 96, 3);
}

template <class T, class TC, HopperShape S, Swizzle Sw = widest_swizzle(S.bk* T::bits / 8)>
void run_sm90(std::uint32_t m, std::uint32_t n, std::uint32_t k_tiles, int stages) {
  const auto k = build("gemm", "sm_90a", gemm_sm90<T, TC, S, Sw>, stages);
  const std::uint32_t kk = k_tiles * S.bk;
  for (const auto policy : {emu::AsyncPolicy::eager, emu::AsyncPolicy::late}) {
    auto a = small_matrix<T>(m, kk, 1), b = small_matrix<T>(n, kk, 2);
    std::vector<HostOf<TC>> c(std::size_t(m) * n);
    EmulatorRun run(k);
    run.options.async = policy;
    RUN_OR_SKIP(run, (emu::Dim3{n / S.bn, m / S.bm, 1}), (emu::Dim3{384, 1, 1}), tensor(a, {m, kk}),
                tensor(b, {n, kk}), buf(c), n, k_tiles);
    expect_product(a, b, c, m, n, kk);
  }
}

TEST(gemm_sm90, bf16_rings_wrap_and_tiles_repeat) {
  run_sm90<bf16, f32, HopperShape{128, 64, 64}>(128, 128, 5, 2);
  run_sm90<bf16, f32, HopperShape{64, 256, 64}>(64, 256, 1, 3);
}
TEST(gemm_sm90, swizzles) {
  run_sm90<bf16, f32, HopperShape{64, 32, 32}>(64, 32, 3, 2);
  run_sm90<bf16, f32, HopperShape{64, 32, 16}>(64, 32, 3, 2);
  run_sm90<bf16, f32, HopperShape{64, 32, 32}, Swizzle::b16>(64, 32, 2, 2);
  run_sm90<bf16, f32, HopperShape{64, 16, 128}>(64, 16, 2, 2);
}
TEST(gemm_sm90, element_types) {
  run_sm90<f16, f32, HopperShape{64, 40, 64}>(64, 40, 2, 2);
  run_sm90<tf32, f32, HopperShape{64, 32, 32}>(64, 32, 3, 2);
  run_sm90<e4m3, f32, HopperShape{64, 32, 128}>(64, 32, 2, 2);
  run_sm90<e5m2, f32, HopperShape{64, 32, 128}>(64, 32, 2, 2);
  run_sm90<s8, s32, HopperShape{64, 48, 128}>(64, 48, 2, 2);
  run_sm90<u8, s32, HopperShape{64, 32, 64}>(64, 32, 2, 2);
}

template <class TD, HopperShape S, int StoreCols>
void run_persistent(PersistentTuning tune, std::uint32_t clusters, std::uint32_t tiles_m,
                    std::uint32_t tiles_n, std::uint32_t k_tiles) {
  const auto k = build("gemm", "sm_90a", gemm_sm90_persistent<bf16, TD, S, StoreCols>, tune);
  const std::uint32_t m = tiles_m * S.bm * std::uint32_t(tune.cluster), n = tiles_n * S.bn,
                      kk = k_tiles * S.bk;
  for (const auto policy : {emu::AsyncPolicy::eager, emu::AsyncPolicy::late}) {
    auto a = small_matrix<bf16>(m, kk, 1), b = small_matrix<bf16>(n, kk, 2);
    std::vector<HostOf<TD>> c(std::size_t(m) * n);
    EmulatorRun run(k);
    run.options.async = policy;
    RUN_OR_SKIP(run, (emu::Dim3{clusters * std::uint32_t(tune.cluster), 1, 1}), (emu::Dim3{384, 1, 1}),
                tensor(a, {m, kk}), tensor(b, {n, kk}), tensor(c, {m, n}), tiles_m, tiles_n, k_tiles);
    expect_product(a, b, c, m, n, kk);
  }
}

TEST(gemm_sm90, persistent_tiles_with_staged_stores) {
  run_persistent<f32, HopperShape{64, 64, 32}, 32>({3, 1, 2}, 2, 2, 3, 4);
  run_persistent<bf16, HopperShape{128, 32, 16}, 32>({2, 1, 1}, 1, 1, 3, 1);
}
TEST(gemm_sm90, clusters_share_b_by_multicast) {
  run_persistent<f32, HopperShape{64, 64, 32}, 64>({3, 2, 1}, 2, 2, 2, 5);
  run_persistent<bf16, HopperShape{64, 32, 64}, 16>({2, 4, 2}, 1, 1, 2, 3);
}

TEST(gemm_sm90, pingpong_warpgroups_take_turns) {
  constexpr HopperShape shape{64, 32, 32};
  const auto k = build("gemm", "sm_90a", gemm_sm90_pingpong<shape>, 3);
  const std::uint32_t m = 5 * 64, n = 2 * 32;
  for (const std::uint32_t k_tiles : {1u, 4u, 7u})
    for (const auto schedule : {emu::SchedulePolicy::fair, emu::SchedulePolicy::random}) {
      const std::uint32_t kk = k_tiles * 32;
      auto a = small_matrix<bf16>(m, kk, 1), b = small_matrix<bf16>(n, kk, 2);
      std::vector<float> c(std::size_t(m) * n);
      EmulatorRun run(k);
      run.options.async = emu::AsyncPolicy::late;
      run.options.schedule = schedule;
      RUN_OR_SKIP(run, (emu::Dim3{3, 1, 1}), (emu::Dim3{384, 1, 1}), tensor(a, {m, kk}), tensor(b, {n, kk}),
                  tensor(c, {m, n}), 5u, 2u, k_tiles);
      expect_product(a, b, c, m, n, kk);
    }
}

}  // namespace
}  // namespace cgp::dsl

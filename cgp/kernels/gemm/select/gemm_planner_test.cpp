// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/gemm/select/gemm_planner.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

namespace cgp::kernels {
namespace {

runtime::DeviceInfo hopper() {
  runtime::DeviceInfo d;
  d.name = "NVIDIA H200", d.arch = "sm_90a", d.cc_major = 9, d.sm_count = 132, d.driver_version = 13000;
  return d;
}

TEST(GemmPlanner, RemembersWhatSelectGemmSays) {
  GemmPlanner planner(hopper(), {});
  const auto p = parse_gemm_key("bf16/nt/512x512x512");
  const auto first = planner.choose(p, {});
  EXPECT_EQ(first->variant.name, select_gemm(p, {}, hopper()).variant.name);
  EXPECT_EQ(planner.choose(p, {}), first);
  EXPECT_EQ(planner.remembered(), 1u);
}

// What a block holds in shared memory is laid out when the kernel is built: every choice must fit.
TEST(GemmPlanner, EveryChoiceCanBeBuilt) {
  std::set<std::string> seen;
  for (auto [type, c] : {std::pair{DType::bf16, DType::f32},
                         {DType::f16, DType::f16},
                         {DType::e4m3, DType::bf16},
                         {DType::s8, DType::s32},
                         {DType::f32, DType::bf16}})
    for (int layout = 0; layout < 4; ++layout)
      for (std::uint64_t m : {1, 40, 128, 256, 1000, 5000})
        for (std::uint64_t n : {1, 64, 128, 300, 768, 2048, 5000})
          for (std::uint64_t k : {1, 512, 4096}) {
            GemmProblem p;
            p.type = type, p.type_c = c, p.m = m, p.n = n, p.k = k;
            p.trans_a = layout & 1, p.trans_b = layout & 2;
            const GemmAddresses at{1 << 20, 2 << 20, 3 << 20};
            const auto choice = p.plain() ? select_gemm(p, at, hopper()) : select_mixed_gemm(p, at, hopper());
            if (!seen.insert(choice.variant.name).second) continue;
            EXPECT_NO_THROW((void)image(choice.variant, "sm_90a")) << choice.variant.name;
          }
}

// Whatever changes the choice must be part of what it is remembered by.
TEST(GemmPlanner, TellsApartWhatSelectGemmTellsApart) {
  GemmPlanner planner(hopper(), {});
  std::vector<std::pair<GemmProblem, GemmAddresses>> all;
  for (const char* key : {"bf16/nt/512x512x512", "bf16/nn/512x512x512", "f16/nt/512x512x512",
                          "f32/nt/512x512x512", "bf16/nt/513x512x512", "bf16/nt/512x520x512",
                          "bf16/nt/512x512x520", "bf16/nt/2x512x512x512", "bf16/nt/1000x3001x5003"})
    all.emplace_back(parse_gemm_key(key), GemmAddresses{});
  const GemmProblem base = parse_gemm_key("bf16/nt/512x512x512");
  for (int i = 0; i < 3; ++i) {
    GemmProblem p = base;
    (i == 0 ? p.lda : i == 1 ? p.ldb : p.ldc) += 4;
    all.emplace_back(p, GemmAddresses{});
    GemmAddresses at;
    (i == 0 ? at.a : i == 1 ? at.b : at.c) = 2;
    all.emplace_back(base, at);
  }
  for (bool spare : {false, true}) {
    GemmAddresses at;
    at.padded_ldc = spare;
    GemmProblem p = parse_gemm_key("bf16/nt/1000x3001x5000");
    p.ldc = 3008;
    all.emplace_back(p, at);
    EXPECT_EQ(select_gemm(p, at, hopper()).pack_c, !spare);
  }
  GemmProblem old = base;
  old.beta = 0.5f;
  all.emplace_back(old, GemmAddresses{});
  for (int round = 0; round < 2; ++round)
    for (const auto& [p, at] : all) {
      const auto want = select_gemm(p, at, hopper());
      const auto got = planner.choose(p, at);
      EXPECT_EQ(got->variant.name, want.variant.name) << gemm_key(p);
      EXPECT_EQ(std::tuple(got->pack_a, got->pack_b, got->pack_c),
                std::tuple(want.pack_a, want.pack_b, want.pack_c));
    }
  EXPECT_EQ(planner.remembered(), all.size());
}

TEST(GemmPlanner, TakesNewWinnersAtOnce) {
  GemmPlanner planner(hopper(), {});
  const auto p = parse_gemm_key("bf16/nt/512x512x512");
  (void)planner.choose(p, {});
  GemmTable table;
  table.set(gemm_key(p), {gemm_candidates(p, {}, hopper()).back().variant.config, 1});
  planner.set_table(table);
  EXPECT_EQ(planner.choose(p, {})->variant.config, table.find(p)->config);
}

TEST(GemmPlanner, ForgetsRatherThanGrows) {
  GemmPlanner planner(hopper(), {});
  for (std::uint64_t n = 1; n <= 4200; ++n)
    (void)planner.choose({.type = DType::f32, .m = n, .n = 8, .k = 8}, {});
  EXPECT_LE(planner.remembered(), 4097u);
}

TEST(GemmPlanner, IsOneForEachDeviceAndServesThreads) {
  const auto d = runtime::Device::open("emu");
  EXPECT_EQ(&GemmPlanner::of(d), &GemmPlanner::of(runtime::Device::open("emu")));
  EXPECT_NE(&GemmPlanner::of(d), &GemmPlanner::of(runtime::Device::open("emu:sm_80")));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&d] {
      for (std::uint64_t n = 8; n < 200; n += 8)
        EXPECT_FALSE(GemmPlanner::of(d).choose({.m = n, .n = n, .k = n}, {})->variant.name.empty());
    });
  for (auto& t : threads) t.join();
}

}  // namespace
}  // namespace cgp::kernels

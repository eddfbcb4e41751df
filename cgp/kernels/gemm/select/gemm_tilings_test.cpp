// SPDX-License-Identifier: Apache-2.0
// Tilings that are chosen by measurement alone, run on the emulator: the lists of a large problem, on small
// ragged ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "cgp/kernels/gemm/api/gemm.h"
#include "cgp/kernels/gemm/api/gemm_check.h"
#include "cgp/kernels/gemm/api/gemm_tuning.h"
#include "cgp/kernels/gemm/select/gemm_table.h"
#include "cgp/kernels/gemm/select/gemm_tilings_sm90.h"

namespace cgp::kernels {
namespace {

HostArray random_array(DType t, std::uint64_t count, std::uint64_t seed) {
  HostArray h(t, {1, 1, count});
  for (std::uint64_t i = 0; i < count; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    h.set(i, double(std::int64_t(seed >> 40) % 256 - 128) / 64);
  }
  return h;
}

// Runs choices(p, addresses) on the emulator; how many they were.
template <class Choices>
std::size_t run_all(const GemmProblem& q, Choices&& choices) {
  const auto p = q.dense();
  const auto device = runtime::Device::open("emu:sm_90a");
  const auto a = random_array(p.type, p.a_elements(), 1), b = random_array(p.type, p.b_elements(), 2),
             c = random_array(p.type, p.c_elements(), 3);
  const auto on = [&](const HostArray& h) {
    auto x = device.alloc<std::byte>(h.bytes.size(), "operand");
    x.upload(h.bytes);
    return x;
  };
  auto da = on(a), db = on(b), dc = on(c);
  const GemmAddresses at{da.address(), db.address(), dc.address()};
  std::size_t seen = 0;
  for (const auto& choice : choices(p, at, device.info())) {
    ++seen;
    dc.upload(c.bytes);
    run_gemm(device.stream(), choice, p, at);
    HostArray out(p.type, {p.batch, p.m, p.n});
    dc.download(out.bytes);
    EXPECT_TRUE(check_gemm(p, a, b, c, out).pass) << choice.variant.name;
  }
  return seen;
}

void expect_right(const GemmProblem& q, const std::string& part, std::size_t at_least) {
  const auto seen = run_all(q, [&](const auto& p, const auto& at, const auto& device) {
    auto all = gemm_candidates(p, at, device);
    std::erase_if(all, [&](const auto& c) { return c.variant.name.find(part) == std::string::npos; });
    return all;
  });
  EXPECT_GE(seen, at_least) << part;
}
// A tile of sm90_persistent; layouts of A and B as letters.
void expect_right(const char* layout, std::uint64_t m, std::uint64_t n, std::uint64_t k,
                  const GemmPersistentShape& s, DType t = DType::bf16, std::uint64_t batch = 1) {
  GemmProblem p{.type = t, .m = m, .n = n, .k = k, .alpha = 0.5f, .batch = batch};
  p.trans_a = layout[0] == 't', p.trans_b = layout[1] == 't';
  run_all(p, [&](const auto& q, const auto&, const auto&) {
    return std::vector{choose_persistent_sm90(q.type, q.trans_a, q.trans_b, s)};
  });
}

GemmProblem nt(std::uint64_t m, std::uint64_t n, std::uint64_t k, float beta = 0) {
  return {.type = DType::bf16, .trans_b = true, .m = m, .n = n, .k = k, .beta = beta};
}

TEST(GemmTilings, PairsShareAnOperand) {
  expect_right(nt(200, 1032, 136), "_cluster1x2_split_k1", 4);
  expect_right(nt(200, 1032, 136), "_cluster2x1_split_k1", 4);
  expect_right({.type = DType::f16, .trans_a = true, .m = 136, .n = 1032, .k = 72}, "_cluster2x1_split_k1",
               2);
}

TEST(GemmTilings, PersistentTilesAreCandidatesOfLargerProblems) {
  runtime::DeviceInfo d;
  d.arch = "sm_90a", d.cc_major = 9, d.sm_count = 132;
  const auto some = [&](std::uint64_t n) {
    const auto all = gemm_candidates_sm90(nt(n, n, n).dense(), {}, d);
    return std::count_if(all.begin(), all.end(),
                         [](const auto& c) { return c.kind == GemmFamily::sm90_persistent; });
  };
  EXPECT_EQ(some(512), 0);
  EXPECT_GE(some(768), 8);
  EXPECT_GE(some(5000), 8);
}

TEST(GemmTilings, PersistentTilesOfEveryForm) {
  using S = GemmPersistentShape;
  constexpr auto a = GemmShared::a, b = GemmShared::b;
  expect_right("nt", 136, 200, 136, S{.rows = 64, .cols = 96});
  expect_right("nt", 392, 200, 72, S{.rows = 192, .cols = 144, .cluster = 2});
  expect_right("nt", 300, 328, 200, S{.rows = 256, .cols = 160});
  expect_right("nt", 136, 568, 72, S{.rows = 128, .cols = 272, .cluster = 2, .shared = a});
  expect_right("nt", 136, 200, 72, S{.rows = 128, .cols = 104, .b_evict_first = true});
  // Turned: rows of the tile are columns of C.
  expect_right("nt", 160, 200, 136, S{.rows = 64, .cols = 80, .swap_ab = true});
  expect_right("nt", 300, 584, 72, S{.rows = 128, .cols = 104, .swap_ab = true}, DType::f16);
  expect_right("nt", 200, 520, 72, S{.rows = 128, .cols = 96, .swap_ab = true, .cluster = 4, .shared = a});
  expect_right("nt", 328, 392, 72, S{.rows = 192, .cols = 176, .swap_ab = true, .cluster = 2, .shared = b});
  expect_right("nt", 136, 520, 72, S{.rows = 256, .cols = 152, .swap_ab = true}, DType::bf16, 3);
  expect_right("nt", 584, 136, 72, S{.rows = 128, .cols = 288, .swap_ab = true, .cluster = 2, .shared = b});
  // Operands whose rows are contiguous come in panels of 64.
  expect_right("nn", 136, 200, 136, S{.rows = 128, .cols = 176, .cluster = 2, .shared = a});
  expect_right("nn", 304, 392, 72, S{.rows = 192, .cols = 112, .swap_ab = true, .cluster = 2, .shared = b});
  expect_right("tn", 328, 200, 72, S{.rows = 256, .cols = 80, .cluster = 2});
  expect_right("tt", 120, 264, 136, S{.rows = 128, .cols = 104, .swap_ab = true, .cluster = 2, .shared = a});
}

// One tile a block, its results in the ring: widths that pieces of 64 do not divide, slices that are no whole
// swizzle patterns, K shorter than the ring.
TEST(GemmTilings, NonPersistentTilesOfEveryForm) {
  using S = GemmPersistentShape;
  constexpr auto a = GemmShared::a, b = GemmShared::b, both = GemmShared::both;
  expect_right("nt", 136, 200, 328, S{.rows = 64, .cols = 104, .non_persistent = true}, DType::bf16, 2);
  expect_right("nt", 300, 160, 360, S{.rows = 256, .cols = 152, .cluster = 2, .non_persistent = true});
  expect_right("nt", 200, 360, 72,
               S{.rows = 192, .cols = 176, .cluster = 2, .shared = a, .non_persistent = true});
  expect_right("nt", 300, 328, 136,
               S{.rows = 128, .cols = 160, .cluster = 4, .shared = both, .non_persistent = true});
  expect_right("nt", 136, 568, 136,
               S{.rows = 128, .cols = 272, .cluster = 2, .shared = a, .non_persistent = true});
  expect_right(
      "nt", 210, 520, 328,
      S{.rows = 128, .cols = 200, .swap_ab = true, .cluster = 4, .shared = a, .non_persistent = true});
  expect_right(
      "nt", 190, 392, 72,
      S{.rows = 192, .cols = 184, .swap_ab = true, .cluster = 2, .shared = a, .non_persistent = true},
      DType::f16);
  expect_right(
      "nt", 584, 136, 72,
      S{.rows = 128, .cols = 320, .swap_ab = true, .cluster = 4, .shared = b, .non_persistent = true});
  expect_right(
      "nn", 136, 264, 136,
      S{.rows = 64, .cols = 48, .swap_ab = true, .cluster = 4, .shared = both, .non_persistent = true});
  expect_right("tt", 328, 200, 72,
               S{.rows = 256, .cols = 88, .cluster = 2, .shared = b, .non_persistent = true});
  // A ring of fourteen stages, and K that goes round it.
  expect_right("nt", 136, 72, 1032,
               S{.rows = 64, .cols = 48, .swap_ab = true, .stages = 14, .non_persistent = true});
}

TEST(GemmTilings, SinglesOfOneWaveAreCandidates) {
  runtime::DeviceInfo d;
  d.arch = "sm_90a", d.cc_major = 9, d.sm_count = 132;
  const auto all = gemm_non_persistent_candidates_sm90(nt(952, 5000, 3504).dense(), {}, d, 1000);
  ASSERT_GE(all.size(), 20u);
  for (const auto& c : all) {
    const auto blocks =
        (952 + c.tile_m - 1) / c.tile_m * ((5000 + c.tile_n - 1) / c.tile_n) * unsigned(c.cluster);
    EXPECT_LE(blocks, c.cluster == 4 ? 120u : 132u) << c.variant.name;
    const auto again = choose_persistent_sm90(c.variant.config);
    ASSERT_TRUE(again) << c.variant.name;
    EXPECT_EQ(std::tuple(again->tile_m, again->tile_n, again->cluster, again->by_grid),
              std::tuple(c.tile_m, c.tile_n, c.cluster, true));
  }
  EXPECT_TRUE(gemm_non_persistent_candidates_sm90(nt(8192, 8192, 64).dense(), {}, d, 8).empty());
}

TEST(GemmTilings, KOverUpTo16Blocks) {
  expect_right(nt(72, 72, 2120), "_split_k8_", 3);
  expect_right(nt(72, 72, 2120), "_split_k16_", 1);
  expect_right(nt(72, 72, 264), "64x32x64_s5_split_k2_", 1);
  expect_right(nt(200, 72, 2056), "192x64x64_s5_split_k4_", 1);
  expect_right(nt(200, 72, 2056), "128x128x64_s5_split_k4_", 1);
}

// Every tile and layout, parts that end inside a stage, results at any alignment.
TEST(GemmTilings, SlicesOfKThatAreReduced) {
  const auto split = [](const char* layout, std::uint64_t m, std::uint64_t n, std::uint64_t k, int bm, int bn,
                        int split_k, float beta = 0, DType t = DType::bf16, std::uint64_t ldc = 0) {
    GemmProblem p{.type = t, .m = m, .n = n, .k = k, .ldc = ldc, .alpha = 0.5f, .beta = beta};
    p.trans_a = layout[0] == 't', p.trans_b = layout[1] == 't';
    run_all(p, [&](const auto& q, const auto&, const auto&) {
      return std::vector{choose_split_k_sm90(q, bm, bn, split_k)};
    });
  };
  split("nt", 72, 70, 240, 64, 64, 3);
  split("nt", 136, 200, 160, 128, 128, 2, 2);
  split("nn", 70, 136, 272, 64, 128, 2);
  split("tn", 136, 72, 200, 128, 64, 5, 0, DType::f16);
  split("tt", 72, 263, 256, 64, 256, 4, -1);
  split("nt", 129, 265, 2048, 128, 256, 16);
  EXPECT_FALSE(reject_split_k_sm90(nt(64, 64, 200).dense(), 2).empty());
  EXPECT_FALSE(reject_split_k_sm90(GemmProblem{.m = 8, .n = 8, .k = 64, .batch = 2}.dense(), 2).empty());
  runtime::DeviceInfo d;
  d.arch = "sm_90a", d.cc_major = 9, d.sm_count = 132;
  const auto all = gemm_split_k_candidates_sm90(nt(2048, 128, 8192), {}, d);
  ASSERT_GE(all.size(), 4u);
  for (const auto& c : all) {
    const auto blocks = (2048 + c.tile_m - 1) / c.tile_m * ((128 + c.tile_n - 1) / c.tile_n);
    EXPECT_LE(blocks * unsigned(c.split_k), 132u) << c.variant.name;
  }
}

TEST(GemmTilings, WarpgroupsTakeTurns) {
  expect_right(nt(264, 392, 136), "pingpong", 4);
  expect_right(nt(136, 264, 72, 0.5f), "pingpong", 1);
}

}  // namespace
}  // namespace cgp::kernels

// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/gemm/select/gemm_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "cgp/base/error.h"
#include "cgp/base/file.h"

namespace cgp::kernels {
namespace {

using ::testing::HasSubstr;

runtime::DeviceInfo hopper() {
  runtime::DeviceInfo d;
  d.name = "NVIDIA H200", d.arch = "sm_90a", d.cc_major = 9, d.sm_count = 132, d.driver_version = 13000;
  return d;
}

TEST(GemmTable, KeysNameProblems) {
  const GemmProblem p{.type = DType::f16, .trans_a = true, .m = 3, .n = 5, .k = 7, .batch = 2};
  EXPECT_EQ(gemm_key(p), "f16/tn/2x3x5x7");
  const auto q = parse_gemm_key("f16/tn/2x3x5x7");
  EXPECT_EQ(q.type, DType::f16);
  EXPECT_TRUE(q.trans_a);
  EXPECT_FALSE(q.trans_b);
  EXPECT_EQ(q.batch, 2u);
  EXPECT_EQ(q.m, 3u);
  EXPECT_EQ(q.n, 5u);
  EXPECT_EQ(q.k, 7u);
  EXPECT_EQ(q.lda, 3u);  // stored [k, m]
  for (const char* key :
       {"bf16/nt/1x2x3", "f32:fast/nt/1x2x3", "e4m3/nt/1x2x3", "e4m3_e5m2_f32/nt/1x2x3", "s8/nt/1x2x3",
        "s8_s8_s8/nt/1x2x3", "e4m3:fast@channel/nt/1x2x3", "bf16_bf16_f32/nn/4x1x2x3"})
    EXPECT_EQ(gemm_key(parse_gemm_key(key)), key);
  const auto mixed = parse_gemm_key("e4m3_e5m2_f32:fast@block/nt/1x2x3");
  EXPECT_EQ(mixed.type_b, DType::e5m2);
  EXPECT_EQ(mixed.type_c, DType::f32);
  EXPECT_EQ(mixed.precision, GemmPrecision::fast);
  EXPECT_EQ(mixed.scaling, GemmScaling::block);
  EXPECT_EQ(parse_gemm_key("e4m3_e4m3_bf16/nt/1x2x3").type_c, parse_gemm_key("e4m3/nt/1x2x3").type_c);
  for (const char* bad :
       {"", "bf16/nt", "bf17/nt/1x2x3", "bf16/nx/1x2x3", "bf16/nt/1x2", "bf16/nt/1x2x3x4x5", "bf16/nt/1xax3",
        "bf16/nt/1x2x-3", "bf16:quick/nt/1x2x3", "bf16@row/nt/1x2x3", "bf16_f16/nt/1x2x3", "_/nt/1x2x3"})
    EXPECT_THROW((void)parse_gemm_key(bad), ArgumentError) << bad;
}

TEST(GemmTable, ReadsWhatItWrites) {
  GemmTable t;
  const auto x = parse_gemm_config("gemm_bf16_nt_simt"), y = parse_gemm_config("gemm_bf16_naive");
  t.set("bf16/nt/1x2x3", {x, 12.5});
  t.set("bf16/nt/4x5x6", {y, 0.75});
  const auto again = GemmTable::parse(t.text(), "text");
  EXPECT_EQ(again.text(), t.text());
  EXPECT_EQ(again.size(), 2u);
  EXPECT_EQ(again.find(parse_gemm_key("bf16/nt/4x5x6"))->config, y);
  EXPECT_EQ(again.find(parse_gemm_key("bf16/nt/4x5x7")), nullptr);
}

TEST(GemmTable, NamesTheLineThatIsNone) {
  try {
    GemmTable::parse("# fine\nbf16/nt/1x2x3 gemm_x 12.5\nbf16/nt/1x2x3 gemm_x fast\n", "some.txt");
    FAIL();
  } catch (const ArgumentError& e) {
    EXPECT_THAT(e.what(), HasSubstr("some.txt:3"));
  }
  EXPECT_THROW(GemmTable::parse("bf16/nt/1x2x3 gemm_x -1\n", ""), ArgumentError);
}

TEST(GemmTable, LeavesOutConfigsThatNoVersionKnows) {
  EXPECT_TRUE(GemmTable::parse("bf16/nt/1x2x3 gemm_bf16_of_an_older_version 1.5\n", "text").empty());
}

TEST(GemmTable, SpeaksOfDenseOperandsOnly) {
  GemmTable t;
  t.set("bf16/nt/64x64x64", {GemmConfig{}, 1});
  auto p = parse_gemm_key("bf16/nt/64x64x64");
  EXPECT_NE(t.find(p), nullptr);
  p.lda = 128;
  EXPECT_EQ(t.find(p), nullptr);
}

TEST(GemmTable, CandidatesDifferAndTheSelectedComesFirst) {
  for (const char* key : {"bf16/nt/4096x4096x4096", "bf16/nt/1x14336x4096", "bf16/nt/1000x3001x5003",
                          "f16/tn/512x512x512", "f32/nn/256x256x256", "bf16/nn/8x8x0"}) {
    const auto p = parse_gemm_key(key);
    const auto all = gemm_candidates(p, {}, hopper());
    std::set<std::string> names;
    for (const auto& c : all) EXPECT_TRUE(names.insert(c.variant.name).second) << c.variant.name;
    EXPECT_EQ(all[0].variant.name, select_gemm(p, {}, hopper()).variant.name) << key;
    for (const auto& c : all) {
      EXPECT_EQ(c.pack_a, all[0].pack_a);
      EXPECT_EQ(c.pack_b, all[0].pack_b);
    }
  }
}

TEST(GemmTable, DecidesWhereItKnowsAVariantThatRuns) {
  const auto p = parse_gemm_key("bf16/nt/4096x4096x4096");
  const auto all = gemm_candidates(p, {}, hopper());
  ASSERT_GT(all.size(), 2u);
  GemmTable t;
  t.set(gemm_key(p), {all.back().variant.config, 7});
  const auto chosen = select_gemm(p, {}, hopper(), t);
  EXPECT_EQ(chosen.variant.name, all.back().variant.name);
  EXPECT_THAT(chosen.why, HasSubstr("measured"));
  t.set(gemm_key(p), {parse_gemm_config("gemm_bf16_nt_sm90_persistent_8x8x8_s1_cluster1x1_group1"), 7});
  EXPECT_EQ(select_gemm(p, {}, hopper(), t).variant.name, all[0].variant.name);
}

TEST(GemmTable, F16TakesWhatWasMeasuredInBf16) {
  const auto p = parse_gemm_key("bf16/nt/4096x4096x4096"), q = parse_gemm_key("f16/nt/4096x4096x4096");
  auto all = gemm_candidates(p, {}, hopper());
  GemmTable t;
  t.set(gemm_key(p), {all.back().variant.config, 7});
  const auto config = select_gemm(q, {}, hopper(), t).variant.config;
  EXPECT_EQ(config, gemm_candidates(q, {}, hopper()).back().variant.config);
  EXPECT_EQ(config.a, DType::f16);
  t.set(gemm_key(q), {gemm_candidates(q, {}, hopper())[1].variant.config, 6});  // its own row goes first
  EXPECT_EQ(t.find_like(q)->microseconds, 6);
  EXPECT_FALSE(t.find_like(parse_gemm_key("f16_f16_f32/nt/4096x4096x4096")));
  EXPECT_FALSE(t.find_like(parse_gemm_key("f32/nt/4096x4096x4096")));
}

// Measured: 67 us where K over clusters takes 76 and more, in 59 tiles of 128 columns.
TEST(GemmTable, SmallMOfLongKStreamsBFromFortyEightTilesOn) {
  const auto kind = [](const char* key) { return select_gemm(parse_gemm_key(key), {}, hopper()).kind; };
  EXPECT_EQ(kind("bf16/nn/4x7512x15016"), GemmFamily::sm90_small_m);
  EXPECT_EQ(kind("bf16/nn/1x7168x2048"), GemmFamily::sm90_small_m);
  EXPECT_NE(kind("bf16/nn/2x2664x4024"), GemmFamily::sm90_small_m);
}

TEST(GemmTable, WhatShipsNamesVariantsThatExist) {
  const auto& table = GemmTable::shipped(hopper());
  for (const auto& [key, row] : table.rows()) {
    const auto p = parse_gemm_key(key);
    EXPECT_EQ(select_gemm(p, {}, hopper(), table).variant.config, row.config) << key;
  }
  // With a source C: a kernel that reads it.
  for (const auto& [key, row] : table.rows()) {
    auto p = parse_gemm_key(key);
    p.beta = 1;
    const auto c = select_gemm(p, {}, hopper(), table);
    if (c.kind == GemmFamily::sm90_persistent) {
      EXPECT_TRUE(c.variant.config.source_c) << key;
    }
  }
  auto other = hopper();
  other.name = "NVIDIA A100";
  EXPECT_TRUE(GemmTable::shipped(other).empty());
}

TEST(GemmTable, WhatIsEmbeddedHasWhatIsSelected) {
  for (const char* arch : {"sm_80", "sm_90a"}) {
    auto d = hopper();
    d.arch = arch, d.cc_major = arch[3] - '0';
    std::set<std::string> names;
    for (const auto& v : gemm_selected_variants(arch)) {
      EXPECT_TRUE(names.insert(v.name).second) << v.name;
      EXPECT_EQ(reject(v, arch), "");
    }
    for (const char* key : {"bf16/nt/4096x4096x4096", "f16/nn/1x4096x14336", "bf16/tn/100x300x500",
                            "f32/tt/77x99x55", "bf16/nt/300x4096x4096", "f16/nt/64x512x512x512"})
      EXPECT_TRUE(names.count(select_gemm(parse_gemm_key(key), {}, d).variant.name)) << arch << " " << key;
  }
}

TEST(GemmTable, RegretIsTheChoiceOverTheFastest) {
  const auto p = parse_gemm_key("bf16/nt/4096x4096x4096");
  const auto chosen = select_gemm(p, {}, hopper()).variant.name;
  const auto r = gemm_regret(
      {{gemm_key(p), {{chosen, 110}, {"other", 100}}}, {"bf16/nt/8x8x8", {{"other", 1}}}}, hopper());
  ASSERT_EQ(r.size(), 1u);  // of the second problem the choice was not measured
  EXPECT_EQ(r[0].fastest, "other");
  EXPECT_NEAR(r[0].regret(), 0.1, 1e-12);
}

TEST(GemmTable, TheUsersFileIsKeptByDeviceAndAFileThatIsNoneIsLeftOut) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "cgp_gemm_table_test";
  std::filesystem::remove_all(folder);
  ::setenv("CGP_CACHE_DIR", folder.c_str(), 1);
  const auto d = hopper();
  EXPECT_TRUE(load_gemm_table(d).empty());
  GemmTable t;
  t.set("bf16/nt/1x2x3", {parse_gemm_config("gemm_bf16_nt_simt"), 12.5});
  (void)update_gemm_table(t, d, true);
  EXPECT_EQ(load_gemm_table(d).text(), t.text());
  auto other = d;
  other.driver_version = 13010;
  EXPECT_TRUE(load_gemm_table(other).empty());
  write_file(gemm_table_path(d), "not a table\n");
  std::string problem;
  EXPECT_TRUE(load_gemm_table(d, &problem).empty());
  EXPECT_THAT(problem, HasSubstr(".txt:1"));
  ::setenv("CGP_CACHE_DIR", "off", 1);
  EXPECT_THROW((void)update_gemm_table(t, d, true), Unsupported);
  ::unsetenv("CGP_CACHE_DIR");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace cgp::kernels

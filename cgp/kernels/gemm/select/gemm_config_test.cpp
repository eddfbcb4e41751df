// SPDX-License-Identifier: Apache-2.0
// Names of gemm's variants are their configs: print, parse and print again.
#include "cgp/kernels/gemm/select/gemm_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "cgp/base/error.h"
#include "cgp/kernels/gemm/api/gemm_launch.h"
#include "cgp/kernels/gemm/select/gemm_table.h"
#include "cgp/kernels/gemm/select/gemm_tilings_sm90.h"

namespace cgp::kernels {
namespace {

using ::testing::HasSubstr;

runtime::DeviceInfo device(std::string arch, int cc, int sms) {
  runtime::DeviceInfo d;
  d.arch = std::move(arch), d.cc_major = cc / 10, d.cc_minor = cc % 10, d.sm_count = sms;
  if (cc == 90) d.name = "NVIDIA H200";
  return d;
}

void expect_round_trip(const GemmVariant& v) {
  EXPECT_EQ(v.name, print(v.config));
  EXPECT_EQ(parse_gemm_config(v.name), v.config) << v.name;
  EXPECT_EQ(print(parse_gemm_config(v.name)), v.name);
  EXPECT_EQ(v.name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"),
            std::string::npos)
      << v.name;
}

TEST(GemmConfig, EveryCandidateRoundTrips) {
  std::set<std::string> seen;
  for (const auto& d : {device("sm_75", 75, 40), device("sm_80", 80, 108), device("sm_90a", 90, 132),
                        device("sm_100a", 100, 148)})
    for (DType t : {DType::f32, DType::f16, DType::bf16, DType::e4m3, DType::s8})
      for (bool ta : {false, true})
        for (bool tb : {false, true})
          for (float beta : {0.f, 1.f})
            for (std::uint64_t n : {1, 16, 200, 1000, 1001, 4096}) {
              const GemmProblem p{
                  .type = t, .trans_a = ta, .trans_b = tb, .m = n, .n = 520, .k = 1040, .beta = beta};
              for (const auto& c : gemm_candidates(p, {}, d))
                seen.insert(c.variant.name), expect_round_trip(c.variant);
              if (t != DType::f16 && t != DType::bf16) continue;
              for (const auto& c : gemm_non_persistent_candidates_sm90(p, {}, d, 1000))
                seen.insert(c.variant.name), expect_round_trip(c.variant);
            }
  EXPECT_GT(seen.size(), 1000u);
}

TEST(GemmConfig, EveryFamilyIsParsedByItsName) {
  for (const auto& f : gemm_families()) {
    const GemmConfig c{.family = f.family,
                       .a = DType::e4m3,
                       .c = DType::f16,
                       .layout = GemmLayout::tn,
                       .tile_m = 128,
                       .tile_n = 64,
                       .stages = 3,
                       .split_k = 2,
                       .raster_grid = 1,
                       .evict_a = 1,
                       .evict_c = 2,
                       .swap_ab = 1,
                       .epilogue = "bias_bf16_gelu"};
    EXPECT_EQ(parse_gemm_config(print(c)), c) << print(c);
    EXPECT_EQ(hash(parse_gemm_config(print(c))), hash(c));
  }
}

TEST(GemmConfig, ReadsAsDocumented) {
  const auto c = parse_gemm_config("gemm_bf16_nt_sm90_persistent_200x256x64_s3_cluster1x1_group8_swap_ab");
  EXPECT_EQ(c.family, GemmFamily::sm90_persistent);
  EXPECT_EQ(c.tile_m, 200);
  EXPECT_TRUE(c.swap_ab);
  EXPECT_THAT(
      json(c),
      HasSubstr(R"({"types": ["bf16", "bf16", "bf16"], "layout": "nt", "family": "sm90_persistent")"));
  EXPECT_THAT(json(c),
              HasSubstr(R"("tile_m": 200, "tile_n": 256, "tile_k": 64, "stages": 3, "cluster_m": 1)"));
  EXPECT_THAT(json(c), HasSubstr(R"("swap_ab": true, "source_c": false)"));
}

TEST(GemmConfig, StepsArePrintedAndTaken) {
  GemmChoice c;
  const auto steps = [&] {
    std::string out;
    for (const auto step : gemm_steps(c))
      out += std::string(out.empty() ? "" : " ") + std::string(name(step));
    return out;
  };
  c.kind = GemmFamily::sm90_persistent;
  EXPECT_EQ(steps(), "product");
  c.canonicalized = c.pack_a = c.pack_c = true;
  EXPECT_EQ(steps(), "canonicalize pack product unpack");
  c.kind = GemmFamily::sm90_pingpong;  // arranges its operands itself
  EXPECT_EQ(steps(), "canonicalize product");
  c = {}, c.split_k = 4;
  for (auto family : {GemmFamily::sm90_split_k, GemmFamily::misaligned, GemmFamily::simt}) {
    c.kind = family;
    EXPECT_EQ(steps(), "product reduce") << name(family);
  }
}

TEST(GemmConfig, ErrorsNameThePart) {
  const auto why = [](std::string_view name) -> std::string {
    try {
      (void)parse_gemm_config(name);
    } catch (const ArgumentError& e) {
      return e.what();
    }
    return "parsed";
  };
  EXPECT_THAT(why("gemv_bf16"), HasSubstr("the name begins with gemm"));
  EXPECT_THAT(why("gemm_bf17_nt_simt"),
              HasSubstr("at _bf17_nt_simt, where one of these may stand: <a: an element type>"));
  EXPECT_THAT(why("gemm_bf16_e4m3_nt_simt"), HasSubstr("<c: an element type>"));
  EXPECT_THAT(why("gemm_bf16_nt_sm91_persistent"), HasSubstr("family naive or simt or"));
  EXPECT_THAT(why("gemm_bf16_nt_sm90_128x64_stages3"), HasSubstr("at _stages3"));
  EXPECT_THAT(why("gemm_bf16_nt_sm90_128x64_stages3"), HasSubstr("cluster<cluster_m>x<cluster_n>"));
  EXPECT_THAT(why("gemm_bf16_nt"), HasSubstr("the name ends"));
  EXPECT_THAT(why("gemm_bf16_nt_sm90_swap_ab_s3"), HasSubstr("at _s3"));  // not in its place
  EXPECT_THAT(why("gemm_bf16_nt_sm90_0128x64"), HasSubstr("at _0128x64"));
  EXPECT_THAT(why("gemm_bf16_nt_sm90_128x64x32x16"), HasSubstr("at _128x64x32x16"));
  EXPECT_THAT(why("gemm_bf16_nt_sm90_128x"), HasSubstr("at _128x"));
}

}  // namespace
}  // namespace cgp::kernels

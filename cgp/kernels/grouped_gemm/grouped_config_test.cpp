// SPDX-License-Identifier: Apache-2.0
// Names of the variants of grouped_gemm, and of gemm's kernels around a product, are their configs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "cgp/base/error.h"
#include "cgp/kernels/gemm/api/gemm_tuning.h"
#include "cgp/kernels/gemm/workspace/gemm_arrange.h"
#include "cgp/kernels/gemm/workspace/gemm_split_k_f32.h"
#include "cgp/kernels/grouped_gemm/grouped_gemm.h"

namespace cgp::kernels {
namespace {

using ::testing::HasSubstr;

void expect_round_trip(const Variant& v) {
  ASSERT_NE(v.config, nullptr) << v.name;
  EXPECT_EQ(v.config->round_trip(v.name.substr(0, v.family), v.name), v.name);
  EXPECT_THAT(v.config->json(v.name.substr(0, v.family), v.name), HasSubstr("\": ")) << v.name;
}

TEST(GroupedConfig, EveryVariantRoundTripsAndNamesAreUnique) {
  std::set<std::string> seen;
  const auto check = [&](const Variant& v) {
    expect_round_trip(v);
    EXPECT_TRUE(seen.insert(v.name).second) << v.name;
  };
  for (DType t : {DType::f16, DType::bf16}) {
    for (bool trans_b : {false, true}) {
      for (int bn : {128, 256})
        for (bool taken : {false, true})
          for (int buffers : {1, 2}) {
            const GroupedTuning tune{bn, 4, buffers, 8, taken};
            check(grouped_rows_sm90(t, trans_b, tune));
            const auto items = grouped_problems_sm90(t, trans_b, tune);
            check(items.maps), check(items.products);
          }
      check(grouped_sm80(t, GroupedForm::rows, trans_b));
      check(grouped_simt(t, GroupedForm::rows, trans_b)),
          check(grouped_simt(t, GroupedForm::problems, trans_b));
    }
    check(grouped_depth_sm90(t, {})), check(grouped_sm80(t, GroupedForm::depth, false));
    check(grouped_simt(t, GroupedForm::depth, false));
  }
  for (DType t : {DType::e4m3, DType::s8, DType::f16})
    for (auto scaling : {GemmScaling::none, GemmScaling::tensor, GemmScaling::channel, GemmScaling::block})
      for (bool added : {false, true}) {
        if (scaling == GemmScaling::block && t != DType::e4m3) continue;
        GroupedProblem p;
        p.type = t, p.type_c = DType::f16, p.scaling = scaling, p.trans_b = true, p.n = 256, p.k = 256;
        if (added) p.epilogue = epilogue::relu();
        check(grouped_mixed_sm90(p, grouped_mixed_tuning(p)));
        p.beta = added ? 1.f : 0.f, p.alpha = 2;
        if (t != DType::f16 || scaling != GemmScaling::none || added) check(grouped_simt(p));
      }
}

TEST(GroupedConfig, ReadsAsDocumented) {
  const auto v = grouped_rows_sm90(DType::bf16, true, {256, 4, 2, 8});
  EXPECT_EQ(v.name, "grouped_gemm_bf16_rows_sm90_nt_128x256x64_s4_stores2_group8");
  const auto c = parse_config<GroupedConfig>("grouped_gemm", v.name);
  EXPECT_EQ(c, grouped_config_sm90(DType::bf16, GroupedForm::rows, GemmLayout::nt, {256, 4, 2, 8}));
  EXPECT_EQ(config_hash(c), config_hash(c));
  EXPECT_THAT(config_json(c),
              HasSubstr(R"("form": "rows", "kind": "sm90", "maps": false, "layout": "nt", "tile_m": 128)"));
  EXPECT_THROW(parse_config<GroupedConfig>("grouped_gemm", "grouped_gemm_bf16_columns_sm90"), ArgumentError);
}

TEST(GroupedConfig, KernelsAroundAProductRoundTrip) {
  for (const auto& v : gemm_arrange_variants()) expect_round_trip(v);
  for (int matrices : {1, 2, 3}) expect_round_trip(gemm_pack(matrices));
  for (DType t : {DType::f16, DType::bf16})
    for (int slices : {2, 16}) expect_round_trip(gemm_split_k_reduce(t, slices));
  for (DType t : {DType::f32, DType::f16, DType::bf16}) expect_round_trip(gemm_split_k_reduce_f32(t));
  EXPECT_EQ(gemm_split_k_reduce(DType::bf16, 4).name, "gemm_split_k_reduce_bf16_slices4");
}

}  // namespace
}  // namespace cgp::kernels

// SPDX-License-Identifier: Apache-2.0
// Plans, problem sets and reports of gemm: what can be known without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "cgp/base/error.h"
#include "cgp/tune/gemm_measure.h"
#include "cgp/tune/gemm_plan.h"
#include "cgp/tune/gemm_problems.h"
#include "cgp/tune/gemm_report.h"

namespace cgp::tune {
namespace {

using ::testing::HasSubstr;

TEST(GemmProblems, AreSetsTimesTypesTimesLayouts) {
  EXPECT_EQ(gemm_problems({}).size(), 7u);
  const auto all = gemm_problems({.set = "all"});
  EXPECT_EQ(all.size(), 7u + 42 + 4 + 1 - 1);  // 4096x4096x4096 is in two sets
  const auto some = gemm_problems({.shapes = "1x2x3, 4x5x6x7", .dtype = "bf16,f16", .layout = "nn,tt"});
  ASSERT_EQ(some.size(), 8u);
  EXPECT_EQ(some[1].batch, 4u);
  EXPECT_TRUE(some[2].trans_a && some[2].trans_b);
  EXPECT_EQ(some[7].type, DType::f16);
  const auto tasks = gemm_tasks({.shapes = "1x2x3", .dtype = "e4m3@channel", .epilogue = "none,bias_gelu"});
  ASSERT_EQ(tasks.size(), 2u);
  EXPECT_EQ(tasks[0].name(), "e4m3@channel/nt/1x2x3");
  EXPECT_EQ(tasks[1].name(), "e4m3@channel/nt/1x2x3+bias_gelu");
  EXPECT_THROW(gemm_tasks({.epilogue = "tanh"}), ArgumentError);
  EXPECT_THROW(gemm_problems({.set = "round"}), ArgumentError);
  EXPECT_THROW(gemm_problems({.shapes = "4096"}), ArgumentError);
  EXPECT_THROW(gemm_problems({.dtype = "bf17"}), ArgumentError);
  EXPECT_THROW(gemm_problems({.dtype = ","}), ArgumentError);
}

TEST(GemmPlan, FloorIsWhatTheDataSheetSays) {
  const auto h200 = device_for_arch("sm_90a");
  const auto f = gemm_floor(kernels::parse_gemm_key("bf16/nt/8192x8192x8192"), h200);
  EXPECT_NEAR(f.flop_per_s, 989.4e12, 1e12);  // dense bf16, NVIDIA's data sheet
  EXPECT_NEAR(f.compute_us, 2.0 * std::pow(8192, 3) / 989.4e6, 2);
  EXPECT_NEAR(f.memory_us, 3 * 8192.0 * 8192 * 2 / 4.8e6, 1e-6);
  EXPECT_EQ(f.us(), f.compute_us);
  const auto thin = gemm_floor(kernels::parse_gemm_key("bf16/nt/1x4096x4096"), h200);
  EXPECT_EQ(thin.us(), thin.memory_us);
  EXPECT_NEAR(gemm_floor(kernels::parse_gemm_key("f32/nn/64x64x64"), h200).flop_per_s, 61.8e12, 1e12);
  EXPECT_NEAR(gemm_floor(kernels::parse_gemm_key("f16/nn/64x64x64"), device_for_arch("sm_80")).flop_per_s,
              312e12, 1e12);
}

TEST(GemmPlan, NamesTheChoiceTheOthersAndWhatCannot) {
  const auto d = device_for_arch("sm_90a");
  const auto plan = plan_gemm(kernels::parse_gemm_key("bf16/nt/4096x4096x4096"), {}, d, {});
  EXPECT_EQ(plan.chosen.variant.name, kernels::select_gemm(plan.problem, {}, d).variant.name);
  EXPECT_GT(plan.chosen.microseconds, plan.floor.us());
  EXPECT_GT(plan.others.size(), 3u);
  for (std::size_t i = 1; i < plan.others.size(); ++i)
    EXPECT_TRUE(plan.others[i].microseconds == 0 ||
                plan.others[i].microseconds >= plan.others[i - 1].microseconds);
  bool sm100 = false;
  for (const auto& [kind, why] : plan.rejected)
    sm100 |= kind == "sm100_pair" && why.find("sm_100a") != why.npos;
  EXPECT_TRUE(sm100);
  const auto text = plan_text(plan);
  EXPECT_THAT(text, HasSubstr("predicted"));
  EXPECT_THAT(text, HasSubstr("rule       rows that 16-byte accesses reach"));
  EXPECT_THAT(text, HasSubstr("constants  measured on NVIDIA H200"));
  EXPECT_THAT(text, HasSubstr("arithmetic"));
  const auto j = plan_json(plan);
  EXPECT_EQ(j["problem"], "bf16/nt/4096x4096x4096");
  EXPECT_EQ(j["others"].size(), plan.others.size());
}

TEST(GemmPlan, WorksForEveryArchitectureAndOddProblems) {
  for (const char* arch : {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"})
    for (const char* key : {"f16/nn/64x512x512x512", "f32/tt/100x3x7", "f16/nt/1000x3001x5003",
                            "f16/nt/8x8x0", "f16/nt/0x8x8", "f32:fast/nt/64x64x64", "s8/nt/64x64x64"}) {
      const auto plan = plan_gemm(kernels::parse_gemm_key(key), {}, device_for_arch(arch), {});
      EXPECT_FALSE(plan.chosen.variant.name.empty()) << arch << key;
      EXPECT_FALSE(plan_text(plan).empty());
      (void)plan_json(plan).dump();
    }
  EXPECT_THROW(device_for_arch("sm_91"), ArgumentError);
}

TEST(GemmPlan, TakesTheMeasuredWinner) {
  const auto d = device_for_arch("sm_90a");
  const auto p = kernels::parse_gemm_key("bf16/nt/4096x4096x4096");
  const auto before = plan_gemm(p, {}, d, {});
  kernels::GemmTable table;
  table.set(kernels::gemm_key(p), {before.others[0].variant.config, 180});
  const auto after = plan_gemm(p, {}, d, table);
  EXPECT_EQ(after.chosen.variant.name, before.others[0].variant.name);
  EXPECT_THAT(plan_text(after), HasSubstr("measured   180.0 us"));
}

GemmRow row(const std::string& key, double ours, double theirs) {
  GemmRow r{.key = key, .variant = "gemm_x", .peer = "algo 1", .flops = 2e9, .bytes = 1e6};
  for (const auto& [name, ms] : {std::pair{"cgp", ours}, {"cublaslt", theirs}}) {
    measure::Timing t{name, {ms, ms, ms}, {}};
    t.summary = measure::summarise(t.milliseconds);
    r.timings.push_back(t);
  }
  return r;
}

TEST(GemmReport, SummarisesByTheGeometricMean) {
  const std::vector<GemmRow> rows{row("a", 1, 2), row("b", 1, 0.5), row("c", 1, 1)};
  const auto s = summarise(rows);
  EXPECT_EQ(s.rows, 3);
  EXPECT_NEAR(s.geomean, 1, 1e-12);
  EXPECT_EQ(s.min, 0.5);
  EXPECT_EQ(s.worst, "b");
  EXPECT_EQ(summarise(std::vector<GemmRow>{}).rows, 0);
}

TEST(GemmReport, JsonIsTheFormatOfResults) {
  const std::vector<GemmRow> rows{row("bf16/nt/4x4x4", 1, 2)};
  const auto j = bench_json(rows, {"GPU", "1.2", "2026-01-01", "abc", "cgp bench"});
  EXPECT_EQ(j["rows"][0]["name"], "gemm/bf16/nt/4x4x4");
  EXPECT_EQ(j["rows"][0]["timings"][1]["name"], "cublaslt");
  EXPECT_EQ(j["rows"][0]["ratio"], 2.0);
  EXPECT_EQ(j["gpu"], "GPU");
  EXPECT_TRUE(j["rows"][0]["watts"].is_null());
  EXPECT_EQ(j["summary"]["geomean"], 2.0);
}

TEST(GemmReport, PicturesHaveAPointForEveryTime) {
  const std::vector<GemmRow> rows{row("a", 1, 2), row("b", 1, 0.5), row("c", 2, 1)};
  const auto svg = bench_svg(rows, "gemm");
  std::size_t points = 0;
  for (std::size_t at = svg.find("TFLOP/s</title>"); at != svg.npos; at = svg.find("TFLOP/s</title>", at + 1))
    ++points;
  EXPECT_EQ(points, 6u);
  EXPECT_THAT(bench_svg({rows[0]}, "one"), HasSubstr("</svg>"));
}

TEST(GemmMeasure, NeedsAGpu) { EXPECT_THROW(GemmMeasure(runtime::Device::open("emu"), true), Unsupported); }

}  // namespace
}  // namespace cgp::tune

// SPDX-License-Identifier: Apache-2.0
// Predictions beside counters: accesses whose cost is known by hand, and assumptions that are broken on
// purpose.
#include "cgp/profile/roofline/prediction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/profile/collect/probe_kernel.h"
#include "cgp/profile/import/import.h"

using namespace cgp;
using namespace cgp::profile;
using testing::HasSubstr;

namespace {

/// Every access of one block of 64 threads of a kernel that gets `x + offset`; %r1 = thread, %rd1 = pointer.
std::vector<AccessCheck> checks(const std::string& body, std::uint64_t offset = 0, std::uint32_t block = 64) {
  const auto ran =
      run_probe(".shared .align 16 .b8 tile[8192];\nld.param.u64 %rd1, [x];\nmov.u32 %r1, %tid.x;\n" + body,
                {3, 1, 1}, {block, 1, 1}, offset, 0);
  ptx::LaunchAssumptions assumed;
  assumed.block = {block, 1, 1};
  return check_predictions(*ran.program, "k", ran.counters, assumed);
}

constexpr const char* kRow =
    "mul.wide.u32 %rd2, %r1, 4;\nadd.u64 %rd3, %rd1, %rd2;\nld.global.f32 %f1, [%rd3];\n"
    "st.global.f32 [%rd3], %f1;\n";

}  // namespace

TEST(prediction, malformed_ptx_is_refused) {
  const auto program = [](const char* statement) {
    return emu::Program::load(
        text::cat(".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 x) {\n"
                  ".reg .b32 %r<2>;\n.reg .b64 %rd<2>;\nld.param.u64 %rd1, [x];\n",
                  statement, "\nret;\n}\n"));
  };
  EXPECT_TRUE(check_predictions(*program("ld.global.u32 %r1, [%rd1];"), "k", {}, {}).empty()) << "never ran";
  EXPECT_THROW(check_predictions(*program("mov.u32 %r1, %rd1;"), "k", {}, {}), VerifyError);
}

TEST(prediction, neighbours_are_four_sectors_predicted_and_counted) {
  const auto all = checks(kRow);
  ASSERT_EQ(all.size(), 2u);
  for (const auto& c : all) {
    EXPECT_EQ(c.agreement, Agreement::equal);
    EXPECT_EQ(c.least, 4);
    EXPECT_EQ(c.counted, 4);
    EXPECT_EQ(c.needed, 4);
    EXPECT_EQ(c.requests, 6u) << "two warps in each of three blocks";
  }
  EXPECT_EQ(all[0].opcode, "ld.global.f32");
  EXPECT_TRUE(prediction_waste(all, "k").empty());
}

TEST(prediction, a_stride_is_predicted_and_needs_less) {
  const auto all = checks(
      "mul.wide.u32 %rd2, %r1, 64;\nadd.u64 %rd3, %rd1, %rd2;\nld.global.f32 %f1, [%rd3];\n"
      "st.global.f32 [%rd1], %f1;\n");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].agreement, Agreement::equal);
  EXPECT_EQ(predicted_text(all[0]), "32");
  EXPECT_EQ(all[0].needed, 4);
  EXPECT_EQ(all[1].counted, 1) << "all lanes write one word";
}

TEST(prediction, a_pointer_that_is_not_aligned_shows_in_every_access) {
  const auto all = checks(kRow, 4);
  ASSERT_EQ(all.size(), 2u);
  for (const auto& c : all) {
    EXPECT_EQ(c.agreement, Agreement::differs);
    EXPECT_EQ(c.counted, 5);
    EXPECT_EQ(c.most, 4);
    EXPECT_THAT(c.why, HasSubstr("aligned"));
  }
  const auto waste = prediction_waste(all, "k");
  ASSERT_EQ(waste.size(), 2u);
  EXPECT_THAT(waste[0].evidence, HasSubstr("predicted 4 sectors, counted 5, each of 6 times"));
  EXPECT_THAT(waste[0].evidence, HasSubstr("ld.global.f32"));
  EXPECT_NEAR(waste[0].percent, 10, 1e-9) << "6 of the 60 sectors";
  EXPECT_THAT(predictions_text(all, 120), HasSubstr("differs"));
}

TEST(prediction, an_address_from_memory_is_unknown_and_still_counted) {
  const auto all = checks(
      "mul.wide.u32 %rd2, %r1, 4;\nadd.u64 %rd3, %rd1, %rd2;\nld.global.u32 %r2, [%rd3];\n"
      "mad.lo.u32 %r2, %r1, 32, %r2;\nmul.wide.u32 %rd4, %r2, 4;\nadd.u64 %rd5, %rd1, %rd4;\n"
      "ld.global.f32 %f1, [%rd5];\nst.global.f32 [%rd3], %f1;\n");
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[1].agreement, Agreement::unknown);
  EXPECT_EQ(all[1].counted, 32) << "128 bytes apart";
  EXPECT_FALSE(all[1].why.empty());
  EXPECT_EQ(predicted_text(all[1]), "?");
}

TEST(prediction, passes_of_shared_memory_are_predicted) {
  const auto all = checks(
      "shl.b32 %r2, %r1, 3;\nmov.u32 %r3, tile;\nadd.u32 %r3, %r3, %r2;\nmov.f32 %f1, 0f3F800000;\n"
      "st.shared.f32 [%r3], %f1;\nld.shared.f32 %f2, [tile];\nst.global.f32 [%rd1], %f2;\n");
  ASSERT_EQ(all.size(), 3u);
  EXPECT_TRUE(all[0].shared);
  EXPECT_EQ(all[0].agreement, Agreement::equal);
  EXPECT_EQ(all[0].counted, 2) << "every second word: two lanes in each of 16 banks";
  EXPECT_EQ(all[0].needed, 1);
  EXPECT_EQ(all[1].counted, 1) << "one word for all";
}

TEST(prediction, lanes_behind_a_condition_that_is_not_known_are_an_upper_bound) {
  const auto all = checks(
      "mul.wide.u32 %rd2, %r1, 4;\nadd.u64 %rd3, %rd1, %rd2;\nld.global.u32 %r2, [%rd3];\n"
      "setp.eq.u32 %p1, %r2, 7;\n@%p1 ld.global.f32 %f1, [%rd3+4096];\nsetp.eq.u32 %p2, %r2, 0;\n"
      "@%p2 st.global.f32 [%rd3], %f1;\n");
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[1].agreement, Agreement::never_ran);
  EXPECT_EQ(all[2].agreement, Agreement::within);
  EXPECT_EQ(predicted_text(all[2]), "<= 4");
}

TEST(prediction, warps_that_differ_are_a_range) {
  // 48 threads: the second warp has 16 lanes, half as many sectors.
  const auto all = checks(kRow, 0, 48);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].least, 2);
  EXPECT_EQ(all[0].most, 4);
  EXPECT_EQ(all[0].counted, 3);
  EXPECT_EQ(all[0].agreement, Agreement::within);
  EXPECT_EQ(to_json(all)[0]["predicted"][0], 2);
}

TEST(prediction, machine_instructions_of_an_h200_cost_what_was_predicted) {
  // mixed.ptx ran on an H200 under ncu --set full; the report is cut down to a few metrics.
  const std::string folder = CGP_PROFILE_TESTDATA;
  const auto program = emu::Program::load(read_file(folder + "/mixed.ptx"));
  const Document report = load_any(folder + "/mixed.ncu-rep");
  ASSERT_EQ(report.kernels.size(), 1u);
  EXPECT_EQ(report.machine["device"]["name"], "NVIDIA H200");
  EXPECT_EQ(report.kernels[0].block, (measure::Triple{128, 1, 1}));
  EXPECT_EQ(report.kernels[0].registers, 16u);
  EXPECT_FALSE(report.kernels[0].metrics.has(measure::Metric::branch_efficiency_pct)) << "it has no branches";
  const auto all = check_machine_code(*program, "mixed", report);
  ASSERT_EQ(all.size(), 4u);
  const double costs[] = {32, 8, 8, 4}, needed[] = {4, 1, 1, 4};
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].agreement, Agreement::equal) << all[i].text << all[i].why;
    EXPECT_EQ(all[i].counted, costs[i]) << all[i].text;
    EXPECT_EQ(all[i].needed, needed[i]) << all[i].text;
    EXPECT_EQ(all[i].requests, 256u);
  }
  EXPECT_THROW(check_machine_code(*program, "mixed", load_any(folder + "/ncu_raw.csv")), ArgumentError);
}

TEST(prediction, machine_code_with_other_accesses_is_not_compared) {
  const std::string folder = CGP_PROFILE_TESTDATA;
  std::string text = read_file(folder + "/mixed.ptx");
  text.insert(text.find("ret;"), "st.global.f32 [%rd6+1048576], %f2;\n");
  const auto all =
      check_machine_code(*emu::Program::load(text), "mixed", load_any(folder + "/mixed.ncu-rep"));
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[3].agreement, Agreement::unknown);
  EXPECT_THAT(all[3].why, HasSubstr("2 such accesses in the PTX, 1 STG"));
  EXPECT_EQ(all[0].agreement, Agreement::equal) << "loads are as many";
}

// SPDX-License-Identifier: Apache-2.0
// cgp self-check: every row of the catalogue is decided or has a reason, and what does not depend on time holds.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "cgp/base/file.h"

namespace {

using nlohmann::json;

struct Outcome {
  int code = -1;
  json out;
};

Outcome self_check(const std::string& arguments) {
  const std::string file = testing::TempDir() + "cgp_self_check_" +
                           testing::UnitTest::GetInstance()->current_test_info()->name() + "_" +
                           std::to_string(getpid()) + ".json";
  const int status =
      std::system(("env CGP_LIBCUDA=/nonexistent '" + std::string(CGP_BINARY) + "' self-check --json " +
                   arguments + " >'" + file + "' 2>/dev/null </dev/null")
                      .c_str());
  Outcome o{WIFEXITED(status) ? WEXITSTATUS(status) : -1, json::parse(cgp::read_file(file), nullptr, false)};
  std::remove(file.c_str());
  return o;
}

/// "FALS-WGPU-001..003" names three rows.
void add_rows(const std::string& id, std::set<std::string>& into) {
  const auto dots = id.find("..");
  if (dots == std::string::npos) {
    into.insert(id);
    return;
  }
  const std::string stem = id.substr(0, dots - 3);
  for (int i = std::stoi(id.substr(dots - 3, 3)); i <= std::stoi(id.substr(dots + 2)); ++i) {
    const std::string digits = std::to_string(i);
    into.insert(stem + std::string(3 - digits.size(), '0') + digits);
  }
}

TEST(self_check, every_row_of_the_catalogue_is_decided_or_says_why_not) {
  std::set<std::string> wanted;
  for (const char* id :
       {"001",       "002",    "003",     "010",    "011", "012", "020",           "021",         "022",
        "030",       "031",    "032",     "040",    "041", "042", "043",           "044",         "045",
        "046",       "047",    "050",     "051",    "052", "053", "060",           "061",         "062",
        "070",       "071",    "072",     "073",    "074", "075", "076",           "076q",        "077",
        "077b",      "078",    "079",     "080",    "081", "082", "090",           "090b",        "091",
        "092",       "093",    "094",     "100",    "101", "102", "QUANT-ALL-001", "COMPARE-050", "SIMD-001",
        "SIMD-001b", "UNINIT", "CODEGEN", "GEMV512"})
    wanted.insert(std::string("FALS-") + id);
  for (const char* id : {"ROOF-001..003", "EMPIRICAL-010..012", "SCALING-001..002", "CONTRACT-001..002",
                         "FLASH-ATTN-001..004", "PARALLEL-001..003", "MMA-SYNC-001..003", "PIPELINE-001..005",
                         "DIK-001..005", "WGPU-001..008", "TG-001..007", "EMPIRICAL-013..013"})
    add_rows(std::string("FALS-") + id, wanted);
  const Outcome o = self_check("--list");
  ASSERT_EQ(o.code, 0);
  std::set<std::string> there, open;
  for (const auto& row : o.out.at("rows")) {
    EXPECT_FALSE(row.at("oracle").get<std::string>().empty()) << row;
    add_rows(row.at("id"), there);
  }
  for (const auto& row : o.out.at("undecided")) {
    EXPECT_FALSE(row.at("why").get<std::string>().empty()) << row;
    add_rows(row.at("id"), open);
  }
  for (const auto& id : open) EXPECT_FALSE(there.count(id)) << id << " is decided and undecided";
  there.insert(open.begin(), open.end());
  EXPECT_EQ(there, wanted);
}

TEST(self_check, rows_that_no_clock_decides_hold_and_their_oracles_can_fail) {
  const Outcome o = self_check(
      "002 010 011 012 021 032 045 047 05 07 100 ROOF COMPARE CONTRACT SIMD UNINIT FLASH-ATTN-001 "
      "FLASH-ATTN-003 FLASH-ATTN-004 MMA-SYNC-001 PIPELINE-004 DIK-001 DIK-004 "
      "TG-004 QUANT CODEGEN GEMV512 PARALLEL");
  EXPECT_EQ(o.code, 0);
  int held = 0;
  for (const auto& row : o.out.at("rows")) {
    EXPECT_EQ(row.at("verdict"), "PASS") << row.at("id") << ": " << row.at("why");
    ++held;
  }
  EXPECT_GE(held, 28);
}

TEST(self_check, what_needs_a_gpu_is_skipped_without_one_and_unknown_rows_are_usage) {
  const Outcome o = self_check("001");
  EXPECT_EQ(o.code, 0);
  EXPECT_EQ(o.out.at("rows").at(0).at("verdict"), "SKIP");
  EXPECT_EQ(o.out.at("rows").at(0).at("why"), "needs a GPU");
  EXPECT_EQ(self_check("999").code, 2);
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
#include "cgp/emu/finding_class.h"

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "cgp/emu/core/run_ptx_impl.h"

namespace cgp::emu {
namespace {

TEST(FindingClasses, are_sorted_and_complete) {
  std::string_view before;
  for (const FindingClass& c : finding_classes()) {
    EXPECT_LT(before, c.name);
    before = c.name;
    EXPECT_FALSE(c.title.empty() || c.explanation.empty() || c.hint.empty()) << c.name;
    EXPECT_FALSE(c.bad.empty() || c.good.empty() || c.bad == c.good) << c.name;
    EXPECT_NE(c.title.back(), '.') << c.name;
    EXPECT_EQ(c.explanation.back(), '.') << c.name;
    EXPECT_EQ(find_class(c.name), &c);
    EXPECT_NO_THROW(parse_checks(c.check.empty() ? "none" : c.check)) << c.name;
  }
  EXPECT_EQ(find_class("race.nothing"), nullptr);
  EXPECT_EQ(find_class("race.same_value")->severity, Severity::note);
}

// Every class that the emulator's sources report by a literal has an entry.
TEST(FindingClasses, cover_what_the_sources_report) {
  const std::regex literal(R"re((?:report|fail)\(\s*Check::\w+,\s*([^;]*?),\s*\*?[a-z_.>-]*op\b)re");
  const std::regex quoted("\"([a-z_.]+)\"");
  int seen = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(CGP_EMU_SOURCES)) {
    const std::string name = file.path().filename();
    if (file.path().extension() != ".cpp" || name.find("_test") != std::string::npos) continue;
    std::stringstream text;
    text << std::ifstream(file.path()).rdbuf();
    const std::string s = text.str();
    for (std::sregex_iterator it(s.begin(), s.end(), literal), end; it != end; ++it) {
      const std::string argument = (*it)[1];
      for (std::sregex_iterator q(argument.begin(), argument.end(), quoted); q != end; ++q, ++seen)
        EXPECT_TRUE(find_class((*q)[1].str()))
            << name << " reports \"" << (*q)[1] << "\": add it to finding_classes.def";
    }
  }
  EXPECT_GT(seen, 30);
}

TEST(FindingClasses, only_errors_make_a_result_unclean) {
  Result r;
  EXPECT_TRUE(r.clean());
  Finding f;
  f.cls = "race.same_value";
  f.severity = Severity::note;
  r.findings.push_back(f);
  EXPECT_TRUE(r.clean());
  EXPECT_EQ(describe(f).rfind("note: race.same_value: ", 0), 0u);
  f.severity = Severity::error;
  r.findings.push_back(f);
  EXPECT_FALSE(r.clean());
}

TEST(FindingClasses, columns_come_from_loc) {
  testing::Bench b(R"(
.version 7.8
.target sm_90a
.address_size 64
.file 1 "kernel.cu"
.visible .entry k()
{
  .reg .b32 %r<2>;
  .loc 1 7 13
  ld.global.u32 %r1, [16];
  ret;
}
)");
  const Result r = b.run("k", {1}, {1}, {});
  ASSERT_EQ(r.findings.size(), 1u);
  EXPECT_EQ(r.findings[0].file, "kernel.cu");
  EXPECT_EQ(r.findings[0].line, 7);
  EXPECT_EQ(r.findings[0].column, 13);
  EXPECT_EQ(b.program->instruction(0).column, 13);
}

}  // namespace
}  // namespace cgp::emu

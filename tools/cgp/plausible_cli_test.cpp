// SPDX-License-Identifier: Apache-2.0
// Commands say nothing that cannot be: no share above 100 %, no change of a profile against itself, no count of what was
// not counted to its end; and what --json prints is JSON.
#include "tools/cgp/profiler_cli_test_kit.h"

namespace cgp {
namespace {

using Outcome = CommandOutcome;

TEST_F(Profiler, the_contract_of_the_manual_is_kept) {
  const std::string page = read_file(
      std::string(CGP_METRICS_DOC).substr(0, std::string(CGP_METRICS_DOC).rfind('/')) + "/profiler.md");
  const auto begin = page.find("```yaml\n") + 8, end = page.find("```", begin);
  write_file(path("manual.yaml"), page.substr(begin, end - begin));
  const Outcome o = cgp("contract verify manual.yaml --strict");
  EXPECT_EQ(o.code, 0) << o.out << o.err;
  EXPECT_EQ(o.out.find("SKIP"), std::string::npos) << o.out;
}

TEST_F(Profiler, json_is_one_json_document) {
  for (const char* command : {"monitor --json -- sh -c 'echo its own words'",
                              "contract generate --kernel softmax --size 64x64 --device emu --json",
                              "profile binary --count step --json -- sh -c 'echo its own words'"}) {
    const Outcome o = cgp(command);
    EXPECT_EQ(o.code, 0) << command << o.err;
    EXPECT_TRUE(nlohmann::json::accept(o.out)) << command << "\n" << o.out.substr(0, 400);
  }
}

TEST_F(Profiler, a_profile_against_itself_has_not_changed) {
  EXPECT_EQ(
      cgp(std::string("bench --runs 3") + kTook + "--save self.json -- " + printing("self", around(20, 3, 0)))
          .code,
      0);
  const Outcome o = cgp("diff self.json self.json");
  EXPECT_EQ(o.code, 0) << o.out;
  EXPECT_NE(o.out.find("NO_CHANGE"), std::string::npos) << o.out;
  EXPECT_EQ(o.out.find("INCONCLUSIVE"), std::string::npos) << o.out;
}

TEST_F(Profiler, a_program_that_never_used_the_gpu_was_not_busy) {
  const Outcome o = cgp("trace -- sh -c 'kill -SEGV $$'");
  EXPECT_EQ(o.code, 5) << o.out << o.err;
  EXPECT_EQ(o.out.find("busy for"), std::string::npos) << o.out;
  EXPECT_NE(o.out.find("nothing ran on the GPU"), std::string::npos) << o.out;
}

TEST_F(Profiler, loops_too_long_for_single_steps_are_not_counted) {
  const auto d = cgp("profile scalar --function dot --size 1000000 --json").parsed();
  EXPECT_TRUE(d["metrics"]["instructions"]["value"].is_null()) << d["metrics"]["instructions"];
  EXPECT_EQ(cgp("profile simd --cross-profile").code, 2);
  const Outcome narrow = cgp("profile simd --function dot --size 4096 --json", "CGP_SIMD=sse2");
  EXPECT_NE(narrow.parsed()["name"].get<std::string>().find("sse2"), std::string::npos);
}

}  // namespace
}  // namespace cgp

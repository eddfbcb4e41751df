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

TEST_F(Profiler, rows_of_another_type_say_so) {
  const Outcome o = cgp("profile compare --kernel gemm --size 64 --backends scalar,emu --repeat 3");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("32-bit floats"), std::string::npos) << o.out;
}

TEST_F(Profiler, loops_too_long_for_single_steps_are_not_counted) {
  const auto d = cgp("profile scalar --function dot --size 1000000 --json").parsed();
  EXPECT_TRUE(d["metrics"]["instructions"]["value"].is_null()) << d["metrics"]["instructions"];
  EXPECT_EQ(cgp("profile simd --cross-profile").code, 2);
  const Outcome narrow = cgp("profile simd --function dot --size 4096 --json", "CGP_SIMD=sse2");
  EXPECT_NE(narrow.parsed()["name"].get<std::string>().find("sse2"), std::string::npos);
}

TEST_F(Profiler, an_interval_is_between_processes) {
  const auto d = cgp("profile simd --function dot --arch sse2 --size 512 --processes 3 --json").parsed();
  EXPECT_EQ(d["samples"][0]["processes"].size(), 3u);
  EXPECT_NE(d["metrics"]["ci_95_low_us"]["from"].get<std::string>().find("processes"), std::string::npos);
  const Outcome one = cgp("profile simd --function dot --arch sse2 --size 512 --processes 1");
  EXPECT_NE(one.out.find("one process"), std::string::npos) << one.out;
  EXPECT_EQ(cgp("profile simd --processes 0").code, 2);
}

TEST_F(Profiler, threads_on_a_job_too_small_say_how_large_it_must_be) {
  const Outcome small = cgp("profile parallel --threads 2 --size 16");
  EXPECT_NE(small.out.find("TOO SMALL"), std::string::npos) << small.out;
  EXPECT_EQ(small.out.find("times faster on any number"), std::string::npos) << small.out;
  const auto d = cgp("profile parallel --threads 2 --size 16 --json").parsed();
  EXPECT_GT(d["too_small"]["size_needed"].get<int>(), 16);
  EXPECT_FALSE(
      cgp("profile parallel --threads 2 --size 400000 --runs 2 --json").parsed().contains("too_small"));
}

TEST_F(Profiler, what_cannot_be_done_is_said_before_anything_runs) {
  setenv("CGP_WGPU_NATIVE", "/nonexistent", 1);
  const Outcome native = cgp("profile wgpu --target native");
  unsetenv("CGP_WGPU_NATIVE");
  EXPECT_EQ(native.code, 3);
  EXPECT_EQ(native.err.find("No browser"), std::string::npos) << native.err;
  EXPECT_NE(native.err.find("wgpu native library"), std::string::npos) << native.err;
  EXPECT_EQ(cgp("time --roofline -- sh -c 'touch it_ran'").code, 2);
  EXPECT_FALSE(std::filesystem::exists(path("it_ran")));
}

TEST_F(Profiler, a_kernel_runs_and_is_timed_on_a_vulkan_device) {
  const Outcome o =
      cgp("profile wgpu vecadd n=1003 --device vulkan:0 --repeat 3 --json --save " + path("wgpu.json"));
  if (o.code == 3) GTEST_SKIP() << o.err;
  const auto j = o.parsed();
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(j["device"]["kind"], "vulkan");
  const auto& k = j["kernel"];
  EXPECT_TRUE(k["check"]["pass"].get<bool>());
  EXPECT_GT(j["copy_gbps"].get<double>(), 0);
  EXPECT_GT(j["peak_gflops"].get<double>(), 0);
  EXPECT_NEAR(j["ridge"].get<double>(), j["peak_gflops"].get<double>() / j["copy_gbps"].get<double>(), 1e-9);
  const double roof = std::max(k["bytes"].get<double>() / j["copy_gbps"].get<double>(),
                               k["flops"].get<double>() / j["peak_gflops"].get<double>());
  EXPECT_NEAR(k["of_roofline"].get<double>(), roof * 1e-6 / k["time"]["median_ms"].get<double>(), 1e-9);
  EXPECT_NE(cgp("report " + path("wgpu.json") + " -o " + path("wgpu.html")).code, 2);
  EXPECT_NE(read_file(path("wgpu.html")).find("vecadd"), std::string::npos);
  const auto run = cgp("run vecadd n=1003 --device vulkan:0 --json").parsed();
  EXPECT_EQ(run["verdict"], "pass");
  EXPECT_EQ(run["device"]["spec"], "vulkan:0");
  EXPECT_EQ(cgp("profile wgpu --device emu").code, 2);
}

TEST_F(Profiler, spills_are_those_of_ptxas) {
  write_file(path("ptxas"),
             "#!/bin/sh\nfor w; do case $w in *.ptx) f=$w;; esac; done\n"
             "e=$(sed -n 's/.*\\.entry *\\([A-Za-z0-9_]*\\).*/\\1/p' \"$f\" | head -1)\n"
             "echo \"ptxas info    : Compiling entry function '$e' for 'sm_90a'\"\n"
             "echo \"    $BYTES bytes stack frame, $BYTES bytes spill stores, $BYTES bytes spill loads\"\n"
             "echo 'ptxas info    : Used 61 registers, used 1 barriers'\n");
  std::filesystem::permissions(path("ptxas"), std::filesystem::perms::owner_all);
  const std::string asked = "CGP_PTXAS=" + path("ptxas");
  const Outcome none = cgp("explain cross_entropy", asked + " BYTES=0");
  EXPECT_NE(none.out.find("61 registers, no spills"), std::string::npos) << none.out << none.err;
  EXPECT_EQ(none.out.find("ANA-B16"), std::string::npos) << none.out;
  EXPECT_EQ(none.out.find("too many"), std::string::npos) << none.out;
  const Outcome some = cgp("explain cross_entropy", asked + " BYTES=8");
  EXPECT_NE(some.out.find("8 bytes stored"), std::string::npos) << some.out;
}

TEST_F(Profiler, several_programs_are_timed_in_one_table) {
  const auto d = cgp("time --runs 2 --parameter n=1,2 --time-regex 'took ([0-9.]+)' --also 'echo took 9' "
                     "--json -- echo took {n}")
                     .parsed();
  ASSERT_EQ(d["table"].size(), 3u) << d;
  EXPECT_EQ(d["table"][1]["command"], "echo took 2");
  EXPECT_EQ(d["table"][1]["ratio"], 2);
  EXPECT_DOUBLE_EQ(d["table"][2]["median_us"], 9000);
  EXPECT_EQ(cgp("time --parameter n=1,2 -- echo took").code, 2);
  EXPECT_EQ(cgp("time --also true --against true -- true").code, 2);
  EXPECT_EQ(cgp("time --prepare true vecadd").code, 2);
  EXPECT_EQ(cgp("time --runs 1 --warmup 0 --prepare 'touch prepared' -- test -e prepared").code, 0);
  EXPECT_NE(cgp("time --runs 1 --prepare 'exit 3' -- true").code, 0);
}

TEST_F(Profiler, programs_of_the_processor_name_what_took_the_time) {
  const std::string loop = " -- sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'";
  const auto d = cgp("profile binary --json" + loop).parsed();
  ASSERT_TRUE(d.contains("cpu_samples"));
  const auto& s = d["cpu_samples"];
  if (!s.contains("absent")) {
    EXPECT_GT(s["functions"].size(), 0u) << s;
  }
  EXPECT_FALSE(cgp("profile binary --sample 0 --json" + loop).parsed().contains("cpu_samples"));
}

}  // namespace
}  // namespace cgp

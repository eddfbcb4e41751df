// SPDX-License-Identifier: Apache-2.0
// The profiler's commands as a user runs them: exit codes, files, errors.
#include <algorithm>
#include <set>

#include "tools/cgp/profiler_cli_test_kit.h"

namespace cgp {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;
using Outcome = CommandOutcome;

TEST_F(Profiler, a_program_is_profiled_without_a_gpu) {
  const Outcome o = cgp("profile binary --save p.json -- sh -c 'sleep 0.05; exit 0'");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("CPU only"), std::string::npos);
  const json j = json::parse(read_file(path("p.json")));
  EXPECT_GE(j["metrics"]["wall_clock_time_us"]["value"].get<double>(), 50000);
  EXPECT_EQ(j["metrics"]["wall_clock_time_us"]["source"], "measured");
  EXPECT_TRUE(j["metrics"]["tensor_core_utilization_pct"]["value"].is_null());
  EXPECT_TRUE(j["metrics"]["tensor_core_utilization_pct"].contains("absent"));
}

TEST_F(Profiler, a_program_that_crashes_leaves_a_profile_and_code_5) {
  const Outcome o = cgp("profile binary --json -- sh -c 'kill -SEGV $$'");
  EXPECT_EQ(o.code, 5);
  EXPECT_EQ(o.parsed()["process"]["ended"], "SIGSEGV");
  EXPECT_GT(o.parsed()["metrics"]["rss_peak_mb"]["value"].get<double>(), 0);
}

TEST_F(Profiler, what_a_program_prints_need_not_be_utf8) {
  write_file(path("raw"), "\xff\xfe and text\n");
  const Outcome o = cgp("profile binary --json --save p.json -- cat raw");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.parsed()["process"]["output"].get<std::string>().find("and text"), std::string::npos);
  EXPECT_TRUE(json::accept(read_file(path("p.json"))));
  std::string umlauts;  // the 4000th byte is within one
  for (int i = 0; i < 3000; ++i) umlauts += "ä";
  write_file(path("raw"), "a" + umlauts);
  EXPECT_EQ(cgp("profile binary --json -- cat raw").parsed()["process"]["output"].get<std::string>().size(),
            3999u);
}

TEST_F(Profiler, a_part_of_a_program_is_enough) {
  const Outcome o = cgp("profile binary --duration 0.2 --json -- sleep 1000");
  EXPECT_EQ(o.code, 0) << o.err;
  const double us = o.parsed()["metrics"]["wall_clock_time_us"]["value"];
  EXPECT_GE(us, 0.2e6);
  EXPECT_LT(us, 900e6) << "it was not ended";
  EXPECT_EQ(cgp("profile binary --timeout 0.2 -- sleep 1000").code, 5) << "that was too long";
}

TEST_F(Profiler, bad_input_is_usage) {
  EXPECT_EQ(cgp("profile binary").code, 2);
  EXPECT_EQ(cgp("profile binary -- /no/such/program").code, 2);
  EXPECT_EQ(cgp("profile").code, 2);
  EXPECT_EQ(cgp("profile kernel sofmax").code, 2);
  EXPECT_NE(cgp("profile kernel sofmax").err.find("softmax"), std::string::npos);
  EXPECT_EQ(cgp("profile kernel softmax --device cuda").code, 3);
  EXPECT_EQ(cgp("profile kernel softmax --device emu --counters some").code, 2);
  EXPECT_EQ(cgp("bench").code, 2);
  EXPECT_EQ(cgp("bench --check-regression -- true").code, 2) << "no baseline is not a pass";
  EXPECT_EQ(cgp("bench -- false").code, 5) << "used rightly: the program failed";
  EXPECT_EQ(cgp("diff --left false --right true").code, 5);
  EXPECT_EQ(cgp("bench --against true -- false").code, 5);
  EXPECT_EQ(cgp("diff one.json").code, 2);
  EXPECT_EQ(cgp("diff one.json two.json").code, 2);
  EXPECT_EQ(cgp("diff --left true").code, 2);
  EXPECT_EQ(cgp("diff --baseline one.json").code, 2);
  EXPECT_EQ(cgp("profile scaling --runs 0").code, 2);
  EXPECT_EQ(cgp("contract verify").code, 2);
  EXPECT_EQ(cgp("contract generate").code, 2);
  EXPECT_EQ(cgp("trace -- true").code, 3);
  EXPECT_EQ(cgp("baseline show nothing").code, 2);
  EXPECT_EQ(cgp("bench --treshold 5 -- true").code, 2);
  for (const char* command :
       {"bench --runs 1", "diff --left true --right true", "compete --ours true --theirs true"})
    for (const char* timing :
         {"--clock sun", "--time-regex '([0-9.]+'", "--time-regex '[0-9.]+'",
          "--time-regex '([0-9]+)' --unit min", "--unit us", "--time-regex '([0-9]+)' --clock cpu"}) {
      const std::string program = command[0] == 'b' ? " -- true" : "";
      const Outcome o = cgp(command + std::string(" ") + timing + program);
      EXPECT_EQ(o.code, 2) << command << " " << timing << ": " << o.out;
      EXPECT_NE(o.err.find("--"), std::string::npos) << o.err;
    }
  EXPECT_EQ(cgp("diff a.json b.json --time-regex '([0-9]+)'").code, 2) << "files have their times";
  EXPECT_EQ(cgp("bench softmax --device emu --time-regex '([0-9]+)'").code, 2) << "a kernel prints none";
  EXPECT_EQ(cgp("bench --runs 1 --time-regex 'took ([0-9]+)' -- echo done").code, 2) << "it printed none";
}

TEST_F(Profiler, nothing_is_silently_ignored) {
  write_file(path("file"), "no profile\n");
  fs::create_directories(path("empty"));
  const char* const refused[] = {"time --threshold -5 -- true",
                                 "time --precision nan -- true",
                                 "time --runs -3 -- true",
                                 "time --against '' -- true",
                                 "profile binary --timeout abcms -- true",
                                 "baseline list2",
                                 "trace --from file",
                                 "lint empty",
                                 "memcheck -- ./nothing",
                                 "roofline --target cuda --device H200 --export roof.xyz",
                                 "profile kernel --name vecadd --size 0",
                                 "profile kernel --name reduce --size 64",
                                 "diff file.json other.json"};
  for (const char* arguments : refused) {
    const Outcome o = cgp(arguments);
    EXPECT_EQ(o.code, 2) << arguments << ": " << o.out << o.err;
    EXPECT_EQ(o.err.find("bug in cgp"), std::string::npos) << o.err;
  }
  EXPECT_NE(cgp("profile pyton").err.find("did you mean python?"), std::string::npos);
  const Outcome sized = cgp("profile kernel --name vecadd --size 100 --device emu --save p.json");
  EXPECT_EQ(sized.code, 0) << sized.err;
  EXPECT_EQ(json::parse(read_file(path("p.json")))["command"], json::array({"n=100"}));
  const Outcome unusable = cgp("baseline save one p.json --folder file");
  EXPECT_EQ(unusable.code, 2) << unusable.err;
  EXPECT_NE(unusable.err.find("Not a directory"), std::string::npos);
  EXPECT_EQ(cgp("baseline --save one p.json").code, 0);
  EXPECT_NE(cgp("baseline --list").out.find("one"), std::string::npos);
  EXPECT_EQ(cgp("roofline --target cuda --device H200 --export roof.json").code, 0);
  EXPECT_GT(json::parse(read_file(path("roof.json")))["ridge_flop_per_byte"].get<double>(), 100);
}

TEST_F(Profiler, what_was_measured_is_not_lost_and_nothing_runs_for_nothing) {
  EXPECT_EQ(cgp("profile binary --save no/dir/p.json -- touch ran").code, 2);
  EXPECT_FALSE(fs::exists(path("ran"))) << "it could be known before";
  for (const char* limit : {"--timeout -1", "--timeout nan", "--duration 0"})
    EXPECT_EQ(cgp(std::string("profile binary ") + limit + " -- true").code, 2) << limit;
  const Outcome full = cgp("profile binary --save /dev/full -- true");
  EXPECT_EQ(full.code, 2);
  EXPECT_NE(full.out.find("CPU only"), std::string::npos) << "the report is there";
  EXPECT_NE(full.err.find("No space left"), std::string::npos) << full.err;
  const Outcome limited =
      cgp("profile binary --save p.json -- true", "sh -c 'ulimit -f 8; exec \"$0\" \"$@\"'");
  EXPECT_EQ(limited.code, 2) << limited.out;
  EXPECT_NE(limited.err.find("File too large"), std::string::npos) << limited.err;
  EXPECT_EQ(cgp("profile library --so libc.so.6 --symbol exit --args i32:3").code, 5) << "its code, not ours";
  EXPECT_EQ(cgp("profile binary -- sh -c 'printf \"a\\033[2Jb\"'").out.find('\033'), std::string::npos);
  write_file(path("k.yaml"), "name: k\ncommand: 'true'\nfoo: 1\nmetrics: {samples: {min: 1}}\n");
  EXPECT_EQ(cgp("contract verify k.yaml --strict --junit k.xml").code, 1);
  EXPECT_NE(read_file(path("k.xml")).find("failures=\"1\""), std::string::npos);
  write_file(path("k.cubin"), "no cubin");
  EXPECT_NE(cgp("explain k.cubin").err.find("ELF"), std::string::npos);
  write_file(path("k.json"), R"({"schema": "cgp.profile/1", "roofline": 5})");
  EXPECT_EQ(cgp("tui k.json --dump roofline").code, 2);
}

TEST_F(Profiler, what_the_catalogue_writes_otherwise_is_understood) {
  EXPECT_EQ(cgp("profile binary --trace -- true").code, 0);
  EXPECT_EQ(cgp("profile --energy -- true").code, 0);
  EXPECT_EQ(cgp("profile simd --arch amx").code, 3);
  EXPECT_EQ(cgp("profile binary --record 20,10 -- true").code, 2);
  EXPECT_EQ(cgp("explain wgsl shader.wgsl").code, 3);
  const Outcome bench = cgp("bench --bench 'sh -c true' --counters rss_peak_mb,cycles --runs 1 --json");
  EXPECT_EQ(bench.code, 0) << bench.err;
  EXPECT_GT(bench.parsed()["metrics"]["rss_peak_mb"]["value"].get<double>(), 0);
  EXPECT_EQ(cgp("bench --bench true --counters rss --runs 1").code, 2);
  EXPECT_EQ(cgp("bench --bench true --roofline --runs 1").code, 2) << "how much work it is, nobody knows";
  const Outcome kernel = cgp("profile kernel --name vecadd --size 100 --device emu --roofline --json");
  EXPECT_EQ(kernel.parsed()["metrics"]["bound"]["value"], "memory");
  EXPECT_EQ(kernel.parsed()["metrics"]["peak_bandwidth_gbps"]["source"], "declared");
  const Outcome rows =
      cgp("profile compare --kernel gemm --size 64 --backends scalar,neon,cuda,emu,abacus --json");
  EXPECT_EQ(rows.code, 0) << rows.err;
  for (const json all = rows.parsed(); const auto& r : all["rows"]) {
    const bool here = r["backend"] == "scalar" || r["backend"] == "emu";
    EXPECT_EQ(r["skipped"].get<std::string>().empty(), here) << r["backend"];
    if (here) {
      EXPECT_EQ(r["kind"], r["backend"] == "scalar" ? "measured" : "counted");
    }
  }
  const Outcome estimate =
      cgp("profile compare --kernel gemm --size 64 --backends cuda,wgpu --allow-estimates --json");
  EXPECT_EQ(estimate.code, 3) << "an estimate is no measurement";
  EXPECT_EQ(estimate.parsed()["rows"][0]["kind"], "estimated");
  EXPECT_GT(estimate.parsed()["rows"][0]["estimate_us"].get<double>(), 0);
  EXPECT_EQ(estimate.parsed()["rows"][1]["kind"], "");
  const Outcome two = cgp("diff --left 'emu:vecadd n=100' --right 'emu:sm_80:vecadd n=100' --json");
  EXPECT_EQ(two.code, 0) << two.err;
  EXPECT_FALSE(two.parsed()["rows"].empty());
  EXPECT_EQ(cgp("diff --left emu:vecad --right emu:vecadd").code, 2);
  EXPECT_EQ(cgp("diff --left emu:vecadd --right avx2:dot").code, 2);
  EXPECT_EQ(cgp("diff --left emu:vecadd --right true").code, 2);
}

TEST_F(Profiler, contracts_of_cgp_itself_hold_and_safety_and_baselines_are_promises_too) {
  const Outcome self = cgp("contract verify --self --safety --json");
  EXPECT_EQ(self.code, 0) << self.out;
  int safe = 0;
  const json verified = self.parsed();
  for (const auto& c : verified["contracts"])
    for (const auto& check : c["checks"]) safe += check["name"] == "the emulator finds nothing wrong";
  EXPECT_GE(safe, 5);
  const Outcome made = cgp("contract generate --kernel vecadd n=1000 --device emu -o t.yaml");
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(cgp("contract verify t.yaml --fail-on-regression --strict").code, 4)
      << "no baseline is not a pass";
  EXPECT_EQ(cgp("profile kernel vecadd n=1000 --device emu --save t.json").code, 0);
  EXPECT_EQ(cgp("baseline save vecadd t.json").code, 0);
  EXPECT_EQ(cgp("contract verify t.yaml --fail-on-regression --strict").code, 0);
  json worse = json::parse(read_file(path("t.json")));
  worse["metrics"]["divergent_branches"]["value"] = 0;
  write_file(path("t.json"), worse.dump());
  EXPECT_EQ(cgp("baseline save vecadd t.json --force").code, 0);
  const Outcome regressed = cgp("contract verify t.yaml --fail-on-regression --json");
  EXPECT_EQ(regressed.code, 1) << regressed.out;
  EXPECT_EQ(cgp("contract generate t.json --kernel softmax").code, 2);
}

TEST_F(Profiler, a_contract_that_cannot_be_read_fails_alone) {
  fs::create_directories(path("all"));
  write_file(path("all/a.yaml"), "name: [\n");
  write_file(path("all/b.yaml"), "name: b\nkernel: vecad\nmetrics: {tflops: {min: 1}}\n");
  write_file(path("all/c.yaml"), "name: c\ncommand: 'true'\nmetrics: {samples: {min: 1}}\n");
  const Outcome o = cgp("contract verify --dir all --junit j.xml --json");
  EXPECT_EQ(o.code, 2) << o.err;
  EXPECT_EQ(o.parsed()["failed"], 2);
  EXPECT_EQ(o.parsed()["passed"], 2) << "the third one is verified";
  EXPECT_NE(read_file(path("j.xml")).find("all/a.yaml"), std::string::npos);
}

TEST_F(Profiler, other_platforms_answer_with_their_sentence) {
  EXPECT_EQ(cgp("profile metal").code, 3);
  EXPECT_NE(cgp("profile metal").err.find("Metal backend requires macOS"), std::string::npos);
  EXPECT_NE(cgp("profile neon").err.find("NEON not available — use --cross-profile for QEMU-based analysis"),
            std::string::npos);
  setenv("CGP_WGPU_NATIVE", "/nonexistent", 1);
  EXPECT_NE(cgp("profile wgpu").err.find("No browser found"), std::string::npos);
  unsetenv("CGP_WGPU_NATIVE");
}

TEST_F(Profiler, a_kernel_is_counted_on_the_emulator) {
  const Outcome o = cgp("profile kernel softmax rows=64 cols=256 --device emu --json");
  EXPECT_EQ(o.code, 0) << o.err;
  const json m = o.parsed()["metrics"];
  EXPECT_EQ(m["global_load_efficiency_pct"]["value"], 100);
  EXPECT_EQ(m["global_load_efficiency_pct"]["source"], "counted");
  EXPECT_TRUE(m["wall_clock_time_us"]["value"].is_null()) << "the emulator has no clock";
}

TEST_F(Profiler, bench_times_a_program_and_compares_with_a_baseline) {
  const std::string bench = std::string("bench --runs 12") + kTook;
  const Outcome first = cgp(bench + "--save fast.json --json -- " + printing("fast", around(20, 12, 0)));
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_DOUBLE_EQ(first.parsed()["metrics"]["wall_clock_time_us"]["value"].get<double>(), 19960)
      << "the median of twelve, without the first: 20 ms (1 - 0.004 / 2)";
  EXPECT_EQ(cgp("baseline save base fast.json").code, 0);
  EXPECT_EQ(cgp("baseline save base fast.json").code, 2) << "not replaced by accident";
  EXPECT_EQ(cgp("baseline save base fast.json --force").code, 0);
  EXPECT_NE(cgp("baseline list").out.find("base"), std::string::npos);
  const std::string check = bench + "--check-regression --threshold 50% --baseline base -- ";
  const Outcome slow = cgp(check + printing("slow", around(200, 12, 3)));
  EXPECT_EQ(slow.code, 4) << slow.out;
  EXPECT_NE(slow.out.find("SUSPECT"), std::string::npos);
  const Outcome faster = cgp(check + printing("faster", around(2, 12, 3)));
  EXPECT_EQ(faster.code, 0) << faster.out;
  EXPECT_NE(faster.out.find("IMPROVED"), std::string::npos) << faster.out;
  const Outcome same = cgp(check + printing("same", around(20.2, 12, 5)));
  EXPECT_NE(same.code, 1) << same.out;
  EXPECT_EQ(same.out.find("REGRESSION"), std::string::npos) << same.out;
  EXPECT_EQ(cgp(std::string("bench --runs 3") + kTook + "--check-regression --baseline base -- " +
                printing("three", around(20, 3, 0)))
                .code,
            4)
      << "three runs decide nothing";
}

TEST_F(Profiler, runs_end_when_the_median_is_known) {
  const Outcome o = cgp(std::string("bench --precision 0.03 --json") + kTook + "-- " +
                        printing("steady", around(20, 40, 0)));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.parsed()["metrics"]["samples"]["value"], 10) << "within 2 % of 20 ms from the first ten on";
  EXPECT_NE(o.out.find("the median is known to 3.0 %"), std::string::npos) << o.out;
}

TEST_F(Profiler, a_printed_time_has_a_unit_and_the_wall_clock_measures_what_prints_none) {
  const Outcome us = cgp("bench --runs 3 --json --time-regex 'took ([0-9.]+)' --unit us -- " +
                         printing("a", around(7, 3, 0)));
  ASSERT_EQ(us.code, 0) << us.err;
  EXPECT_NEAR(us.parsed()["metrics"]["wall_clock_time_us"]["value"].get<double>(), 7, 0.15);
  EXPECT_EQ(us.parsed()["metrics"]["wall_clock_time_us"]["from"], "reported time of each run");
  const Outcome wall = cgp("bench --runs 3 --json -- sleep 0.02");
  ASSERT_EQ(wall.code, 0) << wall.err;
  EXPECT_GE(wall.parsed()["metrics"]["wall_clock_time_us"]["value"].get<double>(), 20000);
}

TEST_F(Profiler, the_history_of_a_baseline_names_the_step) {
  for (int i = 0; i < 14; ++i) {
    const double ms = i < 7 ? 20 : 26;
    ASSERT_EQ(
        cgp(std::string("bench --runs 3 --save h.json") + kTook + "-- " + printing("h", around(ms, 3, i)))
            .code,
        0);
    ASSERT_EQ(cgp("baseline save kernel h.json --force").code, 0);
  }
  const Outcome o = cgp("baseline history kernel --json");
  ASSERT_EQ(o.code, 0) << o.err;
  const json points = o.parsed()["points"];
  ASSERT_EQ(points.size(), 14u);
  for (std::size_t i = 0; i < points.size(); ++i) EXPECT_EQ(points[i]["step"].get<bool>(), i == 7) << i;
  EXPECT_TRUE(points[7]["agreed"].get<bool>());
}

TEST_F(Profiler, diff_of_files_is_quick_and_tells_regression_from_improvement) {
  const std::string bench = std::string("bench --runs 12") + kTook + "--save ";
  ASSERT_EQ(cgp(bench + "a.json -- " + printing("a", around(10, 12, 0))).code, 0);
  ASSERT_EQ(cgp(bench + "b.json -- " + printing("b", around(100, 12, 2))).code, 0);
  EXPECT_EQ(cgp("diff a.json b.json").code, 4) << "SUSPECT: not measured side by side";
  const Outcome back = cgp("diff b.json a.json --json");
  EXPECT_EQ(back.code, 0);
  EXPECT_EQ(back.parsed()["rows"][0]["verdict"], "IMPROVED");
  EXPECT_NEAR(back.parsed()["rows"][0]["speedup"].get<double>(), 10, 0.1);
#if !CGP_SANITIZED  // which valgrind cannot run
  if (std::system("valgrind -q true >/dev/null 2>&1") != 0) GTEST_SKIP() << "counting takes valgrind";
  const Outcome counted =
      cgp("bench --runs 1 --count --json -- '" + std::string(CGP_BINARY) + "' diff b.json a.json");
  ASSERT_EQ(counted.code, 0) << counted.err;
  // A tenth of a second has some 3e8; cgp self-check 062 measures the time.
  EXPECT_LT(counted.parsed()["metrics"]["instructions"]["value"].get<double>(), 1e8);
#endif
}

TEST_F(Profiler, diff_of_commands_measures_pairs) {
  const auto series = [&](const std::vector<double>& left, const std::vector<double>& right,
                          const std::string& more = "") {
    const std::string a = printing("a", left), b = printing("b", right);
    return cgp("diff --left '" + a + "' --right '" + b + "' --json" + kTook + more);
  };
  const auto compared = [&](double left, double right) {
    return series(around(left, 40, 0), around(right, 40, 1));
  };
  const Outcome o = compared(5, 30);
  EXPECT_EQ(o.code, 1) << o.err;
  const json c = o.parsed()["comparison"];
  EXPECT_EQ(c["verdict"], "REGRESSION");
  EXPECT_DOUBLE_EQ(c["p"].get<double>(), 2.0 / 4096) << "all of twelve pairs have one sign";
  ASSERT_EQ(c["pairs"].size(), 12u);
  EXPECT_NEAR(c["change"].get<double>(), 5, 0.1);
  for (std::size_t i = 0; i < 12; ++i) {  // each side has the runs in its own order
    EXPECT_DOUBLE_EQ(c["pairs"][i][0].get<double>(), around(5, 12, 0)[i + 1] * 1e-3);
    EXPECT_DOUBLE_EQ(c["pairs"][i][1].get<double>(), around(30, 12, 1)[i + 1] * 1e-3);
  }
  EXPECT_EQ(compared(30, 5).parsed()["comparison"]["verdict"], "IMPROVED");
  const Outcome same = compared(20, 20);
  EXPECT_EQ(same.code, 0) << same.err;
  EXPECT_EQ(same.parsed()["comparison"]["verdict"], "NO_CHANGE");
  std::vector<double> wild{1};
  for (int i = 0; i < 40; ++i) wild.push_back(20 + 2 * ((i * 7) % 11 - 5));
  const Outcome unclear = series(around(20, 40, 0), wild, "--strict");
  EXPECT_EQ(unclear.code, 4) << unclear.out;
  EXPECT_EQ(unclear.parsed()["comparison"]["verdict"], "INCONCLUSIVE");
  EXPECT_EQ(unclear.parsed()["comparison"]["pairs"].size(), 32u) << "the last of the planned looks";
  EXPECT_EQ(series(around(20, 40, 0), wild).code, 0) << "not strict";
  // what a program that prints none takes is measured
  const json wall =
      cgp("diff --left 'sleep 0.01' --right 'sleep 0.02' --json").parsed()["comparison"]["pairs"];
  ASSERT_GE(wall.size(), 12u);
  for (const auto& pair : wall) {
    EXPECT_GE(pair[0].get<double>(), 0.01);
    EXPECT_GE(pair[1].get<double>(), 0.02);
  }
}

TEST_F(Profiler, time_against_another_program_measures_pairs) {
  const std::string a = printing("a", around(5, 40, 0)), b = printing("b", around(30, 40, 1));
  const Outcome o = cgp("time --against '" + a + "' --json --save p.json" + kTook + "-- " + b);
  EXPECT_EQ(o.code, 1) << o.err;
  EXPECT_EQ(o.parsed()["metrics"]["verdict"]["value"], "REGRESSION");
  EXPECT_NEAR(o.parsed()["metrics"]["wall_clock_time_us"]["value"].get<double>(), 30000, 600);
  EXPECT_TRUE(fs::exists(path("p.json")));
}

TEST_F(Profiler, diff_of_commits_builds_and_runs_both) {
  ASSERT_EQ(std::system(("cd '" + folder_ +
                         "' && git init -q . && git config user.email a@b && git config user.name n && "
                         "git config commit.gpgsign false && echo 'echo took 5 ms' >w.sh && git add w.sh && "
                         "git commit -qm one && echo 'echo took 40 ms' >w.sh && git commit -qam two")
                            .c_str()),
            0);
  const Outcome o =
      cgp(std::string("diff --before HEAD~1 --after HEAD --build true --run 'sh w.sh' --json") + kTook);
  EXPECT_EQ(o.code, 1) << o.err;
  EXPECT_EQ(o.parsed()["comparison"]["verdict"], "REGRESSION");
  EXPECT_NEAR(o.parsed()["comparison"]["change"].get<double>(), 7, 1e-9);
  EXPECT_EQ(cgp("diff --before nothing --run true").code, 2);
  EXPECT_EQ(cgp("diff --before HEAD~1 --build false --run true").code, 2);
  EXPECT_EQ(cgp("diff --before HEAD~1").code, 2);
}

TEST_F(Profiler, compete_ranks_and_marks_what_failed) {
  const std::string slow = printing("slow", around(30, 9, 1)), fast = printing("fast", around(10, 9, 0));
  const Outcome o = cgp("compete work --ours '" + slow + "' --theirs '" + fast +
                        "' --theirs false --label b,a,c --gemm 512 --rounds 9 --json" + kTook);
  EXPECT_EQ(o.code, 5) << o.err;
  const json rows = o.parsed()["rows"];
  EXPECT_EQ(rows[0]["label"], "a") << "the fastest is first, whatever the order on the command line";
  EXPECT_EQ(rows[1]["label"], "b");
  EXPECT_EQ(rows[1]["against_best"]["verdict"], "REGRESSION");
  EXPECT_DOUBLE_EQ(rows[1]["against_best"]["p"].get<double>(), 2.0 / 512)
      << "all of nine rounds have one sign";
  EXPECT_NEAR(rows[1]["against_best"]["change"].get<double>(), 2, 0.05);
  EXPECT_NE(rows[2]["failed"].get<std::string>().find("exit code 1"), std::string::npos);
  std::vector<double> nine = around(10, 9, 0);
  std::sort(nine.begin(), nine.end());
  const double seconds = nine[4] * 1e-3;  // the tenth does not count, and is the largest
  EXPECT_DOUBLE_EQ(rows[0]["median_s"].get<double>(), seconds);
  EXPECT_NEAR(rows[0]["gflops"].get<double>(), 2.0 * 512 * 512 * 512 / seconds * 1e-9, 1e-6);
  EXPECT_EQ(cgp("compete --ours true --theirs true --label a").code, 2);
  EXPECT_EQ(cgp("compete --ours true").code, 2);
  EXPECT_EQ(cgp("compete --ours true --theirs true --gemm 5x5").code, 2);
  EXPECT_EQ(cgp("compete --ours 'echo 1' --theirs 'echo 2' --rounds 1 --check-output").code, 1);
  const Outcome wall = cgp("compete --ours 'sleep 0.02' --theirs 'sleep 0.01' --rounds 2 --json");
  EXPECT_EQ(wall.code, 0) << wall.err;
  for (const json all = wall.parsed(); const auto& row : all["rows"])
    for (const auto& s : row["seconds"])
      EXPECT_GE(s.get<double>(), row["label"] == "sleep 0.02" ? 0.02 : 0.01);
}

TEST_F(Profiler, a_contract_is_made_kept_and_broken) {
  ASSERT_EQ(cgp("profile kernel softmax rows=64 cols=256 --device emu --save s.json").code, 0);
  ASSERT_EQ(cgp("contract generate s.json --name rows -o rows.yaml").code, 0);
  const Outcome kept = cgp("contract verify rows.yaml --junit j.xml");
  EXPECT_EQ(kept.code, 0) << kept.out << kept.err;
  EXPECT_NE(read_file(path("j.xml")).find("failures=\"0\""), std::string::npos);
  std::string yaml = read_file(path("rows.yaml"));
  yaml += "  ptx_size_bytes: {max: 10}\n";
  write_file(path("broken.yaml"), yaml);
  const Outcome broken = cgp("contract verify broken.yaml --github");
  EXPECT_EQ(broken.code, 1);
  EXPECT_NE(broken.out.find("::error file=broken.yaml"), std::string::npos);
  write_file(path("gpu.yaml"),
             "name: g\nkernel: softmax\ndevice: cuda\nmetrics: {wall_clock_time_us: {max: 100}}\n");
  const Outcome skipped = cgp("contract verify gpu.yaml");
  EXPECT_EQ(skipped.code, 4) << "nothing was checked: that is no success";
  EXPECT_NE(skipped.out.find("SKIP"), std::string::npos);
  write_file(path("bad.yaml"), "name: [");
  EXPECT_EQ(cgp("contract verify bad.yaml").code, 2);
}

TEST_F(Profiler, a_roofline_of_a_data_sheet_has_its_ridge) {
  const Outcome o = cgp("roofline --target cuda --device H200 --svg r.svg --json");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NEAR(o.parsed()["ridge_flop_per_byte"].get<double>(), 1978900.0 / 4800, 0.1);
  EXPECT_NE(read_file(path("r.svg")).find("</svg>"), std::string::npos);
  EXPECT_EQ(cgp("roofline --target cuda --device Toaster").code, 2);
  EXPECT_EQ(cgp("roofline --target cuda").code, 3) << "there is no GPU to measure";
  EXPECT_EQ(cgp("roofline --target abacus").code, 2);
}

TEST_F(Profiler, the_processor_is_measured) {
  const Outcome o = cgp("roofline --target cpu --seconds 0.4 --json");
  ASSERT_EQ(o.code, 0) << o.err;
  double bandwidth = 0, compute = 0;
  const json parsed = o.parsed();
  for (const auto& l : parsed["lines"]) {
    EXPECT_EQ(l["source"], "measured");
    (l["bandwidth"].get<bool>() ? bandwidth : compute) =
        std::max(l["bandwidth"].get<bool>() ? bandwidth : compute, l["value"].get<double>());
  }
  EXPECT_GT(bandwidth, 0);
  EXPECT_GT(compute, 0);
  EXPECT_GT(parsed["ridge_flop_per_byte"].get<double>(), 0);
}

TEST_F(Profiler, a_report_is_one_file_without_network) {
  ASSERT_EQ(cgp("profile kernel softmax rows=64 cols=256 --device emu --save k.json").code, 0);
  ASSERT_EQ(cgp("time --runs 6 --save t.json -- true").code, 0);
  const Outcome o = cgp("report k.json t.json -o r.html --title 'a <b>'");
  EXPECT_EQ(o.code, 0) << o.err;
  const std::string html = read_file(path("r.html"));
  for (const char* outside : {"http://", "https://", "<link", "src="})
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
  EXPECT_NE(html.find("a &lt;b&gt;"), std::string::npos);
  EXPECT_NE(html.find("global_load_efficiency_pct"), std::string::npos);
  EXPECT_NE(html.find("metrics are absent, and why"), std::string::npos);
  EXPECT_EQ(cgp("report").code, 2);
  EXPECT_EQ(cgp("report none.json").code, 2);
}

TEST_F(Profiler, vector_loops_are_counted_by_width) {
  const json scalar = cgp("profile scalar --function dot --size 512 --json").parsed()["metrics"];
  EXPECT_GT(scalar["wall_clock_time_us"]["value"].get<double>(), 0);
  const json sse = cgp("profile simd --function dot --arch sse2 --size 512 --json").parsed()["metrics"];
  if (!sse["instructions"]["value"].is_null()) {
    EXPECT_LT(scalar["simd_utilization_pct"]["value"].get<double>(), 5);
    EXPECT_GT(sse["simd_utilization_pct"]["value"].get<double>(), 90);
    EXPECT_LT(sse["instructions"]["value"].get<double>(), scalar["instructions"]["value"].get<double>());
  }
  EXPECT_EQ(cgp("profile simd --arch neon").code, 3);
  EXPECT_EQ(cgp("profile simd --function nothing").code, 2);
}

TEST_F(Profiler, quantised_products_are_run_and_wrong_sizes_refused) {
  const json d = cgp("profile quant --kernel q6k_gemv --size 64x2x512 --runs 1 --json").parsed();
  EXPECT_EQ(d["compressed_bytes"], 64 * 512 / 256 * 210);
  EXPECT_TRUE(d["check"]["pass"].get<bool>());
  EXPECT_EQ(d["activations"], "int8");
  EXPECT_EQ(cgp("profile quant --size 64x1").code, 2);
  EXPECT_EQ(cgp("profile quant --size 64x0x256").code, 2);
  EXPECT_EQ(cgp("profile quant --size 4k").code, 2);
  EXPECT_EQ(cgp("profile quant --kernel q3k_gemv --size 256").code, 2);
  EXPECT_EQ(cgp("profile quant --all --kernel q4k_gemv").code, 2);
  EXPECT_EQ(cgp("profile quant --arch avx3 --size 256").code, 2);
  EXPECT_EQ(cgp("profile quant --kernel nf4_gemv --activations int8 --size 64x1x64").code, 3);
  const Outcome o = cgp("profile quant --size 64x1x300");
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("whole blocks of 256"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("512"), std::string::npos) << o.err;
}

TEST_F(Profiler, threads_scale_from_one) {
  const Outcome o = cgp("profile scaling --max-threads 2 --size 8192 --runs 21 --json");
  ASSERT_EQ(o.code, 0) << o.err;
  const json rows = o.parsed()["scaling"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["threads"], 1);
  for (const json& row : rows) {
    EXPECT_GT(row["scaling"].get<double>(), 0) << "1 for one thread, but for what else the machine does";
    EXPECT_NEAR(row["gflops"].get<double>() * row["time_us"].get<double>(), 2.0 * 8192 * 64 * 40 * 1e-3,
                1e-3);
    EXPECT_GE(row["imbalance"].get<double>(), 0);
    EXPECT_LE(row["imbalance"].get<double>(), 1);
  }
  EXPECT_GT(o.parsed()["metrics"]["thread_spawn_overhead_us"]["value"].get<double>(), 1);
}

TEST_F(Profiler, lint_finds_what_may_fault) {
  write_file(path("bad.cpp"), "void f(float* p, __m256 v) {\n  _mm256_stream_ps(p, v);\n}\n");
  write_file(path("good.cpp"), "void f(float* p, __m256 v) {\n  _mm256_storeu_ps(p, v);\n}\n");
  EXPECT_EQ(cgp("lint --simd-safety good.cpp").code, 0);
  const Outcome o = cgp("lint --simd-safety .");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.out.find("bad.cpp:2"), std::string::npos);
  EXPECT_EQ(cgp("lint").code, 2);
  EXPECT_EQ(cgp("lint none.cpp").code, 2);
}

TEST_F(Profiler, system_calls_are_counted_and_compared_with_a_golden_record) {
  write_file(path("w.sh"), "cd sub\nread x <file\n");
  fs::create_directories(path("sub"));
  write_file(path("sub/file"), "one\n");
  const Outcome first = cgp("syscalls --json --save golden.json -- sh w.sh");
  if (first.code == 3) GTEST_SKIP() << first.err;
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(first.parsed()["totals"]["chdir"]["calls"], 1);
  EXPECT_NE(first.out.find("openat \\\"file\\\""), std::string::npos) << first.out;
  const Outcome same = cgp("syscalls --golden golden.json -- sh w.sh");
  EXPECT_EQ(same.code, 0) << same.out;
  EXPECT_EQ(same.out, "the same system calls as in golden.json\n");
  fs::rename(path("sub/file"), path("sub/other"));
  const Outcome other = cgp("syscalls --golden golden.json -- sh w.sh");
  EXPECT_EQ(other.code, 1) << other.out;
  EXPECT_NE(other.out.find("+ openat \"file\" = ENOENT"), std::string::npos) << other.out;
  EXPECT_NE(cgp("syscalls -- sh -c 'exit 0'").out.find("exit_group"), std::string::npos);
  EXPECT_EQ(cgp("syscalls -- sh -c 'exit 4'").code, 5);
  EXPECT_EQ(cgp("syscalls").code, 2);
  EXPECT_EQ(cgp("syscalls --by time -- true").code, 2);
  EXPECT_EQ(cgp("syscalls --golden w.sh -- true").code, 2);
  EXPECT_EQ(cgp("syscalls --mask '(' -- true").code, 2);
}

TEST_F(Profiler, monitor_watches_a_program_to_its_end) {
  const Outcome o = cgp("monitor --interval 0.1 -- sh -c 'echo its own words; sleep 0.3'");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("its own words"), std::string::npos) << "what it prints is not lost";
  EXPECT_NE(o.out.find("nothing on the GPU"), std::string::npos);
  EXPECT_EQ(cgp("monitor -- false").code, 5);
  EXPECT_EQ(cgp("monitor").code, 2);
}

TEST_F(Profiler, doctor_says_what_measuring_has_and_runs_each_program_once) {
  const Outcome o = cgp("doctor --json");
  EXPECT_EQ(o.code, 0);
  // Its time is that of the programs it starts (cgp self-check 061 measures it).
  write_file(path("valgrind"), "#!/bin/sh\necho \"$0 $*\" >>started.txt\necho valgrind-3.99.0\n");
  fs::permissions(path("valgrind"), fs::perms::owner_all);
  EXPECT_NE(cgp("doctor --json", "PATH='" + folder_ + "':/usr/bin:/bin").out.find("3.99.0"),
            std::string::npos);
  EXPECT_EQ(read_file(path("started.txt")), path("valgrind") + " --version\n");
  std::set<std::string> names;
  const json parsed = o.parsed(), bare = cgp("doctor --json", "PATH=/nowhere").parsed();
  for (const auto& item : parsed["items"]) names.insert(item["name"]);
  for (const char* name : {"counters", "stepper", "valgrind", "cupti", "recorder", "noise"})
    EXPECT_TRUE(names.count(name)) << name;
  for (const auto& item : bare["items"])
    if (item["name"] == "valgrind") {
      EXPECT_FALSE(item["ok"].get<bool>()) << "what is not there is not found";
    }
}

TEST_F(Profiler, the_tabs_print_and_need_a_terminal_otherwise) {
  ASSERT_EQ(cgp("profile kernel softmax rows=64 cols=256 --device emu --save k.json").code, 0);
  const Outcome o = cgp("tui k.json --dump kernel --width 80 --height 10");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(std::count(o.out.begin(), o.out.end(), '\n'), 10);
  EXPECT_NE(o.out.find("softmax"), std::string::npos);
  EXPECT_EQ(cgp("tui k.json").code, 3);
  EXPECT_EQ(cgp("tui k.json --dump kitchen").code, 2);
  EXPECT_EQ(cgp("tui").code, 2);
}

TEST_F(Profiler, programs_are_explained_by_their_vector_instructions) {
  const Outcome none = cgp("explain --x86 '" + std::string(CGP_BINARY) + "'", "PATH=/nonexistent");
  EXPECT_EQ(none.code, 3) << "there is no disassembler of our own";
  EXPECT_NE(none.err.find("objdump"), std::string::npos);
  EXPECT_EQ(cgp("explain x.ptx --function f").code, 2);
  write_file(path("x.cubin"), "no");
  EXPECT_EQ(cgp("explain x.cubin").code, 2);
  write_file(path("f.s"),
             ".globl f\nf:\n vaddps %ymm1,%ymm2,%ymm3\n addss %xmm1,%xmm2\n ret\n.globl g\ng:\n ret\n");
  if (std::system(("as -o '" + path("f.o") + "' '" + path("f.s") + "' 2>/dev/null").c_str()) != 0)
    GTEST_SKIP() << "needs an assembler";
  const Outcome o = cgp("explain --x86 f.o --json");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.parsed()["total"]["avx256"], 1);
  EXPECT_EQ(o.parsed()["total"]["scalar_float"], 1);
  EXPECT_EQ(o.parsed()["total"]["total"], 4);
  EXPECT_EQ(o.parsed()["functions"][0]["name"], "f");
  EXPECT_EQ(cgp("explain --x86 f.o --function g --json").parsed()["total"]["total"], 1);
  EXPECT_EQ(cgp("explain --x86 f.o --function nothing").code, 2);
}

TEST_F(Profiler, reports_of_others_are_taken_as_they_are) {
  const std::string raw = std::string(CGP_TESTDATA) + "/ncu_raw.csv",
                    trace = std::string(CGP_TESTDATA) + "/torch_trace.jsonl";
  const Outcome o = cgp("import '" + raw + "' --save p.json");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("k_strided"), std::string::npos);
  EXPECT_NE(o.out.find("uncoalesced access"), std::string::npos);
  EXPECT_EQ(cgp("import '" + raw + "' --kernel k_bank --json").parsed()["kernels"].size(), 1u);
  EXPECT_EQ(cgp("import '" + raw + "' --kernel none").code, 2);
  EXPECT_EQ(cgp("report '" + raw + "' '" + trace + "' -o r.html").code, 0);
  EXPECT_NE(read_file(path("r.html")).find("k_strided"), std::string::npos);
  const Outcome same = cgp("diff '" + raw + "' p.json --json");
  EXPECT_EQ(same.code, 0) << same.err;
  for (const json all = same.parsed(); const auto& row : all["rows"]) EXPECT_NE(row["verdict"], "REGRESSION");
  write_file(path("c.yaml"),
             "name: c\nhardware: {gpu: H200}\nmetrics:\n  register_usage_per_thread: {max: 255}\nchecks:\n  "
             "- {name: n, "
             "check: l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum == 0}\n");
  EXPECT_EQ(cgp("contract verify c.yaml --profile '" + raw + "'").code, 1) << "k_bank has conflicts";
  EXPECT_EQ(cgp("trace --from '" + trace + "' --perfetto t.json").code, 0);
  EXPECT_EQ(cgp("trace --from '" + raw + "'").code, 2) << "counters are no timeline";
  EXPECT_EQ(cgp("import").code, 2);
  EXPECT_EQ(cgp("import none.ncu-rep").code, 2);
  write_file(path("x.nsys-rep"), "something");
  const Outcome nsys = cgp("import x.nsys-rep", "PATH=/nowhere");
  EXPECT_EQ(nsys.code, 3);
  EXPECT_NE(nsys.err.find("nsys export --type sqlite"), std::string::npos);
  write_file(path("x.sqlite"), std::string("SQLite format 3\0", 16));
  EXPECT_EQ(cgp("import x.sqlite", "CGP_SQLITE=/no/such.so").code, 3);
}

TEST_F(Profiler, predictions_stand_beside_counters) {
  const Outcome o = cgp("profile kernel transpose rows=64 cols=64 --device emu --save t.json");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("predicted"), std::string::npos);
  const json accesses = json::parse(read_file(path("t.json")))["accesses"][0]["accesses"];
  ASSERT_FALSE(accesses.empty());
  int equal = 0;
  for (const auto& a : accesses) {
    EXPECT_NE(a["agreement"], "differs") << a;
    equal += a["agreement"] == "equal";
  }
  EXPECT_GT(equal, 0);
  EXPECT_NE(cgp("explain transpose rows=64 cols=64 --profile t.json").out.find("counted"), std::string::npos);
  EXPECT_EQ(cgp("profile kernel transpose rows=64 cols=64 --device emu --metrics nothing_like_it").code, 2);
  const Outcome one =
      cgp("profile kernel transpose rows=64 cols=64 --device emu --metrics shared_bank_conflicts,ipc");
  EXPECT_NE(one.out.find("shared_bank_conflicts"), std::string::npos);
  EXPECT_EQ(one.out.find("warp_execution_efficiency_pct"), std::string::npos);
}

TEST_F(Profiler, functions_of_libraries_are_called_in_a_process_of_their_own) {
  const Outcome o =
      cgp("profile library --so libm.so.6 --symbol powf --args f32:2,f32:3 --seconds 0.1 --flops 1 --json");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_GT(o.parsed()["metrics"]["wall_clock_time_us"]["value"].get<double>(), 0);
  EXPECT_GT(o.parsed()["metrics"]["gflops"]["value"].get<double>(), 0);
  EXPECT_EQ(cgp("profile library --so libm.so.6 --symbol powfff").code, 2);
  EXPECT_EQ(cgp("profile library --so libnothing.so --symbol f").code, 3);
  EXPECT_EQ(cgp("profile library --so libm.so.6 --symbol powf --args x:1").code, 2);
  EXPECT_EQ(cgp("profile library --so libm.so.6").code, 2);
  const Outcome crash = cgp("profile library --so libc.so.6 --symbol strlen --args i64:8");
  EXPECT_EQ(crash.code, 5) << crash.err;
  EXPECT_NE(crash.err.find("SIGSEGV"), std::string::npos);
  EXPECT_EQ(cgp("profile cublas").code, 3);
  EXPECT_EQ(cgp("profile cublas --op conv").code, 2);
}

TEST_F(Profiler, commands_of_contracts_are_filled_in) {
  write_file(path("c.yaml"),
             "name: c\ncommand: [sleep, \"${SECONDS_}\"]\nmetrics: {wall_clock_time_us: {min: 20000}}\n");
  EXPECT_EQ(cgp("contract verify c.yaml").code, 2) << "it must be defined";
  EXPECT_EQ(cgp("contract verify c.yaml --define SECONDS_=0.03").code, 0);
  write_file(path("d.yaml"),
             "name: d\ncommand: [sleep, \"${SECONDS_}\"]\nmetrics: {wall_clock_time_us: {max: 20000}}\n");
  EXPECT_EQ(cgp("contract verify --contract d.yaml --define SECONDS_=0.03").code, 1);
  EXPECT_EQ(cgp("contract verify --contract d.yaml --define SECONDS_=nothing").code, 1) << "sleep refuses it";
}

TEST_F(Profiler, the_doctor_is_asked_about_one_thing) {
  const Outcome o = cgp("doctor --check emulator");
  EXPECT_EQ(o.code, 0);
  EXPECT_EQ(o.out.find("rapl"), std::string::npos);
  EXPECT_EQ(cgp("doctor --check gpu").code, 3);
  EXPECT_EQ(cgp("doctor --check kitchen").code, 2);
}

TEST_F(Profiler, the_heap_is_profiled) {
  const Outcome none =
      cgp("profile binary --heap -- /bin/echo hello", "PATH=/nowhere CGP_HEAP_LIBRARY=/nowhere");
  EXPECT_EQ(none.code, 3);
  EXPECT_NE(none.err.find("valgrind"), std::string::npos);
  const Outcome o = cgp("profile binary --heap --json -- /bin/echo hello", "PATH=/nowhere");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_GT(o.parsed()["metrics"]["malloc_count"]["value"].get<double>(), 0);
  EXPECT_FALSE(o.parsed()["heap"]["sites"].empty());
  EXPECT_EQ(o.parsed()["heap"]["counted_by"], "libcgp_heap.so");
}

TEST_F(Profiler, metrics_are_listed_and_have_a_schema) {
  const Outcome o = cgp("metrics --json");
  EXPECT_EQ(o.parsed()["metrics"].size(), 150u);
  EXPECT_EQ(cgp("metrics --schema").parsed()["type"], "object");
  EXPECT_EQ(cgp("metrics --markdown").out, read_file(CGP_METRICS_DOC))
      << "cgp metrics --markdown > docs/metrics.md";
}

}  // namespace
}  // namespace cgp

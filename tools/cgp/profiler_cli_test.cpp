// SPDX-License-Identifier: Apache-2.0
// The profiler's commands as a user runs them: exit codes, files, errors. No GPU is needed.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "cgp/base/file.h"

namespace cgp {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

struct Outcome {
  int code = -1;
  std::string out, err;
  json parsed() const { return json::parse(out); }
};

class Profiler : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        testing::TempDir() + "cgp_prof_" + testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  Outcome cgp(const std::string& arguments, const std::string& environment = "") const {
    const std::string command = "cd '" + folder_ + "' && env CGP_LIBCUDA=/nonexistent " + environment + " '" +
                                std::string(CGP_BINARY) + "' " + arguments +
                                " >stdout.txt 2>stderr.txt </dev/null";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(path("stdout.txt")),
            read_file(path("stderr.txt"))};
  }
  std::string folder_;
};

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

TEST_F(Profiler, a_part_of_a_program_is_enough) {
  const Outcome o = cgp("profile binary --duration 0.2 --json -- sleep 5");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_LT(o.parsed()["metrics"]["wall_clock_time_us"]["value"].get<double>(), 3e6);
  EXPECT_EQ(cgp("profile binary --timeout 0.2 -- sleep 5").code, 5) << "that was too long";
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
  EXPECT_EQ(cgp("bench -- false").code, 2);
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
}

TEST_F(Profiler, other_platforms_answer_with_their_sentence) {
  EXPECT_EQ(cgp("profile metal").code, 3);
  EXPECT_NE(cgp("profile metal").err.find("Metal backend requires macOS"), std::string::npos);
  EXPECT_NE(cgp("profile neon").err.find("NEON not available — use --cross-profile for QEMU-based analysis"),
            std::string::npos);
  EXPECT_NE(cgp("profile wgpu").err.find("No browser found"), std::string::npos);
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
  EXPECT_EQ(cgp("bench --runs 12 --save fast.json -- sleep 0.02").code, 0);
  EXPECT_EQ(cgp("baseline save base fast.json").code, 0);
  EXPECT_EQ(cgp("baseline save base fast.json").code, 2) << "not replaced by accident";
  EXPECT_EQ(cgp("baseline save base fast.json --force").code, 0);
  EXPECT_NE(cgp("baseline list").out.find("base"), std::string::npos);
  const Outcome slow = cgp("bench --runs 12 --check-regression --threshold 50% --baseline base -- sleep 0.2");
  EXPECT_EQ(slow.code, 1) << slow.out;
  EXPECT_NE(slow.out.find("REGRESSION"), std::string::npos);
  EXPECT_EQ(cgp("bench --runs 3 --check-regression --baseline base -- sleep 0.02").code, 4)
      << "three runs decide nothing";
}

TEST_F(Profiler, diff_of_files_is_quick_and_tells_regression_from_improvement) {
  ASSERT_EQ(cgp("bench --runs 12 --save a.json -- sleep 0.01").code, 0);
  ASSERT_EQ(cgp("bench --runs 12 --save b.json -- sleep 0.1").code, 0);
  double fastest = 1;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(cgp("diff a.json b.json").code, 1);
    fastest =
        std::min(fastest, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  EXPECT_LT(fastest, 0.1);
  const Outcome back = cgp("diff b.json a.json --json");
  EXPECT_EQ(back.code, 0);
  EXPECT_EQ(back.parsed()["rows"][0]["verdict"], "IMPROVED");
  EXPECT_GT(back.parsed()["rows"][0]["speedup"].get<double>(), 3);
}

TEST_F(Profiler, diff_of_commands_measures_pairs) {
  const Outcome o = cgp("diff --left 'sleep 0.005' --right 'sleep 0.03' --json");
  EXPECT_EQ(o.code, 1) << o.err;
  EXPECT_EQ(o.parsed()["comparison"]["verdict"], "REGRESSION");
  EXPECT_LT(o.parsed()["comparison"]["p"].get<double>(), 0.01);
  EXPECT_EQ(o.parsed()["comparison"]["pairs"].size(), 12u);
}

TEST_F(Profiler, diff_of_commits_builds_and_runs_both) {
  ASSERT_EQ(std::system(("cd '" + folder_ +
                         "' && git init -q . && git config user.email a@b && git config user.name n && echo "
                         "'sleep 0.005' >w.sh && git add w.sh && "
                         "git commit -qm one && echo 'sleep 0.04' >w.sh && git commit -qam two")
                            .c_str()),
            0);
  const Outcome o = cgp("diff --before HEAD~1 --after HEAD --build true --run 'sh w.sh' --json");
  EXPECT_EQ(o.code, 1) << o.err;
  EXPECT_EQ(o.parsed()["comparison"]["verdict"], "REGRESSION");
  EXPECT_EQ(cgp("diff --before nothing --run true").code, 2);
  EXPECT_EQ(cgp("diff --before HEAD~1 --build false --run true").code, 2);
  EXPECT_EQ(cgp("diff --before HEAD~1").code, 2);
}

TEST_F(Profiler, compete_ranks_and_marks_what_failed) {
  const Outcome o =
      cgp("compete work --ours 'sleep 0.01' --theirs 'sleep 0.03' --theirs false --label a,b,c --gemm 512 "
          "--rounds 9 --json");
  EXPECT_EQ(o.code, 5) << o.err;
  const json rows = o.parsed()["rows"];
  EXPECT_EQ(rows[0]["label"], "a");
  EXPECT_EQ(rows[1]["against_best"]["verdict"], "REGRESSION");
  EXPECT_NE(rows[2]["failed"].get<std::string>().find("exit code 1"), std::string::npos);
  const double seconds = rows[0]["median_s"];
  EXPECT_NEAR(rows[0]["gflops"].get<double>(), 2.0 * 512 * 512 * 512 / seconds * 1e-9, 1e-6);
  EXPECT_EQ(cgp("compete --ours true --theirs true --label a").code, 2);
  EXPECT_EQ(cgp("compete --ours true").code, 2);
  EXPECT_EQ(cgp("compete --ours true --theirs true --gemm 5x5").code, 2);
  EXPECT_EQ(cgp("compete --ours 'echo 1' --theirs 'echo 2' --rounds 1 --check-output").code, 1);
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
  EXPECT_GT(bandwidth, 2);
  EXPECT_GT(compute, 2);
}

TEST_F(Profiler, a_report_is_one_file_without_network) {
  ASSERT_EQ(cgp("profile kernel softmax rows=64 cols=256 --device emu --save k.json").code, 0);
  ASSERT_EQ(cgp("time --runs 6 --save t.json -- sleep 0.01").code, 0);
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
  // One thread against itself: 1, but for what else the machine does.
  EXPECT_GT(rows[0]["scaling"].get<double>(), 0.2);
  EXPECT_LT(rows[0]["scaling"].get<double>(), 5);
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
  const Outcome o = cgp("monitor --interval 0.1 -- sleep 0.3");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("nothing on the GPU"), std::string::npos);
  EXPECT_EQ(cgp("monitor -- false").code, 5);
  EXPECT_EQ(cgp("monitor").code, 2);
}

TEST_F(Profiler, doctor_says_what_measuring_has_within_two_seconds) {
  const auto start = std::chrono::steady_clock::now();
  const Outcome o = cgp("doctor --json");
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 2);
  EXPECT_EQ(o.code, 0);
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
  for (const auto& row : same.parsed()["rows"]) EXPECT_NE(row["verdict"], "REGRESSION");
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
  EXPECT_EQ(cgp("contract verify --contract c.yaml --define SECONDS_=0.001").code, 1);
}

TEST_F(Profiler, the_doctor_is_asked_about_one_thing) {
  const Outcome o = cgp("doctor --check emulator");
  EXPECT_EQ(o.code, 0);
  EXPECT_EQ(o.out.find("rapl"), std::string::npos);
  EXPECT_EQ(cgp("doctor --check gpu").code, 3);
  EXPECT_EQ(cgp("doctor --check kitchen").code, 2);
}

TEST_F(Profiler, the_heap_is_profiled_with_valgrind) {
  const Outcome none = cgp("profile binary --heap -- /bin/echo hello", "PATH=/nowhere");
  EXPECT_EQ(none.code, 3);
  EXPECT_NE(none.err.find("valgrind"), std::string::npos);
  if (std::system("valgrind --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "needs valgrind";
  const Outcome o = cgp("profile binary --heap --json -- /bin/echo hello");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_GT(o.parsed()["metrics"]["malloc_count"]["value"].get<double>(), 0);
  EXPECT_FALSE(o.parsed()["heap"]["sites"].empty());
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

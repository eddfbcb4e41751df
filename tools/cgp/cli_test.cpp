// SPDX-License-Identifier: Apache-2.0
// Runs the built command as a user does: exit codes, streams, JSON, files.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cgp/base/file.h"
#include "cgp/spec/npy.h"

namespace cgp::spec {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

const char* kSaxpy = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .entry saxpy(.param .f32 a, .param .u64 x, .param .u64 y, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .f32 %f<5>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<8>;
  ld.param.f32 %f1, [a];
  ld.param.u64 %rd1, [x];
  ld.param.u64 %rd2, [y];
  ld.param.u32 %r2, [n];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r1, %r3, %r4, %r5;
  setp.ge.s32 %p1, %r1, %r2;
  @%p1 bra DONE;
  cvta.to.global.u64 %rd3, %rd1;
  mul.wide.s32 %rd4, %r1, 4;
  add.s64 %rd5, %rd3, %rd4;
  cvta.to.global.u64 %rd6, %rd2;
  add.s64 %rd7, %rd6, %rd4;
  ld.global.f32 %f2, [%rd5];
  ld.global.f32 %f3, [%rd7];
  fma.rn.f32 %f4, %f2, %f1, %f3;
  st.global.f32 [%rd7], %f4;
DONE:
  ret;
}
.global .align 4 .u32 step = 1;
.visible .entry add_step(.param .u64 x)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [x];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r2, [%rd3];
  ld.global.u32 %r3, [step];
  add.u32 %r2, %r2, %r3;
  st.global.u32 [%rd3], %r2;
  ret;
}
)";

struct Outcome {
  int code = -1;
  std::string out, err;
  json parsed() const { return json::parse(out); }
};

class Cli : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "cgp_cli_" +
              testing::UnitTest::GetInstance()->current_test_info()->name() + "_" + std::to_string(getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    write("saxpy.ptx", kSaxpy);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) { write_file(folder_ + "/" + name, text); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  /// `arguments` as in a shell, run in the test's folder.
  Outcome cgp(const std::string& arguments, const std::string& environment = "") const {
    const std::string command = "cd '" + folder_ + "' && env " + environment + " '" +
                                std::string(CGP_BINARY) + "' " + arguments +
                                " >stdout.txt 2>stderr.txt </dev/null";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(path("stdout.txt")),
            read_file(path("stderr.txt"))};
  }
  static std::string saxpy(int n) {
    return "run saxpy.ptx --entry saxpy --grid 4 --block 256 --arg f32:2.5 --arg "
           "'in:f32:1000:{\"iota\":[0,1]}' "
           "--arg 'inout:f32:1000:{\"fill\":1}=z.npy' --arg u32:" +
           std::to_string(n) + " ";
  }
  void write_case(const std::string& buffers, const std::string& more = "", int block = 8) {
    write(
        "case.json",
        "{\"buffers\": [" + buffers +
            "], \"launches\": [{\"entry\": \"add_step\", \"grid\": [1,1,1], \"block\": [" +
            std::to_string(block) +
            ",1,1], \"cluster\": null, \"dynamic_smem\": 0, \"params\": [{\"buf\": \"x\", \"offset\": 0}]}]" +
            more + "}");
  }
  std::string folder_;
};

constexpr const char* kIota =
    "\"dtype\": \"u32\", \"count\": 8, \"init\": {\"kind\": \"iota\", \"start\": 0, \"step\": 1}";

TEST_F(Cli, a_ptx_file_is_read_once) {
  ASSERT_EQ(std::system(("cd '" + folder_ + "' && mkfifo pipe.ptx && (cat saxpy.ptx >pipe.ptx &)").c_str()),
            0);
  const Outcome o =
      cgp("run pipe.ptx --entry add_step --grid 1 --block 8 --arg inout:u32:8:zero", "timeout 20");
  EXPECT_EQ(o.code, 0) << "a pipe can be read once: " << o.out << o.err;
}

TEST_F(Cli, a_ptx_file_runs_and_saves_its_result) {
  const Outcome o = cgp(saxpy(1000));
  EXPECT_EQ(o.code, 0) << o.out << o.err;
  EXPECT_EQ(o.err, "");
  EXPECT_EQ(o.out.find('\x1b'), std::string::npos);
  const HostArray z = read_array(path("z.npy"), DType::f32, 1000);
  for (std::uint64_t i = 0; i < 1000; ++i)
    ASSERT_EQ(load_as_double(DType::f32, z.bytes.data(), i), 2.5 * double(i) + 1);
}

// What ptxas refuses is not run as if a GPU took it.
TEST_F(Cli, ptx_that_breaks_rules_is_refused_and_explained) {
  const auto text = [](const char* target, const char* body) {
    return std::string(".version 8.0\n.target ") + target + "\n.address_size 64\n" + body;
  };
  const char* divides =
      ".visible .entry k() { .reg .f32 %f<3>; mov.f32 %f1, 0f3f800000; div.f32 %f2, %f1, %f1; ret; }";
  for (const auto& [ptx, why] :
       {std::pair{text("sm_80", divides), "missing one of .approx .full .rn"},
        {text("sm_80", ".const .b8 big[70000];\n.visible .entry k() { ret; }"), "64 KiB of .const"},
        {text("sm_80", ".visible .entry k() { .shared .b8 s[60000]; ret; }"), "shared"},
        {text("sm_90", ".visible .entry k() { wgmma.fence.sync.aligned; ret; }"),
         "needs PTX 8.0 and sm_90a"}}) {
    write("broken.ptx", ptx);
    const Outcome run = cgp("run broken.ptx --grid 1 --block 128");
    EXPECT_EQ(run.code, 2) << ptx << run.out << run.err;
    EXPECT_NE(run.err.find(why), std::string::npos) << run.err;
    const Outcome explained = cgp("explain broken.ptx");
    EXPECT_EQ(explained.code, 1) << ptx;
    EXPECT_NE(explained.out.find(why), std::string::npos) << explained.out;
  }
  write("broken.ptx", text("sm_80", divides));
  EXPECT_EQ(cgp("run broken.ptx --grid 1 --block 128 --check all,-program").code, 0);
}

// out[i] = 2 * blocks in a cluster + whether the grid has the workspace of a cooperative launch.
constexpr const char* kLaunchShape = R"(
.version 7.8
.target sm_90
.address_size 64
.visible .entry launch_shape(.param .u64 out) .explicitcluster .reqnctapercluster 2, 1, 1 .reqntid 8, 1, 1
{
  .reg .pred %p;
  .reg .b32 %r<6>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %envreg1;
  mov.u32 %r2, %envreg2;
  mov.b64 %rd2, {%r2, %r1};
  setp.ne.u64 %p, %rd2, 0;
  selp.u32 %r3, 1, 0, %p;
  mov.u32 %r4, %cluster_nctaid.x;
  mad.lo.u32 %r3, %r4, 2, %r3;
  mov.u32 %r4, %ctaid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.u32 %r5, %r4, 8, %r5;
  mul.wide.u32 %rd3, %r5, 4;
  add.u64 %rd1, %rd1, %rd3;
  st.global.u32 [%rd1], %r3;
  ret;
}
)";

TEST_F(Cli, shapes_that_the_kernel_says_need_not_be_given) {
  write("launch_shape.ptx", kLaunchShape);
  for (const auto& [option, value] : {std::pair{"", 4.0}, std::pair{" --cooperative", 5.0}}) {
    const Outcome o = cgp(std::string("run launch_shape.ptx --grid 4 --arg out:u32:32=o.npy") + option);
    EXPECT_EQ(o.code, 0) << o.out << o.err;
    EXPECT_NE(o.out.find("grid (4,1,1) block (8,1,1) cluster (2,1,1)"), std::string::npos) << o.out;
    const HostArray got = read_array(path("o.npy"), DType::u32, 32);
    for (std::uint64_t i = 0; i < 32; ++i) ASSERT_EQ(load_as_double(DType::u32, got.bytes.data(), i), value);
  }
  EXPECT_EQ(cgp("run launch_shape.ptx --grid 3 --arg out:u32:32").code, 2);
  EXPECT_EQ(cgp("run launch_shape.ptx --grid 4 --block 16 --arg out:u32:64").code, 2);
  EXPECT_EQ(cgp("run launch_shape.ptx --grid 4 --cluster 4 --arg out:u32:32").code, 2);
}

TEST_F(Cli, out_of_bounds_is_exit_1_and_names_the_buffer) {
  const Outcome o = cgp(saxpy(1010) + "--json");
  EXPECT_EQ(o.code, 1);
  const json j = o.parsed();
  EXPECT_EQ(j["schema"], "cgp.run/1");
  EXPECT_EQ(j["verdict"], "fail");
  EXPECT_EQ(j["exit_code"], 1);
  ASSERT_EQ(j["findings"].size(), 3u);
  const json& f = j["findings"][0];
  EXPECT_EQ(f["class"], "oob.global");
  EXPECT_EQ(f["buffer"], "arg1");
  EXPECT_EQ(f["byte_offset"], 4000);
  EXPECT_EQ(f["block"], json({3, 0, 0}));
  EXPECT_EQ(f["thread"], json({232, 0, 0}));
  EXPECT_EQ(f["count"], 10);
  const Outcome text = cgp(saxpy(1010));
  EXPECT_NE(text.out.find("error[oob.global]"), std::string::npos);
  EXPECT_NE(text.out.find("saxpy.ptx:26"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("^^^^"), std::string::npos);
}

TEST_F(Cli, checks_can_be_chosen) {
  const std::string args =
      "run saxpy.ptx --entry saxpy --grid 1 --block 32 --arg f32:1 --arg scratch:f32:32 --arg in:f32:32:zero "
      "--arg u32:0 --json ";
  EXPECT_EQ(cgp(args).code, 0);
  const std::string uninit =
      "run saxpy.ptx --entry add_step --grid 1 --block 32 --arg scratch:u32:32 --json ";
  const Outcome o = cgp(uninit);
  EXPECT_EQ(o.code, 1);
  EXPECT_EQ(o.parsed()["findings"][0]["class"], "uninit.global");
  EXPECT_EQ(cgp(uninit + "--check all,-uninit").code, 0);
  EXPECT_EQ(cgp(uninit + "--check none").code, 0);
  EXPECT_EQ(cgp(uninit + "--check unint").code, 2);
  const json race = cgp(uninit + "--check race,bounds").parsed();
  EXPECT_EQ(race["checks"], "bounds,race");
  EXPECT_TRUE(race["warnings"].empty());
}

TEST_F(Cli, inputs_must_not_change) {
  const Outcome o = cgp("run saxpy.ptx --entry add_step --grid 1 --block 8 --arg in:u32:8:zero --json");
  EXPECT_EQ(o.code, 1);
  EXPECT_EQ(o.parsed()["buffers"][0]["wrong"], 8);
}

TEST_F(Cli, a_spec_compares_buffers_symbols_and_counters) {
  write("saxpy.ptx", kSaxpy);
  fs::copy_file(path("saxpy.ptx"), path("case.ptx"));
  const std::string good =
      std::string("{\"name\": \"x\", \"role\": \"inout\", ") + kIota +
      ", \"crc32\": \"5cdd4d64\", \"expected\": {\"kind\": \"iota\", \"start\": 10, \"step\": 1}}";
  const std::string more =
      ", \"symbols\": [{\"name\": \"step\", \"dtype\": \"u32\", \"count\": 1, \"init\": {\"kind\": "
      "\"values\", \"values\": [10]}}], "
      "\"counters\": [{\"launch\": 0, \"global_load_requests\": 2, \"global_store_sectors\": 1}]";
  const std::string no_crc = std::string(good).replace(good.find(", \"crc32\": \"5cdd4d64\""), 21, "");
  write_case(no_crc, more);
  Outcome o = cgp("run --spec case.json --json");
  EXPECT_EQ(o.code, 0) << o.out << o.err;
  EXPECT_EQ(o.parsed()["buffers"][0]["equal"], true);
  EXPECT_EQ(o.parsed()["device"]["arch"], "sm_80");

  std::string wrong = no_crc;
  wrong.replace(wrong.find("\"start\": 10"), 11, "\"start\": 11");
  write_case(wrong, more);
  o = cgp("run --spec case.json --json");
  EXPECT_EQ(o.code, 1);
  EXPECT_EQ(o.parsed()["buffers"][0]["first"]["want"], "11");

  std::string counters = more;
  counters.replace(counters.find("sectors\": 1"), 11, "sectors\": 2");
  write_case(no_crc, counters);
  o = cgp("run --spec case.json --json");
  EXPECT_EQ(o.code, 1);
  EXPECT_EQ(o.parsed()["counter_mismatches"][0]["name"], "global_store_sectors");
  EXPECT_EQ(o.parsed()["counter_mismatches"][0]["got"], 1);

  write_case(good, more);  // a checksum that is not that of 0..7
  o = cgp("run --spec case.json");
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("CRC-32"), std::string::npos);
}

TEST_F(Cli, a_broken_kernel_is_exit_1_and_its_diagnosis_is_judged) {
  const std::string small =
      "{\"name\": \"x\", \"role\": \"inout\", \"dtype\": \"u32\", \"count\": 8, \"init\": \"zero\", "
      "\"expected\": {\"fill\": 5}}";
  write_case(small, ", \"expect\": {\"class\": \"oob.global\", \"buffer\": \"x\", \"byte_offset\": 32}", 16);
  Outcome o = cgp("run --spec case.json --ptx saxpy.ptx --json");
  EXPECT_EQ(o.code, 1) << o.err;
  EXPECT_EQ(o.parsed()["expect"]["met"], true);
  EXPECT_EQ(o.parsed()["findings"][0]["buffer"], "x");
  EXPECT_EQ(o.parsed()["findings"][0]["byte_offset"], 32);
  EXPECT_EQ(o.parsed()["buffers"][0]["compared"], false);
  write_case(small, ", \"expect\": {\"class\": \"race.global\"}", 16);
  EXPECT_EQ(cgp("run --spec case.json --ptx saxpy.ptx --json").parsed()["expect"]["met"], false);
  write_case(small, ", \"expect\": {\"class\": \"race.global\"}", 8);
  EXPECT_EQ(cgp("run --spec case.json --ptx saxpy.ptx --json").code, 0);
}

TEST_F(Cli, bad_input_is_exit_2_and_says_what_is_meant) {
  const auto refused = [&](const std::string& args, std::initializer_list<const char*> parts) {
    const Outcome o = cgp(args);
    EXPECT_EQ(o.code, 2) << args << "\n" << o.out << o.err;
    EXPECT_EQ(o.out, "") << args;
    for (const char* part : parts) EXPECT_NE(o.err.find(part), std::string::npos) << args << "\n" << o.err;
  };
  refused("rnu", {"unknown command", "did you mean run?"});
  refused("run --gird 4", {"--gird", "did you mean --grid?"});
  refused("run", {"needs a kernel, a PTX file or --spec"});
  refused("run nothing.ptx --grid 1 --block 1", {"nothing.ptx"});
  refused("run saxpy.ptx --grid 1 --block 1", {"--entry", "saxpy, add_step"});
  refused("run saxpy.ptx --entry saxpi --grid 1 --block 1", {"saxpy"});
  refused("run saxpy.ptx --entry saxpy --grid 1", {"--block"});
  refused("run saxpy.ptx --entry saxpy --grid 1 --block 1", {"0 arguments for 4 parameters"});
  refused("run saxpy.ptx --entry add_step --grid 1 --block 1 --arg u32:1", {"4 bytes", "8 bytes"});
  refused("run saxpy.ptx --entry add_step --grid 1 --block 1 --arg in:f32:missing.npy", {"missing.npy"});
  refused("run saxpy.ptx --entry add_step --grid 1 --block 2048 --arg in:u32:8:zero", {"2048"});
  refused("run saxpy.ptx --entry add_step --grid 1,65536 --block 1 --arg in:u32:8:zero", {"65536"});
  refused("run vecad", {"vecadd"});
  refused("run vecadd m=3", {"m"});
  refused("emit vecadd --variant nope", {"nope"});
  refused("emit vecadd --arch sm_80 --target spirv", {"-o FILE.spv"});
  write("bad.json", "{\"launches\": [}");
  refused("run --spec bad.json", {"line 1, column 15", "^"});
  write("broken.ptx",
        ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k() { frobnicate.u32; }\n");
  refused("run broken.ptx --grid 1 --block 1", {"frobnicate", "line 4"});
  refused("explain broken.ptx", {"frobnicate"});
}

// Reads what an asynchronous copy brings without waiting for it.
constexpr const char* kNoWait = R"(
.version 7.8
.target sm_90
.address_size 64
.visible .entry no_wait(.param .u64 in, .param .u64 out)
{
  .shared .align 16 .b8 tile[16];
  .reg .b32 %r<3>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [in];
  ld.param.u64 %rd2, [out];
  mov.u32 %r1, tile;
  st.shared.u32 [%r1], 5;
  cp.async.ca.shared.global [%r1], [%rd1], 4;
  ld.shared.u32 %r2, [%r1];
  st.global.u32 [%rd2], %r2;
  ret;
}
)";

TEST_F(Cli, policies_are_options_and_results_are_compared) {
  const Outcome fine = cgp(saxpy(1000) + "--policies all --json");
  EXPECT_EQ(fine.code, 0) << fine.out << fine.err;
  EXPECT_EQ(fine.parsed()["policies"].size(), 8u);
  EXPECT_EQ(fine.parsed()["emulation"], "--policies all");
  EXPECT_NE(cgp(saxpy(1000) + "--policies all").out.find("ok 8 policies agree bit for bit: no findings"),
            std::string::npos);
  EXPECT_EQ(cgp("run vecadd n=1000 --policies late+adversarial").code, 0);
  write("nowait.ptx", kNoWait);
  const Outcome o =
      cgp("run nowait.ptx --grid 1 --block 1 --arg 'in:u32:1:{\"fill\":7}' --arg out:u32:1 --check none "
          "--policies late,adversarial --json");
  EXPECT_EQ(o.code, 1) << o.out << o.err;
  const json j = o.parsed(), f = j["findings"].empty() ? json() : j["findings"][0];
  ASSERT_TRUE(f.is_object()) << o.out;
  EXPECT_EQ(f["class"], "policy.result");
  EXPECT_EQ(f["buffer"], "arg1");
  EXPECT_EQ(f["byte_offset"], 0);
  const std::string message = f["message"];
  for (const char* part : {"'arg1' differs in 1 of 1 elements: element 0 is ",
                           " under --async late --schedule fair, 7 under --async eager --schedule fair"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
  EXPECT_EQ(f["policies"].size(), 1u);
  for (const char* option :
       {"--async late", "--async random:3", "--schedule adversarial", "--schedule random", "--numerics fast",
        "--max-findings 3", "--step-limit 100000"})
    EXPECT_EQ(cgp(saxpy(1000) + option).code, 0) << option;
  EXPECT_EQ(cgp(saxpy(1000) + "--step-limit 3").code, 1);
  for (const char* option : {"--async lazy", "--schedule unfair", "--numerics quick", "--max-findings 0",
                             "--step-limit many", "--policies some", "--annotate=c"})
    EXPECT_EQ(cgp(saxpy(1000) + option).code, 2) << option;
}

TEST_F(Cli, options_may_not_contradict_the_inputs) {
  ASSERT_EQ(cgp("run vecadd n=5 --out c=x.npy").code, 0);
  EXPECT_EQ(cgp("run vecadd --in a=x.npy n=5").code, 0);
  const Outcome o = cgp("run vecadd --in a=x.npy n=7");
  EXPECT_EQ(o.code, 2);
  for (const char* part : {"n=7", "a is f32 [5]"}) EXPECT_NE(o.err.find(part), std::string::npos) << o.err;
  EXPECT_EQ(cgp("run vecadd --in b=x.npy dtype=f16").code, 2);
  EXPECT_EQ(cgp("run reduce --in in=x.npy shape=6").code, 2);
  EXPECT_EQ(cgp("run reduce --in in=x.npy shape=5").code, 0);
  EXPECT_EQ(cgp("run softmax --in x=x.npy cols=4").code, 2);
}

TEST_F(Cli, views_and_files) {
  const Outcome text = cgp(saxpy(1000) + "--annotate=ptx --heatmap map.svg --sarif f.sarif");
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("fma.rn.f32 %f4, %f2, %f1, %f3;"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("wrote map.svg"), std::string::npos);
  EXPECT_EQ(read_file(path("map.svg")).rfind("<svg", 0), 0u);
  EXPECT_EQ(json::parse(read_file(path("f.sarif")))["runs"][0]["results"].size(), 0u);
  const json j = cgp(saxpy(1010) + "--annotate --heatmap - --sarif f.sarif --json").parsed();
  EXPECT_EQ(j["annotate"]["ptx"][0]["issues"], j["launches"][0]["counters"]["warp_instructions"]);
  EXPECT_EQ(j["heatmap"][0]["buffer"], "arg1");
  EXPECT_EQ(j["files"]["sarif"], "f.sarif");
  const json sarif = json::parse(read_file(path("f.sarif")));
  EXPECT_EQ(sarif["runs"][0]["results"].size(), 3u);
  EXPECT_EQ(sarif["runs"][0]["invocations"][0]["exitCode"], 1);
  const json kernel = cgp("run vecadd n=1000 --annotate --heatmap - --json").parsed();
  std::string files;
  for (const auto& f : kernel["annotate"]["cpp"]) files += f["file"].get<std::string>() + " ";
  EXPECT_NE(files.find("vecadd.cpp"), std::string::npos) << files;
  ASSERT_EQ(kernel["heatmap"].size(), 3u);
  EXPECT_EQ(kernel["heatmap"][2]["buffer"], "c");
}

TEST_F(Cli, a_kernel_is_explained_as_a_shader) {
  for (const std::string language : {"wgsl", "spirv"}) {
    const auto j = cgp("explain softmax --arch sm_75 --json dtype=f32 cols=1000 --as " + language).parsed();
    EXPECT_EQ(j["language"], language);
    const auto& s = j["shaders"][0];
    EXPECT_EQ(s["workgroup"][1], 1);
    EXPECT_TRUE(s["parameters"][0]["pointer"].get<bool>());
    EXPECT_EQ(s["parameters"][0].contains("binding"), language == "wgsl");
    // A shuffle through workgroup memory has two barriers.
    EXPECT_GT(s["without_subgroups"]["barriers"], s["with_subgroups"]["barriers"]);
    EXPECT_GT(s["without_subgroups"]["workgroup_memory"], s["with_subgroups"]["workgroup_memory"]);
    EXPECT_NE(s["with_subgroups"]["needs"].dump().find("subgroups"), std::string::npos);
    EXPECT_EQ(s["stands_for"][0]["what"], "shuffles and votes");
  }
  EXPECT_NE(cgp("explain gemm --arch sm_80 --as spirv dtype=f16 m=256 n=256 k=256").out.find("cooperative"),
            std::string::npos);
  const Outcome refused = cgp("explain gemm --arch sm_90a --as wgsl dtype=f16 m=4096 n=4096 k=4096");
  EXPECT_NE(refused.code, 0);
  EXPECT_NE(refused.err.find("a shader"), std::string::npos) << refused.err;
}
TEST_F(Cli, a_class_of_findings_is_explained) {
  EXPECT_NE(cgp("explain race.shared").out.find("to mend it"), std::string::npos);
  EXPECT_EQ(cgp("explain race.shared --json").parsed()["severity"], "error");
  const std::string text = cgp("explain --finding race.shared").out;
  EXPECT_EQ(text, cgp("explain race.shared").out);
  EXPECT_NE(text.find("for example"), std::string::npos);
  EXPECT_NE(text.find("__syncthreads();"), std::string::npos);
  EXPECT_EQ(cgp("explain --finding deadlok").code, 2);
  EXPECT_EQ(cgp("explain").code, 2);
  EXPECT_EQ(cgp("explain gemm --finding deadlock").code, 2);
  const Outcome o = cgp("explain race.sharde");
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("race.shared"), std::string::npos);
}

TEST_F(Cli, explain_analyses_without_running) {
  write_file(path("half.ptx"), R"(
.version 8.0
.target sm_90
.address_size 64
.visible .entry half(.param .u64 out, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  mov.u32 %r1, %tid.x;
  setp.ge.u32 %p1, %r1, 48;
  @%p1 bra END;
  bar.sync 0;
END:
  ld.param.u64 %rd1, [out];
  mul.wide.u32 %rd2, %r1, 128;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r1;
  ret;
}
)");
  const std::string command = "explain " + path("half.ptx") + " --block 64 ";
  const Outcome text = cgp(command);
  EXPECT_EQ(text.code, 0);
  for (const char* part : {"P0[ANA-B01 barrier.divergent]", "48 of 64 threads come", "32 sectors, 12% used"})
    EXPECT_NE(text.out.find(part), std::string::npos) << part << "\n" << text.out;
  EXPECT_EQ(cgp(command + "--fail-on P0").code, 1);
  EXPECT_EQ(cgp(command + "--fail-on P0 --allow ANA-B01").code, 0);
  EXPECT_EQ(cgp(command + "--fail-on P2 --allow ANA-B01").code, 1);
  EXPECT_EQ(cgp(command + "--block 32 --fail-on P0").code, 2);  // --block twice
  EXPECT_EQ(cgp("explain " + path("half.ptx") + " --block 32 --fail-on P0").code, 0);
  EXPECT_EQ(cgp(command + "--allow ANA-B99").code, 2);
  EXPECT_EQ(cgp(command + "--param n=many").code, 2);
  const json facts = cgp(command + "--json").parsed()["modules"][0]["entries"][0]["analysis"];
  EXPECT_EQ(facts["bugs"][0]["code"], "ANA-B01");
  EXPECT_EQ(facts["functions"][0]["memory"][0]["warps"][1]["sectors"], 32);
  EXPECT_EQ(facts["functions"][0]["collectives"][0]["verdict"], "unsafe");
  EXPECT_NE(cgp("explain ANA-B05").out.find("member mask"), std::string::npos);
}

TEST_F(Cli, the_documentation_names_every_field_of_a_finding) {
  const std::string doc = read_file(CGP_CLI_DOC);
  const json j = cgp(saxpy(1010) + "--json").parsed();
  for (const auto& [key, value] : j["findings"][0].items())
    EXPECT_NE(doc.find("`" + key), std::string::npos) << key;
}

// As the Tab key does: bash runs the function with the words so far.
TEST_F(Cli, bash_completes_commands_options_values_and_files) {
  ASSERT_EQ(cgp("completion bash").code, 0);
  fs::copy_file(path("stdout.txt"), path("completion.sh"));
  ASSERT_EQ(std::system(("bash -n '" + path("completion.sh") + "'").c_str()), 0);
  write("with space.ptx", kSaxpy);
  const auto completed = [&](const std::string& words, int at) {
    const std::string command = "cd '" + folder_ + "' && bash -c 'source completion.sh; COMP_WORDS=(" +
                                words + "); COMP_CWORD=" + std::to_string(at) +
                                R"(; _cgp; printf "%s\n" "${COMPREPLY[@]}"' >words.txt 2>&1)";
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    std::vector<std::string> out;
    std::istringstream lines(read_file(path("words.txt")));
    for (std::string line; std::getline(lines, line);) out.push_back(line);
    return out;
  };
  const auto has = [](const std::vector<std::string>& all, const char* one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  };
  using Words = std::vector<std::string>;
  EXPECT_EQ(completed("cgp comple", 1), Words{"completion"});
  EXPECT_EQ(completed("cgp completion b", 2), Words{"bash"});
  const Words commands = completed("cgp \"\"", 1);
  for (const char* name : {"run", "generate", "profile", "help"}) EXPECT_TRUE(has(commands, name)) << name;
  EXPECT_FALSE(has(commands, "saxpy.ptx"));
  EXPECT_EQ(completed("cgp run --annot", 2), Words{"--annotate"});
  EXPECT_FALSE(has(completed("cgp list --", 2), "--annotate"));
  EXPECT_EQ(completed("cgp run --color n", 3), Words{"never"});
  EXPECT_EQ(completed("cgp run --color = al", 4), Words{"always"});
  EXPECT_EQ(completed("cgp run saxpy.ptx --color =", 4), (Words{"auto", "always", "never"}));
  EXPECT_EQ(completed("cgp run vecad", 2), Words{"vecadd"});
  EXPECT_EQ(completed("cgp run with", 2), Words{"with space.ptx"});
  EXPECT_EQ(completed("cgp generate sax", 2), Words{"saxpy.ptx"});
  const Words kinds = completed("cgp profile \"\"", 2);
  EXPECT_TRUE(has(kinds, "kernel") && has(kinds, "binary"));
  EXPECT_EQ(completed("cgp help gener", 2), Words{"generate"});
  EXPECT_EQ(cgp("completion fish").code, 2);
}

TEST_F(Cli, errors_are_json_too) {
  const Outcome o = cgp("run saxpy.ptx --entry saxpi --grid 1 --block 1 --json");
  EXPECT_EQ(o.code, 2);
  const json j = o.parsed();
  EXPECT_EQ(j["schema"], "cgp.error/1");
  EXPECT_EQ(j["exit_code"], 2);
  EXPECT_EQ(j["error"]["kind"], "ArgumentError");
}

TEST_F(Cli, a_missing_gpu_is_exit_3) {
  const Outcome o = cgp(saxpy(1000) + "--device cuda --json", "CGP_LIBCUDA=/nonexistent/libcuda.so.1");
  EXPECT_EQ(o.code, 3) << o.err;
  EXPECT_EQ(o.parsed()["error"]["kind"], "Unsupported");
  EXPECT_EQ(cgp("run vecadd --device cuda:0", "CGP_LIBCUDA=/nonexistent/libcuda.so.1").code, 3);
}

TEST_F(Cli, measuring_gemm_needs_a_gpu_and_planning_it_does_not) {
  const char* none = "CGP_LIBCUDA=/nonexistent/libcuda.so.1";
  for (const char* command : {"bench gemm", "tune gemm", "bench gemm --json"})
    EXPECT_EQ(cgp(command, none).code, 3) << command;
  EXPECT_EQ(cgp("bench gemm --set round").code, 2);
  EXPECT_EQ(cgp("bench norm").code, 2);
  const Outcome o = cgp("plan gemm --shape 1000x3001x5003 --dtype f16 --arch sm_80 --json", none);
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.parsed()["problem"], "f16/nt/1000x3001x5003");
  EXPECT_EQ(cgp("plan gemm --arch sm_91").code, 2);
}

TEST_F(Cli, plans_of_kernels_are_their_selectors_words) {
  const Outcome o = cgp("plan attention n=256 heads=1 batch=1 d=96 --arch sm_80 --json");
  ASSERT_EQ(o.code, 0) << o.err;
  const auto plan = o.parsed();
  EXPECT_EQ(plan["schema"], "cgp.plan/1");
  const auto mma = cgp("plan attention n=256 heads=1 batch=1 d=96 variant=mma --arch sm_80 --json");
  EXPECT_EQ(plan["chosen"]["variant"], mma.parsed()["chosen"]["variant"]);
  EXPECT_FALSE(plan["chosen"]["why"].get<std::string>().empty());
  // q, k, v and o once each, in bf16.
  EXPECT_EQ(plan["floor"]["bytes"].get<double>(), 4 * 256 * 96 * 2);
  ASSERT_EQ(plan["others"].size(), 1u);
  EXPECT_EQ(plan["others"][0]["kind"], "simt");
  ASSERT_EQ(plan["rejected"].size(), 2u);
  EXPECT_EQ(plan["rejected"][0]["kind"], "sm90");
  EXPECT_EQ(plan["rejected"][1]["kind"], "split_kv");
  EXPECT_NE(plan["rejected"][0]["why"].get<std::string>().find("sm_90a"), std::string::npos);
  const Outcome row = cgp("plan rms_norm rows=64 cols=4096 dtype=f16");
  EXPECT_EQ(row.code, 0) << row.err;
  for (const char* part : {"variant    rms_norm_f16", "why        ", "floor      ", "sm_90a"})
    EXPECT_NE(row.out.find(part), std::string::npos) << part << " in\n" << row.out;
  EXPECT_EQ(cgp("plan rms_norn").code, 2);
  EXPECT_NE(cgp("plan rms_norn").err.find("rms_norm"), std::string::npos);
  EXPECT_NE(cgp("plan softmax --m 5").err.find("--m is an option of cgp plan gemm"), std::string::npos);
  EXPECT_NE(cgp("plan gemm cols=5").err.find("cgp plan gemm takes no cols=5"), std::string::npos);
  EXPECT_NE(cgp("plan softmax columns=5").err.find("columns"), std::string::npos);
}

TEST_F(Cli, the_regret_of_the_cost_model_comes_from_files_too) {
  const std::string chosen = cgp("plan gemm --shape 512x512x512 --json").parsed()["chosen"]["variant"];
  write("m.json", R"({"rows": [{"name": "gemm/bf16/nt/512x512x512", "variant": ")" + chosen +
                      R"(", "timings": [{"name": "cgp", "ms": [0.03, 0.02, 0.02]}]},
          {"name": "gemm/bf16/nt/512x512x512", "variant": "other", "timings": [{"name": "cgp", "ms": [0.016]}]}]})");
  const Outcome o = cgp("tune gemm --report m.json --json");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NEAR(o.parsed()["problems"][0]["regret"].get<double>(), 0.25, 1e-9);
  write("bad.json", "{}");
  EXPECT_EQ(cgp("tune gemm --report bad.json").code, 2);
}

TEST_F(Cli, color_follows_option_and_environment) {
  const std::string bad = saxpy(1010);
  EXPECT_NE(cgp(bad + "--color always").out.find('\x1b'), std::string::npos);
  EXPECT_NE(cgp(bad, "CLICOLOR_FORCE=1").out.find('\x1b'), std::string::npos);
  EXPECT_EQ(cgp(bad, "CLICOLOR_FORCE=1 NO_COLOR=1").out.find('\x1b'), std::string::npos);
  EXPECT_EQ(cgp(bad + "--color never", "CLICOLOR_FORCE=1").out.find('\x1b'), std::string::npos);
}

TEST_F(Cli, every_command_has_help_with_an_example) {
  EXPECT_EQ(cgp("--help").code, 0);
  for (const std::string command : {"list", "emit", "pipeline", "run", "explain", "doctor"}) {
    const Outcome o = cgp(command + " --help");
    EXPECT_EQ(o.code, 0);
    EXPECT_NE(o.out.find("Examples:\n  cgp " + command), std::string::npos) << o.out;
    EXPECT_EQ(cgp("help " + command).out, o.out);
  }
}

TEST_F(Cli, kernels_become_a_page_for_browsers) {
  const json done =
      cgp("web " + path("site") + " --kernel 'softmax dtype=f32 rows=2 cols=33' --kernel 'vecadd n=7' --json")
          .parsed();
  EXPECT_EQ(done["schema"], "cgp.web/1");
  EXPECT_EQ(done["problems"].size(), 2u);
  const std::string page = read_file(done["page"]);
  EXPECT_EQ(page.size(), done["bytes"]);
  const std::string mark = "id=\"kernels\">";
  const auto begin = page.find(mark) + mark.size();
  const json data = json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  EXPECT_EQ(data[0]["problem"], "softmax dtype=f32 rows=2 cols=33");
  EXPECT_EQ(data[0]["outputs"][0]["want"].get<std::string>().size(), 2u * 33 * 4 / 3 * 4);
  EXPECT_NE(data[0]["shaders"][0]["wgsl"].get<std::string>().find("@compute"), std::string::npos);
  EXPECT_EQ(data[0]["commands"][0]["bindings"][0][0], 1);
  EXPECT_EQ(page.find("src="), std::string::npos) << "nothing is fetched";
  EXPECT_EQ(cgp("web " + path("site") + " --kernel 'softmax rows'").code, 2);
  EXPECT_EQ(cgp("web " + path("site") + " --kernel 'softmax nope=1'").code, 2);
  const Outcome bf16 = cgp("web " + path("site") + " --kernel 'topk dtype=bf16 rows=2 cols=33 k=3'");
  EXPECT_EQ(bf16.code, 3) << bf16.err;
}

TEST_F(Cli, version_list_explain_and_doctor_answer) {
  const json version = cgp("--version --json").parsed();
  EXPECT_EQ(version["build_id"].get<std::string>().size(), 40u);
  EXPECT_GE(version["targets"].size(), 7u);
  const json kernels = cgp("list --json").parsed();
  EXPECT_EQ(kernels["schema"], "cgp.list/1");
  bool vecadd = false;
  for (const auto& k : kernels["kernels"]) vecadd |= k["name"] == "vecadd" && k["targets"].size() >= 7;
  EXPECT_TRUE(vecadd);
  EXPECT_NE(cgp("emit vecadd --arch sm_80").out.find(".target sm_80"), std::string::npos);
  EXPECT_NE(cgp("emit vecadd --arch sm_80 --target wgsl").out.find("@compute"), std::string::npos);
  const json facts = cgp("explain saxpy.ptx --json").parsed()["modules"][0];
  ASSERT_EQ(facts["entries"].size(), 2u);
  EXPECT_EQ(facts["entries"][0]["instructions"], 20);
  EXPECT_EQ(facts["entries"][0]["param_bytes"], 28);
  EXPECT_EQ(facts["global_bytes"], 4);
  const Outcome doctor = cgp("doctor --json");
  EXPECT_EQ(doctor.code, 0);
  const auto report = doctor.parsed();  // a range-for over a part of a temporary would outlive it
  for (const auto& item : report["items"]) EXPECT_FALSE(item["meaning"].get<std::string>().empty());
}

TEST_F(Cli, a_kernel_is_followed_to_machine_code) {
  const json module = cgp("pipeline vecadd --arch sm_90a --json").parsed()["modules"][0];
  const std::string ptx = module["ptx"]["text"];
  EXPECT_NE(ptx.find(".target sm_90a"), std::string::npos);
  // One instruction a line, beside labels and directives.
  int lines = 0;
  std::istringstream body(ptx.substr(ptx.find("\n{")));
  for (std::string line; std::getline(body, line);) {
    const auto first = line.find_first_not_of(" \t");
    lines += first != std::string::npos && line[first] != '.' && line.back() == ';';
  }
  EXPECT_EQ(module["recorded"]["instructions"], lines) << ptx;
  EXPECT_GE(module["recorded"]["blocks"].get<int>(), 2);
  EXPECT_TRUE(module["passes"].is_null());
  EXPECT_EQ(module["sass"]["kernels"].empty(),
            !module["sass"]["absent"].is_null() && module["sass"]["assembled_by"].get<std::string>().empty())
      << "machine code, or why there is none";
  const auto text = cgp("inspect vecadd --passes all");
  EXPECT_EQ(text.code, 0);
  for (const char* part : {"recorded ", "passes ", "PTX ", "SASS "})
    EXPECT_NE(text.out.find(part), std::string::npos) << text.out;
  EXPECT_NE(cgp("pipeline vecadd --show recorded").out.find("-> end"), std::string::npos);
  const auto wrong = cgp("pipeline softmx");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.err.find("did you mean softmax"), std::string::npos) << wrong.err;
}

}  // namespace
}  // namespace cgp::spec

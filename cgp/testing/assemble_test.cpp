// SPDX-License-Identifier: Apache-2.0
#include "cgp/testing/assemble.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/testing/merge_ptx.h"

namespace cgp::testing {
namespace {
namespace fs = std::filesystem;

// A kernel that keeps `live` loaded values, so that its registers tell it from others.
std::string kernel(const std::string& name, int live, const std::string& version = "8.0") {
  std::string s =
      text::cat(".version ", version, "\n.target sm_80\n.address_size 64\n.file 1 \"shared.h\"\n.file 2 \"",
                name, ".h\"\n\n.visible .entry ", name, "(\n\t.param .u64 p0\n)\n{\n\t.reg .b32 %r<",
                live + 1, ">;\n\t.reg .b64 %rd<2>;\n\t.loc 2 7 0\n\tld.param.u64 %rd0, [p0];\n");
  for (int i = 0; i < live; ++i)
    text::append(s, text::cat("\tld.volatile.global.u32 %r", i, ", [%rd0+", 4 * i, "];\n"));
  for (int i = live; i-- > 0;)
    text::append(s, text::cat("\tst.volatile.global.u32 [%rd0+", 4 * i, "], %r", i, ";\n"));
  return s + "\tret;\n}\n";
}

class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* v = std::getenv(name)) before_ = v;
    ::setenv(name, value.c_str(), 1);
  }
  ~Environment() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

std::string fresh_folder(const std::string& name) {
  const auto folder = fs::path(::testing::TempDir()) / text::cat(name, "_", ::getpid());
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder.string();
}

TEST(merge, one_head_all_kernels_own_files) {
  const std::string a = kernel("a", 3), b = kernel("b", 5);
  const auto m = merge_ptx(std::vector<std::string_view>{a, b});
  ASSERT_TRUE(m);
  EXPECT_EQ(m->entries, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(m->ptx.find(".version"), m->ptx.rfind(".version"));
  // "shared.h" is one file; what was file 2 of each is now two.
  EXPECT_NE(m->ptx.find(".file 3 \"b.h\""), std::string::npos) << m->ptx;
  EXPECT_NE(m->ptx.find(".loc 3 7 0", m->ptx.find(".entry b")), std::string::npos) << m->ptx;
}

TEST(merge, refuses_what_it_would_change) {
  const std::string a = kernel("a", 3), same_name = kernel("a", 4), older = kernel("b", 3, "7.8");
  const std::string none = a.substr(0, a.find(".visible"));
  for (const auto& other : {same_name, older, none, std::string("nothing of the kind")})
    EXPECT_FALSE(merge_ptx(std::vector<std::string_view>{a, other})) << other;
}

TEST(assemble, many_at_once_say_what_each_says_alone) {
  if (find_ptxas().empty()) GTEST_SKIP() << "ptxas is not installed";
  const Environment ask("CGP_ASSEMBLIES", "");
  std::vector<std::string> texts;
  for (int live : {4, 40, 12, 100, 4}) texts.push_back(kernel(text::cat("k", texts.size()), live));
  texts.push_back(texts[1]);               // twice the same
  texts.push_back(kernel("spills", 400));  // more than the registers there are
  texts.push_back(kernel("broken", 4).replace(texts[0].size() / 2, 1, "?"));  // no PTX
  std::string early = kernel("early", 4, "7.0");                              // too old for its instruction
  early.insert(early.rfind("\tret"), "\tfence.proxy.async;\n");
  texts.push_back(early);
  std::vector<AssemblyJob> jobs;
  for (const auto& t : texts) jobs.push_back({t, "sm_80"});
  jobs.push_back({texts[0], "sm_90"});
  const auto all = assemble_all(jobs);
  ASSERT_EQ(all.size(), jobs.size());
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const auto alone = assemble(jobs[i].ptx, jobs[i].arch);
    EXPECT_EQ(all[i].ok, alone.ok) << i;
    EXPECT_EQ(all[i].registers, alone.registers) << i << all[i].log;
    EXPECT_EQ(all[i].spill_bytes, alone.spill_bytes) << i;
    EXPECT_EQ(all[i].stack_bytes, alone.stack_bytes) << i;
  }
  EXPECT_LT(all[0].registers, all[2].registers);
  EXPECT_LT(all[2].registers, all[1].registers);
  EXPECT_LT(all[1].registers, all[3].registers);
  EXPECT_GT(all[6].spill_bytes, 0);
  EXPECT_FALSE(all[7].ok);
  EXPECT_FALSE(all[8].ok);
  EXPECT_TRUE(all[9].ok);
}

TEST(assemble, what_was_said_is_kept_for_the_same_text_and_ptxas) {
  const auto folder = fresh_folder("cgp_assemblies");
  const std::string program = folder + "/ptxas", calls = folder + "/calls";
  // Says 7 registers, and counts its calls.
  write_file(program,
             text::cat("#!/bin/sh\necho call >> '", calls, "'\necho \"ptxas info : Used 7 registers\"\n"));
  ::chmod(program.c_str(), 0755);
  const Environment ptxas("CGP_PTXAS", program), keep("CGP_ASSEMBLIES", folder + "/kept");
  const auto count = [&] { return fs::exists(calls) ? read_file(calls).size() / 5 : 0; };
  const std::string a = kernel("a", 3), b = kernel("b", 3);
  EXPECT_EQ(assemble(a, "sm_80").registers, 7);
  EXPECT_EQ(assemble(a, "sm_80").registers, 7);
  EXPECT_EQ(count(), 1u);
  (void)assemble(a, "sm_90"), (void)assemble(b, "sm_80");
  EXPECT_EQ(count(), 3u);
  for (const auto& file : fs::directory_iterator(folder + "/kept")) write_file(file.path().string(), "ok 5");
  EXPECT_EQ(assemble(a, "sm_80").registers, 7);  // files cut short are as if they were not there
  EXPECT_EQ(count(), 4u);
  write_file(program, text::cat("#!/bin/sh\necho call >> '", calls,
                                "'\necho \"ptxas info : Used 12 registers\"\nexit 1\n"));
  ::chmod(program.c_str(), 0755);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(assemble(a, "sm_80").registers, 12);  // another ptxas
    EXPECT_FALSE(assemble(a, "sm_80").ok);
  }
  EXPECT_EQ(count(), 5u);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace cgp::testing

// SPDX-License-Identifier: Apache-2.0
// Our verifier against ptxas, where ptxas is installed: instances of every form, accepted or refused alike.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "cgp/base/file.h"
#include "cgp/base/program.h"
#include "cgp/base/text.h"
#include "cgp/ptx/instances.h"
#include "cgp/ptx/parse.h"
#include "cgp/ptx/print.h"
#include "cgp/ptx/verify/verify.h"

using namespace cgp;
using namespace cgp::ptx;

namespace {

// Complaints of ptxas by line of the text; [0] holds what has no line.
std::map<int, std::string> assemble(const std::string& text, const std::string& target) {
  const std::string file =
      (std::filesystem::temp_directory_path() / text::cat("cgp_ptxas_test_", getpid(), ".ptx")).string();
  write_file(file, text);
  std::map<int, std::string> out;
  FILE* p = popen(
      text::cat("'", find_ptxas(), "' -O0 -c -arch=", target, " '", file, "' -o /dev/null 2>&1").c_str(),
      "r");
  char line[4096];
  while (p && std::fgets(line, sizeof line, p)) {
    const std::string s = line;
    const std::size_t error = std::min(s.find("error"), s.find("fatal"));
    if (error == std::string::npos || s.find("aborted") != std::string::npos) continue;
    const std::size_t at = s.find("line ");
    out.emplace(at == std::string::npos ? 0 : std::atoi(s.c_str() + at + 5), s);
  }
  if (p) pclose(p);
  std::filesystem::remove(file);
  return out;
}

// Which of the instructions ptxas refuses. A syntax error ends its reading: take the line out and go on.
std::map<std::size_t, std::string> refused(Module m, const std::vector<Inst>& all) {
  std::map<std::size_t, std::string> out;
  std::vector<std::size_t> live(all.size());
  for (std::size_t i = 0; i < live.size(); ++i) live[i] = i;
  for (int round = 0; round < 40; ++round) {
    Function& f = m.functions.back();
    f.body.clear();
    for (std::size_t i : live) f.body.push_back(all[i]);
    Inst ret;
    ret.op = Op::ret;
    f.body.push_back(ret);
    const std::string text = print(m);
    const int first =
        int(std::count(text.begin(), text.begin() + std::ptrdiff_t(text.find("\nL0:\n")), '\n')) + 3;
    std::size_t fatal = ~std::size_t(0);
    for (const auto& [line, complaint] : assemble(text, m.target)) {
      const std::size_t k = std::size_t(line - first);
      if (line < first || k >= live.size()) continue;
      out.emplace(live[k], complaint);
      if (complaint.find("fatal") != std::string::npos) fatal = k;
    }
    if (fatal == ~std::size_t(0)) break;
    live.erase(live.begin() + std::ptrdiff_t(fatal));
  }
  return out;
}

void compare(const std::string& target, Version version, int random_each) {
  Module m = samples::empty_module(version, target);
  std::mt19937 random(11);
  std::vector<Inst> all;
  for (int op = 0; op < int(Op::kCount); ++op) {
    if (Op(op) == Op::call || family(Op(op)) == Family::texture) continue;
    // One function may not mix cta groups: ptxas stops at the first that differs.
    for (const Form& f : forms(Op(op))) {
      for (Inst& i : samples::cover(m, f, random)) all.push_back(std::move(i));
      for (int k = 0; k < random_each; ++k) all.push_back(samples::instance(m, f, random, false));
    }
  }
  const auto theirs = refused(m, all);
  CheckOptions foreign;
  foreign.foreign = true;
  int differences = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    m.functions.back().body = {all[i]};
    const auto ours = check(m, foreign);
    const auto it = theirs.find(i);
    // What depends on the whole kernel's registers (C7406) is not a matter of the form.
    if (ours.empty() == (it == theirs.end()) ||
        (it != theirs.end() && it->second.find("(C7") != std::string::npos))
      continue;
    if (++differences > 20) break;
    ADD_FAILURE() << target << ": " << print(m, m.functions.back(), all[i])
                  << "\n  we: " << (ours.empty() ? "legal" : ours[0].rule + " " + ours[0].why)
                  << "\n  ptxas: " << (it == theirs.end() ? "legal" : it->second);
  }
}

class Ptxas : public testing::Test {
 protected:
  void SetUp() override {
    if (find_ptxas().empty()) GTEST_SKIP() << "ptxas is not installed";
  }
};

}  // namespace

TEST_F(Ptxas, agrees_on_sm_90a) { compare("sm_90a", {9, 0}, 1); }
TEST_F(Ptxas, agrees_on_sm_100a) { compare("sm_100a", {9, 0}, 1); }
TEST_F(Ptxas, agrees_on_sm_80_at_8_3) { compare("sm_80", {8, 3}, 0); }
TEST_F(Ptxas, agrees_on_sm_120f_at_8_8) { compare("sm_120f", {8, 8}, 0); }

TEST_F(Ptxas, takes_what_we_print_of_compiled_modules) {
  for (const char* name :
       {"basics_sm80", "basics_o0", "half_lineinfo", "tensor_sm90a", "debug_g", "clang_sm80"}) {
    const Module m = parse(read_file(text::cat(CGP_PTX_TESTDATA "/", name, ".ptx")));
    for (const auto& [line, complaint] : assemble(print(m), m.target))
      ADD_FAILURE() << name << ":" << line << ": " << complaint;
  }
}

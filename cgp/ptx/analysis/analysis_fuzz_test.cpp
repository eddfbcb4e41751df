// SPDX-License-Identifier: Apache-2.0
// Mutated PTX of compilers: what `cgp explain` computes about a module ends without a crash, for legal modules
// with all analyses, for refused ones without them. CGP_FUZZ_ROUNDS sets the number of mutations.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <random>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/ptx/analysis/analyse.h"
#include "cgp/ptx/analysis/estimate.h"
#include "cgp/ptx/analysis/registers.h"
#include "cgp/ptx/parse.h"
#include "cgp/ptx/passes/allocate.h"
#include "cgp/ptx/pressure.h"
#include "cgp/ptx/verify/verify.h"

using namespace cgp;
using namespace cgp::ptx;

namespace {

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  for (const char c : line) {
    const bool word =
        std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '%' || c == '.' || c == '$';
    const bool joins = word && !words.empty() && words.back().size() &&
                       (std::isalnum(static_cast<unsigned char>(words.back().back())) ||
                        std::string_view("_%.$").find(words.back().back()) != std::string_view::npos);
    if (joins)
      words.back().push_back(c);
    else
      words.emplace_back(1, c);
  }
  return words;
}

// One word of a line goes, comes twice, is another of the text or another character; or the statement ends at
// it, which leaves operands out.
std::string mutated(const std::string& line, const std::vector<std::string>& others, std::mt19937& random) {
  std::vector<std::string> words = words_of(line);
  if (words.empty()) return line;
  const std::size_t at = random() % words.size();
  switch (random() % 5) {
    case 0:
      words.erase(words.begin() + std::ptrdiff_t(at));
      break;
    case 1:
      words.resize(at);
      words.emplace_back(";");
      break;
    case 2: {
      const auto from = words_of(others[random() % others.size()]);
      if (!from.empty()) words[at] = from[random() % from.size()];
      break;
    }
    case 3:
      words.insert(words.begin() + std::ptrdiff_t(at), words[random() % words.size()]);
      break;
    default:
      words[at][random() % words[at].size()] = char(32 + random() % 95);
  }
  return text::join(words, "");
}

void examine(const Module& m) {
  CheckOptions foreign;
  foreign.foreign = true;
  const bool legal = check(m, foreign).empty();
  (void)needs(m);
  (void)required_version(m);
  for (const Function& f : m.functions) {
    if (!f.has_body) continue;
    (void)mix(f);
    (void)pressure(f);
    (void)estimate_registers(f);
    (void)allocate(f);
    if (!legal || !f.entry) continue;
    LaunchAssumptions a;
    a.block = {64, 1, 1};
    (void)analyse(m, f, a);
  }
}

TEST(analysis_fuzz, mutated_modules_never_crash) {
  std::vector<std::vector<std::string>> corpus;
  for (const char* name : {"basics_sm80", "half_lineinfo", "tensor_sm90a", "clang_sm80"}) {
    const std::string text = read_file(text::cat(CGP_PTX_TESTDATA "/", name, ".ptx"));
    const auto lines = text::split(text, '\n');
    corpus.emplace_back(lines.begin(), lines.end());
  }
  const char* more = std::getenv("CGP_FUZZ_ROUNDS");
  const int rounds = more ? std::atoi(more) : 3000;
  std::mt19937 random(7);
  int parsed = 0;
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::string> lines = corpus[random() % corpus.size()];
    const std::vector<std::string> original = lines;
    for (int n = 1 + int(random() % 3); n-- > 0;) {
      std::string& line = lines[random() % lines.size()];
      line = mutated(line, original, random);
    }
    const std::string text = text::join(lines, "\n");
    SCOPED_TRACE(text::cat("round ", round));
    const auto start = std::chrono::steady_clock::now();
    try {
      const Module m = parse(text);
      ++parsed;
      examine(m);
    } catch (const Error&) {  // refused with a reason
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
  }
  EXPECT_GT(parsed, rounds / 6);
}

// Statements whose operands are missing: the verifier refuses them, and nothing else may depend on them.
TEST(analysis_fuzz, missing_operands_are_refused) {
  for (const char* statement :
       {"mad.wide.s32 b, t;", "shr.u32 t;", "brev.b32 t;", "or.b32 t;", "mov.u32 t;", "ret t;"}) {
    const Module m = parse(text::cat(
        ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 o) {\n.reg .u64 a, b; "
        ".reg .u32 t;\nld.param.u64 a, [o]; mov.u32 t, %tid.x;\n",
        statement, "\nmul.lo.u64 b, b, 4; add.u64 a, a, b; st.u32 [a], t; ret;\n}\n"));
    EXPECT_FALSE(check(m).empty()) << statement;
    examine(m);
  }
}

}  // namespace

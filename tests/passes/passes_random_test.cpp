// SPDX-License-Identifier: Apache-2.0
// Every pass keeps what random programs compute, bit for bit: each alone and all together.
// CGP_PASSES_PROGRAMS says how many programs (250; 10,000 in the nightly preset), CGP_PASSES_SEED where to
// start.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "cgp/ptx/parse.h"
#include "cgp/ptx/print.h"
#include "cgp/ptx/verify.h"
#include "cgp/testing/assemble.h"
#include "differential.h"
#include "random_program.h"

namespace cgp::passes_test {
namespace {

std::uint64_t number(const char* name, std::uint64_t otherwise) {
  const char* s = std::getenv(name);
  return s && *s ? std::strtoull(s, nullptr, 10) : otherwise;
}

std::vector<ptx::PassOptions> configurations() {
  std::vector<ptx::PassOptions> out;
  for (std::size_t p = 0; p < std::size_t(ptx::Pass::kCount); ++p)
    out.push_back(ptx::PassOptions::only(ptx::Pass(p)));
  out.push_back(ptx::PassOptions::all());
  out.push_back(ptx::parse_passes("all,fma"));
  return out;
}

TEST(RandomPrograms, ComputeTheSameAfterEveryPass) {
  const std::uint64_t programs = number("CGP_PASSES_PROGRAMS", CGP_PASSES_PROGRAMS);
  const std::uint64_t start = number("CGP_PASSES_SEED", 1);
  Runner runner;
  const auto all = configurations();
  std::vector<ptx::PassStatistics> statistics(all.size());
  int failures = 0;
  for (std::uint64_t seed = start; seed < start + programs && failures < 5; ++seed) {
    ProgramOptions options;
    options.statements = 15 + int(seed % 40);
    options.constant = seed % 4 == 0;
    const ptx::Module m = ptx::parse(random_program(seed, options));
    const Outcome before = runner.run(ptx::print(m), seed);
    ASSERT_EQ(before.problem, "") << "seed " << seed << ": the generator must make clean programs";
    for (std::size_t c = 0; c < all.size(); ++c) {
      const std::string wrong = compare(runner, m, all[c], seed, &before, &statistics[c]);
      if (wrong.empty()) continue;
      ++failures;
      ptx::Module small = shrink(runner, m, all[c], seed);
      const std::string why = compare(runner, small, all[c], seed);
      ptx::Module after = small;
      ptx::optimise(after, all[c]);
      ADD_FAILURE() << "seed " << seed << ", passes " << name(all[c]) << ": " << wrong
                    << "\nsmallest program (" << why << "):\n"
                    << ptx::print(small) << "\nafter:\n"
                    << ptx::print(after);
      break;
    }
  }
  // A pass that never does anything is not tested.
  for (std::size_t c = 0; c < all.size(); ++c) {
    EXPECT_GT(statistics[c].changes(), programs / 50) << name(all[c]) << " found nothing to do";
    std::printf("%-70s %llu changes\n", name(all[c]).c_str(), (unsigned long long)statistics[c].changes());
  }
}

// The generator's own property: what it makes is legal, and a seed stands for one program.
TEST(RandomPrograms, AreLegalAndReproducible) {
  ptx::CheckOptions foreign;
  foreign.foreign = true;
  for (std::uint64_t seed = 1; seed < 30; ++seed) {
    const std::string text = random_program(seed);
    EXPECT_EQ(text, random_program(seed));
    const auto problems = ptx::check(ptx::parse(text), foreign);
    EXPECT_TRUE(problems.empty()) << problems[0].instruction << ": " << problems[0].why;
  }
}

// ptxas agrees that what comes out is PTX.
TEST(RandomPrograms, AssembleAfterAllPasses) {
  if (!testing::find_ptxas()) GTEST_SKIP() << "ptxas is not installed";
  for (std::uint64_t seed = 1; seed < 9; ++seed) {
    ptx::Module m = ptx::parse(random_program(seed, {40, 3, seed % 2 == 0}));
    for (const bool optimised : {false, true}) {
      if (optimised) ptx::optimise(m, ptx::PassOptions::all());
      const auto assembly = testing::assemble(ptx::print(m), "sm_90");
      EXPECT_TRUE(assembly.ok) << "seed " << seed << (optimised ? " after: " : ": ") << assembly.log;
    }
  }
}

}  // namespace
}  // namespace cgp::passes_test

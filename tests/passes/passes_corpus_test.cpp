// SPDX-License-Identifier: Apache-2.0
// nvcc's kernels and our own after the passes: still legal, still right, still nothing to find.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/dsl/passes.h"
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/ptx/parse.h"
#include "cgp/ptx/passes/passes.h"
#include "cgp/ptx/print.h"
#include "cgp/ptx/verify/verify.h"
#include "cgp/spec/spec.h"
#include "cgp/spec/spec_run.h"
#include "cgp/testing/assemble.h"
#include "cgp/testing/kernel_test.h"

namespace cgp::passes_test {
namespace {

std::vector<std::string> cases() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(CGP_CORPUS_DATA))
    if (entry.path().extension() == ".json" && entry.path().stem().string().rfind("bad_", 0) != 0)
      names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<ptx::PassOptions> configurations() {
  std::vector<ptx::PassOptions> out{ptx::PassOptions::all()};
#if CGP_PASSES_EACH
  for (std::size_t p = 0; p < std::size_t(ptx::Pass::kCount); ++p)
    if (ptx::Pass(p) != ptx::Pass::fma) out.push_back(ptx::PassOptions::only(ptx::Pass(p)));
#endif
  return out;
}

std::string optimised(const std::string& text, const ptx::PassOptions& passes) {
  ptx::Module m = ptx::parse(text);
  ptx::optimise(m, passes);
  ptx::CheckOptions foreign;
  foreign.foreign = true;
  ptx::verify(m, foreign);
  return ptx::print(m);
}

class Corpus : public ::testing::TestWithParam<std::string> {};

TEST_P(Corpus, StaysRight) {
  const auto spec = spec::load_spec(text::cat(CGP_CORPUS_DATA, "/", GetParam(), ".json"));
  for (const auto& passes : configurations()) {
    spec::RunOptions options;
    options.transform = [&](const std::string& text) { return optimised(text, passes); };
    const spec::SpecResult r = run_spec(spec, options);
    std::string wrong = r.fault;
    for (const auto& f : r.findings) wrong += emu::describe(f.finding) + "\n";
    for (const auto& b : r.buffers)
      if (b.compared && !b.comparison.equal)
        wrong += text::cat("buffer ", b.name, "[", b.comparison.first, "] = ", b.comparison.first_got,
                           ", expected ", b.comparison.first_want, "\n");
    EXPECT_EQ(wrong, "") << name(passes);
  }
}
INSTANTIATE_TEST_SUITE_P(Nvcc, Corpus, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param; });

// Every variant that ships, for every architecture: legal after the passes, and ptxas takes a sample.
TEST(Kernels, AreLegalAfterAllPasses) {
  int assembled = 0;
  for (const auto& kernel : kernels::catalog())
    for (const char* arch : {"sm_80", "sm_90a"}) {
      int n = 0;
      for (const auto& image : kernel.images(arch)) {
        if (n++ % 5) continue;
        SCOPED_TRACE(text::cat(image.name, " ", arch));
        std::string after;
        ASSERT_NO_THROW(after = optimised(*image.ptx, ptx::PassOptions::all()));
        if (n % 25 != 1 || find_ptxas().empty()) continue;
        const auto assembly = testing::assemble(after, arch);
        EXPECT_TRUE(assembly.ok) << assembly.log;
        ++assembled;
      }
    }
  EXPECT_TRUE(assembled > 4 || find_ptxas().empty());
}

TEST(Kernels, ComputeTheSame) {
  for (const auto& passes : configurations()) {
    dsl::set_passes(passes);
    const auto run = [&](const char* kernel, const char* arch, testing::OptionList options) {
      SCOPED_TRACE(text::cat(kernel, " ", arch, " ", name(passes)));
      testing::expect_right(kernels::find_kernel(kernel), options, arch);
    };
    run("vecadd", "sm_80", {{"n", "1003"}});
    run("reduce", "sm_80", {{"shape", "33x129"}, {"dim", "1"}});
    run("reduce", "sm_90a", {{"shape", "7x300"}, {"dim", "all"}, {"dtype", "bf16"}});
    run("softmax", "sm_80", {{"rows", "9"}, {"cols", "515"}, {"dtype", "f32"}});
    run("softmax", "sm_90a", {{"rows", "3"}, {"cols", "1024"}, {"dtype", "bf16"}});
    run("transpose", "sm_80", {{"rows", "65"}, {"cols", "130"}});
    run("gemm", "sm_80", {{"variant", "simt"}, {"dtype", "f32"}, {"m", "65"}, {"n", "70"}, {"k", "35"}});
    run("gemm", "sm_80", {{"variant", "sm80"}, {"m", "128"}, {"n", "128"}, {"k", "96"}});
    run("gemm", "sm_90a", {{"variant", "sm90"}, {"m", "128"}, {"n", "128"}, {"k", "128"}});
    run("gemm", "sm_90a", {{"variant", "sm90_persistent"}, {"m", "256"}, {"n", "256"}, {"k", "128"}});
    const bool all = passes.has(ptx::Pass::fold) && passes.has(ptx::Pass::cse);
    EXPECT_GE(dsl::pass_statistics().changes(), all ? 100u : 0u);
  }
  dsl::set_passes({});
}

}  // namespace
}  // namespace cgp::passes_test

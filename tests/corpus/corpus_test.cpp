// SPDX-License-Identifier: Apache-2.0
// Runs the corpus: kernels that work must give the expected buffers, exact counters and no finding; broken
// ones must be diagnosed with an accepted class, at the place that their spec names. The expectations come
// from make_corpus.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/emu/policy.h"
#include "cgp/ptx/module.h"
#include "cgp/ptx/parse.h"
#include "cgp/ptx/print.h"
#include "cgp/spec/spec.h"
#include "cgp/spec/spec_run.h"

namespace cgp::spec {
namespace {

std::vector<std::string> cases() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(CGP_CORPUS_DATA))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

Spec load(const std::string& name) { return load_spec(std::string(CGP_CORPUS_DATA) + "/" + name + ".json"); }

/// What went wrong, for a test's message.
std::string report(const SpecResult& r) {
  std::string out;
  for (const auto& f : r.findings) out += emu::describe(f.finding) + "\n";
  for (const auto& b : r.buffers)
    if (b.compared && !b.comparison.equal)
      out += text::cat("buffer ", b.name, ": ", b.comparison.wrong, " of ", b.comparison.elements,
                       " elements are wrong, first [", b.comparison.first, "] = ", b.comparison.first_got,
                       ", expected ", b.comparison.first_want, "\n");
  for (const auto& c : r.counter_mismatches)
    out += text::cat("launch ", c.launch, ": ", c.name, " is ",
                     c.got ? std::to_string(*c.got) : "not counted", ", expected ", c.want, "\n");
  for (const auto& w : r.warnings) out += "warning: " + w + "\n";
  return out + r.fault;
}

class Corpus : public testing::TestWithParam<std::string> {};

/// "atom.global.cta.add.u32" with its modifiers in alphabetical order: the parser keeps one order of its own.
/// The first modifier of tcgen05.wait and tcgen05.fence follows two colons.
std::string unordered(std::string opcode) {
  std::vector<std::string> parts;
  for (const char* family : {"tcgen05.wait::", "tcgen05.fence::"})
    if (opcode.rfind(family, 0) == 0) opcode.replace(opcode.find("::"), 2, ".");
  for (std::size_t at = 0, dot; at <= opcode.size(); at = dot + 1) {
    dot = std::min(opcode.find('.', at), opcode.size());
    parts.push_back(opcode.substr(at, dot - at));
  }
  std::sort(parts.begin() + 1, parts.end());
  return text::join(parts, ".");
}

TEST_P(Corpus, PtxIsReadWhole) {
  const Spec spec = load(GetParam());
  EXPECT_TRUE(spec.warnings.empty()) << text::join(spec.warnings, "\n");
  const ptx::Module module = ptx::parse(read_file(spec.ptx_path));
  std::map<std::string, std::uint64_t> opcodes;
  for (const auto& f : module.functions)
    for (const auto& inst : f.body) {
      std::string full(name(inst.op));
      for (ptx::Mod m : inst.mods) full += "." + std::string(name(m));
      ++opcodes[unordered(full)];
    }
  std::map<std::string, std::uint64_t> expected;
  for (const auto& [opcode, count] : spec.opcodes) expected[unordered(opcode)] += count;
  EXPECT_EQ(opcodes, expected);
  EXPECT_EQ(ptx::difference(module, ptx::parse(ptx::print(module))), "");
}

TEST_P(Corpus, Runs) {
  const Spec spec = load(GetParam());
  const SpecResult r = run_spec(spec);
  if (!spec.expect) {
    EXPECT_TRUE(r.clean()) << report(r);
    return;
  }
  ASSERT_TRUE(r.expectation_met()) << "expected " << spec.expect->cls << "\n" << report(r);
  const Expectation& e = *spec.expect;
  const auto placed = [&](const LocatedFinding& f) {
    return e.accepts(f.finding.cls) && (!e.buffer || *e.buffer == f.finding.buffer) &&
           (!e.byte_offset || *e.byte_offset == f.finding.byte_offset) &&
           (!e.thread || *e.thread == Dim3{f.finding.thread.x, f.finding.thread.y, f.finding.thread.z}) &&
           (!e.block || *e.block == Dim3{f.finding.block.x, f.finding.block.y, f.finding.block.z});
  };
  EXPECT_TRUE(std::any_of(r.findings.begin(), r.findings.end(), placed)) << report(r);
}

/// Groups made of the lanes that happen to run together (coalesced_threads): any partition is a right answer,
/// the expected buffers hold that of converged warps.
bool leans_on_activemask(const std::string& name) {
  static const std::set<std::string> names = {"cg_groups", "cg_groups_lineinfo", "reduce_cg"};
  return names.count(name) != 0;
}

// A correct program gives the same result whenever its asynchronous operations land and however its warps and
// diverged lanes are scheduled.
TEST_P(Corpus, ResultsDoNotDependOnPolicies) {
  const Spec spec = load(GetParam());
  if (spec.expect) return;
  const auto run = [&](const char* async, const char* schedule, bool same_results = true) {
    RunOptions options;
    options.tune = [&](emu::Options& o) {
      emu::parse_async(async).apply(o);
      emu::parse_schedule(schedule).apply(o);
      o.counters = false;
    };
    const std::string what = text::cat("--async ", async, " --schedule ", schedule);
    const SpecResult r = run_spec(spec, options);
    EXPECT_TRUE(r.findings.empty() && r.fault.empty()) << what << "\n" << report(r);
    for (const auto& b : r.buffers)
      EXPECT_TRUE(!same_results || !b.compared || b.comparison.equal) << what << "\n" << report(r);
  };
  const bool same = !leans_on_activemask(GetParam());
  run("late", "fair");
  run("late", "adversarial", same);
  run("eager", "diverge", same);
  run("random:1", "random:1", same);
  run("random:2", "random:2", same);
}

// Products as Triton ships them lack PTX's tcgen05.fence, and that is all there is to say: results are right.
TEST(CorpusWarnings, AreAllThatTritonsTensorMemoryGets) {
  for (const char* name : {"bad_triton_matmul_as_it_ships_sm100a", "bad_triton_attention_as_it_ships_sm100a"})
    for (const char* async : {"eager", "late"}) {
      RunOptions options;
      options.tune = [&](emu::Options& o) { emu::parse_async(async).apply(o); };
      const SpecResult r = run_spec(load(name), options);
      EXPECT_FALSE(any_fails(r.findings)) << name << ", " << async << "\n" << report(r);
      for (const auto& f : r.findings)
        EXPECT_TRUE(f.finding.cls == "race.tensor_fence" || f.finding.cls == "async.tensor_load")
            << f.finding.cls;
      for (const auto& b : r.buffers)
        EXPECT_TRUE(!b.compared || b.comparison.equal) << name << "\n" << report(r);
    }
}

// What is wrong by the letter and harmless in binaries that ship fails no run, unless it is asked for.
TEST(CorpusWarnings, AreErrorsWhenStrict) {
  for (const char* name : {"bad_store_no_wait", "bad_tmem_no_wait_ld"}) {
    Spec spec = load(name);
    EXPECT_FALSE(any_fails(run_spec(spec).findings)) << name;
    RunOptions strict;
    strict.checks = "strict";
    const SpecResult r = run_spec(spec, strict);
    EXPECT_TRUE(any_fails(r.findings)) << name;
    EXPECT_EQ(r.checks, "strict");
    EXPECT_EQ(short_checks(r.checks), "all checks, warnings are errors");
    strict.checks = "strict,-async,-lifetime";
    EXPECT_TRUE(run_spec(spec, strict).findings.empty()) << name;
  }
  EXPECT_EQ(short_checks("bounds,strict"), "checks: bounds, warnings are errors");
}

INSTANTIATE_TEST_SUITE_P(Nvcc, Corpus, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace cgp::spec

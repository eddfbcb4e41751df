// SPDX-License-Identifier: Apache-2.0
// The static analyses against the emulator, which executes: every cost that ptx/analysis is sure of must be
// the counter of that instruction, in every kernel of the repository and of the corpus; a barrier that it
// calls wrong must be wrong, and no working kernel may have a finding of severity P0.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>
#include <string>

#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/ptx/analysis/analyse.h"
#include "cgp/ptx/parse.h"
#include "cgp/spec/spec.h"
#include "cgp/spec/spec_run.h"

namespace cgp::spec {
namespace {

using text::cat;

std::vector<std::string> cases() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(CGP_CORPUS_DATA))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}
Spec load(const std::string& name) { return load_spec(std::string(CGP_CORPUS_DATA) + "/" + name + ".json"); }

std::array<std::uint32_t, 3> extents(const runtime::Dim3& d) { return {d.x, d.y, d.z}; }

/// Accesses whose cost was predicted and executed, and how.
struct Tally {
  int accesses = 0, known = 0, exact = 0, executed = 0;
};

void report(const Tally& t) {
  std::printf("%d accesses: %d executed, %d with a known cost, %d of them compared exactly\n", t.accesses,
              t.executed, t.known, t.exact);
}

/// Compares the costs of one launch with the counters of its instructions.
void compare(const std::string& what, const emu::Program& program, const ptx::Analysis& analysis,
             const emu::Counters& counters, Tally& tally) {
  std::map<std::pair<std::string, std::size_t>, std::size_t> pc;  // function and place in its body
  std::map<std::string, std::size_t> next;
  for (std::size_t k = 0; k < program.instruction_count(); ++k) {
    const std::string function = program.instruction(k).function;
    pc[{function, next[function]++}] = k;
  }
  for (const auto& f : analysis.functions)
    for (const ptx::MemoryAccess& a : f->memory) {
      ++tally.accesses;
      const std::string name = program.module().text(f->function->name);
      const std::size_t k = pc.at({name, a.inst});
      const emu::PcCounters& got = counters.per_pc.at(k);
      const std::string where =
          cat(what, " ", name, " line ", f->function->body[a.inst].ptx_line, ": ",
              program.instruction(k).text, "  ", ptx::shape(*f->values, a.address).text);
      if (got.requests) ++tally.executed;
      if (a.most_sectors) {
        EXPECT_LE(got.sectors, a.most_sectors * got.requests) << where;
      }
      if (!a.warps) continue;
      ++tally.known;
      if (got.requests == 0 || a.warps->empty()) continue;
      const std::uint64_t warps = a.warps->size();
      const ptx::BankCost banks = a.total_banks();
      // Whole rounds of all warps with all their lanes: the sums must agree. Every warp alike: also the
      // ratio.
      const bool alike = std::all_of(a.warps->begin(), a.warps->end(), [&](const ptx::WarpCost& w) {
        const ptx::WarpCost& x = a.warps->front();
        return w.lanes == x.lanes && w.sectors == x.sectors && w.banks.passes == x.banks.passes;
      });
      const bool lanes_agree = got.bytes * warps == a.total_lanes() * a.bytes * got.requests;
      if (lanes_agree && (alike || got.requests % warps == 0)) {
        ++tally.exact;
        EXPECT_EQ(got.sectors * warps, a.total_sectors() * got.requests) << where;
        EXPECT_EQ(got.wavefronts * warps, std::uint64_t(banks.passes) * got.requests) << where;
        EXPECT_EQ(got.conflicts * warps, std::uint64_t(banks.conflicts) * got.requests) << where;
      } else {
        // Fewer lanes than the condition allows never cost more than the dearest warp.
        EXPECT_FALSE(a.all_lanes && alike) << where << ": all lanes were expected, of " << got.requests
                                           << " requests " << got.bytes / a.bytes << " lanes came";
        std::uint64_t most = 0;
        for (const ptx::WarpCost& w : *a.warps)
          most = std::max<std::uint64_t>(most, w.sectors + w.banks.passes);
        if (a.kind != ptx::AccessKind::load || a.bytes <= 4) {
          EXPECT_LE(got.sectors + got.wavefronts, most * got.requests) << where;
        }
      }
    }
}

const ptx::Function& entry_of(const ptx::Module& m, const std::string& name) {
  const ptx::Function* f = m.find(name);
  if (!f) throw Error("no entry " + name);
  return *f;
}

/// What the launch says: its shape, its integer parameters, the alignment of its addresses.
ptx::LaunchAssumptions assumptions(const ptx::Module& m, const LaunchSpec& launch) {
  ptx::LaunchAssumptions a;
  a.block = extents(launch.block);
  a.grid = extents(launch.grid);
  a.cluster = extents(launch.cluster);
  const ptx::Function& f = entry_of(m, launch.entry);
  for (std::size_t k = 0; k < launch.params.size() && k < f.params.size(); ++k) {
    const ParamSpec& p = launch.params[k];
    if (p.kind == ParamSpec::Kind::scalar && !is_float(p.dtype) && p.bytes.size() <= 8) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, p.bytes.data(), p.bytes.size());
      a.parameters[m.text(f.params[k].name)] = std::int64_t(bits);
    }
    for (const AddressOf& at : p.addresses)
      a.pointer_alignment = std::uint32_t(std::gcd(std::uint64_t(a.pointer_alignment), at.offset));
  }
  return a;
}

TEST(StaticCorpus, CostsAreTheCounters) {
  Tally tally;
  for (const std::string& name : cases()) {
    const Spec spec = load(name);
    if (spec.expect) continue;  // a broken kernel
    RunOptions options;
    options.checks = "none";
    const SpecResult r = run_spec(spec, options);
    const auto program = emu::Program::load(r.ptx);
    for (const LaunchOutcome& launch : r.launches) {
      ASSERT_TRUE(launch.emulated) << name << ": " << r.fault;
      const auto analysis = ptx::analyse(program->module(), entry_of(program->module(), launch.spec.entry),
                                         assumptions(program->module(), launch.spec));
      compare(name, *program, analysis, launch.emulated->counters, tally);
    }
  }
  report(tally);
  // Addresses that depend on data or on an unknown row length stay unknown: about one in five.
  EXPECT_GE(tally.known * 100, tally.accesses * 70);
  EXPECT_GE(tally.exact * 100, tally.executed * 55);
}

TEST(StaticCorpus, WorkingKernelsHaveNoCertainBugAndBrokenOnesAreNamed) {
  // What can be seen without running. The emulator names the others.
  const std::map<std::string, ptx::Bug> visible = {{"bad_half_a_warp", ptx::Bug::B01},
                                                   {"bad_in_branch", ptx::Bug::B01},
                                                   {"bad_in_loop", ptx::Bug::B02},
                                                   {"bad_named_count", ptx::Bug::B04},
                                                   {"bad_full_mask_in_branch", ptx::Bug::B05},
                                                   {"bad_not_in_mask", ptx::Bug::B05},
                                                   {"bad_exited_source", ptx::Bug::B05},
                                                   {"bad_no_barrier", ptx::Bug::B11},
                                                   {"bad_loop_reuse", ptx::Bug::B11},
                                                   {"bad_vector_global", ptx::Bug::B19},
                                                   {"bad_word_shared", ptx::Bug::B19}};
  int unproven = 0, working = 0;
  for (const std::string& name : cases()) {
    const Spec spec = load(name);
    working += !spec.expect;
    const ptx::Module module = ptx::parse(read_file(spec.ptx_path));
    std::set<ptx::Bug> found;
    for (const LaunchSpec& launch : spec.launches)
      for (const ptx::BugReport& b :
           ptx::analyse(module, entry_of(module, launch.entry), assumptions(module, launch)).bugs) {
        found.insert(b.bug);
        const ptx::BugClass& c = ptx::bug_class(b.bug);
        unproven += !spec.expect && c.severity == ptx::Severity::P1;
        if (!spec.expect) {
          EXPECT_NE(c.severity, ptx::Severity::P0)
              << name << " line " << b.ptx_line << ": " << c.code << " " << b.instruction << " " << b.why;
        }
      }
    if (const auto want = visible.find(name); want != visible.end()) {
      EXPECT_TRUE(found.count(want->second)) << name << " lacks " << ptx::bug_class(want->second).code;
    }
  }
  // Named barriers with computed numbers, groups of active lanes and the like; more would be noise: less than
  // one for two kernels.
  EXPECT_LE(2 * unproven, working);
}

struct Problem {
  const char* kernel;
  std::vector<std::pair<const char*, const char*>> options;
  const char* arch = "sm_90a";
  std::vector<std::pair<const char*, std::int64_t>> parameters =
      {};  ///< of the launch, as far as they matter
};

/// Every kernel of the repository that has lanes of its own; sizes that give whole and ragged tiles.
std::vector<Problem> problems() {
  return {
      {"vecadd", {{"n", "5000"}}},
      {"vecadd", {{"n", "4099"}, {"dtype", "f16"}}},
      {"reduce", {{"shape", "64x1000"}}},
      {"reduce", {{"shape", "64x1000"}, {"dim", "0"}}},
      {"reduce", {{"shape", "64x1000"}, {"dim", "1"}, {"dtype", "bf16"}}},
      {"reduce", {{"shape", "700x12"}, {"dim", "1"}, {"op", "max"}}},
      {"softmax", {{"rows", "6"}, {"cols", "1000"}, {"dtype", "f32"}}},
      {"softmax", {{"rows", "20"}, {"cols", "96"}}},
      {"softmax", {{"rows", "3"}, {"cols", "20000"}, {"dtype", "f16"}}},
      {"transpose", {{"rows", "96"}, {"cols", "160"}}, "sm_90a", {{"p2", 96}, {"p3", 160}}},
      {"transpose", {{"rows", "97"}, {"cols", "131"}, {"dtype", "f16"}}, "sm_90a", {{"p2", 97}, {"p3", 131}}},
      {"transpose", {{"rows", "64"}, {"cols", "64"}, {"dtype", "u8"}}},
      {"gemm", {{"m", "40"}, {"n", "56"}, {"k", "24"}, {"variant", "naive"}}},
      {"gemm",
       {{"m", "128"}, {"n", "128"}, {"k", "40"}, {"variant", "simt"}, {"dtype", "f32"}, {"layout", "nn"}},
       "sm_90a",
       {{"p6", 40}, {"p7", 128}, {"p8", 128}}},
      {"gemm",
       {{"m", "128"}, {"n", "128"}, {"k", "40"}, {"variant", "simt"}, {"dtype", "f32"}, {"layout", "tt"}}},
      {"gemm",
       {{"m", "128"}, {"n", "128"}, {"k", "64"}, {"variant", "sm80"}},
       "sm_80",
       {{"p6", 64}, {"p7", 64}, {"p8", 128}}},
      {"gemm", {{"m", "128"}, {"n", "136"}, {"k", "64"}, {"variant", "sm80"}, {"layout", "nn"}}, "sm_80"},
      {"gemm", {{"m", "128"}, {"n", "256"}, {"k", "128"}, {"variant", "sm90"}}, "sm_90a", {{"p5", 256}}},
      {"gemm", {{"m", "128"}, {"n", "256"}, {"k", "128"}, {"variant", "sm90_persistent"}}}};
}

TEST(StaticKernels, CostsAreTheCountersAndNothingIsFound) {
  Tally tally;
  for (const Problem& p : problems()) {
    auto device = runtime::Device::open(cat("emu:", p.arch));
    auto options = device.emulator_options();
    options.checks = emu::CheckSet::none();
    device.set_emulator_options(options);
    device.keep_results(0);
    const auto& kernel = kernels::find_kernel(p.kernel);
    kernels::Options o(kernel.name, kernel.options);
    std::string what = p.kernel;
    for (const auto& [name, value] : p.options) {
      o.set(name, value);
      what += cat(" ", name, "=", value);
    }
    const auto c = kernel.prepare(device, o, {}, 1);
    runtime::Stream stream(device);
    c->launch(stream);
    stream.wait();
    ASSERT_EQ(device.results().size(), c->images.size()) << what;
    for (std::size_t k = 0; k < c->images.size(); ++k) {
      const auto program = emu::Program::load(*c->images[k].ptx);
      const auto& record = device.results()[k];
      ptx::LaunchAssumptions a;
      a.block = extents(record.block);
      a.grid = extents(record.grid);
      for (const auto& [name, value] : p.parameters) a.parameters[name] = value;
      const auto analysis =
          ptx::analyse(program->module(), entry_of(program->module(), c->images[k].entry), a);
      compare(what, *program, analysis, record.result->counters, tally);
      for (const ptx::BugReport& b : analysis.bugs)
        EXPECT_EQ(ptx::bug_class(b.bug).severity, ptx::Severity::P2)
            << what << ": " << ptx::bug_class(b.bug).code << " " << b.instruction << " " << b.why;
    }
  }
  report(tally);
  EXPECT_GE(tally.known * 100, tally.accesses * 60);
}

}  // namespace
}  // namespace cgp::spec

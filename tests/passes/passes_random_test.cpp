// SPDX-License-Identifier: Apache-2.0
// Every pass keeps what random programs compute, bit for bit: each alone and all together.
// CGP_PASSES_PROGRAMS says how many programs (250; 10,000 in the nightly preset), CGP_PASSES_SEED where to
// start.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "cgp/base/random.h"
#include "cgp/base/text.h"
#include "cgp/ptx/parse.h"
#include "cgp/ptx/print.h"
#include "cgp/ptx/verify/verify.h"
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

// Each instruction of constants against the emulator: what `fold` computes is what the machine computes.
struct Op {
  const char* text;
  char to;  // p h i l f d, as the sources; a: an amount or position
  const char* from;
};
constexpr Op kOps[] = {
    {"add.u32", 'i', "ii"},          {"sub.s64", 'l', "ll"},          {"add.u16", 'h', "hh"},
    {"mul.lo.s32", 'i', "ii"},       {"mul.hi.s32", 'i', "ii"},       {"mul.hi.u32", 'i', "ii"},
    {"mul.hi.s64", 'l', "ll"},       {"mul.hi.u64", 'l', "ll"},       {"mul.wide.s32", 'l', "ii"},
    {"mul.wide.u32", 'l', "ii"},     {"mul.wide.s16", 'i', "hh"},     {"mad.lo.s32", 'i', "iii"},
    {"mad.hi.u32", 'i', "iii"},      {"mad.wide.s32", 'l', "iil"},    {"mad.lo.u64", 'l', "lll"},
    {"div.s32", 'i', "ii"},          {"div.u32", 'i', "ii"},          {"rem.s32", 'i', "ii"},
    {"rem.u64", 'l', "ll"},          {"div.s64", 'l', "ll"},          {"div.s16", 'h', "hh"},
    {"min.s32", 'i', "ii"},          {"max.u32", 'i', "ii"},          {"min.u64", 'l', "ll"},
    {"max.s16", 'h', "hh"},          {"neg.s32", 'i', "i"},           {"neg.s64", 'l', "l"},
    {"popc.b32", 'i', "i"},          {"popc.b64", 'i', "l"},          {"clz.b32", 'i', "i"},
    {"clz.b64", 'i', "l"},           {"brev.b32", 'i', "i"},          {"brev.b64", 'l', "l"},
    {"bfe.u32", 'i', "iaa"},         {"bfe.s32", 'i', "iaa"},         {"bfe.s64", 'l', "laa"},
    {"bfi.b32", 'i', "iiaa"},        {"bfi.b64", 'l', "llaa"},        {"and.b32", 'i', "ii"},
    {"or.b64", 'l', "ll"},           {"xor.b16", 'h', "hh"},          {"not.b32", 'i', "i"},
    {"cnot.b32", 'i', "i"},          {"shl.b32", 'i', "ia"},          {"shr.s32", 'i', "ia"},
    {"shr.u32", 'i', "ia"},          {"shl.b64", 'l', "la"},          {"shr.s64", 'l', "la"},
    {"shl.b16", 'h', "ha"},          {"shr.s16", 'h', "ha"},          {"shr.u16", 'h', "ha"},
    {"shf.l.wrap.b32", 'i', "iia"},  {"shf.r.wrap.b32", 'i', "iia"},  {"shf.l.clamp.b32", 'i', "iia"},
    {"shf.r.clamp.b32", 'i', "iia"}, {"prmt.b32", 'i', "iii"},        {"selp.b32", 'i', "iip"},
    {"setp.lt.s32", 'p', "ii"},      {"setp.hi.u32", 'p', "ii"},      {"setp.ge.u64", 'p', "ll"},
    {"setp.ne.b16", 'p', "hh"},      {"setp.le.and.s32", 'p', "iip"}, {"setp.gt.xor.u32", 'p', "iip"},
    {"setp.lt.f32", 'p', "ff"},      {"setp.geu.f32", 'p', "ff"},     {"setp.neu.f64", 'p', "dd"},
    {"setp.nan.f32", 'p', "ff"},     {"setp.ne.f32", 'p', "ff"},      {"and.pred", 'p', "pp"},
    {"not.pred", 'p', "p"},          {"add.rn.f32", 'f', "ff"},       {"sub.ftz.f32", 'f', "ff"},
    {"mul.rn.f32", 'f', "ff"},       {"mul.ftz.f32", 'f', "ff"},      {"fma.rn.f32", 'f', "fff"},
    {"div.rn.f32", 'f', "ff"},       {"sqrt.rn.f32", 'f', "f"},       {"min.f32", 'f', "ff"},
    {"max.ftz.f32", 'f', "ff"},      {"neg.f32", 'f', "f"},           {"abs.f32", 'f', "f"},
    {"add.rn.f64", 'd', "dd"},       {"fma.rn.f64", 'd', "ddd"},      {"div.rn.f64", 'd', "dd"},
    {"cvt.u64.u32", 'l', "i"},       {"cvt.s64.s32", 'l', "i"},       {"cvt.u32.u64", 'i', "l"},
    {"cvt.s32.s8", 'i', "i"},        {"cvt.u32.u16", 'i', "h"},       {"cvt.rn.f32.s32", 'f', "i"},
    {"cvt.rn.f32.u64", 'f', "l"},    {"cvt.rn.f64.s64", 'd', "l"},    {"cvt.rzi.s32.f32", 'i', "f"},
    {"cvt.rzi.u64.f64", 'l', "d"},   {"cvt.f64.f32", 'd', "f"},       {"cvt.rn.f32.f64", 'f', "d"}};

class Constants {
 public:
  explicit Constants(std::uint64_t seed) : random_(seed) {}
  /// 24 instructions of random constants, each result stored.
  std::string program() {
    for (std::uint32_t slot = 0; slot < 24; ++slot) one(kOps[random_.next() % std::size(kOps)], slot * 8);
    return text::cat(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry program(.param .u64 in, .param .u64 "
        "out, "
        ".param .u32 n)\n{\n.reg .pred %p<200>;\n.reg .b16 %h<200>;\n.reg .b32 %i<200>;\n.reg .b64 %l<200>;\n"
        ".reg .f32 %f<200>;\n.reg .f64 %d<200>;\n.reg .b32 %t<4>;\n.reg .b64 %o;\nld.param.u64 %o, [out];\n"
        "mov.u32 %t0, %tid.x;\nmov.u32 %t1, %ctaid.x;\nmad.lo.u32 %t2, %t1, 64, %t0;\n"
        "mad.wide.u32 %o, %t2, 256, %o;\n",
        body_, "ret;\n}\n");
  }

 private:
  std::string constant(char c) {
    const std::string r = text::cat("%", c == 'a' ? 'i' : c, next_++);
    const std::uint64_t any = random_.next(), few = random_.next() % 6;
    const std::int64_t small = std::int64_t(random_.next() % 9) - 4;
    const std::uint64_t edge = few == 0   ? 0
                               : few == 1 ? std::uint64_t(small)
                               : few == 2 ? 1ull << (any % 64)
                                          : any;
    switch (c) {
      case 'p':
        body_ += text::cat("mov.pred ", r, ", ", any & 1, ";\n");
        break;
      case 'h':
        body_ += text::cat("mov.u16 ", r, ", ", edge & 0xffff, ";\n");
        break;
      case 'a':
        body_ += text::cat("mov.u32 ", r, ", ", any % 5 ? any / 8 % 70 : any / 8 % 256, ";\n");
        break;
      case 'i':
        body_ += text::cat("mov.u32 ", r, ", ", few == 3 ? 0x80000000u : std::uint32_t(edge), ";\n");
        break;
      case 'l':
        body_ += text::cat("mov.u64 ", r, ", ", edge, ";\n");
        break;
      case 'f':
        body_ += text::cat("mov.b32 ", r, ", ",
                           few < 3    ? 0x3f000000u + std::uint32_t(any % 0x4000000)
                           : few == 3 ? std::uint32_t(any % 0x2000000)
                           : few == 4 ? 0x80000000u
                                      : std::uint32_t(any),
                           ";\n");
        break;
      default:
        body_ += text::cat("mov.b64 ", r, ", ", few < 4 ? 0x3fe0000000000000u + any % 0x60000000000000u : any,
                           ";\n");
    }
    return r;
  }
  void one(const Op& op, std::uint32_t at) {
    std::string sources;
    for (const char* c = op.from; *c; ++c) sources += ", " + constant(*c);
    const std::string d = text::cat("%", op.to, next_++);
    body_ += text::cat(op.text, " ", d, sources, ";\n");
    std::string store = d;
    if (op.to == 'p') {
      store = text::cat("%i", next_++);
      body_ += text::cat("selp.u32 ", store, ", 1, 0, ", d, ";\n");
    }
    const char* type = op.to == 'l'   ? "u64"
                       : op.to == 'd' ? "f64"
                       : op.to == 'f' ? "f32"
                       : op.to == 'h' ? "u16"
                                      : "u32";
    body_ += text::cat("st.global.", type, " [%o+", at, "], ", store, ";\n");
  }
  SplitMix64 random_;
  std::string body_;
  int next_ = 0;
};

TEST(Constants, FoldAsTheMachineComputes) {
  Runner runner(false);
  ptx::PassStatistics statistics;
  int failures = 0;
  const std::uint64_t programs = number("CGP_PASSES_PROGRAMS", CGP_PASSES_PROGRAMS);
  for (std::uint64_t seed = 1; seed <= programs && failures < 3; ++seed) {
    const ptx::Module m = ptx::parse(Constants(seed).program());
    const auto fold = ptx::PassOptions::only(ptx::Pass::fold);
    const std::string wrong = compare(runner, m, fold, seed, nullptr, &statistics);
    if (wrong.empty()) continue;
    ++failures;
    const ptx::Module small = shrink(runner, m, fold, seed);
    ptx::Module after = small;
    ptx::optimise(after, fold);
    ADD_FAILURE() << "seed " << seed << ": " << wrong << "\n"
                  << ptx::print(small) << "\nafter:\n"
                  << ptx::print(after);
  }
  EXPECT_GT(statistics.changes(), programs * 18);
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
  if (find_ptxas().empty()) GTEST_SKIP() << "ptxas is not installed";
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

// SPDX-License-Identifier: Apache-2.0
// parse(print(m)) == m: on compilers' output, on random modules of the table's own forms, and mutated text
// never does worse than a ParseError.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/ptx/instances.h"
#include "cgp/ptx/liveness.h"
#include "cgp/ptx/parse.h"
#include "cgp/ptx/print.h"
#include "cgp/ptx/verify/verify.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CGP_COUNT_ALLOCATIONS 1
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#undef CGP_COUNT_ALLOCATIONS
#endif
#endif
#endif

#ifdef CGP_COUNT_ALLOCATIONS
namespace {
thread_local std::size_t allocated_bytes = 0;
}
// Of this test's program: what is asked for is counted. Inlined, g++ 12 takes free() for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  allocated_bytes += bytes;
  if (void* p = std::malloc(bytes ? bytes : 1)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
#endif

using namespace cgp;
using namespace cgp::ptx;

namespace {

const char* const kCompiled[] = {"basics_sm80",  "basics_o0", "basics_rdc", "half_lineinfo",
                                 "tensor_sm90a", "debug_g",   "clang_sm80"};

std::string compiled(const char* name) { return read_file(text::cat(CGP_PTX_TESTDATA "/", name, ".ptx")); }

void expect_round_trip(const Module& m, const std::string& what) {
  const std::string once = print(m);
  const Module again = parse(once);
  EXPECT_EQ(difference(m, again), "") << what;
  EXPECT_EQ(print(again), once) << what;
}

Module random_module(std::mt19937& random, int instructions) {
  Module m = samples::empty_module({9, 0}, "sm_100a");
  Function& f = m.functions.back();
  f.labels.clear();
  f.tables.clear();
  f.labels.push_back({"start", 0});
  std::vector<Inst> body;
  while (int(body.size()) < instructions) {
    const Op op = Op(random() % std::uint32_t(Op::kCount));
    if (op == Op::call || op == Op::brx_idx || family(op) == Family::texture) continue;
    const auto& all = forms(op);
    Inst i = samples::instance(m, all[random() % all.size()], random, false);
    if (random() % 8 == 0) {
      i.guard = 0;  // %p0
      i.guard_negated = random() % 2;
    }
    if (random() % 10 == 0) f.labels.push_back({text::cat("L", body.size()), std::uint32_t(body.size())});
    body.push_back(std::move(i));
  }
  m.functions.back().body = std::move(body);
  return m;
}

}  // namespace

TEST(round_trip, compilers_output) {
  for (const char* name : kCompiled) expect_round_trip(parse(compiled(name)), name);
}

TEST(round_trip, compilers_output_is_legal) {
  CheckOptions foreign;
  foreign.foreign = true;
  for (const char* name : kCompiled)
    for (const Problem& p : check(parse(compiled(name)), foreign))
      ADD_FAILURE() << name << ":" << p.ptx_line << ": " << p.instruction << ": " << p.rule << "; " << p.why;
}

TEST(round_trip, random_modules) {
  std::mt19937 random(20260101);
  for (int i = 0; i < 40; ++i) expect_round_trip(random_module(random, 100), text::cat("module ", i));
}

TEST(round_trip, every_form_is_canonical_and_legal) {
  std::mt19937 random(7);
  CheckOptions foreign;
  foreign.foreign = true;
  // Targets that together have every instruction.
  std::vector<Module> modules;
  for (const char* t : {"sm_90a", "sm_100a", "sm_103a", "sm_110a", "sm_120a"})
    modules.push_back(samples::empty_module({9, 0}, t));
  for (int op = 0; op < int(Op::kCount); ++op)
    for (const Form& f : forms(Op(op))) {
      // shfl and vote without .sync belong to chips before sm_70.
      if (Op(op) == Op::call || Op(op) == Op::shfl || Op(op) == Op::vote) continue;
      if (family(Op(op)) == Family::texture) continue;
      for (const Inst& i : samples::cover(modules[0], f, random)) {
        EXPECT_EQ(canonical(i.op, i.mods), i.mods);
        std::string why;
        bool legal = false;
        for (Module& m : modules) {
          Function& k = m.functions.back();
          k.body = {i};
          const auto problems = check(m, foreign);
          legal = legal || problems.empty();
          if (!problems.empty()) why = problems[0].rule + " " + problems[0].why;
          k.body.clear();
        }
        EXPECT_TRUE(legal) << print(modules[0], modules[0].functions.back(), i) << ": " << why;
      }
    }
}

TEST(print, is_deterministic_to_the_byte) {
  std::mt19937 a(5), b(5);
  EXPECT_EQ(print(random_module(a, 200)), print(random_module(b, 200)));
  Module m = parse(
      ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u32 n)\n"
      ".maxntid 128\n{\n.reg .pred p; .reg .b32 %r<3>; .reg .b64 %rd<2>; .reg .f32 x, y;\n"
      "ld.param.u64 %rd1, [a]; L: mov.b32 %r1, 0xdeadbeef; @!p bra L; st.global.v2.f32 [%rd1+8], {x, y}; "
      "ret;\n}\n");
  EXPECT_EQ(
      print(m),
      ".version 8.0\n.target sm_90a\n.address_size 64\n\n.visible .entry k(\n\t.param .u64 a,\n\t.param .u32 "
      "n\n)\n"
      ".maxntid 128, 1, 1\n{\n\t.reg .pred p;\n\t.reg .b32 %r<3>;\n\t.reg .b64 %rd<2>;\n\t.reg .f32 x, y;\n"
      "\tld.param.u64 %rd1, [a];\nL:\n\tmov.b32 %r1, 0xdeadbeef;\n\t@!p bra L;\n"
      "\tst.global.v2.f32 [%rd1+8], {x, y};\n\tret;\n}\n");
}

#ifdef CGP_COUNT_ALLOCATIONS
TEST(print, asks_for_memory_in_proportion_to_its_text) {
  const auto per_byte = [](int instructions) {
    std::mt19937 random(3);
    Module m = samples::empty_module({9, 0}, "sm_100a");
    Function& f = m.functions.back();
    const Form& add = forms(Op::fma)[0];
    for (int i = 0; i < instructions; ++i) f.body.push_back(samples::instance(m, add, random, true));
    const std::size_t before = allocated_bytes;
    const std::string s = print(m);
    EXPECT_GT(s.size(), std::size_t(20 * instructions));
    return double(allocated_bytes - before) / double(s.size());
  };
  EXPECT_LT(per_byte(1000), 8);
  EXPECT_LT(per_byte(64000), 8);
}
#endif

// Mutations of real text: every outcome is a module (which then prints and parses) or a ParseError.
TEST(fuzz, mutated_text_never_crashes) {
  std::vector<std::string> corpus;
  for (const char* name : kCompiled) corpus.push_back(compiled(name).substr(0, 6000));
  corpus.push_back(print([] {
    std::mt19937 r(1);
    return random_module(r, 60);
  }()));
  const std::string_view tokens[] = {"{",          "}",          "(",
                                     ")",          "[",          "]",
                                     "<",          ">",          ";",
                                     ":",          ",",          "|",
                                     "@",          "!",          "-",
                                     "%",          ".reg",       ".b32",
                                     ".param",     "0x",         "0f",
                                     "1e",         "\"",         "/*",
                                     "//",         "::",         ".v4",
                                     "_",          "=",          "bra",
                                     "call",       "4294967296", "18446744073709551616",
                                     ".loc 1 2 3", ".section",   ".branchtargets",
                                     "\0",         "\xff"};
  std::mt19937 random(99);
  CheckOptions options;
  options.foreign = true;
  int accepted = 0;
  const char* more = std::getenv("CGP_FUZZ_ROUNDS");
  const int rounds = more ? std::atoi(more) : 4000;
  for (int round = 0; round < rounds; ++round) {
    std::string s = corpus[random() % corpus.size()];
    for (int n = 1 + int(random() % 4); n-- > 0 && !s.empty();) {
      const std::size_t at = random() % s.size();
      switch (random() % 5) {
        case 0:
          s[at] = char(random());
          break;
        case 1:
          s.erase(at, 1 + random() % 20);
          break;
        case 2:
          s.insert(at, tokens[random() % std::size(tokens)]);
          break;
        case 3:
          s.insert(at, s.substr(random() % s.size(), random() % 100));
          break;
        default:
          s.resize(at);
          break;
      }
    }
    try {
      const Module m = parse(s);
      ++accepted;
      const std::string once = print(m);
      ASSERT_EQ(difference(m, parse(once)), "") << s;
      check(m, options);
      for (const Function& f : m.functions) {
        const Cfg c = build_cfg(f);
        liveness(f, c);
      }
    } catch (const ParseError& e) {
      ASSERT_GE(e.line(), 1);
      ASSERT_NE(std::string(e.what()), "");
    }
  }
  EXPECT_GT(accepted, 0);
}

// SPDX-License-Identifier: Apache-2.0
// What the verifier says about illegal modules.
#include "cgp/ptx/verify/verify.h"

#include <gtest/gtest.h>

#include "cgp/base/text.h"
#include "cgp/ptx/parse.h"
#include "cgp/ptx/print.h"

using namespace cgp;
using namespace cgp::ptx;

namespace {

std::string module(const std::string& body, const std::string& version = "8.0",
                   const std::string& target = "sm_90a", const std::string& before = "",
                   const std::string& directives = "") {
  return text::cat(
      ".version ", version, "\n.target ", target, "\n.address_size 64\n", before,
      "\n.visible .entry k(.param .u64 a)\n", directives,
      "\n{\n.reg .pred %p<4>;\n.reg .b16 %h<8>;\n.reg .b32 %r<300>;\n.reg .b64 %rd<8>;\n.reg .f32 %f<300>;\n"
      ".reg .u32 %u<4>;\n.reg .f64 %d<4>;\n.shared .align 16 .b8 tile[64];\n",
      body, "\nret;\n}\n");
}

std::string words(const Problem& p) { return text::cat(p.rule, " | ", p.why, " | ", p.hint); }

std::string first(const std::string& ptx) {
  const auto all = check(parse(ptx));
  return all.empty() ? "legal" : words(all[0]);
}

}  // namespace

TEST(verify, typical_mistakes) {
  const std::pair<const char*, const char*> cases[] = {
      {"add.f32 %f1, %u1, %f2;",
       "operand 2 of add.f32 does not fit | register %u1 is .u32, the instruction wants .f32 | mov.b32 moves "
       "the bits into a register of another type"},
      {"add.u32 %r1, %f1, %r2;",
       "operand 2 of add.u32 does not fit | register %f1 is .f32, the instruction wants .u32 | mov.b32 moves "
       "the bits into a register of another type"},
      {"add.f32 %f1, %f2, 1;",
       "operand 3 of add.f32 does not fit | an integer constant cannot be a .f32 | write 0f and eight "
       "hexadecimal digits"},
      {"add.s32 %r1, %tid.x, 1;",
       "operand 2 of add.s32 does not fit | the special register %tid.x can only be read by mov and cvt | "
       "mov.u32 it into a register first"},
      {"cvt.u32.f32 %r1, %f1;",
       "cvt.u32.f32 is not an instruction | missing one of .rni .rzi .rmi .rpi | the nearest form is "
       "cvt(.rni .rzi .rmi .rpi){.ftz}{.sat}(.u8 .u16 .u32 .u64 .s8 .s16 .s32 .s64).f32  d+, a:t1"},
      {"div.f32 %f1, %f2, %f3;",
       "div.f32 is not an instruction | missing one of .approx .full .rn .rz .rm .rp | the nearest form is "
       "div(.approx .full){.ftz}.f32  d, a, b"},
      {"fma.f32 %f1, %f2, %f3, %f4;",
       "fma.f32 is not an instruction | missing one of .rn .rz .rm .rp | the nearest form is fma(.rn .rz .rm "
       ".rp){.ftz}{.sat}.f32  d, a, b, c"},
      {"cvt.rn.f32.f16 %f1, %h1;",
       "cvt.rn.f32.f16 is not an instruction | .rn does not belong there | the nearest form is "
       "cvt{.ftz}{.sat}(.f32).f16  d, r:t1+"},
      {"ld.shared.u32 %r1, [%rd1];",
       "operand 2 of ld.shared.u32 does not fit | register %rd1 is .b64, addresses in .shared have 32 bits | "
       "take the address with mov.u32, or cvta.to.shared and cvt.u32.u64 of a generic one"},
      {"ld.global.u32 %r1, [%r2];",
       "operand 2 of ld.global.u32 does not fit | register %r2 is .b32, addresses in .global have 64 bits | "
       "the form is ld.global.u32  d{v}+, []"},
      {"ld.global.u32 %r1, [tile];",
       "operand 2 of ld.global.u32 does not fit | variable tile is in .shared, the instruction accesses "
       ".global | the form is ld.global.u32  d{v}+, []"},
      {"ld.global.u64 %r1, [%rd1];",
       "operand 1 of ld.global.u64 does not fit | register %r1 is .b32, the instruction wants .u64 or a "
       "wider register | cvt changes the size"},
      {"ld.global.v4.f32 {%f1, %f2}, [%rd1];",
       "operand 1 of ld.global.v4.f32 does not fit | the vector has 2 elements, expected 4 | the form is "
       "ld.global.v4.f32  d{v}+, []"},
      {"st.global.v2.f32 [%rd1], %f1;",
       "operand 2 of st.global.v2.f32 does not fit | register %f1 (.f32), expected a vector of 2 | write the "
       "registers in braces: {%r1, %r2}"},
      {"ld.global.f32 %f1, %rd1;",
       "operand 2 of ld.global.f32 does not fit | register %rd1 (.b64), expected an address | addresses "
       "stand in brackets: [%rd1+16]"},
      {"setp.lt.b32 %p1, %r1, %r2;",
       "setp.lt.b32 is not an instruction | .lt does not belong there; missing one of .eq .ne | the nearest "
       "form is setp(.eq .ne)(.b16 .b32 .b64)  p|p, a, b"},
      {"setp.lt.s32 %r1, %r2, %r3;",
       "operand 1 of setp.lt.s32 does not fit | register %r1 is .b32, the instruction wants .pred | make a "
       "predicate with setp"},
      {"selp.b32 %r1, %r2, %r3, %r4;",
       "operand 4 of selp.b32 does not fit | register %r4 is .b32, the instruction wants .pred | make a "
       "predicate with setp"},
      {"bar.sync 16;",
       "operand 1 of bar.sync does not fit | 16 is not 0 to 15 | the form is bar.sync  a:u32(0..15), "
       "?b:u32(32..1024*32)"},
      {"bar.sync 0, 33;",
       "operand 2 of bar.sync does not fit | 33 is not 32 to 1024 in steps of 32 | the form is bar.sync  "
       "a:u32(0..15), ?b:u32(32..1024*32)"},
      {"shfl.sync.bfly.b32 %r1, %r2, 32, 31, -1;",
       "the lane or offset of a shuffle is below 32 | it is 32 | "},
      {"cp.async.cg.shared.global [%r1], [%rd1], 8;",
       "operand 3 of cp.async.cg.shared.global does not fit | 8 is not 16 | the form is "
       "cp.async.cg.shared.global  [shared], [global], #(16), ?s:u32, <.L2::cache_hint>c:b64"},
      {"cvt.rzi.s16.bf16 %r1, %h2;",
       "a conversion between bf16 and .s16 takes a register of 16 bits | register %r1 has 32 | convert to or "
       "from a wider integer, or through f32"},
      {"cvt.rn.bf16.s16 %h1, %r2;",
       "a conversion between bf16 and .s16 takes a register of 16 bits | register %r2 has 32 | convert to or "
       "from a wider integer, or through f32"},
      {"bfe.u32 %r1, %r2, 3, 256;",
       "the position and the length of a bit field are 0 to 255 | operand 4 is 256 | "},
      {"bfi.b32 %r1, %r2, %r3, -1, 4;",
       "the position and the length of a bit field are 0 to 255 | operand 4 is -1 | "},
      {"cp.async.ca.shared.global [%r1], [%rd1], 4, 8;",
       "cp.async reads at most as many bytes as it writes | source size 8, copy size 4 | "},
      {"setmaxnreg.dec.sync.aligned.u32 20;",
       "operand 1 of setmaxnreg.dec.sync.aligned.u32 does not fit | 20 is not 24 to 248 in steps of 8 | the "
       "form is setmaxnreg.dec.sync.aligned.u32  #(24..248*8)"},
      {"mbarrier.arrive.shared::cluster.b64 %rd1, [%r1];",
       "operand 1 of mbarrier.arrive.shared::cluster.b64 does not fit | register %rd1 (.b64), expected the "
       "sink _: a remote barrier returns no state | the form is mbarrier.arrive.shared::cluster.b64  _, [], "
       "?a:u32(1..1048575)"},
      {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2}, {%r3,%r4}, "
       "{%f1,%f2,%f3,%f4};",
       "operand 2 of mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 does not fit | the vector has 2 "
       "elements, expected 4 | the form is mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32  d{4}:f32, "
       "r{4}:b32, r{2}:b32, r{4}:f32"},
      {"wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%f1,%f2,%f3,%f4}, %rd1, %rd2, %p1, 1, 1, 0, 0;",
       "operand 7 of wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 does not fit | there are 8 operands, "
       "expected 6 | the form is wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32  d{n/2}:f32, a:b64, "
       "b:b64, Q, #(-1/1), #(-1/1)"},
      {"mov.b64 %rd1, {%r1, %h1};",
       "operand 2 of mov.b64 does not fit | a vector of 2 is not allowed here | the form is mov.b64  d, m"},
      {"elect.sync %r1, -1;",
       "operand 1 of elect.sync does not fit | the elected lane's predicate is missing: elect.sync %r|%p | "
       "the form is elect.sync  d_:b32|p, b:b32"},
      {"mov.u64 %rd1, %tid.x;",
       "operand 2 of mov.u64 does not fit | %tid.x has 32 bits, .u64 has 64 | the form is mov.u64  d, m"},
  };
  for (const auto& [statement, expected] : cases) EXPECT_EQ(first(module(statement)), expected) << statement;
}

TEST(verify, house_rules_do_not_hold_for_foreign_text) {
  CheckOptions foreign;
  foreign.foreign = true;
  for (const char* s : {"ld.shared.u32 %r1, [%rd1];", "ld.global.u32 %r1, [%r2];",
                        "shfl.sync.idx.b32 %r1, %r2, 32, 31, -1;"}) {
    EXPECT_NE(first(module(s)), "legal") << s;
    EXPECT_TRUE(check(parse(module(s)), foreign).empty()) << s;
  }
}

// ptxas takes them where an integer constant may stand.
TEST(verify, addresses_are_constants_of_foreign_text) {
  CheckOptions foreign;
  foreign.foreign = true;
  for (const char* s :
       {".shared .b32 v[4]; add.u64 %rd1, %rd2, v + 4;", ".shared .b32 v[4]; st.global.u64 [%rd1], v;"})
    EXPECT_TRUE(check(parse(module(s)), foreign).empty()) << s;
  const char* real = ".shared .b32 v[4]; add.f32 %f1, %f2, v;";
  EXPECT_FALSE(check(parse(module(real)), foreign).empty());
}

TEST(verify, targets_before_maxwell) {
  EXPECT_EQ(first(module("", "6.0", "sm_30")), "legal");
  EXPECT_EQ(first(module("", "4.0", "sm_32")), "legal");
  EXPECT_EQ(first(module("", "3.0", "sm_35")),
            "target sm_35 needs PTX 3.1 | the module is PTX 3.0 | raise .version to 3.1");
}

TEST(verify, versions_and_targets) {
  EXPECT_EQ(first(module("", "7.8", "sm_90a")),
            "target sm_90a needs PTX 8.0 | the module is PTX 7.8 | raise .version to 8.0");
  EXPECT_EQ(first(module("", "8.9", "sm_90a")),
            "a module names a PTX version that exists | there is no PTX 8.9; the newest known is 9.0 | ");
  EXPECT_EQ(first(module("", "8.0", "sm_91")),
            "a module names a known target | there is no target sm_91 | did you mean sm_90, sm_90a, sm_89?");
  EXPECT_EQ(first(module("setmaxnreg.inc.sync.aligned.u32 240;", "8.0", "sm_90")),
            "setmaxnreg.inc.sync.aligned.u32 needs PTX 8.0 and sm_90a or sm_100f or a newer a/f target of "
            "its family or "
            "sm_110f or a newer a/f target of its family or sm_120f or a newer a/f target of its family | "
            "the module is "
            "PTX 8.0 for sm_90 | choose another target");
  EXPECT_EQ(first(module("elect.sync _|%p1, -1;", "7.8", "sm_90")),
            "elect.sync needs PTX 8.0 and sm_90 or newer | the module is PTX 7.8 for sm_90 | raise .version "
            "to 8.0");
  EXPECT_EQ(
      first(module("mov.u32 %r1, %cluster_ctarank;", "8.0", "sm_80")),
      "mov.u32 needs PTX 7.8 and sm_90 or newer | the module is PTX 8.0 for sm_80 | choose another target");
}

TEST(verify, required_version_names_its_reason) {
  const Module m =
      parse(module("wgmma.fence.sync.aligned;\ntensormap.replace.tile.rank.shared::cta.b1024.b32 [%r1], 1;"));
  EXPECT_EQ(required_version(m), (Version{8, 3}));
  const auto n = needs(m);
  ASSERT_GE(n.size(), 3u);
  EXPECT_EQ(n[0].what, "tensormap.replace.tile.rank.shared::cta.b1024.b32");
  EXPECT_EQ(n[1].what, ".target sm_90a");
  EXPECT_EQ(n[2].what, "wgmma.fence.sync.aligned");
  EXPECT_EQ(n[2].requirement.targets.size(), 1u);
  EXPECT_EQ(required_version(parse(module("ret;", "9.0", "sm_80"))), (Version{7, 0}));
  // The version that brought an instruction to this target, not to the first one that had it.
  const char* convert = "cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f1;";
  EXPECT_EQ(required_version(parse(module(convert, "7.8", "sm_89"))), (Version{8, 1}));
  EXPECT_EQ(required_version(parse(module(convert, "9.0", "sm_90"))), (Version{7, 8}));
}

// Triton's braces around one register, and versions that are newer than the table: ptxas's matter, not ours.
TEST(verify, foreign_text_may_be_newer_and_has_vectors_of_one) {
  const Module m =
      parse(module("ld.global.b32 {%r1}, [%rd1];\nst.global.b32 [%rd1], {%r1};\nmov.b32 {%r2}, %r1;", "9.5"));
  EXPECT_TRUE(check(m, {.foreign = true}).empty());
  EXPECT_EQ(check(m).size(), 4u);
  EXPECT_FALSE(check(parse(module("atom.global.add.u32 {%r1}, [%rd1], %r2;")), {.foreign = true}).empty());
  EXPECT_FALSE(check(parse(module("ret;", "8.9")), {.foreign = true}).empty());
}

// In one pass what required_version and check say one after the other.
TEST(verify, settles_the_version) {
  for (const auto& [body, target] : {std::pair{"wgmma.fence.sync.aligned;", "sm_90a"},
                                     {"ret;", "sm_75"},
                                     {"ret;", "sm_100a"},
                                     {"cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f1;", "sm_89"},
                                     {"cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f1;", "sm_90"},
                                     {"mov.u32 %r1, %cluster_ctarank;", "sm_90"},
                                     {"mov.u32 %r1, %cluster_ctarank;", "sm_80"},
                                     {"add.f32 %r1, %f2, %f3;", "sm_80"},
                                     {"shfl.sync.idx.b32 %r1, %r2, 40, 31, -1;", "sm_80"}}) {
    Module m = parse(module(body, "1.0", target));
    Module by_parts = m;
    by_parts.version = required_version(m);
    const auto expected = check(by_parts), found = settle_version(m);
    EXPECT_EQ(m.version, by_parts.version) << body << " " << target;
    ASSERT_EQ(found.size(), expected.size()) << body << " " << target;
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_EQ(words(found[i]), words(expected[i]));
  }
}

TEST(verify, module_rules) {
  auto with = [](const char* before, const char* directives = "") {
    return first(module("", "8.0", "sm_90a", before, directives));
  };
  EXPECT_EQ(
      with(".const .b8 big[65537];"),
      "a module has at most 64 KiB of .const variables | it has 65537 bytes | use .global for large tables");
  EXPECT_EQ(with(".global .b32 x; .global .b32 x;"),
            "module-level names are unique | the variable is declared twice | ");
  EXPECT_EQ(with("", ".maxntid 1024, 2"),
            ".maxntid is at most 1024 threads, 64 in z | it is 1024 x 2 x 1 | ");
  EXPECT_EQ(with("", ".maxntid 32\n.reqntid 32"), "a kernel has .maxntid or .reqntid, not both |  | ");
  EXPECT_EQ(with("", ".maxnreg 256"), ".maxnreg is 1 to 255 | it is 256 | ");
  EXPECT_EQ(with("", ".reqnctapercluster 17"),
            ".reqnctapercluster is 1 to 16 blocks | it is 17 | 8 is the portable limit, 16 needs an "
            "attribute at launch");
  EXPECT_EQ(with("", ".blocksareclusters"),
            ".blocksareclusters needs PTX 9.0 and sm_90 or newer | the module is PTX 8.0 for sm_90a | ");
  EXPECT_EQ(with(".func f { ret; }\n.func f { ret; }"),
            "functions are defined once | there are two bodies of this name | ");
  EXPECT_EQ(first(module("", "8.0", "sm_90", ".shared .b8 big[49153];")),
            "static .shared variables have at most 49152 bytes on sm_90 | there are 49217 bytes | use "
            "dynamic shared memory: "
            ".extern .shared .align 16 .b8 x[];");
  EXPECT_EQ(first(module("", "8.0", "sm_90a", ".shared .b8 big[49153];")), "legal");
  // Each kernel of a module has its own, and pays for what its functions name.
  const auto kernels = [](const char* second) {
    Module m = parse(text::cat(
        ".version 8.0\n.target sm_90\n.address_size 64\n.shared .b8 a[40000];\n.shared .b8 b[40000];\n"
        ".func f() { .reg .b32 %r; mov.u32 %r, b; st.shared.b32 [%r], %r; ret; }\n"
        ".visible .entry k() { .reg .b32 %r; mov.u32 %r, a; st.shared.b32 [%r], %r; ret; }\n"
        ".visible .entry l() { .reg .b32 %r; ",
        second, " ret; }\n"));
    const auto problems = check(m, {.foreign = true});
    return problems.empty() ? std::string("legal") : problems[0].why;
  };
  EXPECT_EQ(kernels("call f;"), "legal");
  EXPECT_EQ(kernels("mov.u32 %r, a; call f;"), "there are 80000 bytes");
}

TEST(verify, recorded_modules) {
  // What text cannot say, a builder can get wrong.
  const std::string good = module("add.f32 %f1, %f2, %f3;\nL: bra L;");
  auto broken = [&](auto&& edit) {
    Module m = parse(good);
    edit(m, m.functions.back());
    const auto all = check(m);
    return all.empty() ? "legal" : words(all[0]);
  };
  EXPECT_EQ(broken([](Module&, Function&) {}), "legal");
  EXPECT_EQ(broken([](Module&, Function& f) {
              f.body[0].mods = {Mod::f32, Mod::rn};
            }),
            "the modifiers of add stand in a fixed order | found add.f32.rn | write add.rn.f32");
  EXPECT_EQ(broken([](Module&, Function& f) { f.body[0].operands[1].reg = 100000; }),
            "operands name registers, variables and labels that exist | operand 2 does not exist | ");
  EXPECT_EQ(broken([](Module&, Function& f) {
              f.labels.push_back({"L", 0});
            }),
            "labels are unique in a function | defined twice in k | ");
  EXPECT_EQ(broken([](Module&, Function& f) { f.regs[0].name = "%p\xc3\xa9"; }),
            "names are ASCII identifiers | it holds bytes outside of ASCII | ");
  EXPECT_EQ(broken([](Module&, Function& f) { f.regs[0].name = "%p1"; }),
            "register names are unique in a function | declared twice in k | ");
  EXPECT_EQ(broken([](Module&, Function& f) { f.labels[0].position = 99; }),
            "a label stands before an instruction or at the end | position 99 of 3 instructions | ");
}

TEST(verify, throws_with_the_count_of_the_others) {
  try {
    verify(parse(module("add.f32 %f1, %u1, %f2;\nadd.u32 %r1, %f1, %r2;")));
    FAIL();
  } catch (const VerifyError& e) {
    EXPECT_STREQ(e.what(),
                 "line 16: add.f32 %f1, %u1, %f2;: operand 2 of add.f32 does not fit\n"
                 "  why:  register %u1 is .u32, the instruction wants .f32; and 1 more problems\n"
                 "  hint: mov.b32 moves the bits into a register of another type");
  }
}

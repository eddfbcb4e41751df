// SPDX-License-Identifier: Apache-2.0
// What the parser reads, and what it says when it cannot.
#include "cgp/ptx/parse.h"

#include <gtest/gtest.h>

#include "cgp/base/text.h"
#include "cgp/ptx/module.h"
#include "cgp/ptx/print.h"

using namespace cgp;
using namespace cgp::ptx;

namespace {

constexpr const char* kHead = ".version 8.0\n.target sm_90a\n.address_size 64\n";

// parse(print(parse(text))) == parse(text), and printing again gives the same bytes.
Module round_trip(const std::string& text) {
  Module m = parse(text);
  const std::string once = print(m);
  try {
    const Module again = parse(once);
    EXPECT_EQ(difference(m, again), "") << once;
    EXPECT_EQ(print(again), once);
  } catch (const Error& e) {
    ADD_FAILURE() << e.what() << "\n" << once;
  }
  return m;
}

std::string kernel(const std::string& body, const std::string& before = "") {
  return std::string(kHead) + before +
         ".visible .entry k(.param .u64 a, .param .align 64 .b8 tm[128])\n{\n"
         ".reg .pred %p<4>;\n.reg .b16 %h<8>;\n.reg .b32 %r<16>;\n.reg .b64 %rd<8>;\n.reg .f32 %f<8>;\n" +
         body + "\nret;\n}\n";
}

Function body_of(const std::string& body, const std::string& before = "") {
  return round_trip(kernel(body, before)).functions.back();
}

std::string printed(const std::string& body) {
  const Module m = parse(kernel(body));
  return print(m, m.functions.back(), m.functions.back().body[0]);
}

std::string message(const std::string& text) {
  try {
    parse(text);
  } catch (const ParseError& e) {
    return e.what();
  }
  return "accepted";
}
// The message about one body statement, which is line 12 of its module.
std::string complaint(const std::string& statement) { return message(kernel(statement)); }

}  // namespace

TEST(parse, small_kernel) {
  const Function f = body_of("ld.param.u64 %rd1, [a];\nL: @!%p1 bra L;\nadd.s32 %r1, %r2, -4;");
  ASSERT_EQ(f.body.size(), 4u);
  EXPECT_EQ(f.body[0].op, Op::ld);
  EXPECT_EQ(f.body[0].type(), Mod::u64);
  EXPECT_EQ(f.body[1].operands[0].kind, OperandKind::label);
  EXPECT_EQ(f.labels[0].position, 1u);
  EXPECT_TRUE(f.body[1].guard_negated);
  EXPECT_EQ(std::int64_t(f.body[2].operands[2].imm), -4);
}

TEST(parse, of_a_million_registers_those_in_use) {
  const Module m = round_trip(
      ".version 8.0\n.target sm_80\n.address_size 64\n.func (.reg .b32 %out) f(.reg .b32 %in) {\n"
      ".reg .pred %p<1000000>;\n.reg .b32 %r<9>;\nsetp.eq.u32 %p999999|%p7, %r3, 0;\n"
      "@%p999999 mov.b32 %out, %r8;\nmov.b64 {%r3, %r5}, 1;\nret;\n}\n");
  std::vector<std::string> names;
  for (const Reg& r : m.functions[0].regs) names.push_back(r.name);
  EXPECT_EQ(names, (std::vector<std::string>{"%out", "%in", "%p7", "%p999999", "%r3", "%r5", "%r8"}));
}

TEST(parse, literals_and_constant_expressions) {
  const std::pair<const char*, std::uint64_t> cases[] = {{"17", 17},
                                                         {"0x1F", 31},
                                                         {"0b101", 5},
                                                         {"017", 15},
                                                         {"0xFFU", 255},
                                                         {"-1", ~0ull},
                                                         {"18446744073709551615", ~0ull},
                                                         {"0x12F0000000000000", 0x12F0000000000000},
                                                         {"(1<<4)|3", 19},
                                                         {"~0", ~0ull},
                                                         {"!5", 0},
                                                         {"7*6-2", 40},
                                                         {"-7/2", std::uint64_t(-3)},
                                                         {"-7 % 4", std::uint64_t(-3)},
                                                         {"(.u64)-1 > 0 ? 2 : 3", 2},
                                                         {"-1 > 0 ? 2 : 3", 3},
                                                         {"1 << 2 + 1", 8},
                                                         {"3 == 3 && 2 != 1", 1},
                                                         {"WARP_SZ", 32},
                                                         {"-8 >> 1", std::uint64_t(-4)}};
  for (const auto& [text, value] : cases) {
    const Function f = body_of(text::cat("mov.b64 %rd1, ", text, ";"));
    EXPECT_EQ(f.body[0].operands[1].kind, OperandKind::imm) << text;
    EXPECT_EQ(f.body[0].operands[1].imm, value) << text;
  }
  EXPECT_EQ(body_of("mov.f32 %f1, 0f3F800000;").body[0].operands[1].imm, 0x3f800000u);
  EXPECT_EQ(body_of("mov.f32 %f1, -0f3F800000;").body[0].operands[1].imm, 0xbf800000u);
  EXPECT_EQ(body_of("add.f32 %f1, %f2, 1.5e0;").body[0].operands[2].imm, 0x3ff8000000000000u);
  EXPECT_EQ(body_of("mov.b64 %rd1, 0d4000000000000000;").body[0].operands[1].kind, OperandKind::f64_imm);
}

TEST(parse, operands) {
  EXPECT_EQ(printed("ld.global.v4.f32 {%f1,%f2,_,%f4},[%rd1+16];"),
            "ld.global.v4.f32 {%f1, %f2, _, %f4}, [%rd1+16];");
  EXPECT_EQ(printed("ld.global.u32 %r1,[%rd1+-4];"), "ld.global.u32 %r1, [%rd1+-4];");
  EXPECT_EQ(printed("ld.global.u32 %r1,[%rd1-4];"), "ld.global.u32 %r1, [%rd1+-4];");
  EXPECT_EQ(printed("elect.sync _|%p1, -1;"), "elect.sync _|%p1, -1;");
  EXPECT_EQ(printed("shfl.sync.idx.b32 %r1|%p1, %r2, 0, 31, -1;"),
            "shfl.sync.idx.b32 %r1|%p1, %r2, 0, 31, -1;");
  EXPECT_EQ(printed("setp.lt.s32 %p1|_, %r1, %r2;"), "setp.lt.s32 %p1, %r1, %r2;");
  EXPECT_EQ(printed("setp.eq.and.s32 %p1, %r1, 0, !%p2;"), "setp.eq.and.s32 %p1, %r1, 0, !%p2;");
  EXPECT_EQ(printed("mov.u32 %r1, %tid.x;"), "mov.u32 %r1, %tid.x;");
  EXPECT_EQ(printed("mov.u64 %rd1, tm+64;"), "mov.u64 %rd1, tm+64;");
  EXPECT_EQ(printed("mbarrier.arrive.shared.b64 _, [%r1];"), "mbarrier.arrive.shared.b64 _, [%r1];");
  EXPECT_EQ(printed("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], "
                    "[%rd0, {%r2, 0}], [%r1];"),
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%rd0, {%r2, "
            "0}], [%r1];");
  EXPECT_EQ(printed("tcgen05.wait::ld.sync.aligned;"), "tcgen05.wait::ld.sync.aligned;");
  EXPECT_EQ(printed("barrier.cta.sync.aligned 1, 64;"), "barrier.cta.sync.aligned 1, 64;");
  EXPECT_EQ(printed("add .s32 %r1, %r2, 1;"), "add.s32 %r1, %r2, 1;");
}

TEST(parse, modifiers_in_any_order_become_canonical) {
  EXPECT_EQ(printed("ldmatrix.sync.aligned.x4.m8n8.shared.b16 {%r0,%r1,%r2,%r3}, [%r4];"),
            "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0, %r1, %r2, %r3}, [%r4];");
  EXPECT_EQ(printed("fma.sat.ftz.rn.f32 %f1,%f2,%f3,%f4;"), "fma.rn.ftz.sat.f32 %f1, %f2, %f3, %f4;");
  EXPECT_EQ(printed("ld.v4.global.u32 {%r1,%r2,%r3,%r4},[%rd1];"),
            "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];");
  // Types keep their order: this is a conversion from f32 to s32, not the other way round.
  EXPECT_EQ(printed("cvt.ftz.rzi.s32.f32 %r1,%f1;"), "cvt.rzi.ftz.s32.f32 %r1, %f1;");
}

TEST(parse, parts_of_an_opcode_in_any_order) {
  // ptxas takes all of these.
  EXPECT_EQ(printed("vote.ballot.sync.b32 %r1,%p1,-1;"), printed("vote.sync.ballot.b32 %r1,%p1,-1;"));
  EXPECT_EQ(printed("shfl.bfly.sync.b32 %r1,%r2,1,31,-1;"), printed("shfl.sync.bfly.b32 %r1,%r2,1,31,-1;"));
  EXPECT_EQ(printed("redux.add.sync.s32 %r1,%r2,-1;"), printed("redux.sync.add.s32 %r1,%r2,-1;"));
  EXPECT_EQ(printed("match.sync.any.b32 %r1,%r2,-1;"), printed("match.any.sync.b32 %r1,%r2,-1;"));
  EXPECT_EQ(printed("match.all.b64.sync %r1|%p1,%rd2,-1;"), printed("match.all.sync.b64 %r1|%p1,%rd2,-1;"));
  // What is there without more parts stays what it is.
  EXPECT_EQ(printed("bar.warp.sync -1;"), "bar.warp.sync -1;");
  EXPECT_EQ(printed("vote.ballot.b32 %r1,%p1;"), "vote.ballot.b32 %r1, %p1;");
}

TEST(parse, vector_registers_are_their_elements) {
  const Function f = body_of(
      ".reg .v4 .f32 v; .reg .v2 .b32 w<2>; .reg .f32 v_y;\n"
      "ld.global.v4.f32 v, [%rd1]; add.f32 v_y, v.x, v.a; mov.b32 w1.y, %r1; st.global.v4.f32 [%rd1], v;");
  auto name = [&](const Operand& o) { return f.regs[o.reg].name; };
  const Inst &load = f.body[0], &add = f.body[1];
  ASSERT_EQ(load.operands[0].kind, OperandKind::vector);
  ASSERT_EQ(load.operands[0].elems.size(), 4u);
  EXPECT_EQ(name(load.operands[0].elems[0]), "v_x");
  EXPECT_EQ(name(load.operands[0].elems[3]), "v_w");
  EXPECT_EQ(name(add.operands[0]), "v_y$1");
  EXPECT_EQ(name(add.operands[1]), "v_x");
  EXPECT_EQ(name(add.operands[2]), "v_w");
  EXPECT_EQ(name(f.body[2].operands[0]), "w1_y");
  EXPECT_EQ(f.body[3].operands[1].elems.size(), 4u);
}

TEST(parse, sums_and_vectors_as_values_are_written_out) {
  const Module m = parse(R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p)
{
  .reg .v2 .u32 v; .reg .b32 %r<3>; .reg .b64 %rd; .reg .pred %q;
  @%q mov.v2.u32 v, {v.y, v.x};
  add.u32 %r0, %r1+1, %r2+-1;
  st.global.u64 [%rd], %rd + 8;
}
)");
  std::string body;
  for (const Inst& i : m.functions[0].body) body += print(m, m.functions[0], i) + "\n";
  EXPECT_EQ(body,
            "@%q mov.u32 v_x_old, v_x;\n"
            "@%q mov.u32 v_x, v_y;\n"
            "@%q mov.u32 v_y, v_x_old;\n"
            "add.u32 %r1_sum, %r1, 1;\n"
            "add.u32 %r2_sum, %r2, -1;\n"
            "add.u32 %r0, %r1_sum, %r2_sum;\n"
            "add.u64 %rd_sum, %rd, 8;\n"
            "st.global.u64 [%rd], %rd_sum;\n");
  EXPECT_THROW(
      parse(".version 8.0\n.target sm_80\n.address_size 64\n.func f() { .reg .b32 %r; mov.b32 %r + 1, %r; }"),
      Error);
}

TEST(parse, scopes_are_flattened) {
  const Function f = body_of(
      "mov.u32 %r1, 1;\n"
      "{ .reg .pred p; .reg .b32 %r1; mov.u32 %r1, 2; setp.ne.b32 p, %r1, 0; @p bra DONE; DONE: }\n"
      "{ .reg .pred p; setp.ne.b32 p, %r1, 0; @p bra DONE; bra AFTER; DONE: }\n"
      "AFTER: mov.u32 %r2, %r1;");
  auto reg = [&](std::size_t i, std::size_t o) { return f.regs[f.body[i].operands[o].reg].name; };
  EXPECT_EQ(reg(0, 0), "%r1");
  EXPECT_EQ(reg(1, 0), "%r1$1");
  EXPECT_EQ(reg(2, 0), "p");
  EXPECT_EQ(reg(4, 0), "p$1");
  EXPECT_EQ(reg(4, 1), "%r1");
  EXPECT_NE(f.body[3].operands[0].label, f.body[5].operands[0].label);
  EXPECT_EQ(f.labels[f.body[3].operands[0].label].position, 4u);
  EXPECT_EQ(f.labels[f.body[5].operands[0].label].position, 7u);
  EXPECT_EQ(f.labels[f.body[6].operands[0].label].name, "AFTER");
}

TEST(parse, variables_and_initialisers) {
  const Module m = round_trip(std::string(kHead) +
                              ".func (.param .b32 r) f(.param .b32 x);\n"
                              ".global .align 4 .f32 one = 0f3F800000;\n"
                              ".global .u8 bytes[2][3] = {{1, 2}, {3}};\n"
                              ".global .s16 open[] = {-1, 2, 3};\n"
                              ".const .align 8 .u64 table[4] = {f, one+4, generic(one), generic(bytes)+2};\n"
                              ".global .u8 pieces[2] = {0xff(one), 0xff00(one)};\n"
                              ".global .attribute(.managed) .b32 managed;\n"
                              ".global .v4 .f32 vector = {1.0, 2.0, 0f40400000, 4};\n"
                              ".extern .shared .align 16 .b8 dynamic[];\n"
                              ".common .global .b32 shared_by_all;\n"
                              ".weak .global .b32 weak_one;\n");
  ASSERT_EQ(m.vars.size(), 10u);
  EXPECT_EQ(m.vars[0].init, (std::vector<std::uint8_t>{0, 0, 0x80, 0x3f}));
  EXPECT_EQ(m.vars[1].init, (std::vector<std::uint8_t>{1, 2, 0, 3}));
  EXPECT_EQ(m.vars[1].bytes(), 6u);
  EXPECT_EQ(m.vars[2].dims[0], 3u);
  EXPECT_EQ(m.vars[2].init, (std::vector<std::uint8_t>{0xff, 0xff, 2, 0, 3, 0}));
  ASSERT_EQ(m.vars[3].relocs.size(), 4u);
  EXPECT_EQ(m.text(m.vars[3].relocs[0].symbol), "f");
  EXPECT_EQ(m.vars[3].relocs[1].addend, 4);
  EXPECT_TRUE(m.vars[3].relocs[2].generic);
  EXPECT_EQ(m.vars[3].relocs[3].addend, 2);
  EXPECT_EQ(m.vars[4].relocs[1].mask, 0xff00u);
  EXPECT_TRUE(m.vars[5].managed);
  EXPECT_EQ(m.vars[6].bytes(), 16u);
  EXPECT_EQ(m.vars[6].init[15], 0x40);
  EXPECT_EQ(m.vars[7].linkage, Linkage::external);
  EXPECT_EQ(m.vars[7].bytes(), 0u);
  EXPECT_EQ(m.vars[7].alignment(), 16u);
}

TEST(parse, functions_calls_and_tables) {
  const Module m = round_trip(
      std::string(kHead) +
      ".extern .func (.param .b32 r) outside(.param .b64 x) ;\n"
      ".weak .func (.param .align 8 .b8 r[16]) inside(.param .align 8 .b8 x[16], .param .b32 "
      "n)\n.noreturn\n{ ret; }\n"
      ".func (.reg .u32 d) old(.reg .u32 x) { add.u32 d, x, 1; ret; }\n"
      ".alias other, inside;\n"
      ".visible .entry k(.param .u64 .ptr .global .align 16 p, .param .u32 n)\n"
      ".maxntid 128, 2\n.minnctapersm 2\n.reqnctapercluster 2, 1, 1\n.maxnreg 96\n.pragma \"nounroll\";\n{\n"
      ".reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .pred %p;\n"
      "prototype : .callprototype (.param .b32 _) _ (.param .b64 _);\n"
      "{ .param .b64 param0; .param .b32 retval0; st.param.b64 [param0+0], %rd1;\n"
      "call.uni (retval0), outside, (param0); ld.param.b32 %r1, [retval0+0]; }\n"
      "{ .param .b64 param0; .param .b32 retval0; st.param.b64 [param0+0], %rd1;\n"
      "@%p call (retval0), %rd2, (param0), prototype; ld.param.b32 %r1, [retval0+0]; }\n"
      "ts: .branchtargets L0, L1;\nbrx.idx %r1, ts;\nL0:\n.pragma \"used_bytes_mask 0xff\";\nL1: ret;\n}\n");
  const Function& k = *m.find("k");
  EXPECT_EQ((*k.maxntid)[1], 2u);
  EXPECT_EQ((*k.maxntid)[2], 1u);
  EXPECT_EQ(*k.maxnreg, 96u);
  EXPECT_TRUE(k.params[0].is_ptr);
  EXPECT_EQ(k.params[0].ptr_space, Space::global);
  EXPECT_EQ(k.prototypes.size(), 1u);
  EXPECT_EQ(k.tables[0].labels.size(), 2u);
  EXPECT_EQ(k.vars.size(), 4u);
  EXPECT_NE(k.vars[0].name, k.vars[2].name);
  EXPECT_EQ(k.body[1].operands[0].kind, OperandKind::list);
  EXPECT_EQ(k.body[4].operands[3].kind, OperandKind::proto);
  EXPECT_EQ(k.body_pragmas[0].position, 7u);
  EXPECT_EQ(m.find("old")->regs.size(), 2u);
  EXPECT_TRUE(m.find("inside")->noreturn);
  EXPECT_EQ(m.text(m.aliases[0].target), "inside");
}

TEST(parse, source_positions) {
  const Module m =
      round_trip(std::string(kHead) +
                 ".file 1 \"kernel.cu\"\n.file 2 \"inline.h\", 1234, 99\n"
                 ".visible .entry k() { .reg .b32 %r<3>;\n.loc 1 10 3\nmov.u32 %r1, 1;\nmov.u32 %r2, 1;\n"
                 ".loc 2 5 1, function_name $L__info_string0, inlined_at 1 10 3\nmov.u32 %r1, 2; ret; }\n"
                 ".section .debug_str {\n$L__info_string0:\n.b8 104,105,0\n}\n");
  const Function& f = m.functions[0];
  EXPECT_EQ(m.locs[f.body[0].loc].line, 10);
  EXPECT_EQ(f.body[1].loc, f.body[0].loc);
  const Loc& inlined = m.locs[f.body[2].loc];
  EXPECT_EQ(inlined.function_name, "hi");
  EXPECT_EQ(m.locs[inlined.inlined_at].line, 10);
  EXPECT_EQ(m.files[1].second, "inline.h");
}

TEST(parse, dialects) {
  // Triton writes blanks inside brackets and wraps inline assembly; nvcc -G adds sections and `debug`.
  const Module m = round_trip(
      "//\n// Generated by LLVM NVPTX Back-End\n//\n.version 8.4\n.target sm_80, debug\n.address_size 64\n\n"
      "\t// .globl\tadd_kernel\n.visible .entry add_kernel(\n\t.param .u64 .ptr .global .align 1 "
      "add_kernel_param_0\n)\n.reqntid 128\n{\n"
      "\t.reg .pred \t%p<2>;\n\t.reg .b32 \t%r<9>;\n\t.reg .b64 \t%rd<3>;\n$L__func_begin0:\n// %bb.0:\n"
      "\tld.param.u64 \t%rd1, [add_kernel_param_0];\n\t// begin inline asm\n\tmov.u32 %r1, 0x0;\n"
      "\t@%p1 ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];\n\t// end inline asm\n"
      "\tret;\n$L__func_end0:\n}\n\t.section\t.debug_abbrev\n\t{\n.b8 1                                   // "
      "Abbreviation Code\n.b8 17,1\n\t}\n"
      ".section .debug_info { .b32 $L__func_begin0 .b64 $L__func_end0 }\n");
  EXPECT_EQ(m.target_options.size(), 0u);
  EXPECT_EQ(m.functions[0].body.size(), 4u);
  EXPECT_EQ((*m.functions[0].reqntid)[0], 128u);
}

TEST(parse_errors, exact_messages) {
  const std::pair<const char*, const char*> cases[] = {
      {"ad.s32 %r1, %r2, %r3;",
       "line 11, column 1: unknown instruction 'ad.s32'\n  11 | ad.s32 %r1, %r2, %r3;\n     | ^\n  hint: did "
       "you mean add?"},
      {"add.s23 %r1, %r2, %r3;",
       "line 11, column 5: unknown modifier '.s23' on add\n  11 | add.s23 %r1, %r2, %r3;\n     |     ^\n  "
       "hint: did you mean .s2?"},
      {"ld.golbal.u32 %r1, [%rd1];",
       "line 11, column 4: unknown modifier '.golbal' on ld\n  11 | ld.golbal.u32 %r1, [%rd1];\n     |    "
       "^\n  hint: did you mean .global?"},
      {"add.s32 %r1, %r2, %r17;",
       "line 11, column 19: '%r17' is not declared (expected a register or variable)\n  11 | add.s32 %r1, "
       "%r2, %r17;\n     |                   ^\n  hint: the largest declared is %r15"},
      {"add.s32 %r1 %r2, 1;",
       "line 11, column 13: expected , or ; after an operand, found '%r2'\n  11 | add.s32 %r1 %r2, 1;\n     "
       "|             ^"},
      {"mov.u32 %r1, %tid.w;",
       "line 11, column 14: '%tid.w' is not declared (expected a register or variable)\n  11 | mov.u32 %r1, "
       "%tid.w;\n     |              ^\n  hint: did you mean %tid.x?"},
      {"@%r1 bra L;",
       "line 11, column 2: guard '%r1' is a .b32 register, not .pred\n  11 | @%r1 bra L;\n     |  ^\n  hint: "
       "compare it with setp first"},
      {"@%p9 ret;",
       "line 11, column 2: '%p9' is not declared (expected a predicate register)\n  11 | @%p9 ret;\n     |  "
       "^\n  hint: the largest declared is %p3"},
      {"bra nowhere;",
       "line 11, column 5: label 'nowhere' is not defined\n  11 | bra nowhere;\n     |     ^"},
      {"ld.global.u32 %r1, [%rd1;",
       "line 11, column 25: expected ']' in an address, found ';'\n  11 | ld.global.u32 %r1, [%rd1;\n     |  "
       "                       ^"},
      {"ld.global.u32 %r1, [%xd1];",
       "line 11, column 21: '%xd1' is not declared (expected a register or variable)\n  11 | ld.global.u32 "
       "%r1, [%xd1];\n     |                     ^\n  hint: did you mean %rd1?"},
      {"mov.f32 %f1, 0f3F80000;",
       "line 11, column 14: a 0f literal has exactly 8 hexadecimal digits\n  11 | mov.f32 %f1, 0f3F80000;\n  "
       "   |              ^"},
      {"mov.b32 %r1, 0x123456789ABCDEF01;",
       "line 11, column 14: integer '0x123456789ABCDEF01' needs more than 64 bits\n  11 | mov.b32 %r1, "
       "0x123456789ABCDEF01;\n     |              ^"},
      {"mov.b32 %r1, 09;",
       "line 11, column 14: malformed octal number '09'\n  11 | mov.b32 %r1, 09;\n     |              ^"},
      {"mov.b32 %r1, 5 / 0;",
       "line 11, column 16: a constant expression divides by zero\n  11 | mov.b32 %r1, 5 / 0;\n     |        "
       "        ^"},
      {"mov.b64 %rd1, {%r1, %r2;",
       "line 11, column 24: expected '}' in a vector, found ';'\n  11 | mov.b64 %rd1, {%r1, %r2;\n     |     "
       "                   ^"},
      {"L: L: ret;",
       "line 11, column 4: label 'L' is defined twice in one scope\n  11 | L: L: ret;\n     |    ^"},
      {".rge .b32 %x;",
       "line 11, column 1: unknown directive '.rge' in a function body\n  11 | .rge .b32 %x;\n     | ^\n  "
       "hint: did you mean .reg?"},
      {".reg .b33 %x;",
       "line 11, column 6: expected the type of a register, found '.b33'\n  11 | .reg .b33 %x;\n     |      "
       "^\n  hint: types are .pred .b8 .u32 .s64 .f32 ..."},
      {"vadd.s32.s32.s32 %r1, %r1.b0, %r2;",
       "line 11, column 23: the selector '.b0' on register %r1 is not supported\n  11 | vadd.s32.s32.s32 "
       "%r1, %r1.b0, %r2;\n     |                       ^\n  hint: extract the part with bfe, prmt or mov "
       "{..} first"},
      {"mov.u32 %r1, \"text\";",
       "line 11, column 15: expected an operand, found a string\n  11 | mov.u32 %r1, \"text\";\n     |       "
       "        ^"},
      {"mov.u32 %r1, `;",
       "line 11, column 14: unexpected '`'\n  11 | mov.u32 %r1, `;\n     |              ^"},
      {"ret", "line 12, column 1: expected ; before 'ret'\n  12 | ret;\n     | ^"},
      {"tcgen05.wait::lad.sync.aligned;",
       "line 11, column 15: unknown modifier '.lad' on tcgen05.wait\n  11 | "
       "tcgen05.wait::lad.sync.aligned;\n     |               ^\n  hint: did you mean .ld?"},
      {"wgmma.mma_async.sync.aligned.m64n264k16.f32.bf16.bf16 {%f1}, %rd1, %rd2, %p1;",
       "line 11, column 30: unknown modifier '.m64n264k16' on wgmma.mma_async\n  11 | "
       "wgmma.mma_async.sync.aligned.m64n264k16.f32.bf16.bf16 {%f1}, %rd1, %rd2, %p1;\n     |                "
       "              ^\n  hint: did you mean .m64n24k16?"},
      {".reg .b32 %tid;.reg .b32 %laneid;",
       "line 11, column 26: '%laneid' is a special register and cannot be declared\n  11 | .reg .b32 "
       "%tid;.reg .b32 %laneid;\n     |                          ^"},
  };
  for (const auto& [statement, expected] : cases) EXPECT_EQ(complaint(statement), expected) << statement;
}

TEST(parse_errors, module_level) {
  EXPECT_EQ(message(""),
            "line 1, column 1: PTX text starts with .version, found the end of the text\n  1 | \n    | ^");
  EXPECT_EQ(message(".version 8\n.target sm_80"),
            "line 1, column 10: expected a version like 8.0, found '8'\n  1 | .version 8\n    |          ^");
  EXPECT_EQ(message(".version 8.0\n.target sm_80\n.address_size 64\n.gloabl .b32 x;\n"),
            "line 4, column 1: unknown module-level directive '.gloabl'\n  4 | .gloabl .b32 x;\n    | ^\n  "
            "hint: did you mean .global?");
  EXPECT_EQ(message(std::string(kHead) + ".entry k() .maxtnid 32 { ret; }"),
            "line 4, column 12: unknown directive '.maxtnid' before the body of a function\n  4 | .entry k() "
            ".maxtnid 32 { ret; }\n    |            ^\n  hint: did you mean .maxntid?");
  EXPECT_EQ(message(std::string(kHead) + ".entry k() { ret;"),
            "line 4, column 18: the body of a function must be closed by }\n  4 | .entry k() { ret;\n    |   "
            "               ^");
  EXPECT_EQ(message(std::string(kHead) + ".global .b32 x[3] = {1, 2, 3, 4};"),
            "line 4, column 31: too many values for 'x'\n  4 | .global .b32 x[3] = {1, 2, 3, 4};\n    |      "
            "                         ^");
  EXPECT_EQ(message(std::string(kHead) + ".global .b32 x[1099511627776];"),
            "line 4, column 15: an array is larger than 1 TiB\n  4 | .global .b32 x[1099511627776];\n    |   "
            "            ^");
}

TEST(parse_errors, limits) {
  std::string deep = kHead;
  deep += ".entry k() {";
  for (int i = 0; i < 5000; ++i) deep += "{";
  EXPECT_NE(message(deep).find("scopes are nested too deeply"), std::string::npos);
  EXPECT_NE(complaint("mov.b32 %r1, " + std::string(100000, '(') + ";").find("nested too deeply"),
            std::string::npos);
  EXPECT_NE(complaint("mov.b32 %r1, " + std::string(100000, '-') + "1;").find("nested too deeply"),
            std::string::npos);
  EXPECT_NE(complaint(".reg .b32 %x<4000000000>;").find("must be an integer from 0 to 1048576"),
            std::string::npos);
  EXPECT_NE(complaint(".reg .b32 %x<1048576>, %y<1048576>;").find("more than 1048576 registers"),
            std::string::npos);
  std::string wide = "mov.b64 {";
  for (int i = 0; i < 1000; ++i) wide += "%r1,";
  EXPECT_NE(complaint(wide + "%r1}, %rd1;").find("at most 512 elements"), std::string::npos);
}

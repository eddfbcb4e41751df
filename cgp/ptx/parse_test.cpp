// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "cgp/ptx/module.h"
#include "cgp/ptx/parse.h"
#include "cgp/ptx/print.h"

using namespace cgp;
using namespace cgp::ptx;

namespace {

// parse(print(parse(text))) == parse(text), and printing again gives the same bytes.
Module round_trip(const std::string& text) {
  Module m = parse(text);
  const std::string once = print(m);
  Module again;
  try {
    again = parse(once);
  } catch (const Error& e) {
    ADD_FAILURE() << e.what() << "\n" << once;
    return m;
  }
  EXPECT_EQ(difference(m, again), "") << once;
  EXPECT_EQ(print(again), once);
  return m;
}

std::string kernel(const std::string& body, const std::string& before = "") {
  return ".version 8.0\n.target sm_90a\n.address_size 64\n" + before +
         ".visible .entry k(.param .u64 a, .param .align 64 .b8 tm[128])\n{\n"
         ".reg .pred %p<4>;\n.reg .b16 %h<8>;\n.reg .b32 %r<16>;\n.reg .b64 %rd<8>;\n.reg .f32 %f<8>;\n" +
         body + "\nret;\n}\n";
}

}  // namespace

TEST(parse, small_kernel) {
  const Module m = round_trip(kernel("ld.param.u64 %rd1, [a];\nL: @!%p1 bra L;\nadd.s32 %r1, %r2, -4;"));
  ASSERT_EQ(m.functions.size(), 1u);
  const Function& f = m.functions[0];
  ASSERT_EQ(f.body.size(), 4u);
  EXPECT_EQ(f.body[0].op, Op::ld);
  EXPECT_EQ(f.body[0].type(), Mod::u64);
  EXPECT_EQ(f.body[1].operands[0].kind, OperandKind::label);
  EXPECT_EQ(f.labels[0].position, 1u);
  EXPECT_TRUE(f.body[1].guard_negated);
  EXPECT_EQ(std::int64_t(f.body[2].operands[2].imm), -4);
  EXPECT_EQ(print(m, f, f.body[2]), "add.s32 %r1, %r2, -4;");
}

// SPDX-License-Identifier: Apache-2.0
// Machine code: cubins that ptxas makes, checked against what ptxas says of them, and x86 instructions.
#include <gtest/gtest.h>

#include <filesystem>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/profile/collect/cubin.h"
#include "cgp/profile/lint/x86_mix.h"
#include "cgp/profile/measure/process.h"

using namespace cgp;
using namespace cgp::profile;

namespace {

const char* kPtx = R"(.version 8.0
.target sm_80
.address_size 64
.const .align 4 .b8 table[64];
.visible .entry tiled(.param .u64 x, .param .u32 n)
.maxntid 128, 1, 1
{
.reg .b32 %r<8>;
.reg .b64 %rd<8>;
.shared .align 4 .b8 tile[768];
ld.param.u64 %rd1, [x];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd2, %r1, 4;
add.u64 %rd3, %rd1, %rd2;
ld.global.u32 %r2, [%rd3];
mov.u32 %r3, tile;
shl.b32 %r4, %r1, 2;
add.u32 %r5, %r3, %r4;
st.shared.u32 [%r5], %r2;
bar.sync 0;
ld.shared.u32 %r6, [tile];
ld.const.u32 %r7, [table+8];
add.u32 %r6, %r6, %r7;
st.global.u32 [%rd3], %r6;
ret;
}
.visible .entry stacky(.param .u64 x)
{
.reg .b32 %r<4>;
.reg .b64 %rd<6>;
.local .align 4 .b8 stack[256];
ld.param.u64 %rd1, [x];
ld.global.u32 %r1, [%rd1];
and.b32 %r1, %r1, 252;
cvt.u64.u32 %rd2, %r1;
mov.u64 %rd3, stack;
add.u64 %rd4, %rd3, %rd2;
st.local.u32 [%rd4], %r1;
ld.local.u32 %r2, [stack+16];
st.global.u32 [%rd1], %r2;
ret;
}
)";

struct Assembled {
  std::string file, report;
};

/// Empty without ptxas.
Assembled assemble(const char* arch) {
  const std::string ptxas = find_ptxas();
  if (ptxas.empty()) return {};
  const std::string stem = testing::TempDir() + "cgp_cubin_" + arch;
  write_file(stem + ".ptx", kPtx);
  const auto r =
      measure::run_process({ptxas, std::string("-arch=") + arch, "-v", stem + ".ptx", "-o", stem + ".cubin"});
  EXPECT_TRUE(r.ok()) << r.err;
  Assembled out{read_file(stem + ".cubin"), r.err + r.out};
  std::filesystem::remove(stem + ".ptx"), std::filesystem::remove(stem + ".cubin");
  return out;
}

/// "Used 10 registers" after the line that names `kernel`.
std::uint32_t reported(const std::string& report, const std::string& kernel, const std::string& after) {
  auto at = report.find("'" + kernel + "'");
  at = report.find(after, at);
  return at == std::string::npos ? 0 : std::uint32_t(std::stoul(report.substr(at + after.size())));
}

}  // namespace

TEST(cubin, kernels_need_what_ptxas_reports) {
  for (const auto& [arch, sm] :
       {std::pair{"sm_80", 80}, std::pair{"sm_90a", 90}, std::pair{"sm_100a", 100}}) {
    const Assembled a = assemble(arch);
    if (a.file.empty()) GTEST_SKIP() << "needs ptxas";
    const Cubin c = read_cubin(a.file, "k.cubin");
    EXPECT_EQ(c.sm, sm);
    ASSERT_EQ(c.kernels.size(), 2u);
    EXPECT_EQ(c.constant_banks.at(3), 64u);
    for (const auto& k : c.kernels) {
      EXPECT_TRUE(k.entry);
      EXPECT_EQ(k.registers.value(), reported(a.report, k.name, "Used ")) << a.report;
      const bool tiled = k.name == "tiled";
      EXPECT_EQ(k.shared_bytes, tiled ? 768u : 0u) << arch;
      EXPECT_EQ(k.stack_bytes.value(), tiled ? 0u : 256u);
      EXPECT_EQ(k.parameter_bytes.value(), tiled ? 12u : 8u);
      EXPECT_EQ(k.max_threads.has_value(), tiled);
      if (tiled) {
        EXPECT_EQ((*k.max_threads)[0], 128u);
        EXPECT_EQ(k.barriers.value_or(0), 1u);
      }
      EXPECT_GE(k.instructions, 8u);
      EXPECT_GE(k.constant_banks.at(0), 8u);
    }
  }
}

TEST(cubin, other_files_and_damaged_ones_are_refused_by_name) {
  const auto why = [](std::string file) {
    try {
      read_cubin(file, "f");
    } catch (const ParseError& e) {
      return e.why();
    }
    return std::string("accepted");
  };
  EXPECT_NE(why("hello").find("does not begin"), std::string::npos);
  EXPECT_NE(why(std::string("\x50\xed\x55\xba....", 8)).find("fat binary"), std::string::npos);
  EXPECT_NE(why(read_file("/proc/self/exe")).find("another machine"), std::string::npos);
  const Assembled a = assemble("sm_80");
  if (a.file.empty()) GTEST_SKIP() << "needs ptxas";
  for (std::size_t cut = 64; cut < a.file.size(); cut += 37)
    EXPECT_NE(why(a.file.substr(0, cut)), "accepted") << cut;
  // any byte may be wrong: an error or an answer, never a crash
  for (std::size_t at = 0; at < a.file.size(); at += 11) {
    std::string damaged = a.file;
    damaged[at] = char(~damaged[at]);
    (void)why(damaged);
  }
}

TEST(cubin, listings_are_counted_by_opcode) {
  const auto mix = sass_mix(
      ".text.k:\n.L_x_0:\n        /*0000*/                   LDC R1, c[0x0][0x28] ;\n"
      "        /*0010*/               @P0 EXIT ;\n        /*0020*/              @!P1 LDG.E.64 R4, "
      "desc[UR4][R2.64] ;\n"
      "        /*0030*/                   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;\n.text.other:\n        "
      "/*0000*/  EXIT ;\n");
  EXPECT_EQ(mix.at("k").at("LDG"), 1u);
  EXPECT_EQ(mix.at("k").at("EXIT"), 1u);
  EXPECT_EQ(mix.at("k").size(), 4u);
  EXPECT_EQ(mix.at("other").at("EXIT"), 1u);
  EXPECT_EQ(sass_group("HMMA"), "tensor cores");
  EXPECT_EQ(sass_group("LDL"), "memory, local (spills and arrays)");
}

TEST(x86, instructions_are_told_apart_by_what_they_name) {
  EXPECT_EQ(x86_kind("add    %rax,%rbx"), X86Kind::integer);
  EXPECT_EQ(x86_kind("addps  %xmm1,%xmm0"), X86Kind::sse);
  EXPECT_EQ(x86_kind("addss  %xmm1,%xmm0"), X86Kind::scalar_float);
  EXPECT_EQ(x86_kind("vfmadd231sd (%rax),%xmm1,%xmm0"), X86Kind::scalar_float);
  EXPECT_EQ(x86_kind("vbroadcastss (%rax),%ymm3"), X86Kind::avx256);
  EXPECT_EQ(x86_kind("cvtsi2sd %eax,%xmm0"), X86Kind::scalar_float);
  EXPECT_EQ(x86_kind("vaddps %xmm1,%xmm2,%xmm3"), X86Kind::avx128);
  EXPECT_EQ(x86_kind("vaddps %ymm1,%ymm2,%ymm3"), X86Kind::avx256);
  EXPECT_EQ(x86_kind("vaddps %ymm17,%ymm2,%ymm3"), X86Kind::avx512);
  EXPECT_EQ(x86_kind("vaddps %zmm1,%zmm2,%zmm3{%k1}"), X86Kind::avx512);
  EXPECT_EQ(x86_kind("kmovw  %k1,%eax"), X86Kind::avx512);
  EXPECT_EQ(x86_kind("tdpbf16ps %tmm2,%tmm1,%tmm0"), X86Kind::amx);
  EXPECT_EQ(x86_kind("mov    0x10(%rip),%rax        # 2010 <a%xmm0>"), X86Kind::integer);
  const auto f = x86_functions(
      "\n0000000000001000 <one>:\n    1000:\tvaddps %ymm1,%ymm2,%ymm3\n    1004:\tret\n\n0000000000001010 "
      "<a::two(int)>:\n"
      "    1010:\txor    %eax,%eax\n");
  ASSERT_EQ(f.size(), 2u);
  EXPECT_EQ(f[0].mix.avx256, 1u);
  EXPECT_EQ(f[0].mix.total(), 2u);
  EXPECT_EQ(f[1].name, "a::two(int)");
}

// SPDX-License-Identifier: Apache-2.0
// Mutated modules are translated or refused with a reason; what is translated is valid SPIR-V (a sample goes through
// spirv-val). CGP_FUZZ_ROUNDS sets the number of mutations.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/ptx/parse.h"
#include "cgp/shader/shader.h"
#include "cgp/shader/spirv_tools_test_kit.h"

namespace cgp::shader {
namespace {

constexpr const char* kModules[] = {
    R"(.version 7.8
.target sm_80
.address_size 64
.visible .entry k(.param .u64 .ptr .global .align 4 a, .param .u64 .ptr .global .align 4 b, .param .u32 n, .param .u64 m)
.reqntid 64, 1, 1
{
.reg .b64 %rd<12>;
.reg .b32 %r<12>;
.reg .f32 %f<8>;
.reg .b16 %h<4>;
.reg .pred %p<4>;
.shared .align 16 .b8 tile[512];
ld.param.u64 %rd0, [a];
ld.param.u64 %rd1, [b];
ld.param.u32 %r0, [n];
ld.param.u64 %rd2, [m];
mov.u32 %r1, %tid.x;
mov.u32 %r2, tile;
mad.lo.u32 %r3, %r1, 4, %r2;
mul.wide.u32 %rd3, %r1, 4;
add.u64 %rd4, %rd0, %rd3;
add.u64 %rd5, %rd1, %rd3;
setp.lt.u32 %p0, %r1, %r0;
mov.b32 %f0, 0f00000000;
@%p0 ld.global.nc.f32 %f0, [%rd4];
mov.b64 %rd6, 0;
again:
setp.ge.u64 %p1, %rd6, %rd2;
@%p1 bra done;
ex2.approx.ftz.f32 %f1, %f0;
fma.rn.f32 %f0, %f1, 0f3F000000, %f0;
add.u64 %rd6, %rd6, 1;
setp.gt.f32 %p2, %f0, 0f7F800000;
@%p2 bra done;
bra again;
done:
st.shared.f32 [%r3], %f0;
bar.sync 0;
shfl.sync.bfly.b32 %f2, %f0, 1, 31, -1;
max.f32 %f3, %f2, %f0;
cvt.rn.f16.f32 %h0, %f3;
cvt.rzi.s32.f32 %r4, %f3;
ld.shared.v2.f32 {%f4, %f5}, [tile+8];
add.f32 %f4, %f4, %f5;
@%p0 st.global.f32 [%rd5], %f4;
atom.shared.add.u32 %r5, [tile], 1;
st.global.b16 [%rd1+2], %h0;
vote.sync.ballot.b32 %r6, %p0, -1;
selp.b32 %r7, %r6, %r4, %p2;
div.u32 %r8, %r7, 7;
shl.b32 %r9, %r8, %r5;
cp.async.ca.shared.global [%r3], [%rd4], 4, %r0;
cp.async.commit_group;
cp.async.wait_group 0;
bar.sync 0;
ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r10, %r11}, [tile];
mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f4, %f5, %f6, %f7}, {%r10, %r11}, {%r9}, {%f4, %f5, %f0, %f3};
st.global.v2.f32 [%rd5+24], {%f5, %f7};
st.global.v2.b32 [%rd5+8], {%r8, %r9};
ret;
}
)",
    R"(.version 7.8
.target sm_80
.address_size 64
.const .align 4 .b32 table[4] = {1, 2, 3, 4};
.visible .entry k(.param .align 8 .b8 args[32])
{
.reg .b64 %rd<12>;
.reg .b32 %r<16>;
.reg .f32 %f<8>;
.reg .pred %p<4>;
ld.param.u64 %rd0, [args];
ld.param.u64 %rd1, [args+8];
ld.param.u32 %r0, [args+16];
cvta.to.global.u64 %rd2, %rd0;
cvta.to.global.u64 %rd3, %rd1;
mov.u32 %r1, %ctaid.x;
mov.u32 %r2, %ntid.x;
mov.u32 %r3, %tid.x;
mad.lo.u32 %r4, %r1, %r2, %r3;
setp.ge.u32 %p0, %r4, %r0;
@%p0 bra end;
and.b32 %r5, %r3, 3;
shl.b32 %r5, %r5, 2;
mov.u32 %r6, table;
add.u32 %r6, %r6, %r5;
ld.const.u32 %r7, [%r6];
mul.wide.s32 %rd4, %r4, 2;
add.s64 %rd5, %rd2, %rd4;
ld.global.s16 %r8, [%rd5];
mul.hi.u32 %r9, %r8, %r7;
popc.b32 %r10, %r9;
prmt.b32 %r11, %r9, %r10, 0x5410;
cvt.rn.f32.s32 %f0, %r11;
setp.eq.u32 %p1, %r10, 3;
@%p1 bra other;
sqrt.approx.f32 %f1, %f0;
bra both;
other:
rcp.approx.ftz.f32 %f1, %f0;
both:
cvt.rn.bf16x2.f32 %r12, %f1, %f0;
mul.lo.s64 %rd6, %rd4, 2;
add.s64 %rd7, %rd3, %rd6;
st.global.u32 [%rd7], %r12;
red.global.add.f32 [%rd3], %f1;
end:
ret;
}
)"};

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  std::string word;
  for (char c : line) {
    const bool part = std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '%' || c == '$';
    if (!part && !word.empty()) words.push_back(std::exchange(word, {}));
    if (part)
      word.push_back(c);
    else
      words.emplace_back(1, c);
  }
  if (!word.empty()) words.push_back(word);
  return words;
}

TEST(shader_fuzz, mutated_modules_are_translated_or_refused) {
  std::vector<std::vector<std::string>> corpus;
  std::vector<std::string> all;
  for (const char* text : kModules) {
    const auto lines = text::split(text, '\n');
    corpus.emplace_back(lines.begin(), lines.end());
    for (auto l : lines)
      for (auto& w : words_of(l)) all.push_back(w);
  }
  const char* more = std::getenv("CGP_FUZZ_ROUNDS");
  const int rounds = more ? std::atoi(more) : 10000;
  std::mt19937 random(5);
  int wgsl = 0, spirv = 0, refused = 0, validated = 0;
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::string> lines = corpus[random() % corpus.size()];
    for (int n = 1 + int(random() % 3); n-- > 0;) {
      const std::size_t at = 5 + random() % (lines.size() - 6);
      switch (random() % 6) {
        case 0:  // two lines change places, or one goes, or comes twice
          std::swap(lines[at], lines[5 + random() % (lines.size() - 6)]);
          break;
        case 1:
          lines.erase(lines.begin() + std::ptrdiff_t(at));
          break;
        case 2:
          lines.insert(lines.begin() + std::ptrdiff_t(at), lines[5 + random() % (lines.size() - 6)]);
          break;
        default: {
          auto words = words_of(lines[at]);
          if (words.empty()) break;
          words[random() % words.size()] = all[random() % all.size()];
          lines[at] = text::join(words, "");
        }
      }
    }
    SCOPED_TRACE(text::cat("round ", round));
    ptx::Module m;
    try {
      m = ptx::parse(text::join(lines, "\n"));
    } catch (const Error&) {
      continue;
    }
    ShaderOptions o;
    o.subgroup_size = random() % 2 ? 32 : 0;
    o.float16 = random() % 2;
    try {
      ASSERT_FALSE(translate_wgsl(m, "k", o).wgsl.empty());
      ++wgsl;
    } catch (const Error& e) {
      ASSERT_FALSE(e.rule().empty());
      ++refused;
    }
    try {
      const Shader s = translate_spirv(m, "k", o);
      ++spirv;
      if (have_spirv_val() && spirv % 64 == 0) {
        ++validated;
        ASSERT_EQ(invalid(s), "") << text::join(lines, "\n");
      }
    } catch (const Error& e) {
      ASSERT_FALSE(e.rule().empty());
    }
  }
  EXPECT_GT(wgsl, rounds / 20);
  EXPECT_GT(spirv, rounds / 20);
  EXPECT_GT(refused, rounds / 100);
}

}  // namespace
}  // namespace cgp::shader

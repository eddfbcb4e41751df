// SPDX-License-Identifier: Apache-2.0
// Translation of small kernels: text, what is asked of the device, what is refused and why. The catalogue's kernels are
// in catalog_test.cpp.
#include "cgp/shader/shader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/ptx/parse.h"
#include "cgp/shader/spirv_tools_test_kit.h"

namespace cgp::shader {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// A kernel of two buffers and a number, 64 threads.
std::string kernel(std::string_view body, std::string_view directives = ".reqntid 64, 1, 1") {
  return text::cat(
      ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 .ptr .global .align 4 a, "
      ".param .u64 "
      ".ptr .global .align 4 b, .param .u32 n)\n",
      directives,
      "\n{\n.reg .b64 %rd<16>;\n.reg .b32 %r<16>;\n.reg .f32 %f<16>;\n.reg .pred %p<8>;\n.reg .b16 "
      "%h<8>;\n.shared .align 16 .b8 "
      "tile[256];\nld.param.u64 %rd0, [a];\nld.param.u64 %rd1, [b];\nld.param.u32 %r0, [n];\nmov.u32 %r1, "
      "%tid.x;\n",
      body, "\nret;\n}\n");
}

Shader wgsl(std::string_view body, const ShaderOptions& o = {}) {
  return translate_wgsl(ptx::parse(kernel(body)), "k", o);
}
Shader spirv(std::string_view body, const ShaderOptions& o = {}) {
  return translate_spirv(ptx::parse(kernel(body)), "k", o);
}

template <class F>
std::string refusal(const F& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "translated";
}

constexpr std::string_view kAdd = R"(
mul.wide.u32 %rd2, %r1, 4;
add.u64 %rd3, %rd0, %rd2;
add.u64 %rd4, %rd1, %rd2;
setp.ge.u32 %p0, %r1, %r0;
@%p0 bra end;
ld.global.nc.f32 %f0, [%rd3];
ld.global.f32 %f1, [%rd4+4];
fma.rn.f32 %f2, %f0, 0f40000000, %f1;
st.global.f32 [%rd4], %f2;
end:
)";

TEST(wgsl, a_kernel_reads_as_one_would_write_it) {
  EXPECT_EQ(wgsl(kAdd).wgsl, R"(// k: workgroups of 64 x 1 x 1
// Addresses are 32-bit byte offsets: a binding holds less than 4 GiB.
@group(0) @binding(0) var<uniform> parameters: array<vec4<u32>, 2>;
@group(0) @binding(1) var<storage, read> buffer1: array<f32>;  // a
@group(0) @binding(2) var<storage, read_write> buffer2: array<f32>;  // b
var<workgroup> shared_words: array<f32, 64>;

@compute @workgroup_size(64, 1, 1)
fn k(@builtin(local_invocation_id) tid: vec3<u32>) {
  let rd0 = parameters[0].x;
  let rd1 = parameters[0].z;
  let r0 = parameters[1].x;
  let r1 = tid.x;
  let rd2 = r1 * 4u;
  let rd3 = rd0 + rd2;
  let rd4 = rd1 + rd2;
  let p0 = r1 >= r0;
  if !p0 {
    let f0 = buffer1[rd3 >> 2u];
    let f1 = buffer2[(rd4 + 4u) >> 2u];
    let f2 = fma(f0, 2f, f1);
    buffer2[rd4 >> 2u] = f2;
  }
}
)");
}

TEST(wgsl, says_what_the_host_must_bind) {
  const Shader s = wgsl(kAdd);
  ASSERT_EQ(s.parameters.size(), 3u);
  EXPECT_EQ(s.block_bytes, 32u);
  EXPECT_EQ(s.parameters[0].name, "a");
  EXPECT_EQ(s.parameters[0].kind, Parameter::Kind::pointer);
  EXPECT_EQ(s.parameters[0].binding, 1u);
  EXPECT_FALSE(s.parameters[0].writable);
  EXPECT_EQ(s.parameters[1].binding, 2u);
  EXPECT_EQ(s.parameters[1].offset, 8u);
  EXPECT_TRUE(s.parameters[1].writable);
  EXPECT_EQ(s.parameters[2].kind, Parameter::Kind::scalar);
  EXPECT_EQ(s.parameters[2].offset, 16u);
  EXPECT_EQ(s.needs.storage_buffers, 2u);
  EXPECT_EQ(s.needs.threads, 64u);
  EXPECT_EQ(s.needs.shared_bytes, 256u);
}

TEST(wgsl, slices_of_one_buffer_share_a_binding) {
  ShaderOptions o;
  o.buffers = {7, 7};
  const Shader s = wgsl(kAdd, o);
  EXPECT_EQ(s.needs.storage_buffers, 1u);
  EXPECT_EQ(s.parameters[0].binding, 1u);
  EXPECT_EQ(s.parameters[1].binding, 1u);
  EXPECT_TRUE(s.parameters[0].writable);
  EXPECT_THAT(s.wgsl, HasSubstr("let f0 = buffer1[rd3 >> 2u];"));
  o.buffers = {7};
  EXPECT_THAT(refusal([&] { wgsl(kAdd, o); }), HasSubstr("one number for each pointer parameter"));
}

TEST(wgsl, a_null_pointer_is_two_zero_words) {
  const Shader s =
      wgsl("setp.ne.u64 %p0, %rd0, 0;\n@%p0 ld.global.f32 %f0, [%rd0];\n@%p0 st.global.f32 [%rd1], %f0;");
  EXPECT_THAT(s.wgsl, HasSubstr("let p0 = parameters[0].y != 0u;"));
}

TEST(wgsl, halves_are_stored_by_atomic_operations_on_their_word) {
  const Shader s = wgsl("ld.global.b16 %h0, [%rd0];\nst.global.b16 [%rd1+2], %h0;");
  EXPECT_THAT(s.wgsl, HasSubstr("buffer2: array<atomic<u32>>"));
  EXPECT_THAT(s.wgsl, HasSubstr("atomicAnd(&buffer2["));
  EXPECT_THAT(s.wgsl, HasSubstr("buffer1: array<u32>"));
}

TEST(wgsl, constants_that_are_no_number_are_not_constant_expressions) {
  const Shader s = wgsl("mov.f32 %f0, 0fFF800000;\nst.global.f32 [%rd1], %f0;");
  EXPECT_THAT(s.wgsl, HasSubstr("float_bits(0xff800000u)"));
}

TEST(wgsl, a_register_named_as_a_type_gets_another_name) {
  const Shader s = wgsl("ld.global.f32 %f1, [%rd0];\nst.global.f32 [%rd1], %f1;");
  EXPECT_THAT(s.wgsl, HasSubstr("let f1 = "));
  const std::string text =
      ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 .ptr .global .align 4 "
      "a)\n{\n.reg .b64 %rd<2>;\n.reg "
      ".f32 %f<64>;\nld.param.u64 %rd0, [a];\nld.global.f32 %f32, [%rd0];\nst.global.f32 [%rd0+4], "
      "%f32;\nret;\n}\n";
  EXPECT_THAT(translate_wgsl(ptx::parse(text), "k").wgsl, HasSubstr("let r_f32_ = "));
}

// What threads do together, under a condition that differs between them, is done by all.
constexpr std::string_view kDivergentShuffle = R"(
setp.lt.u32 %p0, %r1, 40;
mov.b32 %r2, 5;
@!%p0 bra end;
shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;
end:
mul.wide.u32 %rd2, %r1, 4;
add.u64 %rd3, %rd1, %rd2;
st.global.b32 [%rd3], %r2;
)";

TEST(wgsl, a_shuffle_under_a_divergent_condition_is_behind_no_branch) {
  const std::string s = wgsl(kDivergentShuffle).wgsl;
  const auto barrier = s.find("\n  workgroupBarrier();");  // not indented further
  EXPECT_NE(barrier, std::string::npos) << s;
  EXPECT_THAT(s, HasSubstr("exchange[index] = r1;"));
  EXPECT_THAT(s, HasSubstr("mask_"));
}

TEST(wgsl, a_loop_that_threads_leave_one_by_one_goes_on_until_none_is_in_it) {
  const std::string s = wgsl(R"(
mov.b32 %r2, %r1;
again:
shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;
add.u32 %r2, %r2, %r3;
setp.lt.u32 %p0, %r2, 100;
@%p0 bra again;
st.global.b32 [%rd1], %r2;
)")
                            .wgsl;
  EXPECT_THAT(s, HasSubstr("any_thread(live_"));
  EXPECT_THAT(s, HasSubstr("workgroupUniformLoad"));
}

TEST(wgsl, subgroups_of_32_shuffle_themselves) {
  ShaderOptions o;
  o.subgroup_size = 32;
  const Shader s = wgsl(kDivergentShuffle, o);
  EXPECT_THAT(s.wgsl, HasSubstr("subgroupShuffle(r1, "));
  EXPECT_THAT(s.wgsl, Not(HasSubstr("workgroupBarrier")));
  EXPECT_TRUE(s.needs.subgroups);
  EXPECT_THAT(s.wgsl, HasSubstr("enable subgroups;"));
  o.subgroup_directive = false;
  EXPECT_THAT(wgsl(kDivergentShuffle, o).wgsl, Not(HasSubstr("enable subgroups;")));
  EXPECT_FALSE(wgsl(kDivergentShuffle).needs.subgroups);
}

TEST(wgsl, the_index_of_the_warp_is_not_shuffled) {
  const std::string s =
      wgsl("shr.u32 %r2, %r1, 5;\nshfl.sync.idx.b32 %r3, %r2, 0, 31, -1;\nst.global.b32 [%rd1], %r3;").wgsl;
  EXPECT_THAT(s, Not(HasSubstr("workgroupBarrier")));
  EXPECT_THAT(s, Not(HasSubstr("exchange")));
  EXPECT_THAT(
      wgsl("shr.u32 %r2, %r1, 4;\nshfl.sync.idx.b32 %r3, %r2, 0, 31, -1;\nst.global.b32 [%rd1], %r3;").wgsl,
      HasSubstr("workgroupBarrier"));
}

TEST(wgsl, addresses_may_be_asked_for_their_place_in_256_bytes) {
  EXPECT_EQ(refusal([] {
              wgsl(
                  "and.b64 %rd2, %rd1, 31;\nshr.u64 %rd3, %rd2, 2;\ncvt.u32.u64 %r2, %rd3;\nst.global.b32 "
                  "[%rd1], %r2;");
            }),
            "translated");
  EXPECT_THAT(
      refusal([] { wgsl("and.b64 %rd2, %rd1, 0x1ff;\ncvt.u32.u64 %r2, %rd2;\nst.global.b32 [%rd1], %r2;"); }),
      HasSubstr("cannot use an address as a number"));
}

int count(const Shader& s, std::uint32_t op) {
  int n = 0;
  for (std::size_t at = 5; at < s.spirv.size(); at += s.spirv[at] >> 16) n += (s.spirv[at] & 0xffff) == op;
  return n;
}

TEST(spirv, products_are_of_cooperative_matrices_where_the_device_has_them) {
  constexpr std::uint32_t kMulAdd = 4459, kShuffle = 345;
  const std::string_view body = R"(
mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f0,%f1,%f2,%f3}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f0,%f1,%f2,%f3};
mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f4,%f5,%f6,%f7}, {%r1,%r2,%r3,%r4}, {%r7,%r8}, {%f4,%f5,%f6,%f7};
mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f8,%f9,%f10,%f11}, {%r1,%r2,%r3,%r4}, {%r7,%r8}, {%f4,%f5,%f6,%f7};
st.global.v4.f32 [%rd1], {%f8, %f9, %f10, %f11};
st.global.v4.f32 [%rd1+16], {%f0, %f1, %f2, %f3};
)";
  ShaderOptions o;
  o.subgroup_size = 32;
  const Shader shuffled = spirv(body, o);
  EXPECT_EQ(count(shuffled, kMulAdd), 0);
  EXPECT_GT(count(shuffled, kShuffle), 0);
  EXPECT_FALSE(shuffled.needs.matrix_bf16);
  o.matrix_f16 = MatrixLayout{};  // these are of bf16
  EXPECT_EQ(count(spirv(body, o), kMulAdd), 0);
  o.matrix_bf16 = MatrixLayout{};
  const Shader narrow = spirv(body, o);
  EXPECT_EQ(count(narrow, kMulAdd), 3);
  EXPECT_EQ(count(narrow, kShuffle), 0);
  EXPECT_TRUE(narrow.needs.matrix_bf16);
  o.matrix_bf16->columns = 16;  // the third needs the second's result
  EXPECT_EQ(count(spirv(body, o), kMulAdd), 2);
  o.subgroup_size = 0;
  EXPECT_EQ(count(spirv(body, o), kMulAdd), 0);
}

TEST(spirv, shared_memory_with_a_layout_is_accessed_as_in_ptx) {
  const std::string_view body = R"(
ld.shared.v4.f32 {%f0,%f1,%f2,%f3}, [tile+16];
ld.shared.v2.b32 {%r2,%r3}, [tile+8];
ld.shared.u8 %r4, [tile+3];
st.shared.b16 [tile+2], %h0;
shfl.sync.bfly.b32 %r5, %r2, 1, 31, -1;
bar.sync 0;
st.global.v4.f32 [%rd1], {%f0, %f1, %f2, %f3};
st.global.v4.b32 [%rd1+16], {%r2, %r3, %r4, %r5};
)";
  constexpr std::uint32_t kAtomicAnd = 240;
  ShaderOptions o;
  const Shader words = spirv(body, o);
  EXPECT_FALSE(words.needs.wide_shared);
  EXPECT_GT(count(words, kAtomicAnd), 0);
  o.wide_shared = true;
  const Shader wide = spirv(body, o);
  EXPECT_TRUE(wide.needs.wide_shared);
  EXPECT_FALSE(wide.needs.narrow_shared);
  o.narrow_shared = true;
  const Shader narrow = spirv(body, o);
  EXPECT_TRUE(narrow.needs.narrow_shared);
  EXPECT_EQ(count(narrow, kAtomicAnd), 0);
  EXPECT_EQ(narrow.needs.shared_bytes, 256u + 4 * 64 + 16);
  if (!have_spirv_val()) GTEST_SKIP() << "spirv-val is not installed";
  for (const Shader* s : {&words, &wide, &narrow}) EXPECT_EQ(invalid(*s), "");
}

TEST(refusals, name_instruction_line_and_reason) {
  const struct {
    std::string_view body, says;
    bool both = true;
  } cases[] = {
      {"ldu.global.u32 %r2, [%rd0];\nmatch.all.sync.b32 %r2|%p0, %r1, -1;\nst.global.b32 [%rd1], %r2;",
       "cannot do match.all.sync"},
      {"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f0,%f1,%f2,%f3}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, "
       "{%f0,%f1,%f2,%f3};",
       "of f16 or bf16 into f32"},
      {"ld.b32 %r2, [%rd0];\nst.global.b32 [%rd1], %r2;", "no generic addresses"},
      {"bar.sync 1, 32;", "takes every thread of the workgroup"},
      {"shfl.sync.idx.b32 %r2, %r1, 0, 31, 0xffff;\nst.global.b32 [%rd1], %r2;",
       "the member mask must be -1"},
      {"red.global.add.u64 [%rd1], 1;", "on 32-bit words"},
      {"add.rz.f32 %f0, %f1, %f2;\nst.global.f32 [%rd1], %f0;", "rounds to nearest"},
      {"trap;", "cannot do trap"},
      {"mov.u32 %r2, %smid;\nst.global.b32 [%rd1], %r2;", "no special register %smid"},
      {"ld.global.u64 %rd2, [%rd0];\nld.global.b32 %r2, [%rd2];\nst.global.b32 [%rd1], %r2;",
       "must start from one pointer parameter", false},
      {"setp.eq.u32 %p0, %r0, 0;\nselp.b64 %rd2, %rd0, %rd1, %p0;\nld.global.b32 %r2, [%rd2];\nst.global.b32 "
       "[%rd1], %r2;",
       "from two", false},
      {"membar.gl;\nst.global.b32 [%rd1], %r1;", "WGSL has no fence", false},
      {"setp.eq.u32 %p0, %r0, 0;\n@%p0 bra two;\none:\nadd.u32 %r2, %r2, 1;\ntwo:\nsetp.lt.u32 %p1, %r2, "
       "%r0;\n@%p1 bra one;\nst.global.b32 "
       "[%rd1], %r2;",
       "control flow must be reducible"},
  };
  for (const auto& c : cases) {
    const std::string w = refusal([&] { wgsl(c.body); }), s = refusal([&] { spirv(c.body); });
    EXPECT_THAT(w, HasSubstr(c.says)) << c.body;
    EXPECT_THAT(w, HasSubstr("PTX line ")) << c.body;
    if (c.both)
      EXPECT_THAT(s, HasSubstr(c.says)) << c.body;
    else
      EXPECT_EQ(s, "translated") << c.body;
  }
}

TEST(options, fit_the_kernel_or_are_refused) {
  const ptx::Module open = ptx::parse(kernel(kAdd, ""));
  ShaderOptions o;
  o.block = {32, 4, 1};
  EXPECT_THAT(translate_wgsl(open, "k", o).wgsl, HasSubstr("@workgroup_size(32, 4, 1)"));
  EXPECT_EQ(translate_wgsl(ptx::parse(kernel(kAdd)), "k", o).block[0], 64u);  // .reqntid
  o.block = {1024, 2, 1};
  EXPECT_THAT(refusal([&] { translate_wgsl(open, "k", o); }), HasSubstr("at most 1024 threads"));
  EXPECT_THAT(refusal([&] { translate_wgsl(open, "other", {}); }), HasSubstr("no such kernel"));
  const std::string dynamic =
      ".version 7.8\n.target sm_80\n.address_size 64\n.extern .shared .align 16 .b8 all[];\n.visible .entry "
      "k()\n.reqntid 32, 1, 1\n{\n.reg "
      ".b32 %r<2>;\nmov.u32 %r0, all;\nst.shared.b32 [%r0], 1;\nret;\n}\n";
  EXPECT_THAT(refusal([&] { translate_wgsl(ptx::parse(dynamic), "k"); }), HasSubstr("dynamic shared memory"));
  o = {};
  o.dynamic_shared = 128;
  EXPECT_THAT(translate_wgsl(ptx::parse(dynamic), "k", o).wgsl, HasSubstr("shared_words: array<u32, 32>"));
}

TEST(spirv, is_valid_and_says_what_it_needs) {
  const Shader s = spirv(kAdd);
  ASSERT_GT(s.spirv.size(), 5u);
  EXPECT_EQ(s.spirv[0], 0x07230203u);
  EXPECT_EQ(s.spirv[1], 0x00010500u);
  EXPECT_TRUE(s.needs.int64);
  EXPECT_TRUE(s.needs.device_address);
  EXPECT_FALSE(s.needs.storage16);
  EXPECT_FALSE(s.block_by_address);
  EXPECT_TRUE(spirv("ld.global.b16 %h0, [%rd0];\nst.global.b16 [%rd1], %h0;").needs.storage16);
  ShaderOptions small;
  small.push_constants = 16;
  EXPECT_TRUE(spirv(kAdd, small).block_by_address);
  ShaderOptions subgroups;
  subgroups.subgroup_size = 32;
  ShaderOptions halves;
  halves.float16 = true;
  constexpr std::string_view kHalves =
      "cvt.rn.f16.f32 %h0, %f0;\nadd.f16 %h1, %h0, %h0;\ncvt.f32.f16 %f1, %h1;\nst.global.f32 [%rd1], %f1;";
  EXPECT_TRUE(spirv(kHalves, halves).needs.float16);
  EXPECT_FALSE(spirv(kHalves).needs.float16);
  EXPECT_FALSE(spirv(kAdd, halves).needs.float16);
  if (!have_spirv_val()) GTEST_SKIP() << "spirv-val is not installed (package spirv-tools)";
  EXPECT_EQ(invalid(s), "");
  EXPECT_EQ(invalid(spirv(kAdd, small)), "");
  EXPECT_EQ(invalid(spirv(kHalves, halves)), "");
  EXPECT_EQ(invalid(spirv(kDivergentShuffle)), "");
  EXPECT_EQ(invalid(spirv(kDivergentShuffle, subgroups)), "");
  for (std::string_view body : {
           "atom.shared.add.f32 %f0, [tile], 0f3F800000;\nst.global.f32 [%rd1], %f0;",
           "atom.global.cas.b32 %r2, [%rd1], 1, 2;\nred.global.min.s32 [%rd1], %r2;\nred.shared.max.u32 "
           "[tile], 4;",
           "ld.global.v4.b32 {%r2, %r3, %r4, %r5}, [%rd0];\nst.shared.v2.b32 [tile+8], {%r2, %r3};\nbar.sync "
           "0;\nst.global.b16 [%rd1], %h1;",
           "vote.sync.ballot.b32 %r2, %p0, -1;\nbar.red.popc.u32 %r3, 0, %p0;\nadd.u32 %r2, %r2, "
           "%r3;\nredux.sync.max.s32 %r4, %r2, -1;\n"
           "st.global.v2.b32 [%rd1], {%r2, %r4};",
           "ld.volatile.global.v2.b32 {%r2, %r3}, [%rd0];\nst.volatile.global.b32 [%rd1], "
           "%r2;\nmembar.gl;\nst.shared.b8 [tile+3], %r3;",
           "cvt.rn.f16.f32 %h0, %f0;\nadd.f16 %h1, %h0, %h0;\ncvt.rni.s32.f32 %r2, %f1;\ndiv.u64 %rd2, %rd0, "
           "3;\ncvt.u32.u64 %r3, %rd2;\n"
           "st.global.b16 [%rd1], %h1;\nst.global.v2.b32 [%rd1+4], {%r2, %r3};",
       }) {
    SCOPED_TRACE(body);
    EXPECT_EQ(invalid(spirv(body)), "");
  }
}

/// One sequence of testdata/instructions.txt: r1 to r3 and f1 to f4 are its inputs, r10 and r11 its results.
std::string instruction_kernel(std::string_view body) {
  std::string lines(body);
  for (std::size_t at = 0; (at = lines.find("; ", at)) != std::string::npos; ++at) lines[at + 1] = '\n';
  return text::cat(R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 .ptr .global .align 16 in, .param .u64 .ptr .global .align 16 out)
.reqntid 128, 1, 1
{
.reg .b64 %rd<24>;
.reg .b32 %r<24>;
.reg .f32 %f<12>;
.reg .pred %p<8>;
.reg .b16 %h<8>;
.shared .align 16 .b8 tile[512];
.local .align 16 .b8 loc[16];
mov.u32 %r0, %tid.x;
mul.wide.u32 %rd10, %r0, 16;
ld.param.u64 %rd11, [in];
ld.param.u64 %rd12, [out];
add.u64 %rd11, %rd11, %rd10;
add.u64 %rd12, %rd12, %rd10;
ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd11];
mov.b32 %f1, %r1;
mov.b32 %f2, %r2;
mov.b32 %f3, %r3;
mov.b32 %f4, %r4;
mov.b64 %rd1, {%r1, %r2};
mov.b64 %rd2, {%r3, %r1};
mov.b32 {%h5, %h6}, %r2;
mov.b32 %r11, 0;
)",
                   lines, "\nst.global.v2.b32 [%rd12], {%r10, %r11};\nret;\n}\n");
}

TEST(both, take_every_instruction_of_the_subset) {
  const std::string list = read_file(CGP_SHADER_TESTDATA "/instructions.txt");
  int count = 0;
  for (std::string_view line : text::split(list, '\n')) {
    if (line.empty()) continue;
    SCOPED_TRACE(line);
    const ptx::Module m = ptx::parse(instruction_kernel(line.substr(line.find(':') + 2)));
    EXPECT_EQ(refusal([&] { translate_wgsl(m, "k"); }), "translated");
    EXPECT_EQ(refusal([&] {
                const Shader s = translate_spirv(m, "k");
                if (count % 16 == 0 && have_spirv_val()) {
                  EXPECT_EQ(invalid(s), "");
                }
              }),
              "translated");
    ++count;
  }
  EXPECT_GT(count, 190);
}

TEST(both, are_deterministic) {
  EXPECT_EQ(wgsl(kDivergentShuffle).wgsl, wgsl(kDivergentShuffle).wgsl);
  EXPECT_EQ(spirv(kDivergentShuffle).spirv, spirv(kDivergentShuffle).spirv);
}

}  // namespace
}  // namespace cgp::shader

// SPDX-License-Identifier: Apache-2.0
// Rules that were measured on an H200 with the corpus of tools/numerics, and instructions of the rarer kind:
// each against a few values worked out by hand or given by the card.
#include <bit>
#include <cmath>

#include "cgp/emu/async/tensor_map.h"
#include "cgp/emu/core/run_ptx_impl.h"

namespace cgp::emu::testing {
namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

u32 one32(const std::string& body, u32 a, u32 b = 0, u32 c = 0) {
  return run_lanes<u32, u32>(body, {a}, {b}, {c})[0];
}
u64 one64(const std::string& body, u64 a, u64 b = 0, u64 c = 0) {
  return run_lanes<u64, u64>(body, {a}, {b}, {c})[0];
}
constexpr u64 kPayload = 0x7ff800000000002dull, kSignalling = 0xfff0000000000001ull;

}  // namespace

TEST(measured, an_f64_nan_goes_on) {
  EXPECT_EQ(one64("add.f64 %d,%a,%b;", kPayload, 0), kPayload);
  EXPECT_EQ(one64("add.f64 %d,%a,%b;", kSignalling, 0), 0xfff8000000000001ull);
  EXPECT_EQ(one64("mul.f64 %d,%a,%b;", kPayload, kSignalling), 0xfff8000000000001ull);  // the second's
  EXPECT_EQ(one64("div.rn.f64 %d,%a,%b;", kPayload, kSignalling), kPayload);            // the dividend's
  EXPECT_EQ(one64("fma.rn.f64 %d,%a,%b,%c;", kSignalling, 0, kPayload), kPayload);      // c before a
  EXPECT_EQ(one64("fma.rn.f64 %d,%a,%b,%c;", 0, kSignalling, kPayload), 0xfff8000000000001ull);  // b before c
  EXPECT_EQ(one64("sub.f64 %d,%a,%b;", 0x7ff0000000000000ull, 0x7ff0000000000000ull), 0xfff8000000000000ull);
  EXPECT_EQ(one64("neg.f64 %d,%a;", kPayload), kPayload);
  EXPECT_EQ(one64("abs.f64 %d,%a;", kSignalling), 0xfff8000000000001ull);
  EXPECT_EQ(one64("min.f64 %d,%a,%b;", kPayload, kSignalling), 0xfff8000000000001ull);
}

TEST(measured, other_nans) {
  EXPECT_EQ(one32("neg.f32 %d,%a;", 0x7fc00000), 0x7fffffffu);
  EXPECT_EQ(one32("abs.f32 %d,%a;", 0xff800001), 0x7fffffffu);
  EXPECT_EQ(one32("cvt.rna.tf32.f32 %d,%a;", 0x7fc0002d), 0x7fc00000u);
  EXPECT_EQ(one32("cvt.rn.tf32.f32 %d,%a;", 0x7fc0002d), 0x7fffe000u);
  EXPECT_EQ(one32("cvt.f32.f32 %d,%a;", 0x7f800001), 0x7f800001u);
  EXPECT_EQ((run_lanes<u32, u64>("cvt.rn.f32.f64 %d,%a;", {kSignalling}, {0}, {0})[0]), 0xffc00000u);
  EXPECT_EQ((run_lanes<u32, u64>("cvt.rzi.u8.f64 %d,%a;", {kPayload}, {0}, {0})[0]), 0x80u);
  EXPECT_EQ((run_lanes<u32, u64>("cvt.rzi.s16.f64 %d,%a;", {kPayload}, {0}, {0})[0]), 0xffff8000u);
  EXPECT_EQ((run_lanes<u64, u32>("cvt.f64.f32 %d,%a;", {0x7f800001}, {0}, {0})[0]), 0x7ff8000020000000ull);
}

TEST(measured, flushing_looks_at_the_unrounded_product) {
  EXPECT_EQ(one32("mul.ftz.f32 %d,%a,%b;", 0x3f7fffff, 0x00800000), 0u);
  EXPECT_EQ(one32("mul.f32 %d,%a,%b;", 0x3f7fffff, 0x00800000), 0x00800000u);
  EXPECT_EQ(one32("div.rp.ftz.f32 %d,%a,%b;", 0x00800000, 0x3f800001), 0u);
  EXPECT_EQ(one32("cvt.rm.ftz.f16.f32 %h0,%a; mov.b32 %d,{%h0,%h0};", 0x80000001), 0x80018001u);
}

TEST(measured, integers) {
  EXPECT_EQ(one32("rem.u32 %d,%a,%b;", 5, 0), ~0u);
  EXPECT_EQ(one64("cvt.u32.u64 %r0,%b; cvt.u32.u64 %r1,%c; bfe.u64 %d,%a,%r0,%r1;", 15, 0, 0x100), 15u);
  EXPECT_EQ(one32("bfe.u32 %d,%a,%b,%c;", 15, 0, 0x100), 0u);  // of 32 bits eight count
  EXPECT_EQ(one32("div.approx.f32 %d,%a,%b;", 0x7f7fffff, 0x7f7fffff), 0u);
  EXPECT_EQ(one32("testp.normal.f32 %p0,%a; selp.u32 %d,1,0,%p0;", 0), 1u);
}

TEST(video, scalar) {
  EXPECT_EQ(one32("vadd.s32.s32.s32.sat %d,%a,%b;", 0x7fffffff, 1), 0x7fffffffu);
  EXPECT_EQ(one32("vsub.u32.u32.u32.sat %d,%a,%b;", 1, 2), 0u);
  EXPECT_EQ(one32("vabsdiff.u32.u32.u32.add %d,%a,%b,%c;", 3, 10, 100), 107u);
  EXPECT_EQ(one32("vmin.s32.s32.s32.max %d,%a,%b,%c;", u32(-5), 3, u32(-2)), u32(-2));
  EXPECT_EQ(one32("vshl.u32.u32.u32.clamp %d,%a,%b;", 1, 40), 0u);
  EXPECT_EQ(one32("vshl.u32.u32.u32.wrap %d,%a,%b;", 1, 40), 256u);
  EXPECT_EQ(one32("vshr.s32.s32.u32.clamp %d,%a,%b;", 0x80000000, 4), 0xf8000000u);
  EXPECT_EQ(one32("vmad.s32.s32.s32.shr7 %d,%a,%b,%c;", 1000, u32(-3), 56), u32(-23));
  EXPECT_EQ(one32("vmad.u32.u32.u32.po %d,%a,%b,%c;", 10, 10, 10), 111u);
  EXPECT_EQ(one32("vset.s32.s32.lt.add %d,%a,%b,%c;", u32(-1), 1, 41), 42u);
}

TEST(blackwell_arithmetic, mixed_precision_and_pairs) {
  const auto run = [](const std::string& body, u64 a, u64 b, u64 c) {
    Bench bench(lane_kernel(body, 64, 64, "sm_100a"), false, "sm_100a");
    std::vector<u64> in(96);
    for (std::size_t l = 0; l < 32; ++l) in[l] = a, in[32 + l] = b, in[64 + l] = c;
    const auto pin = bench.upload(in, "in");
    const auto pout = bench.machine.alloc(256, "out");
    const Result r = bench.run("k", {}, {32, 1, 1}, Params().add(pin).add(pout));
    EXPECT_TRUE(r.findings.empty());
    return bench.download<u64>(pout, 32)[0];
  };
  // 1.5 (f16) + 2^-24 in f32: rounded down and up
  const std::string mixed = "cvt.u16.u64 %h0,%a; cvt.u32.u64 %r0,%b; mov.b32 %f0,%r0; ";
  EXPECT_EQ(
      run(mixed + "add.rz.f32.f16 %f1,%h0,%f0; mov.b32 %r1,%f1; cvt.u64.u32 %d,%r1;", 0x3e00, 0x33800000, 0),
      0x3fc00000u);
  EXPECT_EQ(
      run(mixed + "add.rp.f32.f16 %f1,%h0,%f0; mov.b32 %r1,%f1; cvt.u64.u32 %d,%r1;", 0x3e00, 0x33800000, 0),
      0x3fc00001u);
  EXPECT_EQ(run(mixed + "fma.rn.f32.bf16 %f1,%h0,%h0,%f0; mov.b32 %r1,%f1; cvt.u64.u32 %d,%r1;", 0x4040,
                0x3f800000, 0),
            0x41200000u);  // 3 * 3 + 1
  const u64 one_and_two = 0x400000003f800000ull, tiny = 0x3300000033000000ull;
  EXPECT_EQ(run("add.rp.f32x2 %d,%a,%b;", one_and_two, tiny, 0), 0x400000013f800001ull);
  EXPECT_EQ(run("add.rz.f32x2 %d,%a,%b;", one_and_two, tiny, 0), one_and_two);
  EXPECT_EQ(run("fma.rm.f32x2 %d,%a,%b,%c;", one_and_two, one_and_two, tiny), 0x408000003f800000ull);
}

namespace {
// cvt.rs with word 1 << lane (or all of `words`) as the random operand and sources given as f32 literals.
std::vector<u32> converted(const std::string& form, const std::vector<float>& sources,
                           std::vector<u32> words = {}) {
  std::string body, list;
  for (std::size_t n = 0; n < sources.size(); ++n) {
    body += text::cat("mov.b32 %f", n, ", ", std::bit_cast<u32>(sources[n]), ";\n");
    list += text::cat(n ? ", %f" : "%f", n);
  }
  const bool four = sources.size() == 4, narrow = form.find("e2m1x4") != std::string::npos;
  body += text::cat(form, narrow ? " %h0, " : " %d, ", four ? "{" : "", list, four ? "}" : "", ", %a;\n",
                    narrow ? "cvt.u32.u16 %d, %h0;" : "");
  if (words.empty())
    for (u32 b = 0; b < 32; ++b) words.push_back(1u << b);
  words.resize(96, words[0]);
  Bench bench(lane_kernel(body, 32, 32, "sm_100a"), false, "sm_100a");
  const auto in = bench.upload(words, "in");
  const auto out = bench.machine.alloc(128, "out");
  const Result r = bench.run("k", {}, {32, 1, 1}, Params().add(in).add(out));
  EXPECT_TRUE(r.findings.empty()) << form;
  return bench.download<u32>(out, 32);
}

struct RandomForm {
  const char* form;
  int mantissa, random_bits, storage;
  u32 one;                ///< 1.0
  std::vector<u32> used;  ///< bits of the random operand, by source
  std::vector<u32> top;   ///< the heaviest of them
};
}  // namespace

// Measured on an sm_100a by others with this very method: which bits of the operand round which source.
TEST(convert_random, every_source_has_its_bits) {
  const RandomForm forms[] = {
      {"cvt.rs.f16x2.f32", 10, 13, 16, 0x3c00, {0x1fff0000, 0x1fff}, {28, 12}},
      {"cvt.rs.bf16x2.f32", 7, 16, 16, 0x3f80, {0xffff0000, 0xffff}, {31, 15}},
      {"cvt.rs.satfinite.e4m3x4.f32", 3, 16, 8, 0x38, {~0xffffu, ~0xffffu, 0xffff, 0xffff}, {16, 31, 0, 15}},
      {"cvt.rs.satfinite.e5m2x4.f32", 2, 16, 8, 0x3c, {~0xffffu, ~0xffffu, 0xffff, 0xffff}, {16, 31, 0, 15}},
      {"cvt.rs.satfinite.e2m1x4.f32",
       1,
       16,
       4,
       2,
       {0xff00ff00, 0xff00ff00, 0xff00ff, 0xff00ff},
       {8, 31, 0, 23}}};
  for (const RandomForm& f : forms) {
    const std::size_t n = f.used.size();
    // A fraction of all ones goes up with any bit, one half only with the heaviest.
    const float any = 1 + std::ldexp(1 - std::ldexp(1.0f, -f.random_bits), -f.mantissa),
                half = 1 + std::ldexp(0.5f, -f.mantissa);
    const auto with_any = converted(f.form, std::vector<float>(n, any)),
               with_top = converted(f.form, std::vector<float>(n, half));
    for (std::size_t s = 0; s < n; ++s) {
      const int at = f.storage * int(n - 1 - s);
      const u32 mask = (1u << f.storage) - 1;
      for (u32 bit = 0; bit < 32; ++bit) {
        EXPECT_EQ(with_any[bit] >> at & mask, f.one + (f.used[s] >> bit & 1))
            << f.form << " " << s << " " << bit;
        EXPECT_EQ(with_top[bit] >> at & mask, f.one + (f.top[s] == bit)) << f.form << " " << s << " " << bit;
      }
    }
  }
}

TEST(convert_random, ends_of_the_range) {
  const float nan = std::bit_cast<float>(0x7fc00001u);
  const auto one = [](const std::string& form, const std::vector<float>& sources, u32 word) {
    return converted(form, sources, {word})[0];
  };
  EXPECT_EQ(one("cvt.rs.f16x2.f32", {65519, -65519}, 0), 0x7bfffbffu);
  EXPECT_EQ(one("cvt.rs.f16x2.f32", {65519, -65519}, 0x1fff1fff), 0x7c00fc00u);
  EXPECT_EQ(one("cvt.rs.satfinite.f16x2.f32", {65519, -1e30f}, 0x1fff1fff), 0x7bfffbffu);
  EXPECT_EQ(one("cvt.rs.relu.f16x2.f32", {-65519, nan}, 0), 0x00007fffu);
  EXPECT_EQ(one("cvt.rs.bf16x2.f32", {1.999999f, -0.0f}, ~0u), 0x40008000u);  // a carry into the exponent
  EXPECT_EQ(one("cvt.rs.satfinite.e4m3x4.f32", {447, 1e9f, -1e9f, nan}, ~0u), 0x7e7efe7fu);
  EXPECT_EQ(one("cvt.rs.relu.satfinite.e4m3x4.f32", {447, 1e9f, -1e9f, 1}, 0), 0x7d7e0038u);
  EXPECT_EQ(one("cvt.rs.satfinite.e5m2x4.f32", {1e9f, -1e9f, 65536, 0}, 0), 0x7bfb7b00u);
  // 1.5 of the smallest subnormal number, 2^-9: up with one half or more.
  const float small = std::ldexp(1.5f, -9);
  EXPECT_EQ(one("cvt.rs.satfinite.e4m3x4.f32", {small, small, -small, small}, 0x80008000), 0x01028102u);
  EXPECT_EQ(one("cvt.rs.satfinite.e2m1x4.f32", {100, -100, nan, 0}, 0), 0x7f70u);
  EXPECT_EQ(one("cvt.rs.satfinite.e3m2x4.f32", {100, -100, nan, 28}, ~0u), 0x1f3f1f1fu);
  EXPECT_EQ(one("cvt.rs.satfinite.e2m3x4.f32", {100, -1.0625f, 1.0625f, 7.5f}, 0), 0x1f28081fu);
}

TEST(multimem, one_copy) {
  Bench bench(
      header() +
      ".visible .entry k(.param .u64 p){ .reg .b64 %a; .reg .b32 %r<4>; .reg .f32 %f<4>; .reg .b64 %q;\n"
      "ld.param.u64 %a,[p];\n"
      "multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%f0,%f1,%f2,%f3},[%a];\n"
      "multimem.st.relaxed.sys.global.v4.f32 [%a+16],{%f3,%f2,%f1,%f0};\n"
      "multimem.red.release.gpu.global.add.v2.f32 [%a+16],{%f0,%f1};\n"
      "mov.u32 %r0,7;\nmultimem.red.relaxed.gpu.global.max.u32 [%a+32],%r0;\nret; }\n");
  const auto p = bench.upload(std::vector<float>{1, 2, 3, 4, 0, 0, 0, 0, 0, 0}, "p");
  const Result r = bench.run("k", {}, {1, 1, 1}, Params().add(p));
  EXPECT_TRUE(r.findings.empty());
  EXPECT_EQ(bench.download<float>(p, 8), (std::vector<float>{1, 2, 3, 4, 5, 5, 2, 1}));
  EXPECT_EQ(bench.download<u32>(p + 32, 1)[0], 7u);
}

TEST(tensor_map, replaced_fields_and_a_published_copy) {
  TensorMap map;
  map.type = TensorMapType::u8;
  map.rank = 2;
  map.address = 0x1000;
  map.dims = {32, 8, 1, 1, 1};
  map.strides = {0, 64, 0, 0, 0};
  map.box = {16, 2, 1, 1, 1};
  const auto bytes = map.encode();
  Bench bench(header() + R"(.visible .entry k(.param .u64 from, .param .u64 to){
.shared .align 128 .b8 sm[128]; .reg .b64 %a<4>; .reg .b32 %r<8>;
ld.param.u64 %a0,[from]; ld.param.u64 %a1,[to]; mov.u32 %r0,%laneid; mov.u32 %r1,sm; shl.b32 %r2,%r0,2;
add.u32 %r3,%r1,%r2; cvt.u64.u32 %a2,%r2; add.u64 %a2,%a2,%a0; ld.global.b32 %r4,[%a2]; st.shared.b32 [%r3],%r4;
bar.warp.sync 0xffffffff;
mov.u64 %a3,0x22000; tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r1],%a3;
mov.u32 %r5,2; tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r1],%r5;
mov.u32 %r5,4; tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r1],2,%r5;
mov.u32 %r5,9; tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r1],2,%r5;
mov.u64 %a3,4096; tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%r1],1,%a3;
mov.u32 %r5,2; tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%r1],1,%r5;
tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%r1],10;
tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%r1],2;
tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%r1],1;
bar.warp.sync 0xffffffff;
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%a1],[%r1],128;
ret; }
)");
  const auto from = bench.upload(std::vector<std::byte>(bytes.begin(), bytes.end()), "from");
  const auto to = bench.machine.alloc(128, "to");
  const Result r = bench.run("k", {}, {32, 1, 1}, Params().add(from).add(to));
  for (const Finding& f : r.findings) ADD_FAILURE() << describe(f);
  const auto out = bench.download<std::byte>(to, 128);
  TensorMap now;
  std::string why;
  ASSERT_TRUE(TensorMap::decode(std::span<const std::byte, 128>(out.data(), 128), now, why)) << why;
  EXPECT_EQ(now.address, 0x22000u);
  EXPECT_EQ(now.rank, 3);
  EXPECT_EQ(now.box[2], 4u);
  EXPECT_EQ(now.dims[2], 9u);
  EXPECT_EQ(now.strides[2], 4096u);
  EXPECT_EQ(now.element_strides[1], 2u);
  EXPECT_EQ(now.type, TensorMapType::bf16);
  EXPECT_EQ(now.swizzle, TensorMapSwizzle::b64);
  EXPECT_EQ(now.fill, TensorMapFill::nan);
}

TEST(tensor_map, an_edit_of_something_else_is_reported) {
  Bench bench(
      header() +
      ".visible .entry k(.param .u64 p){ .reg .b64 %a; .reg .b32 %r;\nld.param.u64 %a,[p];\nmov.u32 %r,1;\n"
      "tensormap.replace.tile.rank.global.b1024.b32 [%a],%r;\nret; }\n");
  const auto p = bench.upload(std::vector<u32>(32, 7), "p");
  const Result r = bench.run("k", {}, {1, 1, 1}, Params().add(p));
  ASSERT_EQ(r.findings.size(), 1u);
  EXPECT_EQ(r.findings[0].cls, "tensormap");
}

}  // namespace cgp::emu::testing

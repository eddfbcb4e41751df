// SPDX-License-Identifier: Apache-2.0
// Shuffles, votes, matches, reductions, named barriers, atomics.
#include <algorithm>
#include <numeric>

#include "cgp/base/float16.h"
#include "cgp/emu/core/run_ptx_impl.h"

namespace cgp::emu {
using namespace testing;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

namespace {
std::vector<u32> lanes(u32 (*f)(u32)) {
  std::vector<u32> v;
  for (u32 l = 0; l < 32; ++l) v.push_back(f(l));
  return v;
}
}  // namespace

// d = a[j] by the pseudocode of PTX ISA, shfl.sync, for all modes, widths and distances.
TEST(warp, shuffles) {
  const auto a = lanes([](u32 l) { return l * 3 + 100; });
  struct Mode {
    const char* name;
    int kind;
  };
  for (const Mode m : {Mode{"up", 0}, Mode{"down", 1}, Mode{"bfly", 2}, Mode{"idx", 3}})
    for (int width : {32, 16, 8, 4})
      for (int b : {0, 1, 3, 7, 16, 31}) {
        const int segmask = 32 - width, clamp = m.kind == 0 ? 0 : 31;
        const std::string text =
            text::cat("shfl.sync.", m.name, ".b32 %r0|%p0, %a, ", b, ", ", segmask << 8 | clamp,
                      ", -1; selp.u32 %r1, 0x10000, 0, %p0; add.u32 %d, %r0, %r1;");
        const auto got = run_lanes<u32>(text, a, a, a);
        for (int l = 0; l < 32; ++l) {
          const int first = l / width * width, last = first + width - 1;
          int j = m.kind == 0 ? l - b : m.kind == 1 ? l + b : m.kind == 2 ? l ^ b : first + b % width;
          const bool ok = m.kind == 0 ? j >= first : j <= last;
          if (!ok) j = l;
          ASSERT_EQ(got[std::size_t(l)], a[std::size_t(j)] + (ok ? 0x10000 : 0)) << text << " lane " << l;
        }
      }
}

TEST(warp, shuffle_reads_before_it_writes) {
  const auto a = lanes([](u32 l) { return l; });
  const auto got = run_lanes<u32>("mov.b32 %d, %a; shfl.sync.bfly.b32 %d, %d, 1, 31, -1;", a, a, a);
  for (u32 l = 0; l < 32; ++l) EXPECT_EQ(got[l], l ^ 1);
}

// Both sides of a branch meet in one exchange, from different instructions.
TEST(warp, rendezvous_across_a_branch) {
  const auto a = lanes([](u32 l) { return l * l; });
  const auto got = run_lanes<u32>(R"(
  setp.lt.u32 %p0, %t, 16;
  @%p0 bra LOW;
  add.u32 %r1, %a, 1000;
  shfl.sync.idx.b32 %d, %r1, 3, 31, -1;
  bra DONE;
LOW:
  add.u32 %r2, %a, 5;
  shfl.sync.idx.b32 %d, %r2, 20, 31, -1;
  add.u32 %d, %d, 1;
DONE:
)",
                                  a, a, a);
  for (u32 l = 0; l < 32; ++l) EXPECT_EQ(got[l], l < 16 ? 20 * 20 + 1000 + 1 : 9 + 5);
}

TEST(warp, votes_matches_and_reductions) {
  const auto a = lanes([](u32 l) { return l / 5 * 7 + (l == 13 ? 1000 : 0); });
  const auto s = lanes([](u32 l) { return u32(int(l * 37 % 23) - 11); });
  auto run = [&](const char* t) { return run_lanes<u32>(t, a, s, a); };
  const auto ballot = run("setp.gt.s32 %p0,%b,0; vote.sync.ballot.b32 %d,%p0,-1;");
  const auto all =
      run("setp.lt.s32 %p0,%b,12; vote.sync.all.pred %p1,%p0,-1; vote.sync.any.pred %p2,!%p0,-1; selp.u32 "
          "%r0,1,0,%p1; selp.u32 %r1,2,0,%p2; or.b32 %d,%r0,%r1;");
  const auto uni = run("setp.gt.s32 %p0,%b,0; vote.sync.uni.pred %p1,%p0,-1; selp.u32 %d,1,0,%p1;");
  const auto any = run("match.any.sync.b32 %d,%a,-1;");
  const auto same = run("shr.u32 %r0,%a,31; match.all.sync.b32 %r1|%p0,%r0,-1; selp.u32 %d,%r1,7,%p0;");
  const auto differ = run("match.all.sync.b32 %r1|%p0,%a,-1; selp.u32 %d,%r1,7,%p0;");
  const auto sum = run("redux.sync.add.s32 %d,%b,-1;");
  const auto low = run("redux.sync.min.s32 %d,%b,-1;");
  const auto high = run("redux.sync.max.u32 %d,%b,-1;");
  const auto bits = run("redux.sync.xor.b32 %d,%b,-1;");
  u32 want_ballot = 0, want_sum = 0, want_xor = 0;
  for (u32 l = 0; l < 32; ++l) {
    want_ballot |= u32(int(s[l]) > 0) << l;
    want_sum += s[l];
    want_xor ^= s[l];
  }
  for (u32 l = 0; l < 32; ++l) {
    EXPECT_EQ(ballot[l], want_ballot);
    EXPECT_EQ(all[l], 1u);
    EXPECT_EQ(uni[l], 0u);
    u32 group = 0;
    for (u32 k = 0; k < 32; ++k) group |= u32(a[k] == a[l]) << k;
    EXPECT_EQ(any[l], group);
    EXPECT_EQ(same[l], ~0u);
    EXPECT_EQ(differ[l], 7u);
    EXPECT_EQ(sum[l], want_sum);
    EXPECT_EQ(int(low[l]),
              int(*std::min_element(s.begin(), s.end(), [](u32 x, u32 y) { return int(x) < int(y); })));
    EXPECT_EQ(high[l], *std::max_element(s.begin(), s.end()));
    EXPECT_EQ(bits[l], want_xor);
  }
}

TEST(warp, partial_masks_elect_and_activemask) {
  const auto a = lanes([](u32 l) { return l; });
  const auto got = run_lanes<u32>(R"(
  setp.lt.u32 %p0, %t, 12;
  mov.u32 %d, 77;
  @!%p0 bra E;
  elect.sync %r1|%p1, 0xfff;
  activemask.b32 %r2;
  redux.sync.add.u32 %r3, %a, 0xfff;
  selp.u32 %r4, 100000, 0, %p1;
  add.u32 %d, %r1, %r2;
  add.u32 %d, %d, %r3;
  add.u32 %d, %d, %r4;
E:
)",
                                  a, a, a);
  for (u32 l = 0; l < 32; ++l) EXPECT_EQ(got[l], l < 12 ? 0xfffu + 66 + (l == 0 ? 100000 : 0) : 77u) << l;
}

TEST(warp, wrong_masks_are_reported) {
  auto findings = [](const std::string& body) {
    Bench b(lane_kernel(body));
    const auto in = b.upload(std::vector<u32>(96), "in");
    const auto out = b.machine.alloc(128, "out");
    return b.run("k", {}, {32, 1, 1}, Params().add(in).add(out)).findings;
  };
  // lanes 16.. call with a mask that does not name them
  auto f = findings("mov.b32 %d,0; setp.eq.u32 %p0,%d,0; vote.sync.ballot.b32 %d, %p0, 0xffff;");
  ASSERT_EQ(f.size(), 1u);
  EXPECT_EQ(f[0].cls, "sync.mask");
  EXPECT_EQ(f[0].thread.x, 16u);
  // a named lane exits instead
  f = findings(
      "setp.eq.u32 %p0,%t,31; @%p0 exit; setp.lt.u32 %p1,%t,16; @!%p1 bra X; shfl.sync.idx.b32 "
      "%d,%a,31,31,-1; X: mov.b32 %d,0;");
  ASSERT_GE(f.size(), 1u);
  EXPECT_EQ(f[0].cls, "sync.mask");
}

TEST(barrier, named_barriers_and_reductions) {
  Bench b(header() + R"(
.shared .align 4 .b8 s[256];
.visible .entry k(.param .u64 pout)
{
  .reg .b32 %r<16>; .reg .b64 %rd<4>; .reg .pred %p<8>;
  ld.param.u64 %rd0, [pout];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, s;
  shl.b32 %r2, %r0, 2;
  add.u32 %r2, %r1, %r2;
  setp.ge.u32 %p0, %r0, 64;
  @%p0 bra CONSUMER;
  st.shared.u32 [%r2], %r0;
  bar.arrive 3, 128;
  bra JOIN;
CONSUMER:
  bar.sync 3, 128;
  ld.shared.u32 %r4, [%r2+-256];
  add.u32 %r4, %r4, 1000;
  add.u32 %r5, %r0, -64;
  mul.wide.u32 %rd1, %r5, 4;
  add.u64 %rd1, %rd0, %rd1;
  st.global.u32 [%rd1], %r4;
JOIN:
  setp.lt.u32 %p1, %r0, 10;
  bar.red.popc.u32 %r6, 0, %p1;
  bar.red.and.pred %p2, 0, %p1;
  bar.red.or.pred %p3, 0, %p1;
  setp.ne.u32 %p4, %r0, 127;
  @%p4 bra E;
  selp.u32 %r7, 100, 0, %p2;
  selp.u32 %r8, 1000, 0, %p3;
  add.u32 %r6, %r6, %r7;
  add.u32 %r6, %r6, %r8;
  st.global.u32 [%rd0+256], %r6;
E: ret;
}
)");
  const auto out = b.machine.alloc(65 * 4);
  const Result r = b.run("k", {}, {128, 1, 1}, Params().add(out));
  for (const Finding& f : r.findings) ADD_FAILURE() << describe(f);
  const auto v = b.download<u32>(out, 65);
  for (u32 t = 0; t < 64; ++t) EXPECT_EQ(v[t], t + 1000);
  EXPECT_EQ(v[64], 1010u);
}

TEST(barrier, misuse_is_reported) {
  auto classes = [](const std::string& body, u32 threads) {
    Bench b(header() + ".visible .entry k()\n{\n.reg .b32 %r<8>; .reg .pred %p<4>; mov.u32 %r0, %tid.x;\n" +
            body + "\nret;\n}\n");
    const Result r = b.run("k", {}, {threads, 1, 1}, {});
    EXPECT_EQ(r.findings.size(), 1u);
    return r.findings.empty() ? Finding{} : r.findings[0];
  };
  Finding f = classes("setp.lt.u32 %p0, %r0, 16;\n@%p0 bra A;\nbar.sync 0;\nbra B;\nA: bar.sync 0;\nB:", 32);
  EXPECT_EQ(f.cls, "barrier.divergence");
  EXPECT_TRUE(f.ptx_line == 9 || f.ptx_line == 11) << f.ptx_line;
  f = classes("setp.lt.u32 %p0, %r0, 32;\n@%p0 bar.sync 1, 96;", 64);
  EXPECT_EQ(f.cls, "deadlock");
  EXPECT_NE(f.message.find("32 of 96"), std::string::npos) << f.message;
  f = classes("bar.sync 0, 48;", 64);
  EXPECT_EQ(f.cls, "barrier.count");
  f = classes("setp.lt.u32 %p0, %r0, 32;\n@%p0 bra A;\nbar.sync 2, 64;\nbra B;\nA: bar.sync 2, 96;\nB:", 64);
  EXPECT_EQ(f.cls, "barrier.count");
}

TEST(barrier, exited_threads_are_excused) {
  Bench b(header() + R"(
.visible .entry k(.param .u64 p)
{
  .reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .pred %p<2>;
  ld.param.u64 %rd0, [p];
  mov.u32 %r0, %tid.x;
  setp.ge.u32 %p0, %r0, 40;
  @%p0 exit;
  bar.sync 0;
  red.global.add.u32 [%rd0], 1;
  ret;
}
)");
  const auto out = b.machine.alloc(4);
  b.machine.fill(out, 0, 4);
  const Result r = b.run("k", {}, {96, 1, 1}, Params().add(out));
  for (const Finding& f : r.findings) ADD_FAILURE() << describe(f);
  EXPECT_EQ(b.download<u32>(out, 1)[0], 40u);
}

TEST(atomic, integers) {
  struct Case {
    const char* text;
    u32 start, want;
    std::function<u32(u32)> dest;  ///< of the lane order
  };
  // 32 lanes with value l, in ascending order, on one word.
  auto run = [](const std::string& op, u32 start) {
    Bench b(lane_kernel(op + "\nmov.b32 %d, %r0;"));
    std::vector<u32> in(97);
    for (u32 l = 0; l < 32; ++l) in[l] = l;
    const auto pin = b.upload(in, "in");
    b.machine.write(pin + 96 * 4, std::as_bytes(std::span(&start, 1)));
    const auto out = b.machine.alloc(128, "out");
    const Result r = b.run("k", {}, {32, 1, 1}, Params().add(pin).add(out));
    for (const Finding& f : r.findings) ADD_FAILURE() << op << describe(f);
    return std::pair(b.download<u32>(pin, 97)[96], b.download<u32>(out, 32));
  };
  const std::string at = "ld.param.u64 %x3, [pin]; add.u64 %x3, %x3, 384; ";
  auto [sum, olds] = run(at + "atom.global.add.u32 %r0, [%x3], %a;", 5);
  EXPECT_EQ(sum, 5u + 496);
  for (u32 l = 0; l < 32; ++l) EXPECT_EQ(olds[l], 5 + l * (l - 1) / 2);
  EXPECT_EQ(run(at + "add.u32 %r1,%a,-16; atom.global.min.s32 %r0, [%x3], %r1;", 3).first, u32(-16));
  EXPECT_EQ(run(at + "atom.global.max.u32 %r0, [%x3], %a;", 3).first, 31u);
  EXPECT_EQ(run(at + "shl.b32 %r1,1,%a; atom.global.or.b32 %r0, [%x3], %r1;", 0).first, ~0u);
  EXPECT_EQ(run(at + "atom.global.and.b32 %r0, [%x3], %a;", 0xff).first, 0u);
  EXPECT_EQ(run(at + "atom.global.xor.b32 %r0, [%x3], %a;", 0xff).first, 0xffu);
  EXPECT_EQ(run(at + "atom.global.inc.u32 %r0, [%x3], 9;", 8).first, (8u + 32) % 10);
  EXPECT_EQ(run(at + "atom.global.dec.u32 %r0, [%x3], 9;", 2).first,
            0u /* 30 steps of the cycle of 10 after reaching 0 */);
  EXPECT_EQ(run(at + "atom.global.exch.b32 %r0, [%x3], %a;", 2).first, 31u);
  EXPECT_EQ(run(at + "add.u32 %r1,%a,1; atom.global.cas.b32 %r0, [%x3], %a, %r1;", 0).first, 32u);
  EXPECT_EQ(run(at + "red.global.add.u32 [%x3], 2; mov.u32 %r0, 0;", 1).first, 65u);
}

TEST(atomic, floats_vectors_and_shared) {
  Bench b(header() + R"(
.shared .align 8 .b8 s[16];
.visible .entry k(.param .u64 p)
{
  .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .f32 %f<8>; .reg .f64 %fd<4>; .reg .b16 %h<4>; .reg .pred %p;
  ld.param.u64 %rd0, [p];
  mov.u32 %r0, %tid.x;
  cvt.rn.f32.u32 %f0, %r0;
  cvt.rn.f64.u32 %fd0, %r0;
  red.global.add.f32 [%rd0], %f0;
  red.global.add.f64 [%rd0+8], %fd0;
  mov.u32 %r1, 0x3c003800;
  red.global.add.noftz.f16x2 [%rd0+16], %r1;
  mov.u32 %r2, 0x3f803f80;
  atom.global.add.noftz.bf16x2 %r3, [%rd0+20], %r2;
  red.global.add.v2.f32 [%rd0+24], {%f0, 0f3f800000};
  cvt.u64.u32 %rd1, %r0;
  atom.global.max.u64 %rd2, [%rd0+32], %rd1;
  mov.u32 %r4, s;
  setp.eq.u32 %p, %r0, 0;
  @%p st.shared.v2.u32 [%r4], {0, 0};
  bar.sync 0;
  red.shared.add.u32 [%r4], 1;
  atom.shared.add.f32 %f3, [%r4+4], 0f3f800000;
  bar.sync 0;
  ld.shared.u32 %r5, [%r4];
  ld.shared.u32 %r6, [%r4+4];
  @%p st.global.v2.u32 [%rd0+40], {%r5, %r6};
  ret;
}
)");
  const auto p = b.machine.alloc(48, "p");
  b.machine.fill(p, 0, 48);
  const Result r = b.run("k", {}, {64, 1, 1}, Params().add(p));
  for (const Finding& f : r.findings) ADD_FAILURE() << describe(f);
  const auto v = b.download<u32>(p, 12);
  auto f = [](u32 u) { return std::bit_cast<float>(u); };
  EXPECT_EQ(f(v[0]), 2016.0f);
  EXPECT_EQ(std::bit_cast<double>(u64(v[3]) << 32 | v[2]), 2016.0);
  EXPECT_EQ(v[4], u32(half(64.0).bits) << 16 | half(32.0).bits);
  EXPECT_EQ(v[5], u32(bfloat16(64.0).bits) << 16 | bfloat16(64.0).bits);
  EXPECT_EQ(f(v[6]), 2016.0f);
  EXPECT_EQ(f(v[7]), 64.0f);
  EXPECT_EQ(v[8], 63u);
  EXPECT_EQ(v[10], 64u);
  EXPECT_EQ(f(v[11]), 64.0f);
  // One word, 32 lanes: 31 conflicts for each of 2 warps and 2 atomics.
  EXPECT_EQ(r.counters.shared_atomic_conflicts, 4u * 31);
}

TEST(atomic, blocks_on_several_host_threads_do_not_lose_updates) {
  Bench b(header() + R"(
.visible .entry k(.param .u64 p)
{
  .reg .b32 %r<4>; .reg .b64 %rd<2>; .reg .pred %p;
  ld.param.u64 %rd0, [p];
  mov.u32 %r0, 0;
L: red.global.add.u32 [%rd0], 1;
  add.u32 %r0, %r0, 1;
  setp.lt.u32 %p, %r0, 50;
  @%p bra L;
  ret;
}
)");
  const auto p = b.machine.alloc(4);
  b.machine.fill(p, 0, 4);
  Options o;
  o.workers = 4;
  b.run("k", {64, 1, 1}, {96, 1, 1}, Params().add(p), o);
  EXPECT_EQ(b.download<u32>(p, 1)[0], 64u * 96 * 50);
}

}  // namespace cgp::emu

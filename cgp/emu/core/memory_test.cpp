// SPDX-License-Identifier: Apache-2.0
// Device memory, loads and stores of all widths, and every finding about memory with its class, place and
// buffer.
#include <numeric>

#include "cgp/emu/core/run_ptx_impl.h"

namespace cgp::emu {
using namespace testing;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

TEST(memory, host_calls_check_their_ranges) {
  Machine m;
  const auto a = m.alloc(100, "a");
  EXPECT_EQ(a % 256, 0u);
  EXPECT_TRUE(m.owns(a, 100));
  EXPECT_FALSE(m.owns(a, 101));
  std::vector<std::byte> x(101);
  EXPECT_THROW(m.write(a, x), ArgumentError);
  EXPECT_THROW(m.read(a + 60, std::span(x).first(50)), ArgumentError);
  m.fill(a, 0x5a, 100);
  const auto b = m.alloc(100, "b");
  EXPECT_GT(b, a + 100);
  m.copy(b, a, 100);
  m.read(b, std::span(x).first(100));
  EXPECT_EQ(x[99], std::byte(0x5a));
  m.free(a);
  EXPECT_FALSE(m.owns(a));
  EXPECT_THROW(m.free(a), ArgumentError);
  EXPECT_NE(m.alloc(100), a);
  EXPECT_THROW(Machine("sm_12"), Unsupported);
}

TEST(memory, names_of_checks) {
  EXPECT_EQ(parse_checks("all"), CheckSet::all());
  EXPECT_TRUE(parse_checks("none").empty());
  EXPECT_EQ(name(parse_checks("bounds, uninit")), "bounds,uninit");
  EXPECT_FALSE(parse_checks("all,-deadlock").has(Check::deadlock));
  EXPECT_THROW(parse_checks("bound"), ArgumentError);
  EXPECT_FALSE(parse_checks("all").has(Check::strict));
  EXPECT_EQ(parse_checks("strict"), CheckSet::all() | Check::strict);
  EXPECT_EQ(name(parse_checks("strict")), "strict");
  EXPECT_EQ(name(parse_checks("bounds,strict")), "bounds,strict");
  EXPECT_EQ(parse_checks("strict,-race"), (CheckSet::all() | Check::strict) - Check::race);
}

TEST(memory, widths_and_extensions) {
  Bench b(header() + R"(
.visible .entry k(.param .u64 pin, .param .u64 pout)
{
  .reg .b32 %r<16>; .reg .b64 %rd<16>; .reg .b16 %h<8>;
  ld.param.u64 %rd0, [pin];
  ld.param.u64 %rd1, [pout];
  ld.global.s8 %r0, [%rd0];
  ld.global.u8 %r1, [%rd0];
  ld.global.s16 %r2, [%rd0+2];
  ld.global.u16 %h0, [%rd0+2];
  cvt.u32.u16 %r3, %h0;
  ld.global.s8 %rd2, [%rd0];
  ld.global.s32 %rd3, [%rd0+4];
  ld.global.v4.u8 {%r4, %r5, _, %r6}, [%rd0+8];
  ld.global.v2.u64 {%rd4, %rd5}, [%rd0+16];
  st.global.v4.b32 [%rd1], {%r0, %r1, %r2, %r3};
  st.global.v2.b64 [%rd1+16], {%rd2, %rd3};
  st.global.v2.b32 [%rd1+32], {%r4, %r5};
  st.global.u8 [%rd1+40], %r6;
  st.global.u16 [%rd1+42], %r2;
  st.global.u8 [%rd1+41], %rd3;
  st.global.b32 [%rd1+44], 0x12345678;
  add.u64 %rd6, %rd4, %rd5;
  st.global.b64 [%rd1+48], %rd6;
  ret;
}
)");
  std::vector<std::uint8_t> in(32);
  for (std::size_t i = 0; i < 32; ++i) in[i] = std::uint8_t(0xf0 + i * 3);
  const auto pin = b.upload(in, "in");
  const auto out = b.machine.alloc(56, "out");
  const Result r = b.run("k", {}, {1, 1, 1}, Params().add(pin).add(out));
  for (const Finding& f : r.findings) ADD_FAILURE() << describe(f);
  const auto v = b.download<std::uint8_t>(out, 56);
  auto u32_at = [&](std::size_t i) {
    u32 x;
    std::memcpy(&x, &v[i], 4);
    return x;
  };
  auto u64_at = [&](const std::vector<std::uint8_t>& w, std::size_t i) {
    u64 x;
    std::memcpy(&x, &w[i], 8);
    return x;
  };
  EXPECT_EQ(u32_at(0), 0xfffffff0u);
  EXPECT_EQ(u32_at(4), 0xf0u);
  const u32 half = in[2] | u32(in[3]) << 8;
  EXPECT_EQ(u32_at(8), half | 0xffff0000u);
  EXPECT_EQ(u32_at(12), half);
  EXPECT_EQ(u64_at(v, 16), 0xfffffffffffffff0ull);
  u32 word;
  std::memcpy(&word, &in[4], 4);
  EXPECT_EQ(u64_at(v, 24), u64(std::int64_t(std::int32_t(word))));
  EXPECT_EQ(u32_at(32), in[8]);
  EXPECT_EQ(u32_at(36), in[9]);
  EXPECT_EQ(v[40], in[11]);
  EXPECT_EQ(v[41], in[4]);
  EXPECT_EQ(v[42], in[2]);
  EXPECT_EQ(u32_at(44), 0x12345678u);
  EXPECT_EQ(u64_at(v, 48), u64_at(in, 16) + u64_at(in, 24));
}

// Cooperative groups keep the barriers of large tiles in system memory behind the kernel's own: it begins as
// zeros, and does not count as the kernel's.
TEST(memory, reserved_shared_memory) {
  Bench b(header("sm_80") + R"(
.visible .entry k(.param .u64 pout)
{
  .reg .b32 %r<10>; .reg .b64 %rd<2>; .reg .pred %p<1>;
  .shared .align 4 .b8 own[20];
  ld.param.u64 %rd0, [pout];
  mov.u32 %r0, %reserved_smem_offset_1;
  ld.shared.u32 %r1, [%r0];
  st.shared.u32 [%r0], 7;
  ld.shared.u32 %r2, [%r0];
  mov.u32 %r3, %reserved_smem_offset_begin;
  mov.u32 %r4, %reserved_smem_offset_end;
  sub.u32 %r5, %r4, %r3;
  mov.u32 %r6, %reserved_smem_offset_cap;
  mov.u32 %r7, %total_smem_size;
  mov.u32 %r8, own;
  st.shared.u32 [%r8+16], %r1;
  setp.ge.u32 %p0, %r3, 20;
  selp.u32 %r9, 1, 0, %p0;
  st.global.v4.b32 [%rd0], {%r1, %r2, %r5, %r6};
  st.global.v2.b32 [%rd0+16], {%r7, %r9};
  ret;
}
)");
  const auto out = b.machine.alloc(24, "out");
  const Result r = b.run("k", {}, {1, 1, 1}, Params().add(out));
  EXPECT_TRUE(r.findings.empty());
  EXPECT_EQ(b.download<u32>(out, 6), (std::vector<u32>{0, 7, 1024, 1024, 128, 1}));  // units of 128
}

TEST(memory, values_of_128_bits) {
  Bench b(header() + R"(
.visible .entry k(.param .u64 p)
{
  .reg .b64 %rd<8>; .reg .b128 %q<2>;
  ld.param.u64 %rd0, [p];
  ld.global.b128 %q0, [%rd0];
  mov.b128 {%rd1, %rd2}, %q0;
  mov.b128 %q1, {%rd2, %rd1};
  st.global.b128 [%rd0+16], %q1;
  ret;
}
)");
  const auto p = b.upload(std::vector<u64>{1, 2, 0, 0}, "p");
  const Result r = b.run("k", {}, {1, 1, 1}, Params().add(p));
  EXPECT_TRUE(r.findings.empty());
  EXPECT_EQ(b.download<u64>(p, 4), (std::vector<u64>{1, 2, 2, 1}));
}

namespace {
// A kernel of 64 threads whose body may use %r<16> %rd<16> %f<4> %p<4>; %rd0 is the 256-byte buffer "buf",
// %rd1 another of 100 bytes that was never written ("fresh"); %t the thread, %x4 and %x8 the thread times 4
// and 8.
std::vector<Finding> findings(const std::string& body, const std::string& checks = "all,-race",
                              u32 dynamic = 0) {
  Bench b(header() +
          text::cat(
              ".extern .shared .align 16 .b8 dyn[];\n.shared .align 16 .b8 tile[256];\n"
              ".visible .entry k(.param .u64 a, .param .u64 b)\n{\n.reg .b32 %r<16>, %t; .reg .b64 %rd<16>, "
              "%x4, %x8; .reg .f32 %f<4>; .reg .pred %p<4>;\nld.param.u64 %rd0, [a]; ld.param.u64 %rd1, [b]; "
              "mov.u32 %t, %tid.x; mul.wide.u32 %x4, %t, 4; mul.wide.u32 %x8, %t, 8;\n",
              body, "\nret;\n}\n"));
  const auto buf = b.upload(std::vector<u32>(64, 1), "buf");
  const auto fresh = b.machine.alloc(100, "fresh");
  Options o;
  o.checks = parse_checks(checks);
  // The two blocks write the same words: a race of the program, which host threads would share and which is
  // not looked for here.
  o.workers = 1;
  return b.run("k", {2, 1, 1}, {64, 1, 1}, Params().add(buf).add(fresh), o, dynamic).findings;
}
}  // namespace

TEST(memory, findings_name_class_place_and_buffer) {
  auto f = findings("add.u64 %rd2, %rd0, %x8;\nld.global.u32 %r0, [%rd2];");
  ASSERT_EQ(f.size(), 1u);
  EXPECT_EQ(f[0].cls, "oob.global");
  EXPECT_EQ(f[0].buffer, "buf");
  EXPECT_EQ(f[0].byte_offset, 256);
  EXPECT_EQ(f[0].thread.x, 32u);
  EXPECT_EQ(f[0].block.x, 0u);
  EXPECT_EQ(f[0].count, 64u);
  EXPECT_NE(f[0].message.find("0 bytes past the end of 'buf' (256 bytes)"), std::string::npos)
      << f[0].message;

  f = findings("add.u64 %rd2, %rd0, %x4; add.u64 %rd2, %rd2, -4;\nst.global.u32 [%rd2], %t;");
  ASSERT_EQ(f.size(), 1u);
  EXPECT_EQ(f[0].byte_offset, -4);
  EXPECT_EQ(f[0].count, 2u);

  f = findings("add.u64 %rd2, %rd0, 2;\nld.global.u32 %r0, [%rd2];");
  ASSERT_EQ(f.size(), 1u);
  EXPECT_EQ(f[0].cls, "misaligned");
  EXPECT_EQ(f[0].byte_offset, 2);

  f = findings("add.u64 %rd2, %rd0, %x8;\nld.global.v4.u32 {%r0,%r1,%r2,%r3}, [%rd2];", "alignment,bounds");
  ASSERT_EQ(f.size(), 2u);

  f = findings("mov.u32 %r0, tile; cvt.u32.u64 %r1, %x8; add.u32 %r0, %r0, %r1;\nst.shared.u32 [%r0], %t;");
  ASSERT_EQ(f.size(), 1u);
  EXPECT_EQ(f[0].cls, "oob.shared");
  EXPECT_EQ(f[0].buffer, "tile");
  EXPECT_EQ(f[0].byte_offset, 256);

  // With 128 bytes of dynamic memory after the 256 static ones, thread 16 is the first beyond.
  f = findings("mov.u32 %r0, dyn; cvt.u32.u64 %r1, %x8; add.u32 %r0, %r0, %r1;\nst.shared.u32 [%r0], %t;",
               "all,-race", 128);
  ASSERT_EQ(f.size(), 1u);
  EXPECT_EQ(f[0].thread.x, 16u);
  EXPECT_EQ(f[0].buffer, "dyn");

  // From just before the first byte of 64-bit addresses to behind it: all of memory is between the lanes.
  f = findings(
      "mov.u64 %rd2, tile; add.u64 %rd2, %rd2, %x4; add.u64 %rd2, %rd2, -4;\nld.shared.u32 %r0, [%rd2];",
      "all,-race,-uninit");
  ASSERT_EQ(f.size(), 1u);
  EXPECT_EQ(f[0].cls, "oob.shared");
  EXPECT_EQ(f[0].thread.x, 0u);

  f = findings("mov.u64 %rd2, 0;\nld.global.u32 %r0, [%rd2];");
  ASSERT_EQ(f.size(), 1u);
  EXPECT_NE(f[0].hint.find("null"), std::string::npos);

  f = findings(
      ".local .align 4 .b8 l[16];\nmov.u64 %rd2, l; add.u64 %rd2, %rd2, %x4;\nst.local.u32 [%rd2], %t;");
  ASSERT_EQ(f.size(), 1u);
  EXPECT_EQ(f[0].cls, "oob.local");
  EXPECT_EQ(f[0].thread.x, 4u);
}

TEST(memory, never_written_data_is_reported_where_it_is_used) {
  auto f = findings(
      "setp.gt.u32 %p0, %t, 3; @%p0 ret;\nld.global.u32 %r0, [%rd1+8];\nadd.u32 %r0, %r0, 1;\nst.global.u32 "
      "[%rd0], %r0;");
  ASSERT_EQ(f.size(), 1u);
  EXPECT_EQ(f[0].cls, "uninit.global");
  EXPECT_EQ(f[0].buffer, "fresh");
  EXPECT_EQ(f[0].byte_offset, 8);
  EXPECT_NE(f[0].instruction.find("ld.global.u32"), std::string::npos) << "the load is what gets named";

  // Loaded but not used: compilers do that with padding.
  EXPECT_TRUE(findings("ld.global.u32 %r0, [%rd1];\nadd.u32 %r0, %r0, 1;").empty());
  EXPECT_TRUE(
      findings("st.global.u32 [%rd1], %t;\nld.global.v2.u32 {%r0, %r1}, [%rd1];\nst.global.u32 [%rd0], %r0;")
          .empty());
  EXPECT_TRUE(findings("ld.global.u32 %r0, [%rd1];\nmov.u32 %r0, 5;\nst.global.u32 [%rd0], %r0;").empty());

  // What another condition decides, or a selection leaves out, is not used.
  const std::string read = "ld.global.u32 %r0, [%rd1];\nsetp.eq.u32 %p0, %r0, 0;\nsetp.eq.u32 %p1, 1, 2;\n";
  EXPECT_TRUE(findings(read + "and.pred %p0, %p0, %p1;\n@%p0 bra E;\nE:").empty());
  EXPECT_TRUE(findings(read + "not.pred %p1, %p1; or.pred %p0, %p0, %p1;\n@%p0 bra E;\nE:").empty());
  EXPECT_TRUE(findings(read + "selp.u32 %r0, %r0, 7, %p1; st.global.u32 [%rd0], %r0;").empty());
  EXPECT_TRUE(findings(read + "setp.eq.and.u32 %p0, %r0, 0, %p1;\n@%p0 bra E;\nE:").empty());
  EXPECT_TRUE(findings(read + "and.b32 %r0, %r0, 0; st.global.u32 [%rd0], %r0;").empty());
  EXPECT_EQ(findings(read + "or.pred %p0, %p0, %p1;\n@%p0 bra E;\nE:").size(), 1u);
  EXPECT_EQ(findings(read + "selp.u32 %r0, 7, %r0, %p1; st.global.u32 [%rd0], %r0;").size(), 1u);
  EXPECT_EQ(findings(read + "setp.eq.or.u32 %p0, %r0, 0, %p1;\n@%p0 bra E;\nE:").size(), 1u);
  EXPECT_EQ(findings(read + "and.b32 %r0, %r0, 255; st.global.u32 [%rd0], %r0;").size(), 1u);

  // A branch, an address, and the way through shared memory are uses.
  f = findings("ld.global.u32 %r0, [%rd1];\nsetp.eq.u32 %p0, %r0, 0;\n@%p0 bra E;\nadd.u32 %r1, %r1, 1;\nE:");
  ASSERT_EQ(f.size(), 1u);
  EXPECT_EQ(f[0].cls, "uninit.global");
  f = findings(
      "mov.u32 %r1, tile; cvt.u32.u64 %r2, %x4; add.u32 %r1, %r1, %r2;\nld.shared.u32 %r0, [%r1];\nadd.u64 "
      "%rd2, %rd0, %x4;\nst.global.u32 [%rd2], %r0;");
  ASSERT_EQ(f.size(), 1u);
  EXPECT_EQ(f[0].cls, "uninit.shared");
  EXPECT_EQ(f[0].buffer, "tile");
  f = findings(
      "mov.u32 %r1, tile; cvt.u32.u64 %r2, %x4; add.u32 %r1, %r1, %r2;\nld.global.u32 %r0, "
      "[%rd1];\nst.shared.u32 [%r1], %r0;\n"
      "ld.shared.u32 %r3, [%r1];\nadd.u64 %rd2, %rd0, %x4;\nst.global.u32 [%rd2], %r3;");
  ASSERT_EQ(f.size(), 1u);
  EXPECT_EQ(f[0].cls, "uninit.global");  // where the value comes from, not where it passed
}

TEST(memory, discarded_lines_hold_nothing_until_they_are_written) {
  const std::string discard =
      "setp.ne.u32 %p0, %t, 0; @%p0 ret; mov.u32 %r4, %ctaid.x; setp.ne.u32 %p0, %r4, 0; @%p0 ret;\n"
      "discard.global.L2 [%rd0+128], 128;\n";
  auto f = findings(discard + "ld.global.u32 %r0, [%rd0+132];\nst.global.u32 [%rd0], %r0;");
  ASSERT_EQ(f.size(), 1u);
  EXPECT_EQ(f[0].cls, "uninit.global");
  EXPECT_EQ(f[0].byte_offset, 132);
  EXPECT_TRUE(findings(discard + "ld.global.u32 %r0, [%rd0+124];\nst.global.u32 [%rd0], %r0;").empty());
  EXPECT_TRUE(findings(discard + "st.global.u32 [%rd0+132], 3;\nld.global.u32 %r0, [%rd0+132];\n"
                                 "st.global.u32 [%rd0], %r0;")
                  .empty());
  for (const char* line :
       {"discard.global.L2 [%rd0+64], 128;", "applypriority.global.L2::evict_normal [%rd0+64], 128;"}) {
    f = findings(line);
    ASSERT_EQ(f.size(), 1u) << line;
    EXPECT_EQ(f[0].cls, "misaligned") << line;
  }
  f = findings("setp.ne.u32 %p0, %t, 0; @%p0 ret;\ndiscard.global.L2 [%rd0], 128;", "all");
  ASSERT_EQ(f.size(), 1u) << "a discard is a write: two blocks' at one place";
  EXPECT_EQ(f[0].cls, "race.global");
}

TEST(memory, never_written_local_data_is_reported_where_it_is_used) {
  const std::string array = ".local .align 8 .b8 l[64];\nmov.u64 %rd2, l; add.u64 %rd2, %rd2, %x4;\n";
  const std::string use = "\nst.global.u32 [%rd0], %r0;";
  // Lanes 0 to 3 write their word, 0 to 7 read it.
  auto f = findings(array +
                    "setp.gt.u32 %p0, %t, 7; @%p0 ret;\nsetp.lt.u32 %p0, %t, 4;\n"
                    "@%p0 st.local.u32 [%rd2], %t;\nld.local.u32 %r0, [%rd2];" +
                    use);
  ASSERT_EQ(f.size(), 1u);
  EXPECT_EQ(f[0].cls, "uninit.local");
  EXPECT_EQ(f[0].buffer, "local memory");
  EXPECT_EQ(f[0].thread.x, 4u);
  EXPECT_NE(f[0].instruction.find("ld.local.u32"), std::string::npos);
  // By generic addresses.
  const std::string generic =
      ".local .align 8 .b8 l[64];\nmov.u64 %rd2, l; cvta.local.u64 %rd2, %rd2;\nsetp.ne.u32 %p0, %t, 0; @%p0 "
      "ret;\n";
  EXPECT_TRUE(findings(generic + "st.u32 [%rd2+4], %t;\nld.u32 %r0, [%rd2+4];" + use).empty());
  EXPECT_EQ(findings(generic + "ld.u32 %r0, [%rd2+4];" + use).size(), 1u);
  // Padding that is copied along, and what is loaded but not used.
  const std::string one = ".local .align 8 .b8 l[64];\nmov.u64 %rd2, l;\nsetp.ne.u32 %p0, %t, 0; @%p0 ret;\n";
  EXPECT_TRUE(findings(one + "st.local.u8 [%rd2], %t;\nld.local.u32 %r0, [%rd2];" + use).empty());
  EXPECT_TRUE(findings(one + "st.local.u32 [%rd2], %t;\nld.local.v2.u32 {%r0, %r1}, [%rd2];" + use).empty());
  EXPECT_EQ(findings(one + "st.local.u32 [%rd2], %t;\nld.local.v2.u32 {%r1, %r0}, [%rd2];" + use).size(), 1u);
  // A copy of it counts as written: what is reported is the load from where nothing was.
  EXPECT_TRUE(findings(one + "ld.local.u32 %r0, [%rd2];\nst.local.u32 [%rd2+8], %r0;\nld.local.u32 %r1, "
                             "[%rd2+8];\nst.global.u32 [%rd0], %r1;")
                  .empty());
}

TEST(memory, without_checks_a_wild_access_is_a_fault_and_no_crash) {
  EXPECT_THROW(findings("mov.u64 %rd2, 0x123456789abc0;\nst.global.u32 [%rd2], %t;", "none"), EmuFault);
  EXPECT_THROW(findings("mov.u32 %r0, 0x7fffff0;\nld.shared.u32 %r1, [%r0];", "none"), EmuFault);
  try {
    findings("add.u64 %rd2, %rd0, %x8;\nst.global.u32 [%rd2], %t;", "none");
    FAIL() << "no fault";
  } catch (const EmuFault& e) {
    EXPECT_NE(std::string(e.what()).find("PTX line"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("'buf'"), std::string::npos);
  }
  EXPECT_TRUE(findings("ld.global.u32 %r0, [%rd1];\nst.global.u32 [%rd0], %r0;", "none").empty());
}

TEST(memory, freed_buffers_are_named) {
  Bench b(header() +
          ".visible .entry k(.param .u64 p) { .reg .b64 %rd; .reg .b32 %r; ld.param.u64 %rd, [p];\n"
          "ld.global.u32 %r, [%rd]; st.global.u32 [%rd], %r; ret; }");
  const auto p = b.machine.alloc(64, "gone");
  b.machine.fill(p, 0, 64);
  b.machine.free(p);
  const auto f = b.run("k", {}, {1, 1, 1}, Params().add(p)).findings;
  ASSERT_EQ(f.size(), 2u);
  EXPECT_EQ(f[0].cls, "lifetime.global");
  EXPECT_EQ(f[0].buffer, "gone");
}

TEST(memory, locations_come_from_loc_directives) {
  Bench b(header() +
          ".file 1 \"kernel.cpp\"\n.visible .entry k() { .reg .b64 %rd; .reg .b32 %r; mov.u64 %rd, 64;\n"
          ".loc 1 42 7\nld.global.u32 %r, [%rd]; st.global.u32 [%rd], %r; ret; }");
  const auto f = b.run("k", {}, {1, 1, 1}, {}).findings;
  ASSERT_GE(f.size(), 1u);
  EXPECT_EQ(f[0].file, "kernel.cpp");
  EXPECT_EQ(f[0].line, 42);
  EXPECT_NE(describe(f[0]).find("kernel.cpp:42"), std::string::npos);
}

TEST(memory, blocks_that_wait_for_each_other_through_memory) {
  // Block b waits until the counter is b, then increments it: needs all blocks resident and fairly scheduled,
  // also when the first to start is the last to go.
  Bench b(header() + R"(
.visible .entry k(.param .u64 p)
{
  .reg .b32 %r<8>; .reg .b64 %rd<2>; .reg .pred %p;
  ld.param.u64 %rd0, [p];
  mov.u32 %r0, %ctaid.x;
  sub.u32 %r0, 39, %r0;
L:
  ld.acquire.gpu.global.u32 %r1, [%rd0];
  setp.ne.u32 %p, %r1, %r0;
  @%p bra L;
  add.u32 %r1, %r1, 1;
  st.release.gpu.global.u32 [%rd0], %r1;
  ret;
}
)");
  for (int workers : {1, 3}) {
    const auto p = b.machine.alloc(4);
    b.machine.fill(p, 0, 4);
    Options o;
    o.workers = workers;
    const Result r = b.run("k", {40, 1, 1}, {1, 1, 1}, Params().add(p), o);
    for (const Finding& f : r.findings) ADD_FAILURE() << describe(f);
    EXPECT_EQ(b.download<u32>(p, 1)[0], 40u);
  }
}

TEST(memory, programs_that_wait_for_ever_are_deadlocks) {
  const std::string text = header() + R"(
.visible .entry k(.param .u64 p)
{
  .reg .b32 %r<8>; .reg .b64 %rd<2>; .reg .pred %p;
  ld.param.u64 %rd0, [p];
L:
  ld.volatile.global.u32 %r1, [%rd0];
  setp.eq.u32 %p, %r1, 0;
  @%p bra L;
  ret;
}
)";
  for (int workers : {1, 2}) {
    Bench b(text);
    const auto p = b.machine.alloc(4, "flag");
    b.machine.fill(p, 0, 4);
    Options o;
    o.workers = workers;
    const Result r = b.run("k", {4, 1, 1}, {64, 1, 1}, Params().add(p), o);
    ASSERT_EQ(r.findings.size(), 1u);
    EXPECT_EQ(r.findings[0].cls, "deadlock");
  }
}

TEST(memory, device_side_allocation) {
  Bench b(header() + R"(
.extern .func (.param .b64 r) malloc(.param .b64 n);
.extern .func free(.param .b64 p);
.visible .entry k(.param .u64 pout)
{
  .reg .b32 %r<4>; .reg .b64 %rd<4>;
  ld.param.u64 %rd0, [pout];
  { .param .b64 n; .param .b64 r; st.param.b64 [n], 16; call.uni (r), malloc, (n); ld.param.b64 %rd1, [r]; }
  st.u32 [%rd1+12], 99;
  ld.u32 %r0, [%rd1+12];
  st.global.u32 [%rd0], %r0;
  { .param .b64 n; st.param.b64 [n], %rd1; call.uni free, (n); }
  ld.u32 %r1, [%rd1];
  st.global.u32 [%rd0], %r1;
  ret;
}
)");
  const auto out = b.machine.alloc(4);
  const Result r = b.run("k", {}, {1, 1, 1}, Params().add(out));
  ASSERT_EQ(r.findings.size(), 1u) << "use after free";
  EXPECT_EQ(r.findings[0].cls, "lifetime.global");
}

// The handlers for AVX-512 and the general ones must agree in results, counters and findings, for dense,
// strided, permuted and colliding addresses, parts of a warp, vectors, and addresses out of range or
// unaligned.
TEST(memory, fast_and_general_handlers_agree) {
  const std::string body = R"(
{
  .reg .b32 %r<16>; .reg .b64 %rd<8>; .reg .pred %p, %q; .shared .align 16 .b8 tile[4096];
  ld.param.u64 %rd0, [pin];
  ld.param.u64 %rd1, [pout];
  ld.param.u32 %r0, [mul];
  ld.param.u32 %r1, [lanes];
  mov.u32 %r2, %tid.x;
  shr.u32 %r3, %r1, %r2;
  and.b32 %r3, %r3, 1;
  setp.ne.u32 %p, %r3, 0;
  mul.lo.u32 %r4, %r2, %r0;
  and.b32 %r4, %r4, 1023;
  mul.wide.u32 %rd2, %r4, 4;
  add.u64 %rd3, %rd0, %rd2;
  add.u64 %rd4, %rd1, %rd2;
  mov.u32 %r5, tile;
  mad.lo.u32 %r5, %r4, 4, %r5;
  mov.u32 %r6, 1000; mov.u32 %r7, 2000; mov.u32 %r8, 3000; mov.u32 %r9, 4000;
  @%p LOAD [%rd3];
  @%p STORE_S [%r5], DATA;
  bar.sync 0;
  @%p LOAD_S [%r5];
  @%p STORE [%rd4], DATA;
  ret;
}
)";
  struct Form {
    const char *suffix, *data;
  };
  for (const Form form :
       {Form{"u32", "%r6"}, Form{"v2.u32", "{%r6,%r7}"}, Form{"v4.u32", "{%r6,%r7,%r8,%r9}"}})
    for (u32 mul : {0u, 1u, 2u, 3u, 4u, 5u, 12u, 32u, 33u, 124u, 1023u})
      for (u32 lanes : {~0u, 0x0000ffffu, 0x80000001u, 0x5555aaaau, 1u << 17}) {
        std::string text = body;
        const auto put = [&](const std::string& key, const std::string& value) {
          for (std::size_t at; (at = text.find(key)) != text.npos;) text.replace(at, key.size(), value);
        };
        const std::string suffix = form.suffix, data = form.data;
        put("LOAD_S [%r5]", "ld.shared." + suffix + " " + data + ", [%r5]");
        put("LOAD [%rd3]", "ld.global." + suffix + " " + data + ", [%rd3]");
        put("STORE_S", "st.shared." + suffix);
        put("STORE", "st.global." + suffix);
        put("DATA", data);
        text = header() +
               ".visible .entry k(.param .u64 pin, .param .u64 pout, .param .u32 mul, .param .u32 lanes)" +
               text;
        std::vector<u32> out[2];
        std::string found[2];
        std::vector<std::pair<std::string, std::uint64_t>> counts[2];
        for (int portable = 0; portable < 2; ++portable) {
          Bench b(text, portable != 0);
          std::vector<u32> in(1024);
          for (u32 i = 0; i < in.size(); ++i) in[i] = i * 7 + 1;
          const auto pin = b.upload(in, "in");
          const auto pout = b.upload(std::vector<u32>(1024), "out");
          // twice, so that ranges are known and bytes are written
          for (int launch = 0; launch < 2; ++launch) {
            const Result r = b.run("k", {}, {32, 1, 1}, Params().add(pin).add(pout).add(mul).add(lanes));
            counts[portable] = flatten(r.counters);
            for (const Finding& f : r.findings) found[portable] += describe(f);
          }
          out[portable] = b.download<u32>(pout, 1024);
        }
        EXPECT_EQ(out[0], out[1]) << suffix << " " << mul << " " << lanes;
        EXPECT_EQ(found[0], found[1]) << suffix << " " << mul << " " << lanes;
        EXPECT_EQ(counts[0], counts[1]) << suffix << " " << mul << " " << lanes;
      }
}

}  // namespace cgp::emu

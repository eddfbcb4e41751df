// SPDX-License-Identifier: Apache-2.0
// Control flow, liveness, pressure, occupancy and targets.
#include <gtest/gtest.h>

#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/ptx/cfg.h"
#include "cgp/ptx/isa_page.h"
#include "cgp/ptx/liveness.h"
#include "cgp/ptx/occupancy.h"
#include "cgp/ptx/parse.h"
#include "cgp/ptx/pressure.h"
#include "cgp/ptx/print.h"

using namespace cgp;
using namespace cgp::ptx;

namespace {

Module kernel(const std::string& body, const std::string& directives = "") {
  return parse(text::cat(
      ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 a)\n", directives,
      "\n{\n.reg .pred %p<4>;\n.reg .b16 %h<8>;\n.reg .b32 %r<64>;\n.reg .b64 %rd<8>;\n.reg .f32 %f<64>;\n",
      body, "\n}\n"));
}

RegId reg(const Function& f, const std::string& name) {
  for (std::size_t i = 0; i < f.regs.size(); ++i)
    if (f.regs[i].name == name) return RegId(i);
  throw Error("no register " + name);
}

}  // namespace

TEST(cfg, diamond_and_loop) {
  const Module m = kernel(
      "mov.u32 %r1, 0;\n"               // 0: block 0
      "@%p1 bra ELSE;\n"                // 1
      "mov.u32 %r2, 1;\n"               // 2: block 1
      "bra JOIN;\n"                     // 3
      "ELSE: mov.u32 %r2, 2;\n"         // 4: block 2
      "JOIN: add.u32 %r1, %r1, %r2;\n"  // 5: block 3
      "setp.lt.u32 %p2, %r1, 10;\n"     // 6
      "@%p2 bra JOIN;\n"                // 7
      "ret;\n"                          // 8: block 4
      "DEAD: bra DEAD;");               // 9: block 5
  const Cfg c = build_cfg(m.functions[0]);
  ASSERT_EQ(c.blocks.size(), 6u);
  EXPECT_EQ(c.blocks[0].successors, (std::vector<BlockId>{1, 2}));
  EXPECT_EQ(c.blocks[1].successors, (std::vector<BlockId>{3}));
  EXPECT_EQ(c.blocks[3].successors, (std::vector<BlockId>{4, 3}));
  EXPECT_EQ(c.dominator, (std::vector<BlockId>{kNone, 0, 0, 0, 3, kNone}));
  EXPECT_EQ(c.post_dominator, (std::vector<BlockId>{3, 3, 3, 4, kNone, kNone}));
  EXPECT_TRUE(c.blocks[4].exits);
  EXPECT_FALSE(c.blocks[5].reachable);
  EXPECT_TRUE(c.dominates(0, 4));
  EXPECT_FALSE(c.dominates(1, 3));
  EXPECT_TRUE(c.post_dominates(4, 1));
  EXPECT_EQ(c.order.size(), 5u);
}

TEST(cfg, tables_and_guarded_exits) {
  const Module m = kernel(
      "ts: .branchtargets A, B, A;\n@%p1 ret;\nbrx.idx %r1, ts;\nA: mov.u32 %r2, 1;\nB: @%p2 exit;\ntrap;");
  const Cfg c = build_cfg(m.functions[0]);
  ASSERT_EQ(c.blocks.size(), 5u);
  EXPECT_TRUE(c.blocks[0].exits);
  EXPECT_EQ(c.blocks[0].successors, (std::vector<BlockId>{1}));
  EXPECT_EQ(c.blocks[1].successors, (std::vector<BlockId>{2, 3}));
  EXPECT_EQ(c.blocks[2].successors, (std::vector<BlockId>{3}));
  EXPECT_EQ(c.blocks[3].successors, (std::vector<BlockId>{4}));
  EXPECT_EQ(c.post_dominator[1], 3u);
}

TEST(liveness, loops_extend_ranges_and_guards_do_not_kill) {
  const Module m = kernel(
      "mov.u32 %r1, 0;\n"               // 0
      "mov.u32 %r2, 5;\n"               // 1
      "LOOP: add.u32 %r1, %r1, %r2;\n"  // 2
      "setp.lt.u32 %p1, %r1, 100;\n"    // 3
      "@%p1 bra LOOP;\n"                // 4
      "mov.u32 %r3, 1;\n"               // 5
      "@%p2 mov.u32 %r3, 2;\n"          // 6
      "st.global.u32 [%rd1], %r3;\n"    // 7
      "mov.u32 %r2, 7;\n"               // 8
      "st.global.u32 [%rd1], %r2;\n"    // 9
      "ret;");
  const Function& f = m.functions[0];
  const Cfg c = build_cfg(f);
  const Liveness l = liveness(f, c);
  EXPECT_TRUE(l.out[1].has(reg(f, "%r2")) == false || c.blocks[1].successors.size() == 2);
  EXPECT_TRUE(l.in[1].has(reg(f, "%r2")));
  EXPECT_FALSE(l.in[2].has(reg(f, "%r2")));
  EXPECT_TRUE(l.in[0].has(reg(f, "%rd1")));
  const auto ranges = live_ranges(f, c, l);
  auto text_of = [&](const std::string& name) {
    std::string s;
    for (const LiveRange& r : ranges[reg(f, name)]) s += text::cat("[", r.first, ",", r.last, "]");
    return s;
  };
  EXPECT_EQ(text_of("%r1"), "[1,4]");
  EXPECT_EQ(text_of("%r2"), "[2,4][9,9]");
  EXPECT_EQ(text_of("%r3"), "[6,7]");
  EXPECT_EQ(text_of("%rd1"), "[0,9]");
  EXPECT_EQ(text_of("%p1"), "[4,4]");
  EXPECT_EQ(text_of("%r9"), "");
}

TEST(liveness, registers_of_instructions) {
  auto uses = [](const std::string& statement) {
    const Module m = kernel(statement + "\nret;");
    const Function& f = m.functions[0];
    std::string s;
    for_each_register(f.body[0], [&](RegisterUse u) {
      s += text::cat(s.empty() ? "" : " ", f.regs[u.reg].name, u.read ? "r" : "", u.written ? "w" : "");
    });
    return s;
  };
  EXPECT_EQ(uses("@%p1 add.u32 %r1, %r2, %r3;"), "%p1r %r1w %r2r %r3r");
  EXPECT_EQ(uses("ld.global.v2.f32 {%f1, %f2}, [%rd1];"), "%f1w %f2w %rd1r");
  EXPECT_EQ(uses("st.global.v2.f32 [%rd1], {%f1, %f2};"), "%rd1r %f1r %f2r");
  EXPECT_EQ(uses("shfl.sync.idx.b32 %r1|%p1, %r2, 0, 31, -1;"), "%r1w %p1w %r2r");
  EXPECT_EQ(uses("elect.sync _|%p1, -1;"), "%p1w");
  EXPECT_EQ(uses("mov.b64 {%r1, %r2}, %rd1;"), "%r1w %r2w %rd1r");
  EXPECT_EQ(uses("atom.global.add.u32 %r1, [%rd1], %r2;"), "%r1w %rd1r %r2r");
  EXPECT_EQ(uses("red.global.add.u32 [%rd1], %r2;"), "%rd1r %r2r");
  EXPECT_EQ(uses("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0,%f1,%f2,%f3}, %rd0, %rd1, %p0, 1, "
                 "1, 0, 0;"),
            "%f0rw %f1rw %f2rw %f3rw %rd0r %rd1r %p0r");
  EXPECT_EQ(uses("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0,%f1,%f2,%f3}, %rd0, %rd1, 0, 1, "
                 "1, 0, 0;"),
            "%f0w %f1w %f2w %f3w %rd0r %rd1r");
  EXPECT_EQ(uses("mbarrier.arrive.shared.b64 %rd1, [%r1];"), "%rd1w %r1r");
  EXPECT_EQ(uses("setp.lt.u32 %p1|%p2, %r1, %r2;"), "%p1w %p2w %r1r %r2r");
}

TEST(pressure, peak_and_its_place) {
  std::string body;
  for (int i = 0; i < 20; ++i) body += text::cat("ld.global.f32 %f", i, ", [%rd1+", 4 * i, "];\n");
  body += "ld.global.u64 %rd2, [%rd1];\nld.global.u16 %h1, [%rd1];\nsetp.lt.u64 %p1, %rd2, 5;\n";
  for (int i = 1; i < 20; ++i) body += text::cat("add.f32 %f0, %f0, %f", i, ";\n");
  body += "st.global.u16 [%rd1], %h1;\n@%p1 st.global.f32 [%rd1], %f0;\nret;";
  const Module m = kernel(body, ".maxnreg 24\n");
  const PressureReport r = pressure(m.functions[0]);
  // twenty floats, two addresses or values of 64 bits, one half
  EXPECT_EQ(r.at_peak.b32, 20);
  EXPECT_EQ(r.at_peak.b64, 2);
  EXPECT_EQ(r.at_peak.b16, 1);
  EXPECT_EQ(r.at_peak.total(), 25);
  EXPECT_EQ(r.largest.pred, 1);
  EXPECT_EQ(r.limit, 24);
  EXPECT_EQ(r.excess, 1);
  EXPECT_EQ(print(m, m.functions[0], m.functions[0].body[r.peak]), "setp.lt.u64 %p1, %rd2, 5;");
  EXPECT_NE(describe(m, m.functions[0], r).find("25 of 24 registers live at once"), std::string::npos);
  EXPECT_EQ(pressure(kernel("ret;").functions[0]).at_peak.total(), 0);
}

TEST(mix, families_follow_types) {
  const Module m = kernel(
      "add.f32 %f1, %f2, %f3;\nadd.u32 %r1, %r2, %r3;\nfma.rn.f16 %h1, %h2, %h3, %h4;\nadd.f32 %f1, %f2, "
      "%f3;\nret;");
  const Mix x = mix(m.functions[0]);
  EXPECT_EQ(x.total, 5u);
  EXPECT_EQ(x.by_family[std::size_t(Family::floating)], 2u);
  EXPECT_EQ(x.by_family[std::size_t(Family::integer)], 1u);
  EXPECT_EQ(x.by_family[std::size_t(Family::half_precision)], 1u);
  EXPECT_EQ(x.by_family[std::size_t(Family::control)], 1u);
  EXPECT_EQ(x.by_opcode.at("add.f32"), 2u);
}

// Values of NVIDIA's occupancy calculator.
TEST(occupancy, known_launches) {
  auto blocks = [](int sm, int threads, int registers, std::uint64_t shared) {
    return occupancy(sm, {threads, registers, shared}).blocks;
  };
  EXPECT_EQ(blocks(90, 1024, 32, 0), 2);
  EXPECT_EQ(blocks(90, 128, 168, 0), 3);
  EXPECT_EQ(blocks(90, 384, 168, 200 * 1024), 1);
  EXPECT_EQ(blocks(90, 32, 16, 0), 32);
  EXPECT_EQ(blocks(80, 256, 64, 0), 4);
  EXPECT_EQ(blocks(80, 128, 255, 0), 2);
  EXPECT_EQ(blocks(86, 256, 40, 0), 6);
  EXPECT_EQ(blocks(89, 128, 32, 48 * 1024), 2);
  EXPECT_EQ(blocks(75, 1024, 64, 0), 1);
  const Occupancy o = occupancy(90, {128, 168, 0});
  EXPECT_EQ(o.limit, "registers");
  EXPECT_DOUBLE_EQ(o.fraction, 12.0 / 64);
  EXPECT_EQ(occupancy(90, {384, 168, 200 * 1024}).limit, "registers");
  EXPECT_EQ(occupancy(90, {128, 32, 100 * 1024}).limit, "shared memory");
  EXPECT_EQ(occupancy(90, {32, 16, 0}).limit, "blocks");
  EXPECT_EQ(occupancy(90, {1024, 32, 0}).limit, "warps");
}

TEST(occupancy, impossible_launches_say_why) {
  EXPECT_EQ(occupancy(90, {2048, 32, 0}).reason, "a block has 1 to 1024 threads, not 2048");
  EXPECT_EQ(occupancy(90, {128, 256, 0}).reason, "a thread has at most 255 registers, not 256");
  EXPECT_EQ(occupancy(90, {128, 32, 233473}).blocks, 0);
  EXPECT_EQ(occupancy(80, {128, 32, 200 * 1024}).reason,
            "a block has at most 163 KiB of shared memory, not 200 KiB");
  EXPECT_EQ(occupancy(90, {1024, 128, 0}).blocks, 0);
  EXPECT_EQ(occupancy(90, {1024, 128, 0}).limit, "registers");
  EXPECT_THROW(occupancy(42, {128, 32, 0}), Unsupported);
}

TEST(target, names_and_order) {
  EXPECT_EQ(*parse_target("sm_90a"), (Target{90, 'a'}));
  EXPECT_EQ(*parse_target("sm_120"), (Target{120, 0}));
  for (const char* bad : {"sm_", "sm_9", "sm_90b", "sm_90aa", "sm90", "compute_90", "sm_090", "sm_1000a"})
    EXPECT_FALSE(parse_target(bad)) << bad;
  for (const KnownTarget& k : known_targets()) EXPECT_EQ(parse_target(name(k.target)), k.target);
  EXPECT_EQ(*lowest_version({90, 'a'}), (Version{8, 0}));
  EXPECT_FALSE(lowest_version({90, 'f'}));
}

// gpu.md, "What a module with .target X may be assembled for".
TEST(target, which_module_runs_where) {
  const std::pair<const char*, std::vector<const char*>> rows[] = {
      {"sm_80", {"sm_80", "sm_86", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_120a", "sm_121"}},
      {"sm_90a", {"sm_90a"}},
      {"sm_100a", {"sm_100a"}},
      {"sm_120a", {"sm_120a"}},
      {"sm_100f", {"sm_100", "sm_100a", "sm_100f", "sm_103", "sm_103a", "sm_103f"}},
      {"sm_103f", {"sm_103", "sm_103a", "sm_103f"}},
      {"sm_120f", {"sm_120", "sm_120a", "sm_120f", "sm_121", "sm_121a", "sm_121f"}}};
  for (const auto& [module, devices] : rows)
    for (const KnownTarget& k : known_targets()) {
      if (k.target.sm < 80) continue;
      const bool listed = std::any_of(devices.begin(), devices.end(),
                                      [&](const char* d) { return *parse_target(d) == k.target; });
      if (std::string(module) == "sm_80") {
        EXPECT_TRUE(runs_on(*parse_target(module), k.target));
      } else {
        EXPECT_EQ(runs_on(*parse_target(module), k.target), listed) << module << " on " << name(k.target);
      }
    }
}

TEST(isa_page, has_every_opcode) {
  const std::string page =
      isa_markdown([](Op op) { return op == Op::add ? std::string("emulated") : std::string(); });
  for (int i = 0; i < int(Op::kCount); ++i)
    EXPECT_NE(page.find(text::cat("### ", name(Op(i)), "\n")), std::string::npos);
  EXPECT_NE(page.find("### add\n\nemulated\n"), std::string::npos);
  EXPECT_NE(page.find("| `{.rn}(.bf16 .bf16x2)` | `d, a, b` | 7.8 | sm_90 or newer |  |"), std::string::npos);
}

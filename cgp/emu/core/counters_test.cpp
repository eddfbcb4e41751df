// SPDX-License-Identifier: Apache-2.0
// Bank conflicts against 113 single-warp patterns measured on an H200 (ncu 2025.3), sectors and instruction
// counts against numbers worked out by hand.
#include <array>
#include <functional>

#include "cgp/emu/core/machine.h"
#include "cgp/emu/core/run_ptx_impl.h"

namespace cgp::emu {
using namespace testing;

namespace {
struct Pattern {
  const char* access;
  std::function<int(int)> offset;  ///< byte offset of a lane, -1 inactive
  std::uint32_t conflicts, wavefronts;
};

// clang-format off
#define P(EXPR) [](int l) -> int { (void)l; return EXPR; }
const std::vector<Pattern> kMeasured{
    {"ld32", P(l * 4), 0, 1}, {"ld32", P(l * 8), 1, 2}, {"ld32", P(l * 12), 0, 1}, {"ld32", P(l * 16), 3, 4},
    {"ld32", P(l * 32), 7, 8}, {"ld32", P(l * 64), 15, 16}, {"ld32", P(l * 128), 31, 32}, {"ld32", P(l * 132), 0, 1},
    {"ld32", P(0), 0, 1}, {"ld32", P((l & 1) * 128), 1, 2}, {"ld32", P((l & 15) * 4), 0, 1},
    {"ld32", P((l ^ 5) * 4), 0, 1}, {"ld32", P((l >> 1) * 8), 0, 1}, {"ld32", P(l < 16 ? l * 128 : -1), 15, 16},
    {"ld32", P(l % 3 ? l * 128 : -1), 20, 21}, {"ld32", P((l / 8) * 128 + (l % 8) * 4), 3, 4},
    {"st32", P(l * 4), 0, 1}, {"st32", P(l * 8), 1, 2}, {"st32", P(l * 12), 0, 1}, {"st32", P(l * 16), 3, 4},
    {"st32", P(l * 32), 7, 8}, {"st32", P(l * 64), 15, 16}, {"st32", P(l * 128), 31, 32}, {"st32", P(l * 132), 0, 1},
    {"st32", P(0), 0, 1}, {"st32", P((l & 1) * 128), 1, 2}, {"st32", P((l & 15) * 4), 0, 1},
    {"st32", P((l ^ 5) * 4), 0, 1}, {"st32", P((l >> 1) * 8), 0, 1}, {"st32", P(l < 16 ? l * 128 : -1), 15, 16},
    {"st32", P(l % 3 ? l * 128 : -1), 20, 21}, {"st32", P((l / 8) * 128 + (l % 8) * 4), 3, 4},
    {"ld64", P(l * 8), 0, 2}, {"ld64", P(l * 16), 2, 4}, {"ld64", P(l * 32), 6, 8}, {"ld64", P(l * 64), 14, 16},
    {"ld64", P(l * 128), 30, 32}, {"ld64", P(l * 256), 30, 32}, {"ld64", P(0), 0, 1},
    {"ld64", P((l & 15) * 8), 0, 2}, {"ld64", P((l >> 1) * 8), 0, 1}, {"ld64", P((l >> 1) * 16), 1, 2},
    {"ld64", P((l & 1) * 128 + (l >> 1) * 8), 2, 4}, {"ld64", P((l % 16) * 8 + (l / 16) * 128), 0, 2},
    {"ld64", P(l < 16 ? l * 8 : (l - 16) * 8 + 64), 0, 2}, {"ld64", P(l * 136), 0, 2},
    {"ld64", P(l < 8 ? l * 128 : -1), 7, 8},
    {"st64", P(l * 8), 0, 2}, {"st64", P(l * 16), 2, 4}, {"st64", P(l * 32), 6, 8}, {"st64", P(l * 64), 14, 16},
    {"st64", P(l * 128), 30, 32}, {"st64", P(l * 256), 30, 32}, {"st64", P(0), 0, 2},
    {"st64", P((l & 15) * 8), 0, 2}, {"st64", P((l >> 1) * 8), 0, 2}, {"st64", P((l >> 1) * 16), 0, 2},
    {"st64", P((l & 1) * 128 + (l >> 1) * 8), 2, 4}, {"st64", P((l % 16) * 8 + (l / 16) * 128), 0, 2},
    {"st64", P(l < 16 ? l * 8 : (l - 16) * 8 + 64), 0, 2}, {"st64", P(l * 136), 0, 2},
    {"st64", P(l < 8 ? l * 128 : -1), 7, 8},
    {"ld128", P(l * 16), 0, 4}, {"ld128", P(l * 32), 4, 8}, {"ld128", P(l * 64), 12, 16},
    {"ld128", P(l * 128), 28, 32}, {"ld128", P(l * 144), 0, 4}, {"ld128", P(0), 0, 2},
    {"ld128", P((l & 7) * 16), 0, 4}, {"ld128", P((l >> 2) * 16), 0, 2}, {"ld128", P((l >> 1) * 16), 0, 2},
    {"ld128", P((l & 3) * 16), 0, 4}, {"ld128", P((l % 8) * 128 + (l / 8) * 16), 28, 32},
    {"ld128", P((l % 8) * 128 + ((l / 8) ^ (l % 8)) * 16), 0, 4}, {"ld128", P((l % 4) * 32 + (l / 4) * 128), 4, 8},
    {"ld128", P(l < 8 ? l * 128 : -1), 7, 8}, {"ld128", P((l & 1) * 512 + (l >> 1) * 16), 4, 8},
    {"st128", P(l * 16), 0, 4}, {"st128", P(l * 32), 4, 8}, {"st128", P(l * 64), 12, 16},
    {"st128", P(l * 128), 28, 32}, {"st128", P(l * 144), 0, 4}, {"st128", P(0), 0, 4},
    {"st128", P((l & 7) * 16), 0, 4}, {"st128", P((l >> 2) * 16), 0, 4}, {"st128", P((l >> 1) * 16), 0, 4},
    {"st128", P((l & 3) * 16), 0, 4}, {"st128", P((l % 8) * 128 + (l / 8) * 16), 28, 32},
    {"st128", P((l % 8) * 128 + ((l / 8) ^ (l % 8)) * 16), 0, 4}, {"st128", P((l % 4) * 32 + (l / 4) * 128), 4, 8},
    {"st128", P(l < 8 ? l * 128 : -1), 7, 8}, {"st128", P((l & 1) * 512 + (l >> 1) * 16), 4, 8},
    {"ld8", P(l), 0, 1}, {"ld8", P(l * 2), 0, 1}, {"ld8", P(l * 4), 0, 1}, {"ld8", P(l * 128), 31, 32},
    {"ld8", P((l & 3) + (l >> 2) * 128), 7, 8}, {"ld8", P(l / 4 * 4), 0, 1},
    {"ldm4", P(l * 16), 0, 4}, {"ldm4", P(l * 32), 4, 8}, {"ldm4", P(l * 64), 12, 16}, {"ldm4", P(l * 128), 28, 32},
    {"ldm4", P(l * 144), 0, 4}, {"ldm4", P(l * 128 + ((l % 8) * 16)), 0, 4},
    {"ldm4", P((l % 8) * 64 + (l / 8) * 16), 12, 16},
    {"ldm4", P((l % 8) * 64 + (((l / 8) ^ (l % 8 / 2)) * 16)), 0, 4}, {"ldm4", P(0), 0, 4},
    {"at32", P(l * 4), 0, 1}, {"at32", P(0), 31, 32}, {"at32", P((l & 1) * 4), 15, 16}, {"at32", P(l * 128), 31, 32},
    {"at32", P((l & 3) * 128), 31, 32}, {"at32", P((l / 4) * 4), 3, 4},
};
#undef P
// clang-format on

SharedKind kind_of(std::string_view a) {
  return a[0] == 's'               ? SharedKind::store
         : a[0] == 'a'             ? SharedKind::atomic
         : a.substr(0, 3) == "ldm" ? SharedKind::matrix
                                   : SharedKind::load;
}
std::uint32_t bytes_of(std::string_view a) {
  if (a.substr(0, 3) == "ldm") return 16;
  return std::uint32_t(std::stoi(std::string(a.substr(2)))) / 8;
}
}  // namespace

TEST(counters, bank_conflicts_as_measured) {
  EXPECT_EQ(kMeasured.size(), 113u);
  for (std::size_t i = 0; i < kMeasured.size(); ++i) {
    const Pattern& p = kMeasured[i];
    std::array<std::uint32_t, kLanes> offset{};
    Mask lanes = 0;
    for (int l = 0; l < kLanes; ++l)
      if (const int o = p.offset(l); o >= 0) {
        offset[std::size_t(l)] = std::uint32_t(o);
        lanes |= lane_bit(l);
      }
    const SharedCost c = shared_cost(kind_of(p.access), bytes_of(p.access), offset.data(), lanes);
    EXPECT_EQ(c.conflicts, p.conflicts) << p.access << " pattern " << i;
    EXPECT_EQ(c.wavefronts, p.wavefronts) << p.access << " pattern " << i;
  }
}

TEST(counters, sectors_of_an_access) {
  std::array<std::uint64_t, kLanes> a{};
  auto fill = [&](auto f) {
    for (std::size_t l = 0; l < kLanes; ++l) a[l] = 0x1000 + f(l);
  };
  fill([](std::size_t l) { return l * 4; });
  EXPECT_EQ(sectors(4, a.data(), ~0u), 4u);
  EXPECT_EQ(sectors(4, a.data(), 0xffu), 1u);
  fill([](std::size_t l) { return l * 4 + 4; });  // one sector more
  EXPECT_EQ(sectors(4, a.data(), ~0u), 5u);
  fill([](std::size_t l) { return l * 128; });
  EXPECT_EQ(sectors(4, a.data(), ~0u), 32u);
  fill([](std::size_t l) { return l * 16; });
  EXPECT_EQ(sectors(16, a.data(), ~0u), 16u);
  fill([](std::size_t l) { return (31 - l) * 8; });
  EXPECT_EQ(sectors(8, a.data(), ~0u), 8u);
  fill([](std::size_t l) { return (l % 2) * 4096; });
  EXPECT_EQ(sectors(4, a.data(), ~0u), 2u);
}

TEST(counters, instructions_lanes_and_divergence) {
  Bench b(header() + R"(
.visible .entry k(.param .u64 out)
{
  .reg .b32 %r<4>; .reg .pred %p<3>; .reg .b64 %rd<4>;
  mov.u32 %r0, %tid.x;
  setp.lt.u32 %p0, %r0, 5;
  @%p0 bra LOW;
  add.u32 %r1, %r0, 1;
  bra DONE;
LOW:
  add.u32 %r1, %r0, 2;
DONE:
  setp.lt.u32 %p1, %r0, 16;
  @%p1 add.u32 %r1, %r1, 3;
  ld.param.u64 %rd0, [out];
  mul.wide.u32 %rd1, %r0, 4;
  add.u64 %rd2, %rd0, %rd1;
  st.global.u32 [%rd2], %r1;
  ret;
}
)");
  const auto out = b.machine.alloc(160);
  const Result r = b.run("k", {}, {40, 1, 1}, Params().add(out));
  EXPECT_TRUE(r.findings.empty());
  const auto v = b.download<std::uint32_t>(out, 40);
  for (std::uint32_t t = 0; t < 40; ++t) EXPECT_EQ(v[t], t + (t < 5 ? 2 : 1) + (t < 16 ? 3 : 0));
  // Warp 0: mov setp bra | add bra (27 lanes) | add (5) | setp add ld mul add st ret = 13 warp instructions.
  // Warp 1 (8 lanes): no lane goes LOW: 12.
  EXPECT_EQ(r.counters.warp_instructions, 25u);
  const std::uint64_t warp0 = 3 * 32 + 2 * 27 + 5 + 32 + 16 + 5 * 32;
  const std::uint64_t warp1 = 3 * 8 + 2 * 8 + 8 + 0 + 5 * 8;
  EXPECT_EQ(r.counters.thread_instructions, warp0 + warp1);
  EXPECT_EQ(r.counters.branches, 4u);
  EXPECT_EQ(r.counters.divergent_branches, 1u);
  EXPECT_DOUBLE_EQ(r.counters.simt_efficiency, double(warp0 + warp1) / (25 * 32));
  std::uint64_t families = 0, opcodes = 0, pcs = 0;
  for (const auto& [name, n] : r.counters.by_family) families += n;
  for (const auto& [name, n] : r.counters.by_opcode) opcodes += n;
  for (const PcCounters& p : r.counters.per_pc) pcs += p.issues;
  EXPECT_EQ(families, 25u);
  EXPECT_EQ(opcodes, 25u);
  EXPECT_EQ(pcs, 25u);
  EXPECT_EQ(r.counters.by_opcode.at("add.u32"), 5u);
  EXPECT_EQ(r.counters.global_store_sectors, 5u);
  EXPECT_EQ(b.program->instruction(2).opcode, "bra");
}

TEST(counters, totals_do_not_depend_on_workers) {
  const std::string text = header() + R"(
.shared .align 4 .b8 s[512];
.visible .entry k(.param .u64 p)
{
  .reg .b32 %r<8>; .reg .b64 %rd<4>;
  ld.param.u64 %rd0, [p];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %ctaid.x;
  mad.lo.u32 %r2, %r1, 128, %r0;
  mul.wide.u32 %rd1, %r2, 4;
  add.u64 %rd2, %rd0, %rd1;
  mov.u32 %r3, s;
  shl.b32 %r4, %r0, 2;
  add.u32 %r4, %r3, %r4;
  st.shared.u32 [%r4], %r2;
  bar.sync 0;
  ld.shared.u32 %r5, [%r4];
  atom.global.add.u32 %r6, [%rd0], 1;
  st.global.u32 [%rd2+4], %r5;
  ret;
}
)";
  std::vector<std::vector<std::pair<std::string, std::uint64_t>>> seen;
  for (int workers : {1, 2, 4}) {
    Bench b(text);
    const auto p = b.machine.alloc(16 * 128 * 4 + 4);
    b.machine.fill(p, 0, 16 * 128 * 4 + 4);
    Options o;
    o.workers = workers;
    const Result r = b.run("k", {16, 1, 1}, {128, 1, 1}, Params().add(p), o);
    EXPECT_TRUE(r.findings.empty());
    EXPECT_EQ(b.download<std::uint32_t>(p, 1)[0], 16u * 128);
    seen.push_back(flatten(r.counters));
  }
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_EQ(seen[0], seen[2]);
}

}  // namespace cgp::emu

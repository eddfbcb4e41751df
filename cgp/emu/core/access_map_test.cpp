// SPDX-License-Identifier: Apache-2.0
#include "cgp/emu/core/run_ptx_impl.h"

namespace cgp::emu {
namespace {

using testing::Bench;
using testing::Params;

// Thread t of each block loads x[t * stride], adds 1 to *count, stores y[t] through shared memory.
constexpr const char* kKernel = R"(
.version 7.8
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y, .param .u64 count, .param .u32 stride)
{
  .shared .align 16 .b8 tile[256];
  .reg .b32 %r<8>;
  .reg .b64 %rd<12>;
  ld.param.u64 %rd1, [x];
  ld.param.u64 %rd2, [y];
  ld.param.u64 %rd3, [count];
  ld.param.u32 %r1, [stride];
  mov.u32 %r2, %tid.x;
  mul.lo.u32 %r3, %r2, %r1;
  mul.wide.u32 %rd4, %r3, 4;
  add.u64 %rd4, %rd1, %rd4;
  ld.global.u32 %r4, [%rd4];
  shl.b32 %r5, %r2, 2;
  mov.u32 %r6, tile;
  add.u32 %r6, %r6, %r5;
  st.shared.u32 [%r6], %r4;
  bar.sync 0;
  ld.shared.u32 %r4, [%r6];
  cvt.u64.u32 %rd5, %r5;
  add.u64 %rd5, %rd2, %rd5;
  st.global.u32 [%rd5], %r4;
  red.global.add.u32 [%rd3], 1;
  ret;
}
)";

std::uint64_t sum(const AccessMap& m, std::uint64_t AccessMap::Cell::*what) {
  std::uint64_t n = 0;
  for (const auto& c : m.cells) n += c.*what;
  return n;
}

TEST(AccessMap, counts_by_place_and_kind) {
  Bench b(kKernel);
  const auto x = b.upload(std::vector<int>(64 * 8, 3), "x");
  const auto y = b.upload(std::vector<int>(64, 0), "y");
  const auto count = b.upload(std::vector<int>(1, 0), "count");
  Options o;
  o.access_map = true;
  Params p;
  p.add(x).add(y).add(count).add(std::uint32_t(8));
  const Result r = b.run("k", {2}, {64}, p, o);
  ASSERT_EQ(r.accesses.size(), 4u);
  const AccessMap& ax = r.accesses[0];
  EXPECT_EQ(ax.buffer, "x");
  EXPECT_EQ(ax.address, x);
  EXPECT_EQ(ax.cell_bytes, 32u);
  ASSERT_EQ(ax.cells.size(), 64u);
  for (const auto& c : ax.cells) {  // one element of each sector, by both blocks
    EXPECT_EQ(c.reads, 2u);
    EXPECT_EQ(c.writes + c.atomics, 0u);
    EXPECT_EQ(c.sectors, 2u);
  }
  const AccessMap& ay = r.accesses[1];
  ASSERT_EQ(ay.cells.size(), 8u);
  for (const auto& c : ay.cells) {
    EXPECT_EQ(c.writes, 16u);
    EXPECT_EQ(c.sectors, 2u);
  }
  EXPECT_EQ(r.accesses[2].buffer, "count");
  EXPECT_EQ(sum(r.accesses[2], &AccessMap::Cell::atomics), 128u);
  EXPECT_EQ(sum(r.accesses[2], &AccessMap::Cell::sectors), 4u);  // one a warp
  EXPECT_TRUE(r.accesses[3].shared);
  EXPECT_EQ(r.accesses[3].cell_bytes, 4u);
  for (const auto& c : r.accesses[3].cells) EXPECT_EQ(c.reads + c.writes, 4u);
  EXPECT_EQ(sum(ax, &AccessMap::Cell::sectors) + sum(ay, &AccessMap::Cell::sectors),
            r.counters.global_load_sectors + r.counters.global_store_sectors);
}

TEST(AccessMap, is_empty_unless_asked_for) {
  Bench b(kKernel);
  const auto x = b.upload(std::vector<int>(64, 3), "x");
  Params p;
  p.add(x).add(x).add(x).add(std::uint32_t(1));
  EXPECT_TRUE(b.run("k", {1}, {32}, p).accesses.empty());
}

TEST(AccessMap, cells_grow_with_the_buffer) {
  Bench b(kKernel);
  const auto x = b.upload(std::vector<int>(1 << 20, 3), "x");  // 4 MiB: 1 KiB cells
  Options o;
  o.access_map = true;
  Params p;
  p.add(x).add(x).add(x + (1 << 21)).add(std::uint32_t(1024));
  const Result r = b.run("k", {1}, {64}, p, o);
  ASSERT_EQ(r.accesses.size(), 2u);
  EXPECT_EQ(r.accesses[0].cell_bytes, 1024u);
  EXPECT_EQ(r.accesses[0].cells.size(), 4096u);
  EXPECT_EQ(r.accesses[0].cells[0].writes, 64u);
  EXPECT_EQ(r.accesses[0].cells[0].reads, 1u);
  EXPECT_EQ(r.accesses[0].cells[4].reads, 1u);
  EXPECT_EQ(r.accesses[0].cells[2048].atomics, 64u);
}

}  // namespace
}  // namespace cgp::emu

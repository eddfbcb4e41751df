// SPDX-License-Identifier: Apache-2.0
// Tensor copies: what lands where in shared memory (dumped raw and compared with the swizzle tables), what
// the edges of a tensor do, multicast, stores and reductions.
#include "cgp/emu/tensor/tensor_test_kit.h"

namespace cgp::emu {
namespace {
using namespace test;
using ::testing::HasSubstr;
using text::cat;

class Tma : public ::testing::TestWithParam<AsyncPolicy> {
 protected:
  Tma() { kit.options.async = GetParam(); }
  Kit kit;
};
INSTANTIATE_TEST_SUITE_P(Async, Tma,
                         ::testing::Values(AsyncPolicy::eager, AsyncPolicy::late, AsyncPolicy::random),
                         [](const auto& i) {
                           return i.param == AsyncPolicy::eager  ? "eager"
                                  : i.param == AsyncPolicy::late ? "late"
                                                                 : "random";
                         });

struct alignas(64) MapBytes {
  std::array<std::byte, 128> bytes;
};
MapBytes encode(const TensorMap& m) { return {m.encode()}; }

std::string coordinates(int rank) {
  std::string s = "{";
  for (int d = 0; d < rank; ++d) s += cat(d ? ", %c" : "%c", d);
  return s + "}";
}

// One load of a box of `bytes` at the coordinates given as parameters; shared memory is copied out raw.
std::string load_kernel(int rank, int bytes) {
  std::string s = ".visible .entry k(.param .align 64 .b8 map[128], .param .u64 po";
  for (int d = 0; d < rank; ++d) s += cat(", .param .s32 c", d);
  s +=
      cat(") {\n .reg .u64 %m, %o; .reg .u32 %s, %b, %t, %v, %a; .reg .s32 %c<5>; .reg .pred %p;\n"
          " .shared .align 1024 .b8 buf[",
          bytes,
          "]; .shared .align 8 .b64 bar;\n mov.b64 %m, map; cvta.param.u64 %m, %m;\n"
          " ld.param.u64 %o, [po]; mov.u32 %s, buf; mov.u32 %b, bar; mov.u32 %t, %tid.x;\n");
  for (int d = 0; d < rank; ++d) s += cat(" ld.param.s32 %c", d, ", [c", d, "];\n");
  s +=
      cat(" setp.ne.u32 %p, %t, 0; @%p bra GO;\n mbarrier.init.shared::cta.b64 [%b], 1; "
          "fence.mbarrier_init.release.cluster;\n"
          " mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b], ",
          bytes, ";\n cp.async.bulk.tensor.", rank,
          "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%s], [%m, ", coordinates(rank),
          "], [%b];\n"
          "GO: bar.sync 0;\nW: mbarrier.try_wait.parity.shared::cta.b64 %p, [%b], 0; @!%p bra W;\n"
          "COPY: mad.lo.u32 %a, %t, 4, %s; ld.shared.u32 %v, [%a]; mad.wide.u32 %m, %t, 4, %o; st.global.u32 "
          "[%m], %v;\n"
          " add.u32 %t, %t, 32; setp.lt.u32 %p, %t, ",
          bytes / 4, "; @%p bra COPY;\n ret;\n}\n");
  return s;
}

TensorMap matrix16(std::uint64_t address, std::uint64_t columns, std::uint64_t rows,
                   std::uint32_t box_columns, std::uint32_t box_rows, TensorMapSwizzle swizzle) {
  TensorMap m;
  m.type = TensorMapType::u16;
  m.rank = 2;
  m.address = address;
  m.dims = {columns, rows, 1, 1, 1};
  m.strides = {0, columns * 2, 0, 0, 0};
  m.box = {box_columns, box_rows, 1, 1, 1};
  m.swizzle = swizzle;
  return m;
}

TEST_P(Tma, SwizzledLoadsIncludingEdges) {
  const std::uint64_t columns = 200, rows = 50;
  std::vector<std::uint16_t> in(columns * rows);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = std::uint16_t(i + 1);
  const std::uint64_t address = kit.upload(in, "tensor");
  const std::pair<TensorMapSwizzle, std::uint32_t> modes[] = {{TensorMapSwizzle::none, 64},
                                                              {TensorMapSwizzle::b32, 16},
                                                              {TensorMapSwizzle::b64, 32},
                                                              {TensorMapSwizzle::b128, 64}};
  for (const auto& [swizzle, width] : modes)
    for (const auto& [x, y] : {std::pair{64, 8}, {-16, -3}, {168, 40}, {192, 49}, {-64, 0}, {400, 100}}) {
      const int bytes = int(width) * 16 * 2;
      const TensorMap m = matrix16(address, columns, rows, width, 16, swizzle);
      const std::uint64_t out = kit.machine.alloc(std::size_t(bytes), "out");
      EXPECT_CLEAN(kit.launch(load_kernel(2, bytes), {}, {32, 1, 1},
                              Params().add(encode(m)).add(out).add(std::int32_t(x)).add(std::int32_t(y))));
      const auto got = kit.download<std::uint16_t>(out, std::size_t(bytes / 2));
      for (std::uint32_t r = 0; r < 16; ++r)
        for (std::uint32_t c = 0; c < width; ++c) {
          const std::int64_t gx = x + std::int64_t(c), gy = y + std::int64_t(r);
          const bool inside = gx >= 0 && gy >= 0 && gx < std::int64_t(columns) && gy < std::int64_t(rows);
          const std::uint16_t want = inside ? in[std::size_t(gy) * columns + std::size_t(gx)] : 0;
          const std::uint32_t chunk = c / 8, f = swizzle == TensorMapSwizzle::b128  ? r % 8
                                                 : swizzle == TensorMapSwizzle::b64 ? r / 2 % 4
                                                 : swizzle == TensorMapSwizzle::b32 ? r / 4 % 2
                                                                                    : 0;
          ASSERT_EQ(got[r * width + (chunk ^ f) * 8 + c % 8], want)
              << int(swizzle) << " at " << x << "," << y << " r " << r << " c " << c;
        }
    }
}

TEST_P(Tma, FiveDimensionsWithElementStridesAndNan) {
  TensorMap m;
  m.type = TensorMapType::f32;
  m.rank = 5;
  const std::uint32_t n[5] = {8, 3, 4, 2, 3};
  std::vector<float> in(8 * 3 * 4 * 2 * 3);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = float(i);
  m.address = kit.upload(in);
  for (std::size_t d = 0; d < 5; ++d) m.dims[d] = n[d];
  m.strides = {0, 32, 96, 384, 768};
  m.box = {4, 2, 4, 2, 2};
  m.element_strides = {1, 1, 2, 1, 1};  // every second plane of four
  m.fill = TensorMapFill::nan;
  const std::uint64_t out = kit.machine.alloc(4 * 2 * 2 * 2 * 2 * 4, "out");
  const std::int32_t c[5] = {4, 2, 1, 0, 2};
  Params p;
  p.add(encode(m)).add(out);
  for (std::int32_t x : c) p.add(x);
  ASSERT_EQ(m.box_bytes(), 256u);
  EXPECT_CLEAN(kit.launch(load_kernel(5, 256), {}, {32, 1, 1}, p));
  const auto got = kit.download<float>(out, 64);
  std::size_t at = 0;
  for (std::int32_t e = 0; e < 2; ++e)
    for (std::int32_t d = 0; d < 2; ++d)
      for (std::int32_t z = 0; z < 2; ++z)
        for (std::int32_t y = 0; y < 2; ++y)
          for (std::int32_t x = 0; x < 4; ++x, ++at) {
            const std::int32_t g[5] = {c[0] + x, c[1] + y, c[2] + 2 * z, c[3] + d, c[4] + e};
            bool inside = true;
            for (int i = 0; i < 5; ++i) inside = inside && g[i] >= 0 && g[i] < std::int32_t(n[i]);
            if (inside)
              EXPECT_EQ(got[at], float((((g[4] * 2 + g[3]) * 4 + g[2]) * 3 + g[1]) * 8 + g[0])) << at;
            else
              EXPECT_NE(got[at], got[at]) << at;
          }
}

// Fills shared memory through the generic proxy, then stores or reduces the box.
std::string store_kernel(const std::string& instruction, int bytes) {
  return cat(
      ".visible .entry k(.param .align 64 .b8 map[128], .param .s32 c0, .param .s32 c1) {\n"
      " .reg .u64 %m; .reg .u32 %s, %t, %a, %v; .reg .s32 %c<2>; .reg .pred %p;\n .shared .align 1024 .b8 "
      "buf[",
      bytes,
      "];\n mov.b64 %m, map; cvta.param.u64 %m, %m; ld.param.s32 %c0, [c0]; ld.param.s32 %c1, [c1];\n"
      " mov.u32 %s, buf; mov.u32 %t, %tid.x;\n"
      "FILL: mad.lo.u32 %a, %t, 4, %s; add.u32 %v, %t, 1000; st.shared.u32 [%a], %v; add.u32 %t, %t, 32;\n"
      " setp.lt.u32 %p, %t, ",
      bytes / 4,
      "; @%p bra FILL;\n fence.proxy.async.shared::cta;\n bar.sync 0;\n"
      " mov.u32 %t, %tid.x; setp.ne.u32 %p, %t, 0; @%p bra END;\n ",
      instruction,
      " [%m, {%c0, %c1}], [%s];\n cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\nEND: ret;\n}\n");
}
const char* const kStore = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group";
const char* const kAdd = "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group";

TensorMap words(std::uint64_t address) {  // 40 x 30 words, boxes of 8 x 8: the probe that ran on a card
  TensorMap m;
  m.type = TensorMapType::u32;
  m.rank = 2;
  m.address = address;
  m.dims = {40, 30, 1, 1, 1};
  m.strides = {0, 160, 0, 0, 0};
  m.box = {8, 8, 1, 1, 1};
  return m;
}

TEST_P(Tma, StoresAndReductionsClip) {
  for (const char* form : {kStore, kAdd})
    for (const auto& [x, y] : {std::pair{8, 8}, {36, 24}, {36, 29}, {40, 0}}) {
      const std::uint64_t address = kit.upload(std::vector<std::uint32_t>(1200, 5u), "tensor");
      EXPECT_CLEAN(
          kit.launch(store_kernel(form, 256), {}, {32, 1, 1},
                     Params().add(encode(words(address))).add(std::int32_t(x)).add(std::int32_t(y))));
      const auto got = kit.download<std::uint32_t>(address, 1200);
      for (int r = 0; r < 30; ++r)
        for (int c = 0; c < 40; ++c) {
          const bool hit = r >= y && r < y + 8 && c >= x && c < x + 8;
          const std::uint32_t value = std::uint32_t(1000 + (r - y) * 8 + c - x);
          ASSERT_EQ(got[std::size_t(r * 40 + c)], hit ? (form == kStore ? value : value + 5) : 5u)
              << r << "," << c;
        }
    }
}

TEST_P(Tma, StoreUndoesTheSwizzle) {
  TensorMap m =
      matrix16(kit.upload(std::vector<std::uint16_t>(64 * 16)), 64, 16, 64, 16, TensorMapSwizzle::b128);
  EXPECT_CLEAN(kit.launch(store_kernel(kStore, 2048), {}, {32, 1, 1}, Params().add(encode(m)).add(0).add(0)));
  const auto got = kit.download<std::uint16_t>(m.address, 64 * 16);
  for (std::uint32_t r = 0; r < 16; ++r)
    for (std::uint32_t c = 0; c < 64; ++c) {
      const std::uint32_t at =
          r * 128 + ((c / 8) ^ (r % 8)) * 16 + c % 8 * 2;  // where it lay in shared memory
      ASSERT_EQ(got[r * 64 + c], std::uint16_t((1000 + at / 4) >> (at % 4 * 8))) << r << "," << c;
    }
}

TEST(TmaMisuse, CoordinatesMapsAndAlignment) {
  const auto run = [](bool store, std::int32_t x, std::int32_t y, bool junk = false) {
    Kit kit;
    const std::uint64_t address = kit.upload(std::vector<std::uint32_t>(1200), "tensor"),
                        out = kit.upload(std::vector<std::uint32_t>(64));
    MapBytes map = encode(words(address));
    if (junk) map.bytes[3] = std::byte(1);
    const Result r =
        store ? kit.launch(store_kernel(kStore, 256), {}, {32, 1, 1}, Params().add(map).add(x).add(y))
              : kit.launch(load_kernel(2, 256), {}, {32, 1, 1}, Params().add(map).add(out).add(x).add(y));
    return first_class(r);
  };
  EXPECT_EQ(run(true, -4, 0), "oob.global");  // measured: an illegal instruction on the card
  EXPECT_EQ(run(true, 0, -1), "oob.global");
  EXPECT_EQ(run(false, -4, -1), "");
  EXPECT_EQ(run(false, -5, 0), "misaligned");
  EXPECT_EQ(run(false, 38, 0), "misaligned");
  EXPECT_EQ(run(true, 38, 0), "misaligned");
  EXPECT_EQ(run(false, 36, 0), "");
  EXPECT_EQ(run(false, 0, 0, true), "tensormap");
}

TEST(TmaMisuse, TheBaseLiesInTheBufferAndBoxesStayInIt) {
  const auto run = [](std::int64_t shift, std::int32_t y, bool store = false, std::uint64_t rows = 0) {
    Kit kit;
    const std::uint64_t address = kit.upload(std::vector<std::uint32_t>(1200), "tensor"),
                        out = kit.upload(std::vector<std::uint32_t>(30000), "other");
    TensorMap map = words(address + std::uint64_t(shift));
    if (rows) map.dims[1] = rows;
    const MapBytes bytes = encode(map);
    return store
               ? kit.launch(store_kernel(kStore, 256), {}, {32, 1, 1}, Params().add(bytes).add(0).add(y))
               : kit.launch(load_kernel(2, 256), {}, {32, 1, 1}, Params().add(bytes).add(out).add(0).add(y));
  };
  for (const bool store : {false, true}) {
    EXPECT_EQ(first_class(run(0, 2, store)), "") << store;
    const Result before = run(-160, 2, store);  // row 2 of this map is row 1 of the buffer
    ASSERT_EQ(first_class(before), "oob.global") << store;
    EXPECT_THAT(before.findings[0].message, ::testing::HasSubstr("160 bytes before the start of 'tensor'"));
    EXPECT_EQ(before.findings[0].byte_offset, -160);
    const Result behind = run(4800, 100, store);  // a box of which nothing exists
    ASSERT_EQ(first_class(behind), "oob.global") << store;
    EXPECT_THAT(behind.findings[0].message, ::testing::HasSubstr("0 bytes past the end of 'tensor'"));
    const Result into = run(0, 500, store, 1000);  // 80000 bytes on: behind the gap, in the next buffer
    ASSERT_EQ(first_class(into), "oob.global") << store;
    EXPECT_THAT(into.findings[0].message, ::testing::HasSubstr("touches 'other'"));
  }
}

TEST(TmaMisuse, WrongByteCountDeadlocksWithTheNumbers) {
  Kit kit;
  const std::uint64_t address = kit.upload(std::vector<std::uint32_t>(1200), "tensor"),
                      out = kit.upload(std::vector<std::uint32_t>(64));
  std::string k = load_kernel(2, 256);
  const std::string expect = "_, [%b], 256";
  k.replace(k.find(expect), expect.size(), "_, [%b], 512");
  const Result r = kit.launch(k, {}, {32, 1, 1}, Params().add(encode(words(address))).add(out).add(0).add(0));
  EXPECT_EQ(first_class(r), "deadlock");
  EXPECT_THAT(findings(r), HasSubstr("pending 0 of 1 arrivals, tx 256 bytes outstanding"));
}

TEST_P(Tma, MulticastWritesAndSignalsEveryCta) {
  const std::string k = R"(
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 po) .reqnctapercluster 4, 1, 1 {
 .reg .u64 %m, %o; .reg .u32 %s, %b, %t, %r, %v, %a; .reg .b16 %h; .reg .pred %p;
 .shared .align 1024 .b8 buf[512]; .shared .align 8 .b64 bar;
 mov.b64 %m, map; cvta.param.u64 %m, %m; ld.param.u64 %o, [po]; mov.u32 %s, buf; mov.u32 %b, bar; mov.u32 %t, %tid.x;
 mov.u32 %r, %cluster_ctarank;
 setp.ne.u32 %p, %t, 0; @%p bra GO;
 mbarrier.init.shared::cta.b64 [%b], 1; fence.mbarrier_init.release.cluster;
 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b], 512;
GO: barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
 setp.ne.u32 %p, %t, 0; @%p bra W;
 setp.gt.u32 %p, %r, 1; @%p bra W;
 mov.b16 %h, 15; mad.lo.u32 %a, %r, 256, %s; mul.lo.u32 %v, %r, 8;
 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%a], [%m, {%v, 0}], [%b], %h;
W: mbarrier.try_wait.parity.shared::cta.b64 %p, [%b], 0; @!%p bra W;
 mad.lo.u32 %a, %t, 16, %s; ld.shared.u32 %v, [%a];
 mad.lo.u32 %a, %r, 32, %t; mad.wide.u32 %o, %a, 4, %o; st.global.u32 [%o], %v;
 barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
 ret;
})";
  std::vector<std::uint32_t> in(1200);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = std::uint32_t(i);
  const std::uint64_t address = kit.upload(in), out = kit.upload(std::vector<std::uint32_t>(128));
  EXPECT_CLEAN(
      kit.launch(k, {4, 1, 1}, {32, 1, 1}, Params().add(encode(words(address))).add(out), 0, {4, 1, 1}));
  const auto got = kit.download<std::uint32_t>(out, 128);
  for (std::uint32_t r = 0; r < 4; ++r)
    for (std::uint32_t t = 0; t < 32; ++t) {
      const std::uint32_t word = t * 4, half = word / 64, row = word % 64 / 8, c = word % 8;
      EXPECT_EQ(got[r * 32 + t], row * 40 + half * 8 + c);
    }
}

}  // namespace
}  // namespace cgp::emu

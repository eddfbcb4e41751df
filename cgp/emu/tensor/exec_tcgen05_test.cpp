// SPDX-License-Identifier: Apache-2.0
// tcgen05 around the multiplication: Tensor Memory's life, ld and st in every shape, cp, shift, commit, and
// the findings for programs that break the rules.
#include "cgp/emu/tensor/tcgen05_test_kit.h"

namespace cgp::emu {
namespace {
using namespace test;
using ::testing::HasSubstr;
using text::cat;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

// ---------------------------------------------------------------- ld and st
struct Shape {
  const char* name;
  int width;      // bits of a row of one repetition
  int registers;  // of one repetition
  int most;       // repetitions
};
const Shape kShapes[] = {{"32x32b", 32, 1, 128},
                         {"16x64b", 64, 1, 128},
                         {"16x128b", 128, 2, 64},
                         {"16x256b", 256, 4, 32},
                         {"16x32bx2", 64, 1, 128}};

// Bit of the rows x width matrix that bit 0 of register r of thread t holds; figures 183 to 187 as the
// strides of the thread index's digits.
int first_bit(const Shape& s, int t, int r) {
  switch (s.width) {
    case 32:
      return 32 * t;
    case 64:
      if (std::string(s.name) == "16x32bx2") break;
      return t % 2 * 512 + t / 2 % 2 * 32 + t / 4 * 64;
    case 128:
      return t % 4 * 32 + t / 4 * 128 + r * 1024;
    case 256:
      return t % 4 * 64 + t / 4 * 256 + r % 2 * 32 + r / 2 * 2048;
    default:
      break;
  }
  return t % 16 * 64 + t / 16 * 32;  // 16x32bx2: the two halves of each row
}

struct Access {
  const Shape* shape;
  int repeat;
  bool packed = false;
  int lane = 0, column = 0, split = 0;
  int registers() const { return shape->registers * repeat; }
  int columns() const {  // allocated
    const int width = split ? 1 : shape->width / 32;
    const int used = width * repeat * (packed ? 2 : 1) + column + split;
    return std::max(32, int(std::bit_ceil(unsigned(used))));
  }
};
// The lane (of the warp's 32) and first column of register `reg` of thread t.
std::pair<int, int> cell_of(const Access& a, int t, int reg) {
  const Shape& s = *a.shape;
  const int bit = first_bit(s, t, reg % s.registers), step = a.packed ? 2 : 1;
  const int row = bit / s.width, column = bit % s.width / 32, repetition = reg / s.registers;
  if (std::string(s.name) == "16x32bx2")
    return {a.lane + row, a.column + repetition * step + (column ? a.split : 0)};
  return {a.lane + row, a.column + (repetition * s.width / 32 + column) * step};
}

// Four warps fill Tensor Memory from pm [lane][column], then store from pr and dump to pm, or load to pr.
std::string transfer_kernel(const Access& a, bool store) {
  const int n = a.registers(), columns = a.columns();
  std::string s =
      cat(".version 8.6\n.target sm_100a\n.address_size 64\n.visible .entry k(.param .u64 pm, .param .u64 "
          "pr) {\n .reg .u64 "
          "%m, %r, %x; .reg .b32 %t, %tw, %v; .reg .u32 %th, %w; .reg .b32 %d<",
          std::max(n, 32),
          ">; .reg .pred %p;\n .shared .align 4 .b32 slot;\n"
          " mov.u32 %th, %tid.x; shr.u32 %w, %th, 5; ld.param.u64 %m, [pm]; mul.wide.u32 %x, %th, ",
          4 * columns,
          "; add.u64 %m, %m, "
          "%x;\n ld.param.u64 %r, [pr]; mul.wide.u32 %x, %th, ",
          4 * n,
          "; add.u64 %r, %r, %x;\n"
          " setp.ne.u32 %p, %w, 0; @%p bra A; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 "
          "[slot], ",
          columns,
          ";\n"
          "A: bar.sync 0; ld.shared.b32 %t, [slot]; shl.b32 %tw, %w, 21; add.u32 %tw, %tw, %t;\n");
  const auto each_chunk = [&](auto&& f) {
    for (int c = 0; c < columns; c += 32) f(c);
  };
  each_chunk([&](int c) {
    for (int i = 0; i < 32; ++i) s += cat(" ld.global.b32 %d", i, ", [%m+", 4 * (c + i), "];\n");
    s += cat(" add.u32 %v, %tw, ", c, "; tcgen05.st.sync.aligned.32x32b.x32.b32 [%v], ", regs("%d", 32),
             ";\n");
  });
  s += " tcgen05.wait::st.sync.aligned;\n";
  const bool split = std::string(a.shape->name) == "16x32bx2";
  const std::string form = cat(".sync.aligned.", a.shape->name, ".x", a.repeat);
  s += cat(" add.u32 %v, %tw, ", (a.lane << 16) + a.column, ";\n");
  if (store) {
    for (int i = 0; i < n; ++i) s += cat(" ld.global.b32 %d", i, ", [%r+", 4 * i, "];\n");
    s += cat(" tcgen05.st", form, a.packed ? ".unpack::16b" : "", ".b32 [%v], ",
             split ? cat(a.split, ", ") : "", regs("%d", n), ";\n tcgen05.wait::st.sync.aligned;\n");
    each_chunk([&](int c) {
      s += cat(" add.u32 %v, %tw, ", c, "; tcgen05.ld.sync.aligned.32x32b.x32.b32 ", regs("%d", 32),
               ", [%v]; tcgen05.wait::ld.sync.aligned;\n");
      for (int i = 0; i < 32; ++i) s += cat(" st.global.b32 [%m+", 4 * (c + i), "], %d", i, ";\n");
    });
  } else {
    s += cat(" tcgen05.ld", form, a.packed ? ".pack::16b" : "", ".b32 ", regs("%d", n), ", [%v]",
             split ? cat(", ", a.split) : "", ";\n tcgen05.wait::ld.sync.aligned;\n");
    for (int i = 0; i < n; ++i) s += cat(" st.global.b32 [%r+", 4 * i, "], %d", i, ";\n");
  }
  return s +
         " bar.sync 0; setp.ne.u32 %p, %w, 0; @%p bra E; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %t, " +
         std::to_string(columns) + ";\nE: ret;\n}\n";
}

void transfer(const Access& a) {
  for (bool store : {false, true}) {
    SCOPED_TRACE(cat(store ? "st " : "ld ", a.shape->name, ".x", a.repeat, " lane ", a.lane, " column ",
                     a.column, " packed ", a.packed));
    const int n = a.registers();
    std::vector<u32> memory(std::size_t(128 * a.columns())), registers(std::size_t(128 * n));
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = u32(i * 2654435761u);
    for (std::size_t i = 0; i < registers.size(); ++i) registers[i] = u32(i * 40503u + 77);
    const std::string ptx = transfer_kernel(a, store);
    expect_assembles_once(cat(a.shape->name, a.packed, store), ptx);
    Machine machine("sm_100a");
    const auto instance = machine.load(Program::load(ptx));
    const u64 pm = machine.alloc(memory.size() * 4), pr = machine.alloc(registers.size() * 4);
    machine.write(pm, std::as_bytes(std::span(memory)));
    machine.write(pr, std::as_bytes(std::span(registers)));
    Params p;
    p.add(pm).add(pr);
    Launch l;
    l.entry = "k";
    l.block = {128, 1, 1};
    l.params = p.span();
    Options o;
    o.async = store ? AsyncPolicy::late : AsyncPolicy::eager;
    EXPECT_CLEAN(machine.launch(instance, l, o));
    for (int t = 0; t < 128; ++t)
      for (int r = 0; r < n; ++r) {
        const auto [row, column] = cell_of(a, t % 32, r);
        u32* at = &memory[std::size_t((t / 32 * 32 + row) * a.columns() + column)];
        u32& reg = registers[std::size_t(t * n + r)];
        if (store && a.packed) {
          at[0] = reg & 0xffff;
          at[1] = reg >> 16;
        } else if (store) {
          at[0] = reg;
        } else {
          reg = a.packed ? (at[0] & 0xffff) | at[1] << 16 : at[0];
        }
      }
    std::vector<u32> got(memory.size()), got_registers(registers.size());
    machine.read(pm, std::as_writable_bytes(std::span(got)));
    machine.read(pr, std::as_writable_bytes(std::span(got_registers)));
    ASSERT_EQ(got, memory);
    ASSERT_EQ(got_registers, registers);
  }
}

TEST(TensorTransfer, EveryShapeAndCount) {
  for (const Shape& s : kShapes)
    for (int repeat = 1; repeat <= s.most; repeat *= 2) {
      const bool split = std::string(s.name) == "16x32bx2";
      transfer({&s, repeat, false, 0, 0, split ? 256 : 0});
      if (repeat <= 8 && s.width != 32) transfer({&s, repeat, false, 16, 5, split ? 64 : 0});
      const int columns = (split ? repeat : repeat * s.width / 32) * 2;
      if (columns <= 256) transfer({&s, repeat, true, 0, split ? 0 : 32, split ? 256 : 0});
    }
}

TEST(TensorTransfer, LoadWithReduction) {
  const auto kernel = [](const std::string& how, const std::string& target) {
    return cat(
        ".version 8.8\n.target ", target,
        "\n.address_size 64\n.visible .entry k(.param .u64 pm, .param .u64 pr) {\n .reg .u64 %m, %r, %x; "
        ".reg .b32 "
        "%t, %s; .reg .u32 %th; .reg .b32 %d<4>;\n .shared .align 4 .b32 slot;\n mov.u32 %th, %tid.x; "
        "ld.param.u64 "
        "%m, [pm]; mul.wide.u32 %x, %th, 16; add.u64 %m, %m, %x; ld.param.u64 %r, [pr]; mul.wide.u32 %x, "
        "%th, 4; "
        "add.u64 %r, %r, %x;\n tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 32; "
        "ld.shared.b32 "
        "%t, [slot];\n ld.global.v4.b32 {%d0,%d1,%d2,%d3}, [%m]; tcgen05.st.sync.aligned.32x32b.x4.b32 [%t], "
        "{%d0,%d1,%d2,%d3}; tcgen05.wait::st.sync.aligned;\n tcgen05.ld.red.sync.aligned.32x32b.x4.",
        how,
        " {%d0,%d1,%d2,%d3}, %s, [%t]; tcgen05.wait::ld.sync.aligned;\n st.global.b32 [%r], %s;\n "
        "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %t, 32; ret;\n}\n");
  };
  const float nan = std::nanf("");
  const auto run = [&](const std::string& how, const std::array<float, 4>& row) {
    const std::string ptx = kernel(how, "sm_103a");
    expect_assembles_once(how, ptx, "sm_103a");
    Machine machine("sm_103a");
    const auto instance = machine.load(Program::load(ptx));
    std::vector<float> in;
    for (int i = 0; i < 32; ++i) in.insert(in.end(), row.begin(), row.end());
    const u64 pm = machine.alloc(512), pr = machine.alloc(128);
    machine.write(pm, std::as_bytes(std::span(in)));
    Params p;
    p.add(pm).add(pr);
    Launch l;
    l.entry = "k";
    l.block = {32, 1, 1};
    l.params = p.span();
    EXPECT_CLEAN(machine.launch(instance, l));
    u32 out[32];
    machine.read(pr, std::as_writable_bytes(std::span(out)));
    return out[7];
  };
  const auto bits = [](float v) { return std::bit_cast<u32>(v); };
  EXPECT_EQ(run("max.f32", {1, -5, 3, 2}), bits(3));
  EXPECT_EQ(run("min.f32", {1, -5, 3, nan}), bits(-5));
  EXPECT_EQ(run("max.abs.f32", {1, -5, 3, 2}), bits(5));
  EXPECT_EQ(run("max.NaN.f32", {1, nan, 3, 2}), 0x7fffffffu);
  EXPECT_EQ(run("max.s32", {1, -5, 3, 2}), bits(3));
  EXPECT_EQ(run("max.u32", {1, -5, 3, 2}), bits(-5));
}

// ---------------------------------------------------------------- cp and shift
// Row r, byte b of the source is 3 * r + 7 * b; K-major without swizzle, groups of 8 rows at 128 (16-byte
// rows) or 256 bytes (two columns of core matrices).
struct Copy {
  const char* form;
  int rows, bytes;
  std::vector<int> lanes;  // of row 0, 1, ... of the first copy
  std::vector<int> copies;
  int unpack = 0;  // bits of the packed elements
};

TEST(TensorCopy, EveryShape) {
  const auto range = [](int first, int n, int step = 1) {
    std::vector<int> v;
    for (int i = 0; i < n; ++i) v.push_back(first + i * step);
    return v;
  };
  std::vector<int> neighbours = range(0, 32), second = range(64, 32);
  neighbours.insert(neighbours.end(), second.begin(), second.end());
  const Copy all[] = {{"128x256b", 128, 32, range(0, 128), {0}},
                      {"128x128b", 128, 16, range(0, 128), {0}},
                      {"4x256b", 4, 32, range(0, 4, 32), {0}},
                      {"64x128b.warpx2::02_13", 64, 16, range(0, 64), {0, 64}},
                      {"64x128b.warpx2::01_23", 64, 16, neighbours, {0, 32}},
                      {"32x128b.warpx4", 32, 16, range(0, 32), {0, 32, 64, 96}},
                      {"128x256b.b8x16.b6x16_p32", 128, 32, range(0, 128), {0}, 6},
                      {"32x128b.warpx4.b8x16.b4x16_p64", 32, 16, range(0, 32), {0, 32, 64, 96}, 4}};
  for (const Copy& c : all)
    for (int group : {1, 2})
      for (int swizzle : {0, 3}) {
        if (swizzle && c.rows < 8) continue;
        SCOPED_TRACE(cat(c.form, " group ", group, " swizzle ", swizzle));
        TensorKernel kernel;
        kernel.group = group;
        kernel.bytes = 16384;
        kernel.parameters = ", .param .u64 da";
        kernel.body =
            cat(" ld.param.u64 %rd0, [da]; shr.u32 %r2, %s, 4; cvt.u64.u32 %rd2, %r2; or.b64 %rd0, %rd0, "
                "%rd2; add.u32 "
                "%r0, %t, 4;\n tcgen05.cp.cta_group::",
                group, ".", c.form, " [%r0], %rd0;");
        expect_assembles_once(cat(c.form, group), kernel.text());
        std::vector<std::uint8_t> input;
        u64 descriptor = 0;
        for (int cta = 0; cta < group; ++cta) {
          const int rows = std::max(c.rows, 8);
          Bits bytes(std::size_t(rows * c.bytes));
          for (int r = 0; r < rows; ++r)
            for (int b = 0; b < c.bytes; ++b)
              bytes[std::size_t(r * c.bytes + b)] = u32(3 * r + 7 * b + 91 * cta) & 0xff;
          // The image helper lays out 32 bytes of K; 16-byte rows leave the second half empty.
          OperandImage image = k_major_image(bytes, rows, c.bytes, 8, swizzle);
          image.bytes.resize(std::size_t(kernel.bytes));
          input.insert(input.end(), image.bytes.begin(), image.bytes.end());
          descriptor = image.descriptor | 1ull << 46;
        }
        std::vector<u32> tensor(std::size_t(group * 128 * 32), 0x55555555);
        const auto r = run_tensor(kernel, input, tensor, [&](Params& p) { p.add(descriptor); });
        EXPECT_CLEAN(r.result);
        std::vector<u32> want = tensor;
        for (int cta = 0; cta < group; ++cta)
          for (int row = 0; row < c.rows; ++row)
            for (int copy : c.copies)
              for (int b = 0; b < c.bytes; ++b) {
                u32 value = u32(3 * row + 7 * b + 91 * cta) & 0xff;
                if (c.unpack) {  // element e of each 16 bytes starts at bit e * unpack
                  u32 v = 0;
                  for (int i = 0; i < c.unpack; ++i) {
                    const int bit = b % 16 * c.unpack + i, byte = b / 16 * 16 + bit / 8;
                    v |= ((u32(3 * row + 7 * byte + 91 * cta) & 0xff) >> bit % 8 & 1) << i;
                  }
                  value = c.unpack == 4 ? v << 2 : v;
                }
                u32& at = want[std::size_t((cta * 128 + c.lanes[std::size_t(row)] + copy) * 32 + 4 + b / 4)];
                at = (at & ~(0xffu << b % 4 * 8)) | value << b % 4 * 8;
              }
        ASSERT_EQ(r.tensor, want);
      }
}

TEST(TensorCopy, ShiftMovesRows) {
  TensorKernel kernel;
  kernel.body = " add.u32 %r0, %t, 4194312;\n tcgen05.shift.cta_group::1.down [%r0];";  // lane 64, column 8
  expect_assembles(kernel.text());
  std::vector<u32> tensor(128 * 32);
  for (std::size_t i = 0; i < tensor.size(); ++i) tensor[i] = u32(i);
  const auto r = run_tensor(kernel, std::vector<std::uint8_t>(1024), tensor, {});
  EXPECT_CLEAN(r.result);
  std::vector<u32> want = tensor;
  for (std::size_t lane = 64; lane < 95; ++lane)
    for (std::size_t c = 8; c < 16; ++c) want[lane * 32 + c] = tensor[(lane + 1) * 32 + c];
  EXPECT_EQ(r.tensor, want);
}

// ---------------------------------------------------------------- copies for pairs
// Four CTAs; rank 0 multicasts one box of 16 x 32 bytes to all. With .cta_group::2 the mbarriers of the even
// (or odd) CTAs hear of both copies of their pair.
TEST(TensorCopy, MulticastForPairs) {
  for (int parity : {0, 1}) {
    const std::string ptx = cat(
        ".version 8.6\n.target sm_100a\n.address_size 64\n.visible .entry k(.param .align 64 .b8 map[128], "
        ".param .u64 "
        "po) .reqnctapercluster 4, 1, 1 {\n .reg .u64 %m, %o, %x; .reg .b32 %s, %b, %t, %r, %v, %a; .reg "
        ".pred %p, %q; .reg "
        ".b16 %h;\n .shared .align 1024 .b8 buf[512]; .shared .align 8 .b64 bar;\n mov.b64 %m, map; "
        "cvta.param.u64 %m, "
        "%m; ld.param.u64 %o, [po]; mov.u32 %s, buf; mov.u32 %b, bar; mov.u32 %t, %tid.x; mov.u32 %r, "
        "%cluster_ctarank;\n "
        "and.b32 %v, %r, 1; setp.ne.u32 %q, %v, ",
        parity,
        ";\n setp.ne.u32 %p, %t, 0; @%p bra I; "
        "mbarrier.init.shared::cta.b64 [%b], 1; fence.mbarrier_init.release.cluster; @%q bra I; "
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b], 1024;\nI: barrier.cluster.arrive.aligned; "
        "barrier.cluster.wait.aligned;\n or.b32 %v, %t, %r; setp.ne.u32 %p, %v, 0; @%p bra W;\n mov.b16 %h, "
        "15; mapa.shared::"
        "cluster.u32 %a, %b, ",
        parity,
        ";\n cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.tile.mbarrier::"
        "complete_tx::bytes.multicast::cluster [%s], [%m, {%t, %t}], [%a], %h;\nW: @%q bra D;\nL: "
        "mbarrier.try_wait.parity.shared::cta.b64 %p, [%b], 0; @!%p bra L;\nD: "
        "barrier.cluster.arrive.aligned; "
        "barrier.cluster.wait.aligned;\n mad.lo.u32 %a, %t, 16, %s; mul.lo.u32 %v, %r, 512; mad.lo.u32 %v, "
        "%t, 16, %v; "
        "cvt.u64.u32 %x, %v; add.u64 %o, %o, %x; .reg .b32 %d<4>; ld.shared.v4.b32 {%d0,%d1,%d2,%d3}, [%a]; "
        "st.global.v4.b32 [%o], {%d0,%d1,%d2,%d3}; ret;\n}\n");
    expect_assembles(ptx);
    for (AsyncPolicy policy : {AsyncPolicy::eager, AsyncPolicy::late, AsyncPolicy::random}) {
      Machine machine("sm_100a");
      const auto instance = machine.load(Program::load(ptx));
      std::vector<u32> in(128);
      for (std::size_t i = 0; i < in.size(); ++i) in[i] = u32(i * 77 + 5);
      const u64 from = machine.alloc(512), to = machine.alloc(2048);
      machine.write(from, std::as_bytes(std::span(in)));
      TensorMap map;
      map.type = TensorMapType::u32;
      map.rank = 2;
      map.address = from;
      map.dims = {8, 16, 1, 1, 1};
      map.strides = {0, 32, 0, 0, 0};
      map.box = {8, 16, 1, 1, 1};
      Params p;
      p.add(map.encode(), 64).add(to);
      Launch l;
      l.entry = "k";
      l.grid = l.cluster = {4, 1, 1};
      l.block = {32, 1, 1};
      l.params = p.span();
      Options o;
      o.async = policy;
      EXPECT_CLEAN(machine.launch(instance, l, o));
      std::vector<u32> got(512);
      machine.read(to, std::as_writable_bytes(std::span(got)));
      for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], in[i % 128]) << i;
    }
  }
}

}  // namespace
}  // namespace cgp::emu

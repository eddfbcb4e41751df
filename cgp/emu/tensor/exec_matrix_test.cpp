// SPDX-License-Identifier: Apache-2.0
// ldmatrix, stmatrix, movmatrix, mma.sync and wmma as PTX. Operands are small multiples of 1/4: every order
// of summation gives the same bits, so a wrong lane map shows as a wrong number.
#include <functional>

#include "cgp/emu/tensor/tensor_test_kit.h"

namespace cgp::emu {
namespace {
using namespace test;
using text::cat;

struct Element {
  const char* name;
  int bits;
  std::function<std::uint64_t(double)> encode;
};
const Element kF16{"f16", 16, [](double v) { return half(v).bits; }};
const Element kBf16{"bf16", 16, [](double v) { return bfloat16(v).bits; }};
const Element kTf32{"tf32", 32, [](double v) { return std::bit_cast<std::uint32_t>(float(v)); }};
const Element kE4m3{"e4m3", 8, [](double v) { return float8_e4m3(v).bits; }};
const Element kE5m2{"e5m2", 8, [](double v) { return float8_e5m2(v).bits; }};
const Element kS8{"s8", 8, [](double v) { return std::uint64_t(std::uint8_t(int(v * 4))); }};
const Element kU8{"u8", 8, [](double v) { return std::uint64_t(std::uint8_t(int(v * 4))); }};
const Element kS4{"s4", 4, [](double v) { return std::uint64_t(int(v * 4) & 15); }};
const Element kU4{"u4", 4, [](double v) { return std::uint64_t(int(v * 4) & 15); }};
const Element kB1{"b1", 1, [](double v) { return std::uint64_t(v > 0); }};
const Element kF64{"f64", 64, [](double v) { return std::bit_cast<std::uint64_t>(v); }};

// Maps in the words of the ISA: (group, thread in group, element index) -> (row or n, k).
using Map = std::function<std::pair<int, int>(int g, int t, int i)>;
struct Shape {
  int m, n, k;
  Map a, b;
};

Shape shape_of(int m, int k, int bits) {
  const int per = bits >= 32 ? 1 : 32 / bits;  // consecutive elements that a thread holds
  const Map one_row = [=](int g, int t, int i) { return std::pair(g, t * per + i); };
  const Map two_rows = [=](int g, int t, int i) { return std::pair(i < per ? g : g + 8, t * per + i % per); };
  const Map full = [=](int g, int t, int i) {
    return std::pair(i < per || (i >= 2 * per && i < 3 * per) ? g : g + 8,
                     i < 2 * per ? t * per + i % per : t * per + i % per + 4 * per);
  };
  const Map b_short = [=](int g, int t, int i) { return std::pair(g, t * per + i); };
  const Map b_long = [=](int g, int t, int i) {
    return std::pair(g, i < per ? t * per + i % per : t * per + i % per + 4 * per);
  };
  if (bits == 64)
    return {m, 8, k,
            [=](int g, int t, int i) {
              return std::pair(m == 8 || i % 2 == 0 ? g : g + 8, m == 8 ? t : i / 2 * 4 + t);
            },
            [](int g, int t, int i) { return std::pair(g, i * 4 + t); }};
  if (m == 8) return {8, 8, k, one_row, b_short};
  if (k == 4 * per) return {16, 8, k, two_rows, b_short};
  return {16, 8, k, full, b_long};
}

struct MmaCase {
  int m, k;
  const Element *a, *b;
  const char *d, *c;
  const char* suffix = "";
};

std::string mma_kernel(const MmaCase& x, int a_regs, int b_regs, int c_regs, int d_regs) {
  const bool wide = x.a->bits == 64;
  const std::string reg = wide ? ".f64" : ".b32", acc = std::string(x.c) == "f32" ? ".f32" : reg;
  const std::string acc_d = std::string(x.d) == "f32" ? ".f32" : reg;
  const int bytes = wide ? 8 : 4;
  std::string s = cat(".visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd) {\n",
                      ".reg .u64 %x<8>; .reg .u32 %t; .reg ", reg, " %a<16>, %b<16>; .reg ", acc,
                      " %c<16>; .reg ", acc_d, " %d<16>;\n mov.u32 %t, %tid.x;\n");
  int n = 0;
  for (const char* p : {"pa", "pb", "pc", "pd"}) {
    s += cat(" ld.param.u64 %x", n, ", [", p, "]; mad.wide.u32 %x", n, ", %t, ", bytes, ", %x", n, ";\n");
    ++n;
  }
  const auto load = [&](const char* r, int x_reg, int count, const std::string& type) {
    for (int i = 0; i < count; ++i)
      s += cat(" ld.global", type, " %", r, i, ", [%x", x_reg, "+", i * 32 * bytes, "];\n");
  };
  load("a", 0, a_regs, reg);
  load("b", 1, b_regs, reg);
  load("c", 2, c_regs, acc);
  s += cat(" mma.sync.aligned.m", x.m, "n8k", x.k, ".row.col.", x.d, ".", x.a->name, ".", x.b->name, ".", x.c,
           x.suffix, " ", regs("%d", d_regs), ", ", regs("%a", a_regs), ", ", regs("%b", b_regs), ", ",
           regs("%c", c_regs), ";\n");
  for (int i = 0; i < d_regs; ++i) s += cat(" st.global", acc_d, " [%x3+", i * 32 * bytes, "], %d", i, ";\n");
  return s + " ret;\n}\n";
}

// Packs values into registers [reg][lane] by the ISA's maps.
std::vector<std::uint64_t> pack(const Element& e, int elements, const Map& map, int k,
                                const std::vector<double>& matrix) {
  const int per = e.bits >= 32 ? 1 : 32 / e.bits;
  std::vector<std::uint64_t> words(std::size_t(elements / per * 32));
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < elements; ++i) {
      const auto [row, kk] = map(lane / 4, lane % 4, i);
      const std::uint64_t u = e.encode(matrix[std::size_t(row * k + kk)]);
      words[std::size_t(i / per * 32 + lane)] |= u << (i % per * e.bits % 64);
    }
  return words;
}

void run_mma(const MmaCase& x) {
  SCOPED_TRACE(cat("m", x.m, "n8k", x.k, " ", x.d, " ", x.a->name, " ", x.b->name, x.suffix));
  const Shape s = shape_of(x.m, x.k, x.a->bits);
  const int per = x.a->bits >= 32 ? 1 : 32 / x.a->bits;
  const int a_elements = x.m * x.k / 32, b_elements = 8 * x.k / 32, acc = x.m * 8 / 32;
  const bool half_c = std::string(x.c) == "f16", half_d = std::string(x.d) == "f16";
  const bool integer = std::string(x.d) == "s32", wide = x.a->bits == 64, bits = x.a->bits == 1;
  std::mt19937 rng(unsigned(x.k * 131 + x.m));
  const bool is_unsigned = x.a->name[0] == 'u', b_unsigned = x.b->name[0] == 'u';
  const auto draw = [&](bool positive, int limit) {
    return (int(rng() % unsigned(limit)) - (positive ? 0 : limit / 2)) / 4.0;
  };
  const int limit = x.a->bits == 4 ? 8 : 15;
  std::vector<double> a(std::size_t(x.m * x.k)), b(std::size_t(8 * x.k)), c(std::size_t(x.m * 8));
  for (auto& v : a) v = draw(is_unsigned, limit);
  for (auto& v : b) v = draw(b_unsigned, limit);
  for (auto& v : c) v = integer ? int(rng() % 1000) - 500 : draw(false, 64);
  Kit kit;
  const auto narrow = [&](const std::vector<std::uint64_t>& w) {
    std::vector<std::uint32_t> v(w.begin(), w.end());
    return v;
  };
  const auto up = [&](const std::vector<std::uint64_t>& w) {
    return wide ? kit.upload(w) : kit.upload(narrow(w));
  };
  std::vector<std::uint64_t> cw(std::size_t((half_c ? acc / 2 : acc) * 32));
  const auto place = [&](int lane, int i) {
    return std::size_t((i < 2 ? lane / 4 : lane / 4 + 8) * 8 + lane % 4 * 2 + (i & 1));
  };
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < acc; ++i) {
      const double v = c[place(lane, i)];
      if (half_c)
        cw[std::size_t(i / 2 * 32 + lane)] |= std::uint64_t(half(v).bits) << (16 * (i & 1));
      else
        cw[std::size_t(i * 32 + lane)] = wide      ? std::bit_cast<std::uint64_t>(v)
                                         : integer ? std::uint32_t(int(v))
                                                   : std::bit_cast<std::uint32_t>(float(v));
    }
  const std::uint64_t pd = kit.machine.alloc(16 * 32 * 8, "d");
  Params p;
  p.add(up(pack(*x.a, a_elements, s.a, x.k, a)))
      .add(up(pack(*x.b, b_elements, s.b, x.k, b)))
      .add(up(cw))
      .add(pd);
  const int d_regs = half_d ? acc / 2 : acc;
  const Result r =
      kit.launch(mma_kernel(x, a_elements / per, b_elements / per, half_c ? acc / 2 : acc, d_regs), {1, 1, 1},
                 {32, 1, 1}, p);
  EXPECT_CLEAN(r);
  const auto d32 = kit.download<std::uint32_t>(pd, std::size_t(d_regs * 32));
  const auto d64 = kit.download<double>(pd, std::size_t(d_regs * 32));
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < acc; ++i) {
      const std::size_t at = place(lane, i), row = at / 8, n = at % 8;
      double want = c[at];
      for (std::size_t k = 0; k < std::size_t(x.k); ++k) {
        const double u = a[row * std::size_t(x.k) + k], v = b[n * std::size_t(x.k) + k];
        if (bits)
          want += std::string(x.suffix) == ".and.popc" ? (u > 0 && v > 0) : ((u > 0) != (v > 0));
        else
          want += integer ? 16 * u * v : u * v;
      }
      double got = 0;
      if (wide)
        got = d64[std::size_t(i * 32 + lane)];
      else if (half_d)
        got = double(half::from_bits(std::uint16_t(d32[std::size_t(i / 2 * 32 + lane)] >> (16 * (i & 1)))));
      else if (integer)
        got = std::int32_t(d32[std::size_t(i * 32 + lane)]);
      else
        got = std::bit_cast<float>(d32[std::size_t(i * 32 + lane)]);
      ASSERT_EQ(got, want) << "row " << row << " column " << n;
    }
}

TEST(Mma, EveryShapeAndType) {
  const MmaCase cases[] = {{16, 8, &kF16, &kF16, "f32", "f32"},
                           {16, 16, &kF16, &kF16, "f32", "f32"},
                           {16, 8, &kF16, &kF16, "f16", "f16"},
                           {16, 16, &kF16, &kF16, "f16", "f16"},
                           {16, 8, &kBf16, &kBf16, "f32", "f32"},
                           {16, 16, &kBf16, &kBf16, "f32", "f32"},
                           {16, 4, &kTf32, &kTf32, "f32", "f32"},
                           {16, 8, &kTf32, &kTf32, "f32", "f32"},
                           {16, 16, &kE4m3, &kE4m3, "f32", "f32"},
                           {16, 32, &kE4m3, &kE5m2, "f32", "f32"},
                           {16, 32, &kE5m2, &kE4m3, "f16", "f16"},
                           {8, 16, &kS8, &kS8, "s32", "s32"},
                           {16, 16, &kS8, &kU8, "s32", "s32"},
                           {16, 32, &kS8, &kS8, "s32", "s32"},
                           {16, 32, &kU8, &kS8, "s32", "s32"},
                           {8, 32, &kS4, &kS4, "s32", "s32"},
                           {16, 32, &kU4, &kS4, "s32", "s32"},
                           {16, 64, &kS4, &kU4, "s32", "s32"},
                           {8, 128, &kB1, &kB1, "s32", "s32", ".xor.popc"},
                           {16, 128, &kB1, &kB1, "s32", "s32", ".and.popc"},
                           {16, 256, &kB1, &kB1, "s32", "s32", ".xor.popc"},
                           {8, 4, &kF64, &kF64, "f64", "f64"},
                           {16, 4, &kF64, &kF64, "f64", "f64"},
                           {16, 8, &kF64, &kF64, "f64", "f64"},
                           {16, 16, &kF64, &kF64, "f64", "f64"}};
  for (const MmaCase& x : cases) run_mma(x);
}

// ---------------------------------------------------------------- ldmatrix, stmatrix, movmatrix
TEST(LoadMatrix, RowsAndColumns) {
  for (int count : {1, 2, 4})
    for (bool trans : {false, true}) {
      const std::string form = cat(".sync.aligned.m8n8.x", count, trans ? ".trans" : "");
      const std::string k = cat(
          ".visible .entry k(.param .u64 pi, .param .u64 po) {\n.reg .u64 %i, %o; .reg .u32 %t, %s, %r<4>; "
          ".reg .b32 %v<4>;\n"
          ".shared .align 16 .b8 tile[512];\n mov.u32 %t, %tid.x; ld.param.u64 %i, [pi]; ld.param.u64 %o, "
          "[po];\n"
          " mov.u32 %s, tile;\n mad.wide.u32 %i, %t, 16, %i;\n ld.global.v4.u32 {%r0,%r1,%r2,%r3}, [%i];\n"
          " mad.lo.u32 %s, %t, 16, %s;\n st.shared.v4.u32 [%s], {%r0,%r1,%r2,%r3};\n bar.sync 0;\n"
          " ldmatrix",
          form, ".shared.b16 ", regs("%v", count), ", [%s];\n mad.wide.u32 %o, %t, 4, %o;\n");
      std::string tail;
      for (int j = 0; j < count; ++j) tail += cat(" st.global.b32 [%o+", j * 128, "], %v", j, ";\n");
      std::vector<std::uint16_t> in(256);
      for (std::size_t i = 0; i < in.size(); ++i) in[i] = std::uint16_t(i);
      Kit kit;
      const std::uint64_t out = kit.machine.alloc(512, "out");
      const Result r =
          kit.launch(k + tail + " ret;\n}\n", {1, 1, 1}, {32, 1, 1}, Params().add(kit.upload(in)).add(out));
      EXPECT_CLEAN(r);
      const auto got = kit.download<std::uint16_t>(out, std::size_t(count * 64));
      for (int j = 0; j < count; ++j)
        for (int lane = 0; lane < 32; ++lane)
          for (int h = 0; h < 2; ++h) {
            const int row = trans ? 2 * (lane % 4) + h : lane / 4,
                      column = trans ? lane / 4 : 2 * (lane % 4) + h;
            ASSERT_EQ(got[std::size_t((j * 32 + lane) * 2 + h)], j * 64 + row * 8 + column);
          }
      // Eight consecutive 16-byte rows are one conflict-free pass per matrix.
      EXPECT_EQ(r.counters.shared_load_wavefronts, std::uint64_t(count));
      EXPECT_EQ(r.counters.shared_load_conflicts, 0u);
    }
}

TEST(LoadMatrix, StoreIsTheInverse) {
  for (bool trans : {false, true}) {
    const std::string t = trans ? ".trans" : "";
    const std::string k = cat(
        ".visible .entry k(.param .u64 po) {\n.reg .u64 %o; .reg .u32 %t, %s, %q<4>; .reg .b32 %v<4>;\n"
        ".shared .align 16 .b8 tile[512];\n mov.u32 %t, %tid.x; ld.param.u64 %o, [po];\n mov.u32 %s, tile;\n"
        " shl.b32 %q0, %t, 8; or.b32 %v0, %q0, 0x10000000; or.b32 %v1, %q0, 0x20000001; or.b32 %v2, %q0, "
        "0x30000002;\n"
        " or.b32 %v3, %q0, 0x40000003;\n mad.lo.u32 %s, %t, 16, %s;\n"
        " stmatrix.sync.aligned.m8n8.x4",
        t,
        ".shared.b16 [%s], {%v0,%v1,%v2,%v3};\n bar.sync 0;\n"
        " ld.shared.v4.u32 {%q0,%q1,%q2,%q3}, [%s];\n mad.wide.u32 %o, %t, 16, %o;\n"
        " st.global.v4.u32 [%o], {%q0,%q1,%q2,%q3};\n ret;\n}\n");
    Kit kit;
    const std::uint64_t out = kit.machine.alloc(512, "out");
    EXPECT_CLEAN(kit.launch(k, {1, 1, 1}, {32, 1, 1}, Params().add(out)));
    const auto got = kit.download<std::uint16_t>(out, 256);
    for (std::uint32_t j = 0; j < 4; ++j)
      for (std::uint32_t row = 0; row < 8; ++row)
        for (std::uint32_t c = 0; c < 8; ++c) {
          // Element (row, c) comes from the lane and half that hold it.
          const std::uint32_t lane = trans ? c * 4 + row / 2 : row * 4 + c / 2, h = trans ? row % 2 : c % 2;
          const std::uint32_t word = lane << 8 | (j + 1) << 28 | j;
          ASSERT_EQ(got[j * 64 + row * 8 + c], std::uint16_t(word >> (16 * h)));
        }
  }
}

// .m16n8 of bytes: a column of 16 elements is a row of 16 bytes in memory.
TEST(LoadMatrix, BytesAreStoredByColumns) {
  for (int count : {1, 2, 4}) {
    std::string body;
    for (int j = 0; j < count; ++j)  // byte b of a register is 4 lane + b + 37 j
      body += cat(" add.u32 %q, %g, ", 37 * j, "; mad.lo.u32 %v", j, ", %q, 0x01010101, 0x03020100;\n");
    const std::string k =
        cat(".visible .entry k(.param .u64 po) {\n.reg .u64 %o; .reg .u32 %t, %s, %g, %q, %m<4>; .reg .b32 "
            "%v<4>;\n.shared .align 16 .b8 tile[512];\n mov.u32 %t, %tid.x; ld.param.u64 %o, [po];\n"
            " mov.u32 %s, tile; shl.b32 %g, %t, 2; mad.lo.u32 %s, %t, 16, %s;\n"
            " mov.u32 %m0, 0xeeeeeeee; st.shared.v4.u32 [%s], {%m0,%m0,%m0,%m0}; bar.sync 0;\n",
            body, " stmatrix.sync.aligned.m16n8.x", count, ".trans.shared.b8 [%s], ", regs("%v", count),
            ";\n bar.sync 0;\n ld.shared.v4.u32 {%m0,%m1,%m2,%m3}, [%s];\n mad.wide.u32 %o, %t, 16, %o;\n"
            " st.global.v4.u32 [%o], {%m0,%m1,%m2,%m3};\n ret;\n}\n");
    Kit kit("sm_100a");
    const std::uint64_t out = kit.machine.alloc(512, "out");
    EXPECT_CLEAN(kit.launch(k, {1, 1, 1}, {32, 1, 1}, Params().add(out)));
    const auto got = kit.download<std::uint8_t>(out, 512);
    for (std::size_t j = 0; j < 4; ++j)
      for (std::size_t column = 0; column < 8; ++column)
        for (std::size_t row = 0; row < 16; ++row) {
          // mma's accumulators: lane 4 (row % 8) + column / 2, first the two columns, then the rows below.
          const std::size_t lane = row % 8 * 4 + column / 2, byte = column % 2 + row / 8 * 2;
          const std::size_t want = 4 * lane + byte + 37 * j;
          ASSERT_EQ(got[j * 128 + column * 16 + row], j < std::size_t(count) ? want : 0xee)
              << j << " " << row << " " << column;
        }
  }
}

TEST(LoadMatrix, MovmatrixTransposes) {
  const std::string k =
      ".visible .entry k(.param .u64 po) {\n.reg .u64 %o; .reg .u32 %t; .reg .b32 %a, %d;\n mov.u32 %t, "
      "%tid.x;\n"
      " ld.param.u64 %o, [po]; mad.lo.u32 %a, %t, 0x20002, 0x10000;\n movmatrix.sync.aligned.m8n8.trans.b16 "
      "%d, %a;\n"
      " mad.wide.u32 %o, %t, 4, %o; st.global.b32 [%o], %d;\n ret;\n}\n";
  Kit kit;
  const std::uint64_t out = kit.machine.alloc(128, "out");
  EXPECT_CLEAN(kit.launch(k, {1, 1, 1}, {32, 1, 1}, Params().add(out)));
  const auto got = kit.download<std::uint16_t>(out, 64);
  // The source holds element number row * 8 + column in place: halves are 2 * lane and 2 * lane + 1.
  for (std::size_t lane = 0; lane < 32; ++lane)
    for (std::size_t h = 0; h < 2; ++h) EXPECT_EQ(got[lane * 2 + h], (lane % 4 * 2 + h) * 8 + lane / 4);
}

TEST(LoadMatrix, MisalignedRowIsAFinding) {
  const std::string k =
      ".visible .entry k() {\n.reg .u32 %t, %s; .reg .b32 %d;\n.shared .align 16 .b8 tile[1024];\n mov.u32 "
      "%t, %tid.x;\n"
      " mov.u32 %s, tile; mad.lo.u32 %s, %t, 24, %s;\n ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%d}, "
      "[%s];\n ret;\n}\n";
  Kit kit;
  EXPECT_EQ(first_class(kit.launch(k, {1, 1, 1}, {32, 1, 1}, Params())), "misaligned");
}

// ---------------------------------------------------------------- wmma
struct WmmaCase {
  int m, n, k;
  const Element* e;
  const char* acc;
  int a_regs, b_regs;
  bool a_column, b_column, d_column;
};

void run_wmma(const WmmaCase& x) {
  SCOPED_TRACE(cat("wmma m", x.m, "n", x.n, "k", x.k, " ", x.e->name, " ", x.acc));
  const bool integer = std::string(x.acc) == "s32", f16_acc = std::string(x.acc) == "f16";
  const int acc = f16_acc ? x.m * x.n / 64 : x.m * x.n / 32, bytes = x.e->bits / 8;
  const std::string shape = cat("m", x.m, "n", x.n, "k", x.k),
                    acc_reg = std::string(x.acc) == "f32" ? ".f32" : ".b32";
  const auto layout = [](bool column) { return column ? ".col" : ".row"; };
  const int lda = x.a_column ? x.m : x.k, ldb = x.b_column ? x.k : x.n, ldd = x.d_column ? x.m : x.n;
  const std::string la = layout(x.a_column), lb = layout(x.b_column), ld = layout(x.d_column), e = x.e->name;
  const std::string types =
      e == "f16" ? cat(".", x.acc, ".", x.acc) : cat(".", x.acc, ".", e, ".", e, ".", x.acc);
  const std::string k = cat(
      ".visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pd) {\n.reg .u64 %x<3>; .reg .b32 "
      "%a<8>, %b<8>; .reg ",
      acc_reg, " %c<8>, %d<8>;\n ld.param.u64 %x0, [pa]; ld.param.u64 %x1, [pb]; ld.param.u64 %x2, [pd];\n",
      " wmma.load.a.sync.aligned", la, ".", shape, ".global.", e, " ", regs("%a", x.a_regs), ", [%x0], ", lda,
      ";\n", " wmma.load.b.sync.aligned", lb, ".", shape, ".global.", e, " ", regs("%b", x.b_regs),
      ", [%x1], ", ldb, ";\n", " wmma.load.c.sync.aligned", ld, ".", shape, ".global.", x.acc, " ",
      regs("%c", acc), ", [%x2], ", ldd, ";\n", " wmma.mma.sync.aligned", la, lb, ".", shape, types, " ",
      regs("%d", acc), ", ", regs("%a", x.a_regs), ", ", regs("%b", x.b_regs), ", ", regs("%c", acc), ";\n",
      " wmma.store.d.sync.aligned", ld, ".", shape, ".global.", x.acc, " [%x2], ", regs("%d", acc), ", ", ldd,
      ";\n ret;\n}\n");
  std::mt19937 rng(7);
  const auto draw = [&] { return (int(rng() % 15) - 7) / 4.0; };
  std::vector<double> a(std::size_t(x.m * x.k)), b(std::size_t(x.k * x.n)), c(std::size_t(x.m * x.n));
  for (auto* v : {&a, &b, &c})
    for (auto& y : *v) y = draw();
  const auto bytes_of = [&](const std::vector<double>& v, int rows, int columns, bool column_major) {
    std::vector<std::uint8_t> out(v.size() * std::size_t(bytes));
    for (int r = 0; r < rows; ++r)
      for (int q = 0; q < columns; ++q) {
        const std::uint64_t u = x.e->encode(v[std::size_t(r * columns + q)]);
        std::memcpy(out.data() + (column_major ? q * rows + r : r * columns + q) * bytes, &u,
                    std::size_t(bytes));
      }
    return out;
  };
  const auto at = [&](int r, int q) { return std::size_t(x.d_column ? q * x.m + r : r * x.n + q); };
  Kit kit;
  std::uint64_t pd = 0;
  std::vector<std::int32_t> ci(c.size());
  std::vector<float> cf(c.size());
  std::vector<std::uint16_t> ch(c.size());
  for (int r = 0; r < x.m; ++r)
    for (int q = 0; q < x.n; ++q) {
      const double v = c[std::size_t(r * x.n + q)];
      ci[at(r, q)] = int(v * 4), cf[at(r, q)] = float(v), ch[at(r, q)] = half(v).bits;
    }
  pd = integer ? kit.upload(ci) : f16_acc ? kit.upload(ch) : kit.upload(cf);
  EXPECT_CLEAN(kit.launch(k, {1, 1, 1}, {32, 1, 1},
                          Params()
                              .add(kit.upload(bytes_of(a, x.m, x.k, x.a_column)))
                              .add(kit.upload(bytes_of(b, x.k, x.n, x.b_column)))
                              .add(pd)));
  ci = kit.download<std::int32_t>(pd, integer ? c.size() : 1);
  cf = kit.download<float>(pd, !integer && !f16_acc ? c.size() : 1);
  ch = kit.download<std::uint16_t>(pd, f16_acc ? c.size() : 1);
  for (int r = 0; r < x.m; ++r)
    for (int q = 0; q < x.n; ++q) {
      double want = integer ? int(c[std::size_t(r * x.n + q)] * 4) : c[std::size_t(r * x.n + q)];
      for (int i = 0; i < x.k; ++i)
        want += (integer ? 16 : 1) * a[std::size_t(r * x.k + i)] * b[std::size_t(i * x.n + q)];
      const double got = integer   ? ci[at(r, q)]
                         : f16_acc ? double(half::from_bits(ch[at(r, q)]))
                                   : cf[at(r, q)];
      ASSERT_EQ(got, want) << r << "," << q;
    }
}

TEST(Wmma, ShapesTypesLayouts) {
  for (bool a : {false, true})
    for (bool b : {false, true}) {
      run_wmma({16, 16, 16, &kF16, "f32", 8, 8, a, b, false});
      run_wmma({16, 16, 16, &kF16, "f16", 8, 8, a, b, true});
      run_wmma({32, 8, 16, &kF16, "f32", 8, 8, a, b, true});
      run_wmma({8, 32, 16, &kF16, "f32", 8, 8, a, b, false});
      run_wmma({16, 16, 16, &kBf16, "f32", 4, 4, a, b, false});
      run_wmma({32, 8, 16, &kBf16, "f32", 8, 2, a, b, false});
      run_wmma({8, 32, 16, &kBf16, "f32", 2, 8, a, b, false});
      run_wmma({16, 16, 16, &kS8, "s32", 2, 2, a, b, false});
      run_wmma({32, 8, 16, &kS8, "s32", 4, 1, a, b, true});
      run_wmma({8, 32, 16, &kS8, "s32", 1, 4, a, b, false});
      run_wmma({16, 16, 8, &kTf32, "f32", 4, 4, a, b, false});
    }
}

TEST(Wmma, DoubleAndFourBit) {
  const std::string k = R"(
.visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pd, .param .u64 qa, .param .u64 qb, .param .u64 qd) {
 .reg .u64 %x<6>; .reg .f64 %a, %b, %c<2>; .reg .b32 %r, %s, %v<2>;
 ld.param.u64 %x0, [pa]; ld.param.u64 %x1, [pb]; ld.param.u64 %x2, [pd];
 wmma.load.a.sync.aligned.row.m8n8k4.global.f64 {%a}, [%x0], 4;
 wmma.load.b.sync.aligned.col.m8n8k4.global.f64 {%b}, [%x1], 4;
 wmma.load.c.sync.aligned.row.m8n8k4.global.f64 {%c0, %c1}, [%x2], 8;
 wmma.mma.sync.aligned.row.col.m8n8k4.f64.f64.f64.f64.rn {%c0, %c1}, {%a}, {%b}, {%c0, %c1};
 wmma.store.d.sync.aligned.row.m8n8k4.global.f64 [%x2], {%c0, %c1}, 8;
 ld.param.u64 %x3, [qa]; ld.param.u64 %x4, [qb]; ld.param.u64 %x5, [qd];
 wmma.load.a.sync.aligned.row.m8n8k32.global.s4 {%r}, [%x3], 32;
 wmma.load.b.sync.aligned.col.m8n8k32.global.s4 {%s}, [%x4], 32;
 wmma.load.c.sync.aligned.row.m8n8k32.global.s32 {%v0, %v1}, [%x5], 8;
 wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32 {%v0, %v1}, {%r}, {%s}, {%v0, %v1};
 wmma.store.d.sync.aligned.row.m8n8k32.global.s32 [%x5], {%v0, %v1}, 8;
 ret;
})";
  std::mt19937 rng(5);
  std::vector<double> a(32), b(32), d(64);
  for (auto* v : {&a, &b, &d})
    for (auto& x : *v) x = int(rng() % 100) / 8.0;
  std::vector<std::uint32_t> qa(32), qb(32);
  std::vector<std::int32_t> qd(64);
  for (auto& x : qa) x = std::uint32_t(rng());
  for (auto& x : qb) x = std::uint32_t(rng());
  for (auto& x : qd) x = int(rng() % 100);
  Kit kit;
  const std::uint64_t pd = kit.upload(d), pq = kit.upload(qd);
  EXPECT_CLEAN(kit.launch(k, {1, 1, 1}, {32, 1, 1},
                          Params()
                              .add(kit.upload(a))
                              .add(kit.upload(b))
                              .add(pd)
                              .add(kit.upload(qa))
                              .add(kit.upload(qb))
                              .add(pq)));
  const auto got = kit.download<double>(pd, 64);
  const auto got_q = kit.download<std::int32_t>(pq, 64);
  const auto nibble = [](const std::vector<std::uint32_t>& v, std::size_t row, std::size_t k4) {
    const int x = int(v[row * 4 + k4 / 8] >> (k4 % 8 * 4) & 15);
    return x > 7 ? x - 16 : x;
  };
  for (std::size_t r = 0; r < 8; ++r)
    for (std::size_t n = 0; n < 8; ++n) {
      double want = d[r * 8 + n];
      for (std::size_t i = 0; i < 4; ++i) want += a[r * 4 + i] * b[n * 4 + i];
      EXPECT_EQ(got[r * 8 + n], want);
      int sum = qd[r * 8 + n];
      for (std::size_t i = 0; i < 32; ++i) sum += nibble(qa, r, i) * nibble(qb, n, i);
      EXPECT_EQ(got_q[r * 8 + n], sum);
    }
}

TEST(LoadMatrix, NeverWrittenRowsAreFoundAtTheirUse) {
  // Row 5 of the tile is not written; its eight elements reach global memory.
  const std::string k = R"(
.visible .entry k(.param .u64 po) {
 .reg .u64 %o; .reg .u32 %t, %s; .reg .b32 %d; .reg .pred %p;
 .shared .align 16 .b8 tile[128];
 mov.u32 %t, %tid.x; ld.param.u64 %o, [po]; mov.u32 %s, tile; mad.lo.u32 %s, %t, 16, %s;
 setp.ne.u32 %p, %t, 5; setp.lt.and.u32 %p, %t, 8, %p;
 @%p st.shared.v4.u32 [%s], {%t, %t, %t, %t};
 bar.sync 0;
 ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%d}, [%s];
 setp.ne.u32 %p, %t, 40;
 mad.wide.u32 %o, %t, 4, %o; @%p st.global.b32 [%o], %d;
 ret;
})";
  Kit kit;
  const Result r =
      kit.launch(k, {1, 1, 1}, {32, 1, 1}, Params().add(kit.upload(std::vector<std::uint32_t>(32))));
  EXPECT_EQ(first_class(r), "uninit.shared");
}

// Found by mutation: the types are what registers and shapes are divided by.
TEST(Matrices, WithoutTypesAreRefused) {
  for (const char* instruction :
       {"wmma.load.b.sync.aligned.row.m16n16k16.global {%r0,%r0,%r0,%r0,%r0,%r0,%r0,%r0}, [%x], %r0;",
        "mma.sync.aligned.m16n8k16.row.col {%r0,%r0}, {%r0,%r0,%r0,%r0}, {%r0,%r0}, {%r0,%r0};",
        "wmma.mma.sync.aligned.row.col.m16n16k16 {%r0}, {%r0}, {%r0}, {%r0};",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32 {%f0,%f0,%f0,%f0}, %x, %x, 1, 1, 1, 0, 0;"}) {
    try {
      const auto p =
          Program::load(text::cat(".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry k() {\n"
                                  ".reg .b32 %r0; .reg .f32 %f0; .reg .b64 %x;\n",
                                  instruction, "\nret;\n}\n"));
      EXPECT_NE(p->entry("k").unsupported, "") << instruction;
    } catch (const Error&) {  // the parser may refuse it already
    }
  }
}

}  // namespace
}  // namespace cgp::emu

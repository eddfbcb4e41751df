// SPDX-License-Identifier: Apache-2.0
// mma.sync of sm_120: 4-, 6- and 8-bit floats in bytes, and block scales, against sums in double on small
// numbers, which are exact. The places of elements and scales are written out here from the ISA's figures.
#include <random>

#include "cgp/emu/tensor/tensor_test_kit.h"

namespace cgp::emu {
namespace {
using namespace test;
using text::cat;

struct Format {
  const char* name;
  int exponent, mantissa;
};
constexpr Format kE2m1{"e2m1", 2, 1}, kE3m2{"e3m2", 3, 2}, kE2m3{"e2m3", 2, 3}, kE4m3{"e4m3", 4, 3};

double value(const Format& f, std::uint32_t code) {
  const int e = int(code >> f.mantissa) & ((1 << f.exponent) - 1), m = int(code) & ((1 << f.mantissa) - 1);
  const int bias = (1 << (f.exponent - 1)) - 1;
  const double v = e ? std::ldexp(1 + m / double(1 << f.mantissa), e - bias)
                     : std::ldexp(m / double(1 << f.mantissa), 1 - bias);
  return code >> (f.exponent + f.mantissa) & 1 ? -v : v;
}

struct Problem {
  int k = 32, bits = 8;  // of an element's place in a register
  Format a, b;
  std::vector<std::uint32_t> codes_a, codes_b;  // [16][k], [8][k]
  std::vector<float> c = std::vector<float>(128);
};

Problem problem(int k, int bits, const Format& a, const Format& b, unsigned seed) {
  Problem p{k, bits, a, b, {}, {}};
  std::mt19937 r(seed);
  const auto code = [&](const Format& f) {
    // Exponents near one keep all sums exact.
    if (f.exponent < 4) return r() % (2u << (f.exponent + f.mantissa));
    return (r() & 1) << 7 | (6 + r() % 4) << 3 | r() % 8;
  };
  for (int i = 0; i < 16 * k; ++i) p.codes_a.push_back(std::uint32_t(code(a)));
  for (int i = 0; i < 8 * k; ++i) p.codes_b.push_back(std::uint32_t(code(b)));
  for (float& x : p.c) x = float(int(r() % 64)) - 32;
  return p;
}

// Registers of all lanes, lane by lane: four of A, two of B, four of C, then a scale word of A and of B.
std::vector<std::uint32_t> registers(const Problem& p, const std::vector<std::uint32_t>& scale_a,
                                     const std::vector<std::uint32_t>& scale_b, int thread_a, int thread_b) {
  std::vector<std::uint32_t> out;
  const int per = 32 / p.bits;
  const auto place = [&](const Format& f, std::uint32_t code) {
    return p.bits == 8 && f.mantissa == 1 && f.exponent == 2 ? code << 2 : code;
  };
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, q = lane % 4;
    for (int r = 0; r < 4; ++r) {
      std::uint32_t w = 0;
      for (int e = 0; e < per; ++e)
        w |= place(p.a, p.codes_a[std::size_t((g + 8 * (r % 2)) * p.k + per * q + e + 4 * per * (r / 2))])
             << (p.bits * e);
      out.push_back(w);
    }
    for (int r = 0; r < 2; ++r) {
      std::uint32_t w = 0;
      for (int e = 0; e < per; ++e)
        w |= place(p.b, p.codes_b[std::size_t(g * p.k + per * q + e + 4 * per * r)]) << (p.bits * e);
      out.push_back(w);
    }
    for (int i = 0; i < 4; ++i)
      out.push_back(std::bit_cast<std::uint32_t>(p.c[std::size_t((g + 8 * (i / 2)) * 8 + 2 * q + i % 2)]));
    // Lanes that are not asked hold other bytes.
    out.push_back(q / 2 == thread_a ? scale_a[std::size_t(g + 8 * (q % 2))] : 0xffffffffu);
    out.push_back(q == thread_b ? scale_b[std::size_t(g)] : 0xffffffffu);
  }
  return out;
}

std::vector<float> run(const std::string& mma, const std::vector<std::uint32_t>& in) {
  Kit kit("sm_120a");
  std::string s =
      ".visible .entry k(.param .u64 pi, .param .u64 po) {\n .reg .u64 %i, %o; .reg .u32 %t, %r<16>;\n"
      " ld.param.u64 %i, [pi]; ld.param.u64 %o, [po]; mov.u32 %t, %tid.x; mad.wide.u32 %i, %t, 48, %i;\n"
      " mad.wide.u32 %o, %t, 16, %o;\n";
  for (int r = 0; r < 12; ++r) s += cat(" ld.global.u32 %r", r, ", [%i+", 4 * r, "];\n");
  s += mma + "\n st.global.v4.u32 [%o], {%r6, %r7, %r8, %r9};\n ret;\n}\n";
  const std::uint64_t pi = kit.upload(in), po = kit.machine.alloc(512, "out");
  EXPECT_CLEAN(kit.launch(s, {}, {32, 1, 1}, Params().add(pi).add(po)));
  const auto lanes = kit.download<float>(po, 128);
  std::vector<float> d(128);
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i)
      d[std::size_t((lane / 4 + 8 * (i / 2)) * 8 + 2 * (lane % 4) + i % 2)] =
          lanes[std::size_t(lane * 4 + i)];
  return d;
}

// `blocks` scales for each row and column; scale(word, block) is the number.
template <class F>
void expect(const Problem& p, const std::vector<float>& d, int blocks, const std::vector<std::uint32_t>& sa,
            const std::vector<std::uint32_t>& sb, F&& scale) {
  for (int row = 0; row < 16; ++row)
    for (int n = 0; n < 8; ++n) {
      double sum = p.c[std::size_t(row * 8 + n)];
      for (int k = 0; k < p.k; ++k) {
        const int block = k * blocks / p.k;
        sum += value(p.a, p.codes_a[std::size_t(row * p.k + k)]) *
               value(p.b, p.codes_b[std::size_t(n * p.k + k)]) * scale(sa[std::size_t(row)], block) *
               scale(sb[std::size_t(n)], block);
      }
      ASSERT_EQ(d[std::size_t(row * 8 + n)], float(sum)) << row << "," << n;
    }
}

const std::string kRegisters = "{%r6,%r7,%r8,%r9}, {%r0,%r1,%r2,%r3}, {%r4,%r5}, {%r6,%r7,%r8,%r9}";
std::vector<std::uint32_t> words(std::size_t n, std::uint32_t low, std::uint32_t range, unsigned seed) {
  std::mt19937 r(seed);
  std::vector<std::uint32_t> out(n);
  for (auto& w : out)
    for (int b = 0; b < 4; ++b) w |= std::uint32_t(low + r() % range) << (8 * b);
  return out;
}

TEST(MmaSm120, SmallFloatsInBytes) {
  const std::pair<Format, Format> pairs[] = {{kE2m1, kE3m2}, {kE2m3, kE2m1}, {kE4m3, kE2m3}, {kE3m2, kE4m3}};
  for (const auto& [a, b] : pairs) {
    const Problem p = problem(32, 8, a, b, 5);
    const std::vector<std::uint32_t> none(16, 0);
    const auto d = run(cat("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.", a.name, ".", b.name,
                           ".f32 ", kRegisters, ";"),
                       registers(p, none, none, 0, 0));
    expect(p, d, 1, none, none, [](std::uint32_t, int) { return 1.0; });
  }
}

TEST(MmaSm120, OneScalePerRow) {
  const Problem p = problem(32, 8, kE3m2, kE2m1, 7);
  const auto sa = words(16, 125, 5, 1), sb = words(8, 125, 5, 2);  // 1/4 to 4
  for (const int byte : {0, 3}) {
    const auto d = run(cat("mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32."
                           "e3m2.e2m1.f32.ue8m0 ",
                           kRegisters, ", %r10, {", byte, ", 1}, %r11, {", byte, ", 2};"),
                       registers(p, sa, sb, 1, 2));
    expect(p, d, 1, sa, sb,
           [&](std::uint32_t w, int) { return std::ldexp(1.0, int(w >> (8 * byte) & 255) - 127); });
  }
}

TEST(MmaSm120, TwoAndFourScalesPerRow) {
  const Problem p = problem(64, 4, kE2m1, kE2m1, 9);
  const auto sa = words(16, 126, 3, 3), sb = words(8, 126, 3, 4);
  const auto two = run(
      cat("mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0 ",
          kRegisters, ", %r10, {2, 0}, %r11, {0, 3};"),
      registers(p, sa, sb, 0, 3));
  // Byte 2 and 3 of A's word, 0 and 1 of B's: both tables are shifted to the same place for the oracle.
  auto shifted = sa;
  for (auto& w : shifted) w >>= 16;
  expect(p, two, 2, shifted, sb,
         [](std::uint32_t w, int b) { return std::ldexp(1.0, int(w >> (8 * b) & 255) - 127); });
  const auto ma = words(16, 0x30, 16, 5), mb = words(8, 0x30, 16, 6);  // ue4m3 from 1/2 to 1.875
  const auto four = run(cat("mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32."
                            "e2m1.e2m1.f32.ue4m3 ",
                            kRegisters, ", %r10, {0, 1}, %r11, {0, 0};"),
                        registers(p, ma, mb, 1, 0));
  expect(p, four, 4, ma, mb, [](std::uint32_t w, int b) { return value(kE4m3, w >> (8 * b) & 127); });
}

// Rows of 16 elements, packed as the format says, and what each lane gets of them.
TEST(LdmatrixSm100, BytesAndPackedElements) {
  struct Shape {
    std::string text;
    int rows, matrices, bits;
    bool transposed;
  };
  for (const Shape& s : {Shape{"m16n16.x2.trans.shared.b8", 16, 2, 8, true},
                         Shape{"m16n16.x1.trans.shared.b8x16.b6x16_p32", 16, 1, 6, true},
                         Shape{"m8n16.x4.shared.b8x16.b6x16_p32", 8, 4, 6, false},
                         Shape{"m8n16.x2.shared.b8x16.b4x16_p64", 8, 2, 4, false}}) {
    const int rows = s.rows * s.matrices, regs = rows / 8;
    const auto element = [&](int row, int e) {
      return std::uint32_t(row * 37 + e * 11 + 5) & ((1u << s.bits) - 1);
    };
    std::vector<std::uint8_t> memory(512, 0xaa);
    for (int row = 0; row < rows; ++row)
      for (int bit = 0; bit < 16 * s.bits; ++bit) {
        std::uint8_t& b = memory[std::size_t(row * 16 + bit / 8)];
        const auto one = std::uint8_t(1u << (bit % 8));
        b = element(row, bit / s.bits) >> (bit % s.bits) & 1 ? std::uint8_t(b | one) : std::uint8_t(b & ~one);
      }
    Kit kit("sm_120a");
    std::string list;
    for (int r = 0; r < regs; ++r) list += cat(r ? ", %r" : "%r", r);
    std::string k =
        ".visible .entry k(.param .u64 pi, .param .u64 po) {\n .reg .u64 %i, %o; .reg .u32 %t, %a, %r<8>;\n"
        " .shared .align 128 .b8 sm[512]; ld.param.u64 %i, [pi]; ld.param.u64 %o, [po]; mov.u32 %t, %tid.x;\n"
        " mad.wide.u32 %i, %t, 16, %i; ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%i]; mov.u32 %a, sm;\n"
        " mad.lo.u32 %a, %t, 16, %a; st.shared.v4.u32 [%a], {%r0, %r1, %r2, %r3}; bar.sync 0;\n";
    k += cat(" ldmatrix.sync.aligned.", s.text, " {", list, "}, [%a];\n mad.wide.u32 %o, %t, 16, %o;\n");
    for (int r = 0; r < regs; ++r) k += cat(" st.global.u32 [%o+", 4 * r, "], %r", r, ";\n");
    const std::uint64_t pi = kit.upload(memory), po = kit.machine.alloc(512, "out");
    EXPECT_CLEAN(kit.launch(k + " ret;\n}\n", {}, {32, 1, 1}, Params().add(pi).add(po)));
    const auto got = kit.download<std::uint8_t>(po, 512);
    for (int lane = 0; lane < 32; ++lane)
      for (int r = 0; r < regs; ++r)
        for (int b = 0; b < 4; ++b) {
          const int out_row = lane / 4 + 8 * (r % (s.rows / 8)), column = 4 * (lane % 4) + b,
                    first = r / (s.rows / 8) * s.rows;
          ASSERT_EQ(got[std::size_t(lane * 16 + r * 4 + b)],
                    s.transposed ? element(first + column, out_row) : element(first + out_row, column))
              << s.text << " lane " << lane << " register " << r << " byte " << b;
        }
  }
}

}  // namespace
}  // namespace cgp::emu

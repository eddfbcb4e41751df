// SPDX-License-Identifier: Apache-2.0
// Block-scaled tcgen05.mma: where the scale factors are read, and the sums to the bit against the published
// rule written out in double arithmetic.
#include <cmath>

#include "cgp/emu/tensor/tcgen05_test_kit.h"

namespace cgp::emu {
namespace {
using namespace test;
using text::cat;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

struct Format {
  const char* name;
  u32 code;
  int bits, exponent_bits, mantissa_bits;
};
const Format kE4m3{"e4m3", 0, 8, 4, 3}, kE5m2{"e5m2", 1, 8, 5, 2}, kE2m3{"e2m3", 3, 6, 2, 3},
    kE3m2{"e3m2", 4, 6, 3, 2}, kE2m1{"e2m1", 5, 4, 2, 1}, kPacked{"e2m1", 1, 4, 2, 1};

struct Number {
  double significand;  // of the format: subnormals keep the lowest exponent
  int exponent;
  double value() const { return std::ldexp(significand, exponent); }
};
Number decode(u32 u, int e, int m) {
  const int bias = (1 << (e - 1)) - 1, x = int(u >> m & ((1u << e) - 1)), f = int(u & ((1u << m) - 1));
  const double s = (u >> (e + m) & 1 ? -1 : 1) * (std::ldexp(f, -m) + (x ? 1 : 0));
  return {s, std::max(x, 1) - bias};
}
Number scale_of(u32 u, bool ue8m0) {
  if (ue8m0) return {1, int(u) - 127};
  return decode(u & 0x7f, 4, 3);
}

float truncated(double v) {  // towards zero
  float f = float(v);
  if (std::fabs(double(f)) > std::fabs(v)) f = std::nextafterf(f, 0.0f);
  return f;
}
double cut(double significand, int fraction_bits, int distance) {
  return std::trunc(std::ldexp(significand, fraction_bits - distance));
}

struct Case {
  const char* kind;
  const char* scale;  // qualifier
  const Format *a, *b;
  int m, n, k, vector;
  bool ue8m0 = true;
  int group = 1, sfa_id = 0, sfb_id = 0;
  int spread = 2;  // of the scales' exponents
  bool a_tensor = false, random_d = true;
  const char* version = "8.8";
};

constexpr int kSfa = 256, kSfb = 288, kA = 320, kColumns = 512;

void run(const Case& x) {
  SCOPED_TRACE(cat(x.kind, x.scale, " ", x.a->name, " ", x.b->name, " m", x.m, " n", x.n, " group ", x.group,
                   " ids ", x.sfa_id, x.sfb_id, " spread ", x.spread));
  const int group = x.group, mine = x.m / group, block = x.k / x.vector;
  std::mt19937 rng(unsigned(x.m + x.n + x.vector + x.spread));
  const auto draw = [&](const Format& f) {
    u32 u;
    do u = rng() & ((1u << f.bits) - 1);
    while (f.bits == 8 && (u & 0x7f) >= (f.mantissa_bits == 3 ? 0x7f : 0x7c));
    return u;
  };
  std::vector<u32> a(std::size_t(x.m * x.k)), b(std::size_t(x.n * x.k));
  for (auto& v : a) v = draw(*x.a);
  for (auto& v : b) v = draw(*x.b);
  const auto draw_scale = [&] {
    const int e = int(rng() % unsigned(2 * x.spread + 1)) - x.spread;
    return x.ue8m0 ? u32(127 + e) : u32(std::clamp(7 + e, 0, 14)) << 3 | (rng() & 7);
  };
  std::vector<u32> sa(std::size_t(x.m * x.vector)), sb(std::size_t(x.n * x.vector));
  for (auto& v : sa) v = draw_scale();
  for (auto& v : sb) v = draw_scale();
  std::vector<float> c(std::size_t(x.m * x.n));
  for (auto& v : c)
    v = x.random_d ? std::ldexp(float(int(rng() % 20001) - 10000), int(rng() % 20) - 16) : 0.0f;

  TensorKernel kernel;
  kernel.group = group;
  kernel.columns = kColumns;
  kernel.version = x.version;
  std::vector<std::uint8_t> input;
  OperandImage ia, ib;
  int b_offset = 0;
  const bool slots = x.k == 32;
  for (int cta = 0; cta < group; ++cta) {
    const auto part = [&](const std::vector<u32>& v, int rows, const Format& f) {
      const int count = rows / group;
      const Bits bits(v.begin() + cta * count * x.k, v.begin() + (cta + 1) * count * x.k);
      return k_major_image(bits, count, x.k, f.bits, 3, slots && f.bits < 8);
    };
    ia = part(a, x.m, *x.a);
    ib = part(b, x.n, *x.b);
    b_offset = int(ia.bytes.size() + 1023) / 1024 * 1024;
    kernel.bytes = (b_offset + int(ib.bytes.size()) + 1023) / 1024 * 1024;
    input.resize(std::size_t(cta * kernel.bytes));
    input.insert(input.end(), ia.bytes.begin(), ia.bytes.end());
    input.resize(std::size_t(cta * kernel.bytes + b_offset));
    input.insert(input.end(), ib.bytes.begin(), ib.bytes.end());
    input.resize(std::size_t((cta + 1) * kernel.bytes));
  }
  std::vector<u32> tensor(std::size_t(group * 128 * kColumns), 0);
  const auto cell = [&](int cta, int lane, int column) -> u32& {
    return tensor[std::size_t((cta * 128 + lane) * kColumns + column)];
  };
  const auto d_cell = [&](int row, int n) -> u32& {
    if (mine == 64) return cell(row / 64, row % 64 + (n < x.n / 2 ? 0 : 64), n % (x.n / 2));
    return cell(row / 128, row % 128, n);
  };
  for (int r = 0; r < x.m; ++r)
    for (int n = 0; n < x.n; ++n) d_cell(r, n) = std::bit_cast<u32>(c[std::size_t(r * x.n + n)]);
  // 9.7.16.10.7: row r in lane r % 32 and column r / 32, for all four groups of 32 lanes; byte = block of K.
  // For a pair with M = 128, lanes 0 to 63 have the scales of the first half of N, 64 to 127 of the second.
  for (int cta = 0; cta < group; ++cta)
    for (int quarter = 0; quarter < 4; ++quarter) {
      for (int r = 0; r < mine; ++r)
        for (int v = 0; v < x.vector; ++v)
          cell(cta, quarter * 32 + r % 32, kSfa + r / 32) |= sa[std::size_t((cta * mine + r) * x.vector + v)]
                                                             << 8 * (x.sfa_id + v);
      const int part = mine == 64 ? x.n / 2 : x.n, first = mine == 64 && quarter >= 2 ? part : 0;
      for (int n = 0; n < part; ++n)
        for (int v = 0; v < x.vector; ++v)
          cell(cta, quarter * 32 + n % 32, kSfb + n / 32) |= sb[std::size_t((first + n) * x.vector + v)]
                                                             << 8 * (x.sfb_id + v);
    }
  if (x.a_tensor) {
    const int bits = x.k == 64 ? 4 : 8, per = 32 / bits;
    for (int r = 0; r < x.m; ++r)
      for (int i = 0; i < x.k; ++i) {
        u32 u = a[std::size_t(r * x.k + i)];
        if (bits == 8 && x.a->bits == 4) u <<= 2;
        cell(r / mine, r % mine, kA + i / per) |= u << (i % per * bits);
      }
  }
  const u32 id = x.a->code << 7 | x.b->code << 10 | u32(x.sfb_id) << 4 | u32(x.sfa_id) << 29 |
                 u32(x.n / 8) << 17 | u32(x.ue8m0) << 23 | u32(x.m / 16) << 24;
  kernel.parameters = ", .param .u64 da, .param .u64 db, .param .u32 id";
  kernel.body =
      cat(" ld.param.u32 %r0, [id]; ld.param.u64 %rd0, [da]; ld.param.u64 %rd1, [db]; shr.u32 %r2, %s, 4; "
          "cvt.u64.u32 "
          "%rd2, %r2; or.b64 %rd0, %rd0, %rd2; add.u64 %rd1, %rd1, %rd2; add.u64 %rd1, %rd1, ",
          b_offset / 16, ";\n add.u32 %r3, %t, ", kSfa, "; add.u32 %r4, %t, ", kSfb, "; add.u32 %r5, %t, ",
          kA, ";\n tcgen05.mma.cta_group::", group, ".kind::", x.kind, ".block_scale", x.scale, " [%t], ",
          x.a_tensor ? "[%r5]" : "%rd0", ", %rd1, %r0, [%r3], [%r4], %p;");
  expect_assembles_once(cat(x.kind, x.scale, group, x.a_tensor), kernel.text());
  const auto r = run_tensor(kernel, input, tensor, [&](Params& p) {
    p.add(ia.descriptor | 1ull << 46).add(ib.descriptor | 1ull << 46).add(id);
  });
  EXPECT_CLEAN(r.result);
  for (int row = 0; row < x.m; ++row)
    for (int n = 0; n < x.n; ++n) {
      const float d = c[std::size_t(row * x.n + n)];
      int ec = 0;
      const double sc = d == 0 ? 0 : std::frexp(double(d), &ec) * 2;
      ec -= 1;
      std::vector<Number> terms;
      int top = d == 0 ? -10000 : ec;
      const int step = x.k == 64 ? 16 : 1;
      for (int i = 0; i < x.k; i += step) {
        const Number p = scale_of(sa[std::size_t(row * x.vector + i / block)], x.ue8m0),
                     q = scale_of(sb[std::size_t(n * x.vector + i / block)], x.ue8m0);
        if (step == 1) {
          const Number u = decode(a[std::size_t(row * x.k + i)], x.a->exponent_bits, x.a->mantissa_bits),
                       v = decode(b[std::size_t(n * x.k + i)], x.b->exponent_bits, x.b->mantissa_bits);
          const double s = u.significand * v.significand;
          if (s == 0) continue;
          terms.push_back({s, u.exponent + v.exponent + p.exponent + q.exponent});
        } else {
          double s = 0;
          for (int j = i; j < i + 16; ++j)
            s += decode(a[std::size_t(row * x.k + j)], 2, 1).value() *
                 decode(b[std::size_t(n * x.k + j)], 2, 1).value();
          terms.push_back({s * p.significand * q.significand, p.exponent + q.exponent});
        }
        top = std::max(top, terms.back().exponent);
      }
      const int f = x.k == 64 ? 35 : 25;
      double sum = d == 0 ? 0 : cut(sc, f, top - ec);
      for (const Number& t : terms) sum += cut(t.significand, f, top - t.exponent);
      const float want = truncated(std::ldexp(sum, top - f));
      const std::size_t at = std::size_t(&d_cell(row, n) - tensor.data());
      ASSERT_EQ(r.tensor[at], std::bit_cast<u32>(want + 0.0f)) << "row " << row << " column " << n;
    }
}

TEST(TensorScale, Mxf8f6f4) {
  const Format* types[] = {&kE4m3, &kE5m2, &kE2m3, &kE3m2, &kE2m1};
  for (std::size_t i = 0; i < 5; ++i)
    run({"mxf8f6f4", ".scale_vec::1X", types[i], types[(i + 1) % 5], 128, 64, 32, 1, true, 1, int(i % 4),
         int((i + 2) % 4)});
  run({"mxf8f6f4", ".block32", &kE4m3, &kE4m3, 256, 128, 32, 1, true, 2, 1, 3});
  run({"mxf8f6f4", "", &kE5m2, &kE4m3, 128, 48, 32, 1, true, 1, 0, 0, 20});
  run({"mxf8f6f4", "", &kE2m1, &kE2m3, 128, 48, 32, 1, true, 1, 0, 0, 2, true});
}

TEST(TensorScale, Mxf4AndNvf4) {
  run({"mxf4", ".scale_vec::2X", &kPacked, &kPacked, 128, 64, 64, 2});
  run({"mxf4", ".block32", &kPacked, &kPacked, 128, 64, 64, 2, true, 1, 2, 0, 12});
  run({"mxf4", "", &kPacked, &kPacked, 256, 64, 64, 2, true, 2, 2, 2});
  run({"mxf4", "", &kPacked, &kPacked, 128, 128, 64, 2, true, 2, 0, 2});
  run({"mxf4nvf4", ".scale_vec::4X", &kPacked, &kPacked, 128, 64, 64, 4, false, 1, 0, 0, 7});
  run({"mxf4nvf4", ".block16", &kPacked, &kPacked, 128, 96, 64, 4, true, 1, 0, 0, 15});
  run({"mxf4nvf4", ".block16", &kPacked, &kPacked, 256, 64, 64, 4, false, 2, 0, 0, 5, false, false});
  run({"mxf4nvf4", ".scale_vec::2X", &kPacked, &kPacked, 128, 64, 64, 2, true, 1, 0, 2, 3, true});
}

}  // namespace
}  // namespace cgp::emu

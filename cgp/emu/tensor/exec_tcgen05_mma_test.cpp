// SPDX-License-Identifier: Apache-2.0
// tcgen05.mma: each kind, shape, group size and operand layout against plain host loops; where D lies in
// Tensor Memory comes from the figures of the ISA, written out here.
#include <cmath>

#include "cgp/emu/tensor/tcgen05_descriptor.h"
#include "cgp/emu/tensor/tcgen05_test_kit.h"

namespace cgp::emu {
namespace {
using namespace test;
using ::testing::HasSubstr;
using text::cat;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

const ElementType kF16{"f16", 16, 16, [](double v) { return u32(half(v).bits); }};
const ElementType kBf16{"bf16", 16, 16, [](double v) { return u32(bfloat16(v).bits); }};
const ElementType kTf32{"tf32", 32, 8, [](double v) { return std::bit_cast<u32>(float(v)); }};
const ElementType kE4m3{"e4m3", 8, 32, [](double v) { return small_float(v, 4, 3); }};
const ElementType kE5m2{"e5m2", 8, 32, [](double v) { return small_float(v, 5, 2); }};
const ElementType kE2m3{"e2m3", 6, 32, [](double v) { return small_float(v, 2, 3); }};
const ElementType kE3m2{"e3m2", 6, 32, [](double v) { return small_float(v, 3, 2); }};
const ElementType kE2m1{"e2m1", 4, 32, [](double v) { return small_float(v, 2, 1); }};
const ElementType kS8{"s8", 8, 32, [](double v) { return u32(int(v)) & 0xff; }};
const ElementType kU8{"u8", 8, 32, [](double v) { return u32(int(v)) & 0xff; }};

struct Kind {
  const char* name;
  u32 a, b, d;  // codes of the instruction descriptor
};

struct Case {
  const ElementType *a, *b;
  Kind kind;
  int m, n, group = 1;
  int a_swizzle = 3, b_swizzle = 3;
  bool a_mn = false, b_mn = false, a_tensor = false, accumulate = true, ws = false;
  bool negate_a = false;
  int scale_d = 0;
  bool mask = false;
  int sparse = 0;     // 1, 2: sparse A, metadata selected by id sparse - 1
  bool wide = false;  // numbers of many sizes: the sum is compared to the bit
  // .ws: the zero-column mask's descriptor (0: none), and which columns it stands for.
  u64 zeros = 0;
  std::function<bool(int)> is_zero = [](int) { return false; };
  int shift = 0;  // of the columns of B
};

// The published rule of the unit for f32: products and C aligned to the largest exponent (of the factors'
// significands in [1, 2), not of the product), cut at 25 fractional bits, added, cut to f32.
float fused(const double* a, const double* b, int k, double c) {
  int top = -10000;
  const auto split = [](double v, int& e) {
    const double m = std::frexp(v, &e) * 2;
    --e;
    return m;
  };
  std::vector<std::pair<double, int>> terms;
  const auto add = [&](double significand, int exponent) {
    terms.push_back({significand, exponent});
    top = std::max(top, exponent);
  };
  int ea, eb;
  for (int i = 0; i < k; ++i) {
    if (a[i] == 0 || b[i] == 0) continue;
    const double ma = split(a[i], ea), mb = split(b[i], eb);
    add(ma * mb, ea + eb);
  }
  if (c != 0) {
    const double m = split(c, ea);
    add(m, ea);
  }
  double sum = 0;
  for (const auto& [m, e] : terms) sum += std::trunc(std::ldexp(m, 25 - (top - e)));
  const double v = std::ldexp(sum, top - 25);
  const float f = float(v);
  return std::fabs(double(f)) > std::fabs(v) ? std::nextafterf(f, 0.0f) : f;
}

struct At {
  int cta, lane, column;
};
// 9.7.16.10.5, "Data path layout organization".
At d_at(const Case& x, int row, int n) {
  if (x.group == 2 && x.m == 256) return {row / 128, row % 128, n};                       // A
  if (x.group == 2) return {row / 64, row % 64 + (n < x.n / 2 ? 0 : 64), n % (x.n / 2)};  // B
  if (x.ws && x.m == 64) return {0, row + (n < x.n / 2 ? 0 : 64), n % (x.n / 2)};         // E
  if (x.ws && x.m == 32) return {0, row + n / (x.n / 4) * 32, n % (x.n / 4)};             // G
  if (x.m == 64) {                                                                        // F
    const int first[] = {0, 32, 64, 96};
    return {0, first[row / 16] + row % 16, n};
  }
  return {0, row, n};  // D
}

bool padded(const ElementType& t) { return t.bits < 8; }

u32 instruction(const Case& x) {
  return (x.sparse ? u32(x.sparse - 1) | 4 : 0) | x.kind.d << 4 | x.kind.a << 7 | x.kind.b << 10 |
         u32(x.negate_a) << 13 | u32(x.a_mn) << 15 | u32(x.b_mn) << 16 | u32(x.n / 8) << 17 |
         u32(x.m / 16) << 24 | (x.shift ? 3u << 30 : 0);
}

constexpr int kAColumn = 256;  // A in Tensor Memory

void run(const Case& x) {
  SCOPED_TRACE(cat(x.kind.name, " ", x.a->name, " ", x.b->name, " m", x.m, " n", x.n, " group ", x.group,
                   " swizzles ", x.a_swizzle, x.b_swizzle, " mn ", x.a_mn, x.b_mn, " tensor ", x.a_tensor,
                   " ws ", x.ws));
  const int k = x.a->k, full_k = x.sparse ? 2 * k : k, group = x.group;  // k: stored elements of A
  const bool integer = x.kind.d == 2, f16 = x.kind.d == 0;
  std::mt19937 rng(unsigned(x.m + x.n + k));
  const auto draw = [&](const ElementType& t) {
    if (integer) return double(t.name[0] == 'u' ? int(rng() % 200) : int(rng() % 200) - 100);
    if (x.wide) {  // 4 significant bits are exact in every type but e2m1
      const int range = t.name[0] == 'e' ? 3 : 12;
      return std::ldexp((8 + int(rng() % 8)) / 8.0, int(rng() % unsigned(2 * range)) - range) *
             (rng() % 2 ? 1 : -1);
    }
    return (int(rng() % 9) - 4) / 2.0;
  };
  std::vector<double> a(std::size_t(x.m * k)), b(std::size_t((x.n + x.shift) * full_k)),
      c(std::size_t(x.m * x.n));
  for (auto& v : a) v = draw(*x.a);
  for (auto& v : b) v = draw(*x.b);
  // Sparse A: which of the elements are stored, and the bits that say so, one (tf32: two) per element.
  std::vector<double> full = a;
  std::vector<u32> pattern(std::size_t(x.m * full_k));
  if (x.sparse) {
    full.assign(std::size_t(x.m * full_k), 0);
    const bool pairs = x.a->bits == 32;
    for (int i = 0; i < x.m * full_k; i += pairs ? 2 : 4) {
      const auto at = std::size_t(i), from = std::size_t(i / 2);
      if (pairs) {
        const unsigned which = rng() % 2;
        full[at + which] = a[from];
        pattern[at] = which ? 2 : 0;  // 0b1110 or 0b0100
        pattern[at + 1] = which ? 3 : 1;
        continue;
      }
      const unsigned first = rng() % 3, second = first + 1 + rng() % (3 - first);
      full[at + first] = a[from];
      full[at + second] = a[from + 1];
      for (unsigned b4 = 0; b4 < 4; ++b4) pattern[at + b4] = (first | second << 2) >> b4 & 1;
    }
  }
  for (auto& v : c) v = integer ? int(rng() % 100) : (int(rng() % 33) - 16) / 4.0;
  if (x.wide)
    for (auto& v : c) v = double(std::ldexp(float(int(rng() % 16777216) - 8388608), int(rng() % 40) - 40));

  TensorKernel kernel;
  kernel.group = group;
  kernel.columns = x.a_tensor || x.sparse ? 512 : std::max(32, int(std::bit_ceil(unsigned(x.n))));
  const int columns = kernel.columns;
  // Operand images of each CTA, A then B.
  std::vector<std::uint8_t> input;
  OperandImage ia, ib;
  int b_offset = 0;
  for (int cta = 0; cta < group; ++cta) {
    const auto part = [&](const std::vector<double>& v, int rows, const ElementType& t, bool mn,
                          int swizzle) {
      const int mine = rows / group;
      const int width = int(v.size()) / rows;  // elements of a row
      Bits bits(std::size_t(mine * width));
      for (int i = 0; i < mine * width; ++i)
        bits[std::size_t(i)] = t.encode(v[std::size_t(cta * mine * width + i)]);
      return mn ? mn_major_image(bits, mine, width, t.bits, swizzle)
                : k_major_image(bits, mine, width, t.bits, swizzle, padded(t));
    };
    ia = part(a, x.m, *x.a, x.a_mn, x.a_swizzle);
    ib = part(b, x.n + x.shift, *x.b, x.b_mn, x.b_swizzle);
    b_offset = x.a_tensor ? 0 : int(ia.bytes.size() + 1023) / 1024 * 1024;
    kernel.bytes = (b_offset + int(ib.bytes.size()) + 1023) / 1024 * 1024;
    input.resize(std::size_t(cta * kernel.bytes));
    if (!x.a_tensor) input.insert(input.end(), ia.bytes.begin(), ia.bytes.end());
    input.resize(std::size_t(cta * kernel.bytes + b_offset));
    input.insert(input.end(), ib.bytes.begin(), ib.bytes.end());
    input.resize(std::size_t((cta + 1) * kernel.bytes));
  }
  // Tensor Memory: D, and A in 8 columns per row.
  std::vector<u32> tensor(std::size_t(group * 128 * columns), 0x55555555);
  const auto cell = [&](At at) -> u32& {
    return tensor[std::size_t((at.cta * 128 + at.lane) * columns + at.column)];
  };
  for (int r = 0; r < x.m; ++r)
    for (int n = 0; n < x.n; ++n) {
      const double v = c[std::size_t(r * x.n + n)];
      cell(d_at(x, r, n)) = integer ? u32(int(v)) : f16 ? u32(half(v).bits) : std::bit_cast<u32>(float(v));
    }
  // CUTLASS's fragment of the metadata: index of (row, k) as a sum over their digits; 128 lanes, then bits.
  for (int r = 0; x.sparse && r < x.m; ++r)
    for (int i = 0; i < full_k; ++i) {
      const int row = r % 128;
      int lane = row, bit = i;
      if (x.a->bits > 8) {
        const int wide = x.a->bits == 32, half = wide ? 8 : 16;
        const int index =
            row % 8 + row / 8 % 2 * (wide ? 1024 : 2048) + row / 16 * 16 + i % half * 128 + i / half * 8;
        lane = index % 128;
        bit = index / 128 * (wide ? 2 : 1);
      }
      const int column = kAColumn + 32 + (x.a->bits > 8 ? x.sparse - 1 : 0) + bit / 32;
      u32& word = cell({r / 128, lane, column});
      const u32 mask = (x.a->bits == 32 ? 3u : 1u) << bit % 32;
      word = (word & ~mask) | pattern[std::size_t(r * full_k + i)] << bit % 32;
    }
  if (x.a_tensor) {
    const int bits = std::max(8, x.a->bits), per = 32 / bits;
    for (int r = 0; r < x.m; ++r)
      for (int copy = 0; copy < 4; ++copy) {
        At at = d_at(x, r, 0);
        if (x.m / group == 64 && (group == 2 || x.ws))
          at.lane += copy % 2 * 64;
        else if (x.m == 32)
          at.lane += copy * 32;
        for (int i = 0; i < 8; ++i) {
          u32 u = 0;
          for (int e = 0; e < per; ++e) {
            const u32 code = x.a->encode(a[std::size_t(r * k + i * per + e)]);
            u |= (x.a->bits == 4 ? code << 2 : code) << (e * bits);
          }
          at.column = kAColumn + i;
          cell(at) = u;
        }
      }
  }
  const std::string form = cat("tcgen05.mma",
                               x.ws       ? ".ws"
                               : x.sparse ? ".sp"
                                          : "",
                               ".cta_group::", group, ".kind::", x.kind.name);
  kernel.parameters = ", .param .u64 da, .param .u64 db, .param .u32 id, .param .u32 acc, .param .u64 zeros";
  kernel.body = cat(
      " ld.param.u32 %r0, [id]; ld.param.u64 %rd0, [da]; ld.param.u64 %rd1, [db]; ld.param.u64 %rd3, "
      "[zeros]; ld.param.u32 %r1, [acc]; "
      "setp.ne.u32 %p, %r1, 0;\n shr.u32 %r2, %s, 4; cvt.u64.u32 %rd2, %r2; or.b64 %rd0, %rd0, %rd2; add.u64 "
      "%rd1, "
      "%rd1, %rd2; add.u64 %rd1, %rd1, ",
      b_offset / 16, ";\n add.u32 %r3, %t, ", kAColumn, "; add.u32 %r6, %t, ", kAColumn + 32,
      ";\n mov.b32 %r4, 0; mov.b32 %r5, 0xf0f0f0f0;\n ", form, " [%t], ", x.a_tensor ? "[%r3]" : "%rd0",
      ", %rd1", x.sparse ? ", [%r6]" : "", ", %r0", x.mask ? ", {%r4,%r5,%r4,%r4}" : "", ", %p",
      x.scale_d ? cat(", ", x.scale_d) : "", x.zeros ? ", %rd3" : "", ";");
  expect_assembles_once(cat(form, x.a_tensor, x.mask, x.scale_d != 0, x.zeros != 0), kernel.text());
  for (AsyncPolicy policy : {AsyncPolicy::eager, AsyncPolicy::late}) {
    Options options;
    options.async = policy;
    const auto r = run_tensor(
        kernel, input, tensor,
        [&](Params& p) {
          p.add(ia.descriptor | 1ull << 46)
              .add(ib.descriptor | 1ull << 46)
              .add(instruction(x))
              .add(u32(x.accumulate))
              .add(x.zeros);
        },
        options);
    EXPECT_CLEAN(r.result);
    std::vector<u32> want = tensor;
    for (int row = 0; row < x.m; ++row)
      for (int n = 0; n < x.n; ++n) {
        const At at = d_at(x, row, n);
        if (x.mask && at.lane / 32 == 1 && at.lane % 8 >= 4) continue;
        double v = x.accumulate ? std::ldexp(c[std::size_t(row * x.n + n)], -x.scale_d) : 0;
        for (int i = 0; i < full_k && !x.is_zero(n); ++i)
          v += (x.negate_a ? -1 : 1) * full[std::size_t(row * full_k + i)] *
               b[std::size_t((n + x.shift) * full_k + i)];
        if (x.wide)
          v = fused(&full[std::size_t(row * full_k)], &b[std::size_t(n * full_k)], full_k,
                    c[std::size_t(row * x.n + n)]);
        want[std::size_t((at.cta * 128 + at.lane) * columns + at.column)] =
            integer ? u32(std::int32_t(v))
            : f16   ? u32(half(v).bits)
                    : std::bit_cast<u32>(float(v));
      }
    for (std::size_t i = 0; i < want.size(); ++i)
      ASSERT_EQ(r.tensor[i], want[i])
          << "cta " << i / std::size_t(128 * columns) << " lane " << i / std::size_t(columns) % 128
          << " column " << i % std::size_t(columns);
  }
}

const Kind kKindF16{"f16", 0, 0, 1}, kKindBf16{"f16", 1, 1, 1}, kKindTf32{"tf32", 2, 2, 1};

TEST(TensorMma, HalfPrecisionShapes) {
  for (int n : {8, 32, 136, 256}) {
    run({&kF16, &kF16, kKindF16, 128, n});
    run({&kBf16, &kBf16, kKindBf16, 64, n});
  }
  run({&kF16, &kF16, {"f16", 0, 0, 0}, 128, 64});
  for (int n : {16, 64, 256}) {
    run({&kF16, &kF16, kKindF16, 256, n, 2});
    run({&kBf16, &kBf16, kKindBf16, 128, n, 2});
  }
}

TEST(TensorMma, Tf32AndIntegers) {
  run({&kTf32, &kTf32, kKindTf32, 128, 64});
  run({&kTf32, &kTf32, kKindTf32, 64, 24});
  run({&kTf32, &kTf32, kKindTf32, 256, 64, 2});
  run({&kS8, &kS8, {"i8", 1, 1, 2}, 128, 64});
  run({&kU8, &kS8, {"i8", 0, 1, 2}, 64, 48});
  run({&kS8, &kU8, {"i8", 1, 0, 2}, 128, 32, 2});
}

TEST(TensorMma, LayoutsInSharedMemory) {
  for (int s : {0, 1, 2, 3}) {
    run({&kF16, &kF16, kKindF16, 128, 64, 1, s, s});
    run({&kTf32, &kTf32, kKindTf32, 128, 32, 1, s, 3});
    run({&kE4m3, &kE4m3, {"f8f6f4", 0, 0, 1}, 64, 32, 1, 3, s});
    run({&kBf16, &kBf16, kKindBf16, 128, 64, 1, s, 3, true, false});
    run({&kF16, &kF16, kKindF16, 128, 128, 1, 3, s, false, true});
    run({&kE4m3, &kE4m3, {"f8f6f4", 0, 0, 1}, 128, 128, 1, s, s, true, true});
  }
  run({&kTf32, &kTf32, kKindTf32, 128, 64, 1, 4, 4, true, true});
  run({&kF16, &kF16, kKindF16, 256, 128, 2, 3, 3, true, true});
}

TEST(TensorMma, AInTensorMemory) {
  run({&kF16, &kF16, kKindF16, 128, 64, 1, 3, 3, false, false, true});
  run({&kBf16, &kBf16, kKindBf16, 64, 64, 1, 3, 3, false, false, true});
  run({&kTf32, &kTf32, kKindTf32, 128, 64, 1, 3, 3, false, false, true});
  run({&kS8, &kS8, {"i8", 1, 1, 2}, 128, 64, 1, 3, 3, false, false, true});
  run({&kF16, &kF16, kKindF16, 256, 64, 2, 3, 3, false, false, true});
  run({&kF16, &kF16, kKindF16, 128, 64, 2, 3, 3, false, false, true});
}

TEST(TensorMma, WeightStationary) {
  for (int m : {32, 64, 128}) {
    run({&kF16, &kF16, kKindF16, m, 64, 1, 3, 3, false, false, false, true, true});
    run({&kF16, &kF16, kKindF16, m, 128, 1, 3, 3, false, false, true, true, true});
  }
}

// The descriptors and masks of the examples in 9.7.16.4.3, masks written with column 0 on the left.
TEST(TensorMma, ZeroColumnMask) {
  const auto zeros = [](int m, int shift, u64 starts, u64 first_spans, std::vector<std::string> masks,
                        bool b_mn = false) {
    Case x{&kF16, &kF16, kKindF16, m, 64, 1, 3, 3, false, b_mn, false, true, true};
    x.shift = shift;
    x.zeros = starts | first_spans << 32 | 1ull << 39 | 2ull << 40 | 3ull << 48 | u64(shift) << 56;
    x.is_zero = [masks, part = 64 / int(masks.size())](int n) {
      const std::string& mask = masks[std::size_t(n / part)];  // a beginning, then its last seven for ever
      const auto at = std::size_t(n % part), rest = mask.size() - 7;
      return mask[at < mask.size() ? at : rest + (at - rest) % 7] == '1';
    };
    run(x);
  };
  zeros(128, 0, 0, 0, {"0000111"});
  zeros(64, 0, 0, 1, {"1110000", "0000111"});
  zeros(32, 2, 0x01020100, 3,
        {"1110000",
         "110000"
         "1110000",
         "00111"
         "0000111",
         "000111"
         "0000111"});
  zeros(64, 32, 0, 0, {"0000111", "0000111"}, true);
  Case none{&kF16, &kF16, kKindF16, 64, 64, 1, 3, 3, false, false, false, true, true};
  none.zeros = 2ull << 40 | 3ull << 48;  // bit 39 is not set: only the shift counts, and it is 0
  run(none);
}

TEST(TensorMma, ZeroColumnMaskIsChecked) {
  InstructionDescriptor d;
  d.m = 32, d.n = 64, d.max_shift = 8;
  ColumnMask mask;
  EXPECT_THAT(ColumnMask::decode(1ull << 36, d, mask), HasSubstr("bits 36-38"));
  EXPECT_THAT(ColumnMask::decode(1ull << 62, d, mask), HasSubstr("bits 62-63"));
  EXPECT_THAT(ColumnMask::decode(17ull << 56, d, mask), HasSubstr("with M = 32 it is at most 16"));
  EXPECT_THAT(ColumnMask::decode(9ull << 56, d, mask), HasSubstr("announces at most 8"));
  EXPECT_EQ(ColumnMask::decode(8ull << 56, d, mask), "");
}

TEST(TensorMma, SmallFloatsInAnyMix) {
  const ElementType* types[] = {&kE4m3, &kE5m2, &kE2m3, &kE3m2, &kE2m1};
  const u32 codes[] = {0, 1, 3, 4, 5};
  for (std::size_t i = 0; i < 5; ++i) {
    const std::size_t j = (i + 2) % 5;
    run({types[i], types[j], {"f8f6f4", codes[i], codes[j], 1}, 128, 32});
    run({types[i], types[j], {"f8f6f4", codes[i], codes[j], 1}, 128, 64, 2, 3, 3, false, false, true});
  }
  run({&kE4m3, &kE4m3, {"f8f6f4", 0, 0, 0}, 64, 32});
}

TEST(TensorMma, SumsToTheBit) {
  const auto wide = [](Case x, int sparse = 0) {
    x.wide = true;
    x.sparse = sparse;
    run(x);
  };
  wide({&kF16, &kF16, kKindF16, 128, 64});
  wide({&kBf16, &kBf16, kKindBf16, 256, 64, 2});
  wide({&kTf32, &kTf32, kKindTf32, 128, 64});
  wide({&kE4m3, &kE4m3, {"f8f6f4", 0, 0, 1}, 128, 64});
  wide({&kBf16, &kBf16, kKindBf16, 128, 64}, 1);
}

TEST(TensorMma, SparseA) {
  const auto sparse = [](Case x, int id, bool a_tensor = false) {
    x.sparse = id;
    x.a_tensor = a_tensor;
    run(x);
  };
  for (int id : {1, 2}) {
    sparse({&kF16, &kF16, kKindF16, 128, 64}, id);
    sparse({&kTf32, &kTf32, kKindTf32, 128, 32}, id, id == 2);
    sparse({&kBf16, &kBf16, kKindBf16, 256, 64, 2}, id, id == 1);
  }
  sparse({&kS8, &kU8, {"i8", 1, 0, 2}, 128, 64}, 1);
  sparse({&kE4m3, &kE2m1, {"f8f6f4", 0, 5, 1}, 128, 64}, 1);
  sparse({&kE3m2, &kE5m2, {"f8f6f4", 4, 1, 1}, 256, 32, 2}, 1, true);
  Case x{&kF16, &kF16, kKindF16, 128, 64};
  x.b_mn = true;
  sparse(x, 1);
}

TEST(TensorMma, OverwriteNegateScaleAndMask) {
  Case x{&kF16, &kF16, kKindF16, 128, 32};
  x.accumulate = false;
  run(x);
  x.accumulate = true;
  x.negate_a = true;
  run(x);
  x.scale_d = 3;
  run(x);
  x.mask = true;
  run(x);
}

}  // namespace
}  // namespace cgp::emu

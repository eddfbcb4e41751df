// SPDX-License-Identifier: Apache-2.0
// wgmma as PTX. The host writes the shared-memory image of each operand by the layout's own statement (rows,
// chunks, XOR), a kernel copies it in, multiplies, and writes the accumulators by the fragment's statement.
#include <functional>

#include "cgp/emu/tensor/tensor_test_kit.h"

namespace cgp::emu {
namespace {
using namespace test;
using ::testing::HasSubstr;
using text::cat;

struct Type {
  const char* name;
  int bits, k;
  std::function<std::uint32_t(double)> encode;
};
const Type kF16{"f16", 16, 16, [](double v) { return half(v).bits; }};
const Type kBf16{"bf16", 16, 16, [](double v) { return bfloat16(v).bits; }};
const Type kTf32{"tf32", 32, 8, [](double v) { return std::bit_cast<std::uint32_t>(float(v)); }};
const Type kE4m3{"e4m3", 8, 32, [](double v) { return float8_e4m3(v).bits; }};
const Type kE5m2{"e5m2", 8, 32, [](double v) { return float8_e5m2(v).bits; }};
const Type kS8{"s8", 8, 32, [](double v) { return std::uint32_t(std::uint8_t(int(v * 4))); }};
const Type kU8{"u8", 8, 32, [](double v) { return std::uint32_t(std::uint8_t(int(v * 4) & 127)); }};

using Matrix = std::vector<double>;  // [rows][k]
struct Image {
  std::vector<std::uint8_t> bytes;
  std::uint64_t descriptor = 0;  // without the start address
};

// K-major with a swizzle of 16 << b bytes (b = 0: core matrices of 8 rows x 16 bytes).
Image k_major(const Matrix& m, int rows, const Type& t, int b) {
  Image image;
  const int width = 16 << b, element = t.bits / 8;
  image.bytes.resize(std::size_t(b ? rows * width : rows * 32), 0);
  for (int r = 0; r < rows; ++r)
    for (int k = 0; k < t.k; ++k) {
      const int byte = k * element, chunk = byte / 16;
      const int f = b == 3 ? r % 8 : b == 2 ? r / 2 % 4 : b == 1 ? r / 4 % 2 : 0;
      const int at = b ? r * width + (chunk ^ f) * 16 + byte % 16
                       : r / 8 * 128 + chunk * rows * 16 + r % 8 * 16 + byte % 16;
      const std::uint32_t u = t.encode(m[std::size_t(r * t.k + k)]);
      std::memcpy(&image.bytes[std::size_t(at)], &u, std::size_t(element));
    }
  if (b)
    image.descriptor = std::uint64_t(4 - b) << 62 | std::uint64_t(8 * width / 16) << 32 | 1 << 16;
  else  // LBO: the second half of K; SBO: the next eight rows
    image.descriptor = std::uint64_t(128 / 16) << 32 | std::uint64_t(rows) << 16;
  return image;
}

// MN-major 16-bit operands: [k][rows], boxes of one swizzle width of rows after each other.
Image mn_major(const Matrix& m, int rows, const Type& t, int b) {
  Image image;
  const int width = b ? 16 << b : 16, per = width / 2, boxes = (rows + per - 1) / per, box = 16 * width;
  image.bytes.resize(std::size_t(boxes * box), 0);
  for (int r = 0; r < rows; ++r)
    for (int k = 0; k < 16; ++k) {
      const int byte = r % per * 2, chunk = byte / 16,
                f = b == 3   ? k % 8
                    : b == 2 ? k / 2 % 4
                    : b == 1 ? k / 4 % 2
                             : 0;
      const int at = r / per * box + k * width + (chunk ^ f) * 16 + byte % 16;
      const std::uint32_t u = t.encode(m[std::size_t(r * 16 + k)]);
      std::memcpy(&image.bytes[std::size_t(at)], &u, 2);
    }
  if (b)
    image.descriptor =
        std::uint64_t(4 - b) << 62 | std::uint64_t(8 * width / 16) << 32 | std::uint64_t(box / 16) << 16;
  else  // LBO: the next eight k rows; SBO: the next eight rows of M or N
    image.descriptor = std::uint64_t(box / 16) << 32 | std::uint64_t(128 / 16) << 16;
  return image;
}

struct Case {
  const Type *a, *b;
  const char* d;
  int n;
  int a_swizzle = 3, b_swizzle = 3;
  bool a_mn = false, b_mn = false, a_registers = false;
  int scale_a = 1, scale_b = 1;
  bool scale_d = true;
  const char* suffix = "";
};

std::string kernel(const Case& x, int a_bytes, int b_bytes) {
  const bool f16 = std::string(x.d) == "f16", f32 = std::string(x.d) == "f32",
             integer = std::string(x.d) == "s32";
  const int regs_d = f16 ? x.n / 4 : x.n / 2;
  const std::string reg = f32 ? ".f32" : ".b32";
  std::string s = cat(
      ".visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pd, .param .u64 da, .param .u64 db) {\n"
      " .reg .u64 %i, %o, %da, %db, %x; .reg .u32 %s, %t, %v, %c; .reg .b32 %a<4>; .reg .pred %p, %q; .reg ",
      reg, " %d<", regs_d, ">;\n .shared .align 1024 .b8 buf[", (a_bytes + 1023) / 1024 * 1024 + b_bytes,
      "];\n");
  const auto copy = [&](const char* param, int offset, int bytes, const char* label) {
    s += cat(" ld.param.u64 %i, [", param, "]; mov.u32 %s, buf; add.u32 %s, %s, ", offset,
             "; mov.u32 %t, %tid.x;\n", label,
             ": mad.wide.u32 %x, %t, 4, %i; ld.global.u32 %v, [%x]; mad.lo.u32 %c, %t, 4, %s; st.shared.u32 "
             "[%c], %v;\n"
             " add.u32 %t, %t, 128; setp.lt.u32 %p, %t, ",
             bytes / 4, "; @%p bra ", label, ";\n");
  };
  const int b_at = (a_bytes + 1023) / 1024 * 1024;
  if (!x.a_registers) copy("pa", 0, a_bytes, "CA");
  copy("pb", b_at, b_bytes, "CB");
  s += " fence.proxy.async.shared::cta; bar.sync 0;\n mov.u32 %t, %tid.x;\n";
  if (x.a_registers) {
    s += " ld.param.u64 %i, [pa]; mad.wide.u32 %i, %t, 16, %i; ld.global.v4.b32 {%a0,%a1,%a2,%a3}, [%i];\n";
  }
  s +=
      cat(" mov.u32 %s, buf; shr.u32 %s, %s, 4; cvt.u64.u32 %x, %s; ld.param.u64 %da, [da]; or.b64 %da, %da, "
          "%x;\n"
          " ld.param.u64 %db, [db]; or.b64 %db, %db, %x; add.u64 %db, %db, ",
          b_at / 16, ";\n ld.param.u64 %o, [pd]; mad.wide.u32 %o, %t, 4, %o;\n");
  for (int i = 0; i < regs_d; ++i) s += cat(" ld.global", reg, " %d", i, ", [%o+", i * 512, "];\n");
  const std::string flag = x.scale_d ? "1" : "0";
  s += cat(" setp.eq.u32 %q, ", flag, ", 1;\n wgmma.fence.sync.aligned;\n wgmma.mma_async.sync.aligned.m64n",
           x.n, "k", x.a->k, ".", x.d, ".", x.a->name, ".", x.b->name, x.suffix, " ", regs("%d", regs_d),
           ", ", x.a_registers ? "{%a0,%a1,%a2,%a3}" : "%da", ", %db, %q");
  if (!integer) {
    s += cat(", ", x.scale_a, ", ", x.scale_b);
    if (x.a->bits == 16 && !x.a_registers) s += cat(", ", int(x.a_mn));
    if (x.a->bits == 16) s += cat(", ", int(x.b_mn));
  }
  s += ";\n wgmma.commit_group.sync.aligned;\n wgmma.wait_group.sync.aligned 0;\n";
  for (int i = 0; i < regs_d; ++i) s += cat(" st.global", reg, " [%o+", i * 512, "], %d", i, ";\n");
  return s + " ret;\n}\n";
}

void run(const Case& x) {
  SCOPED_TRACE(cat("n", x.n, " ", x.d, " ", x.a->name, " ", x.b->name, " swizzles ", x.a_swizzle, x.b_swizzle,
                   " mn ", x.a_mn, x.b_mn, " rs ", x.a_registers, x.suffix));
  const int k = x.a->k;
  const bool f16 = std::string(x.d) == "f16", integer = std::string(x.d) == "s32";
  std::mt19937 rng(unsigned(x.n + k));
  const auto draw = [&](const Type& t) { return (int(rng() % 9) - (t.name[0] == 'u' ? 0 : 4)) / 4.0; };
  Matrix a(std::size_t(64 * k)), b(std::size_t(x.n * k)), c(std::size_t(64 * x.n));
  for (auto& v : a) v = draw(*x.a);
  for (auto& v : b) v = draw(*x.b);
  for (auto& v : c) v = integer ? int(rng() % 100) : (int(rng() % 33) - 16) / 8.0;
  const Image ia = x.a_mn ? mn_major(a, 64, *x.a, x.a_swizzle) : k_major(a, 64, *x.a, x.a_swizzle);
  const Image ib = x.b_mn ? mn_major(b, x.n, *x.b, x.b_swizzle) : k_major(b, x.n, *x.b, x.b_swizzle);
  // Accumulators: register i of thread t.
  const int regs_d = f16 ? x.n / 4 : x.n / 2;
  const auto place = [&](int t, int i) {
    const int row = t / 32 * 16 + t % 32 / 4 + 8 * (i / 2 % 2), column = i / 4 * 8 + t % 4 * 2 + i % 2;
    return std::size_t(row * x.n + column);
  };
  std::vector<std::uint32_t> d(std::size_t(regs_d * 128));
  for (int t = 0; t < 128; ++t)
    for (int i = 0; i < x.n / 2; ++i) {
      const double v = c[place(t, i)];
      if (f16)
        d[std::size_t(i / 2 * 128 + t)] |= std::uint32_t(half(v).bits) << (16 * (i & 1));
      else
        d[std::size_t(i * 128 + t)] =
            integer ? std::uint32_t(int(v)) : std::bit_cast<std::uint32_t>(float(v));
    }
  // A in registers: four per thread, as the mma.sync fragment of each warp's 16 rows.
  std::vector<std::uint32_t> ra(512);
  const int per = x.a->bits == 32 ? 1 : 32 / x.a->bits;
  for (int t = 0; t < 128; ++t)
    for (int i = 0; i < 4 * per; ++i) {
      const int g = t % 32 / 4, q = t % 4, r = i / per;
      const int row = t / 32 * 16 + g + (r % 2 ? 8 : 0), kk = q * per + i % per + (r >= 2 ? 4 * per : 0);
      ra[std::size_t(t * 4 + r)] |= x.a->encode(a[std::size_t(row * k + kk)]) << (i % per * x.a->bits % 32);
    }
  for (AsyncPolicy policy : {AsyncPolicy::eager, AsyncPolicy::late}) {
    Kit kit;
    kit.options.async = policy;
    const std::uint64_t pd = kit.upload(d);
    Params p;
    p.add(x.a_registers ? kit.upload(ra) : kit.upload(ia.bytes))
        .add(kit.upload(ib.bytes))
        .add(pd)
        .add(ia.descriptor)
        .add(ib.descriptor);
    EXPECT_CLEAN(kit.launch(kernel(x, int(ia.bytes.size()), int(ib.bytes.size())), {}, {128, 1, 1}, p));
    const auto got = kit.download<std::uint32_t>(pd, d.size());
    for (int t = 0; t < 128; ++t)
      for (int i = 0; i < x.n / 2; ++i) {
        const std::size_t at = place(t, i), row = at / std::size_t(x.n), column = at % std::size_t(x.n);
        double want = x.scale_d ? c[at] : 0;
        for (std::size_t kk = 0; kk < std::size_t(k); ++kk)
          want += (integer ? 16 : x.scale_a * x.scale_b) * a[row * std::size_t(k) + kk] *
                  b[column * std::size_t(k) + kk];
        const double v =
            f16 ? double(half::from_bits(std::uint16_t(got[std::size_t(i / 2 * 128 + t)] >> (16 * (i & 1)))))
            : integer ? std::int32_t(got[std::size_t(i * 128 + t)])
                      : std::bit_cast<float>(got[std::size_t(i * 128 + t)]);
        ASSERT_EQ(v, want) << "row " << row << " column " << column;
      }
  }
}

TEST(Wgmma, TypesAndWidths) {
  for (int n : {8, 24, 64, 136, 256}) {
    run({&kBf16, &kBf16, "f32", n});
    run({&kF16, &kF16, "f32", n});
  }
  run({&kF16, &kF16, "f16", 8});
  run({&kF16, &kF16, "f16", 128});
  run({&kTf32, &kTf32, "f32", 64});
  run({&kE4m3, &kE4m3, "f32", 64});
  run({&kE4m3, &kE5m2, "f32", 32});
  run({&kE5m2, &kE4m3, "f16", 32});
  run({&kS8, &kS8, "s32", 64});
  run({&kS8, &kU8, "s32", 32});
  run({&kU8, &kS8, "s32", 96, 3, 3, false, false, false, 1, 1, true, ".satfinite"});
}

TEST(Wgmma, LayoutsInSharedMemory) {
  for (int b : {0, 1, 2, 3}) {
    run({&kBf16, &kBf16, "f32", 64, b, b});
    run({&kTf32, &kTf32, "f32", 32, b, b});
    run({&kE4m3, &kE4m3, "f32", 32, b, 3});
    run({&kBf16, &kBf16, "f32", 128, b, 3, true, false});
    run({&kBf16, &kBf16, "f32", 128, 3, b, false, true});
    run({&kF16, &kF16, "f32", 64, b, b, true, true});
  }
}

TEST(Wgmma, RegistersScalesAndOverwrite) {
  run({&kBf16, &kBf16, "f32", 64, 3, 3, false, false, true});
  run({&kBf16, &kBf16, "f32", 64, 3, 3, false, true, true});
  run({&kTf32, &kTf32, "f32", 64, 3, 3, false, false, true});
  run({&kE4m3, &kE4m3, "f32", 64, 3, 3, false, false, true});
  run({&kS8, &kS8, "s32", 64, 3, 3, false, false, true});
  run({&kBf16, &kBf16, "f32", 32, 3, 3, false, false, false, -1, 1});
  run({&kBf16, &kBf16, "f32", 32, 3, 3, false, false, false, -1, -1});
  run({&kBf16, &kBf16, "f32", 32, 3, 3, false, false, false, 1, 1, false});
  run({&kS8, &kS8, "s32", 32, 3, 3, false, false, false, 1, 1, false});
}

std::string small(const std::string& body, const std::string& after = "") {
  return cat(
      ".visible .entry k() {\n .reg .u64 %da; .reg .u32 %t, %s, %a; .reg .pred %p; .reg .f32 %d<4>;\n "
      ".shared .align 1024 .b8 "
      "buf[16384];\n mov.u32 %t, %tid.x;\nF: mov.u32 %s, buf; mad.lo.u32 %a, %t, 4, %s; st.shared.u32 [%a], "
      "0; add.u32 %t, %t, 128; "
      "setp.lt.u32 %p, %t, 4096; @%p bra F;\n fence.proxy.async; bar.sync 0; mov.u32 %t, %tid.x;\n mov.b64 "
      "%da, "
      "0x4000004000010000;\n"
      " mov.f32 %d0, 0f00000000; mov.f32 %d1, %d0; mov.f32 %d2, %d0; mov.f32 %d3, %d0;\n",
      body,
      " wgmma.fence.sync.aligned;\n wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%d0,%d1,%d2,%d3}, "
      "%da, %da, 1, 1, 1, 0, 0;\n"
      " wgmma.commit_group.sync.aligned;\n wgmma.wait_group.sync.aligned 0;\n",
      after, " ret;\n}\n");
}

TEST(WgmmaMisuse, Findings) {
  const auto run = [](const std::string& k, std::uint32_t threads) {
    Kit kit;
    return kit.launch(k, {}, {threads, 1, 1}, Params());
  };
  EXPECT_CLEAN(run(small(""), 128));
  EXPECT_EQ(first_class(run(small(""), 64)), "barrier.divergence");
  EXPECT_EQ(first_class(run(small(" mov.b64 %da, 0x4000004000013c00;\n"), 128)), "oob.shared");
  EXPECT_EQ(first_class(run(small(" mov.b64 %da, 0x4002004000010000;\n"), 128)), "misaligned");
  const Result r = run(small(" setp.ge.u32 %p, %t, 96; @%p bra END;\n", "END:\n"), 128);
  EXPECT_EQ(first_class(r), "deadlock");
  EXPECT_THAT(findings(r), HasSubstr("warps 3 have not issued theirs"));
}

}  // namespace
}  // namespace cgp::emu

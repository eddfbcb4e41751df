// SPDX-License-Identifier: Apache-2.0
// Floating point: roundings, flush, saturation, NaN, halves and conversions, against the host's own
// arithmetic in long double or under fesetround, and tables from the PTX ISA.
#include <cfenv>
#include <cmath>
#include <functional>
#include <limits>

#include "cgp/base/float16.h"
#include "cgp/emu/core/run_ptx_impl.h"

namespace cgp::emu {
using namespace testing;

namespace {
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

float f(u32 u) { return std::bit_cast<float>(u); }
u32 b(float v) { return v != v ? 0x7fffffffu : std::bit_cast<u32>(v); }
float ftz(float v) { return std::fpclassify(v) == FP_SUBNORMAL ? std::copysign(0.0f, v) : v; }

const std::vector<u32> kEdge{
    0x00000000, 0x80000000, 0x3f800000, 0xbf800000, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc12345,
    0x00000001, 0x807fffff, 0x00800000, 0x80800000, 0x7f7fffff, 0xff7fffff, 0x3f7fffff, 0x3f800001,
    0x40490fdb, 0xc2c80000, 0x34000000, 0x5f000000, 0x4b7fffff, 0x4b800001, 0x3eaaaaab, 0x3f000000,
    0x33800000, 0xb3800001, 0x00ffffff, 0x7effffff, 0x12345678, 0xcafebabe, 0x3fc00000, 0x4f000000};
std::vector<u32> edge(std::size_t step, std::size_t from) {
  std::vector<u32> v;
  for (std::size_t i = 0; i < 32; ++i) v.push_back(kEdge[(i * step + from) % 32]);
  return v;
}

template <class F>
float rounded(int mode, F&& op) {
  std::fesetround(mode);
  volatile float r = op();
  std::fesetround(FE_TONEAREST);
  return r;
}

struct Case {
  const char* text;
  std::function<u32(float, float, float)> want;
};
void check(const std::vector<Case>& cases) {
  for (std::size_t round = 0; round < 8; ++round) {
    const auto x = edge(1, round), y = edge(7, round * 5 + 3), z = edge(11, round * 3 + 1);
    for (const Case& k : cases)
      for (bool portable : {false, true}) {
        const auto got = run_lanes<u32>(k.text, x, y, z, portable);
        for (std::size_t l = 0; l < 32; ++l)
          ASSERT_EQ(got[l], k.want(f(x[l]), f(y[l]), f(z[l])))
              << k.text << " of " << std::hex << x[l] << " " << y[l] << " " << z[l]
              << (portable ? " portable" : "");
      }
  }
}
}  // namespace

TEST(floating, f32_arithmetic) {
  check({
      {"add.f32 %d,%a,%b;", [](float x, float y, float) { return b(x + y); }},
      {"sub.rn.f32 %d,%a,%b;", [](float x, float y, float) { return b(x - y); }},
      {"mul.f32 %d,%a,%b;", [](float x, float y, float) { return b(x * y); }},
      {"fma.rn.f32 %d,%a,%b,%c;", [](float x, float y, float z) { return b(std::fma(x, y, z)); }},
      {"div.rn.f32 %d,%a,%b;", [](float x, float y, float) { return b(x / y); }},
      {"sqrt.rn.f32 %d,%a;", [](float x, float, float) { return b(std::sqrt(x)); }},
      {"rcp.rn.f32 %d,%a;", [](float x, float, float) { return b(1.0f / x); }},
      {"add.rz.f32 %d,%a,%b;",
       [](float x, float y, float) {
         return b(rounded(FE_TOWARDZERO, [&] {
           volatile float p = x, q = y;
           return p + q;
         }));
       }},
      {"mul.rp.f32 %d,%a,%b;",
       [](float x, float y, float) {
         return b(rounded(FE_UPWARD, [&] {
           volatile float p = x, q = y;
           return p * q;
         }));
       }},
      {"div.rm.f32 %d,%a,%b;",
       [](float x, float y, float) {
         return b(rounded(FE_DOWNWARD, [&] {
           volatile float p = x, q = y;
           return p / q;
         }));
       }},
      {"add.ftz.f32 %d,%a,%b;", [](float x, float y, float) { return b(ftz(ftz(x) + ftz(y))); }},
      {"mul.ftz.f32 %d,%a,%b;",
       [](float x, float y, float) {  // what is too small before rounding is flushed
         const double exact = double(ftz(x)) * double(ftz(y));
         return b(std::fabs(exact) < 0x1p-126 ? std::copysign(0.0f, float(exact)) : ftz(ftz(x) * ftz(y)));
       }},
      {"fma.rn.ftz.sat.f32 %d,%a,%b,%c;",
       [](float x, float y, float z) {
         const float r = std::fma(ftz(x), ftz(y), ftz(z));
         return b(r != r ? 0.0f : ftz(std::min(std::max(r, 0.0f), 1.0f)) + 0.0f);
       }},
      {"min.f32 %d,%a,%b;",
       [](float x, float y, float) {
         if (x == 0 && y == 0) return b(std::signbit(x) ? x : y);
         return b(std::fmin(x, y));
       }},
      {"max.NaN.f32 %d,%a,%b;",
       [](float x, float y, float) {
         if (x != x || y != y) return 0x7fffffffu;
         if (x == 0 && y == 0) return b(std::signbit(x) ? y : x);
         return b(std::fmax(x, y));
       }},
      {"copysign.f32 %d,%a,%b;",
       [](float x, float y, float) {
         return (std::bit_cast<u32>(x) & 0x80000000u) | (std::bit_cast<u32>(y) & 0x7fffffffu);
       }},
      {"testp.subnormal.f32 %p0,%a; testp.notanumber.f32 %p1,%b; selp.b32 %r0,1,0,%p0; selp.b32 %r1,2,0,%p1; "
       "or.b32 %d,%r0,%r1;",
       [](float x, float y, float) { return u32(std::fpclassify(x) == FP_SUBNORMAL) | u32(y != y) << 1; }},
      {"setp.ltu.f32 %p0,%a,%b; setp.gt.f32 %p1,%a,%c; setp.nan.f32 %p2,%b,%c; selp.b32 %r0,1,0,%p0; "
       "selp.b32 %r1,2,0,%p1; "
       "selp.b32 %r2,4,0,%p2; or.b32 %d,%r0,%r1; or.b32 %d,%d,%r2;",
       [](float x, float y, float z) {
         return u32(!(x >= y)) | u32(x > z) << 1 | u32(y != y || z != z) << 2;
       }},
      {"setp.ne.ftz.f32 %p0,%a,%b; selp.b32 %d,1,0,%p0;",
       [](float x, float y, float) { return u32(ftz(x) < ftz(y) || ftz(x) > ftz(y)); }},
  });
}

TEST(floating, approximations_are_rounded_once) {
  check({
      {"ex2.approx.ftz.f32 %d,%a;",
       [](float x, float, float) { return b(ftz(float(std::exp2(double(ftz(x)))))); }},
      {"lg2.approx.f32 %d,%a;", [](float x, float, float) { return b(float(std::log2(double(x)))); }},
      {"sin.approx.f32 %d,%a;", [](float x, float, float) { return b(float(std::sin(double(x)))); }},
      {"tanh.approx.f32 %d,%a;", [](float x, float, float) { return b(float(std::tanh(double(x)))); }},
      {"rsqrt.approx.f32 %d,%a;",
       [](float x, float, float) {
         return b(x == 0 ? std::copysign(INFINITY, x) : float(1.0 / std::sqrt(double(x))));
       }},
      {"rcp.approx.ftz.f32 %d,%a;", [](float x, float, float) { return b(ftz(1.0f / ftz(x))); }},
  });
}

TEST(floating, f64_arithmetic) {
  const std::vector<u64> bits{0,
                              0x8000000000000000ull,
                              0x3ff0000000000000ull,
                              0x0000000000000001ull,
                              0x7fefffffffffffffull,
                              0x3fe5555555555555ull,
                              0xbff0000000000001ull,
                              0x7ff0000000000000ull,
                              0x4340000000000001ull,
                              0x3cb0000000000000ull,
                              0x400921fb54442d18ull};
  struct Case64 {
    const char* text;
    std::function<double(double, double, double)> want;
    int mode = FE_TONEAREST;
  };
  const std::vector<Case64> cases{
      {"add.f64 %d,%a,%b;", [](double x, double y, double) { return x + y; }},
      {"mul.rz.f64 %d,%a,%b;",
       [](double x, double y, double) {
         volatile double p = x, q = y;
         return p * q;
       },
       FE_TOWARDZERO},
      {"fma.rn.f64 %d,%a,%b,%c;", [](double x, double y, double z) { return std::fma(x, y, z); }},
      {"div.rp.f64 %d,%a,%b;",
       [](double x, double y, double) {
         volatile double p = x, q = y;
         return p / q;
       },
       FE_UPWARD},
      {"sqrt.rm.f64 %d,%a;",
       [](double x, double, double) {
         volatile double p = x;
         return std::sqrt(p);
       },
       FE_DOWNWARD},
      {"min.f64 %d,%a,%b;",
       [](double x, double y, double) { return x < y || (x == y && std::signbit(x)) ? x : y; }},
      {"neg.f64 %d,%a;", [](double x, double, double) { return -x; }},
  };
  for (std::size_t shift = 0; shift < 11; ++shift) {
    std::vector<u64> x, y, z;
    for (std::size_t i = 0; i < 32; ++i) {
      x.push_back(bits[i % 11]);
      y.push_back(bits[(i + shift) % 11]);
      z.push_back(bits[(i * 3 + shift) % 11]);
    }
    for (const Case64& k : cases) {
      const auto got = run_lanes<u64>(k.text, x, y, z);
      for (std::size_t l = 0; l < 32; ++l) {
        std::fesetround(k.mode);
        volatile double w =
            k.want(std::bit_cast<double>(x[l]), std::bit_cast<double>(y[l]), std::bit_cast<double>(z[l]));
        std::fesetround(FE_TONEAREST);
        const double want = w;
        if (want != want) {
          EXPECT_TRUE(std::isnan(std::bit_cast<double>(got[l]))) << k.text;
        } else {
          ASSERT_EQ(got[l], std::bit_cast<u64>(want)) << k.text << " " << std::hex << x[l] << " " << y[l];
        }
      }
    }
  }
}

// Every pair of 192 f16 (bf16) bit patterns; the oracle rounds the long double result once.
namespace {
template <class H>
u16 narrow(long double v) {
  // long double holds every sum, product and fma of halves exactly; rounding to double first would round
  // twice only when the result is not representable there, which odd rounding rules out.
  double d = double(v);
  if (static_cast<long double>(d) != v && std::isfinite(d)) {
    auto bits = std::bit_cast<u64>(d);
    if (std::fabs(static_cast<long double>(d)) > std::fabs(v)) --bits;
    d = std::bit_cast<double>(bits | 1);
  }
  return H(d).bits;
}

template <class H>
void half_operations(const char* type) {
  const std::vector<u16> special{0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x0400, 0x3c00, 0xbc00,
                                 0x3c01, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7fff, 0x3555, 0x4248,
                                 0x7f80, 0x3f80, 0x0080, 0x007f, 0x1234, 0x5678};
  struct Op {
    const char* text;
    std::function<long double(long double, long double, long double)> want;
  };
  const std::vector<Op> ops{
      {"add.T", [](long double x, long double y, long double) { return x + y; }},
      {"mul.T", [](long double x, long double y, long double) { return x * y; }},
      {"fma.rn.T", [](long double x, long double y, long double z) { return x * y + z; }},
  };
  for (const Op& o : ops)
    for (bool packed : {false, true}) {
      std::string text = o.text;
      text.replace(text.find('T'), 1, std::string(type) + (packed ? "x2" : ""));
      const bool three = std::string(o.text).find("fma") == 0;
      for (std::size_t s = 0; s < special.size(); ++s) {
        std::vector<u32> x, y, z;
        for (std::size_t i = 0; i < 32; ++i) {
          const u32 p = special[i % special.size()], q = special[(i + s) % special.size()];
          x.push_back(p | u32(special[(i * 5 + s) % special.size()]) << 16);
          y.push_back(q | u32(special[(i * 3 + 1) % special.size()]) << 16);
          z.push_back(special[(i * 7 + s) % special.size()] | u32(special[(i + 9) % special.size()]) << 16);
        }
        const std::string body =
            packed ? text + " %d,%a,%b" + (three ? ",%c;" : ";")
                   : "mov.b32 {%h0,%h1},%a; mov.b32 {%h2,%h3},%b; mov.b32 {%h4,%h5},%c; " + text +
                         " %h6,%h0,%h2" + (three ? ",%h4;" : ";") + " cvt.u32.u16 %d,%h6;";
        const auto got = run_lanes<u32>(body, x, y, z, s % 2);
        for (std::size_t l = 0; l < 32; ++l)
          for (int half = 0; half < (packed ? 2 : 1); ++half) {
            auto value = [&](u32 w) {
              return static_cast<long double>(double(H::from_bits(u16(w >> (16 * half)))));
            };
            const u16 want = narrow<H>(o.want(value(x[l]), value(y[l]), value(z[l])));
            ASSERT_EQ(u16(got[l] >> (16 * half)), want)
                << text << " " << std::hex << x[l] << " " << y[l] << " " << z[l];
          }
      }
    }
}
}  // namespace

TEST(floating, halves) { half_operations<half>("f16"); }
TEST(floating, bfloat16) { half_operations<bfloat16>("rn.bf16"); }

TEST(floating, half_modifiers) {
  // sat: NaN and negatives to 0, above one to 1; relu keeps NaN canonical.
  const std::vector<u32> x{0x7fff3c00, 0xbc004400, 0x38000001}, y{0x3c003c00, 0x00000000, 0x00000000};
  const auto sat = run_lanes<u32>("add.sat.f16x2 %d,%a,%b;", x, y, y);
  EXPECT_EQ(sat[0], 0x00003c00u);
  EXPECT_EQ(sat[1] & 0xffff, 0x3c00u);
  EXPECT_EQ(sat[2], 0x38000001u | (0x3c00u & 0));
  const auto relu = run_lanes<u32>("fma.rn.relu.f16x2 %d,%a,%b,%b;", std::vector<u32>{0x7fffbc00},
                                   std::vector<u32>{0x3c003c00}, x);
  EXPECT_EQ(relu[0], 0x7fff0000u);
  const auto flushed = run_lanes<u32>("add.ftz.f16x2 %d,%a,%b;", std::vector<u32>{0x00018001},
                                      std::vector<u32>{0x80000000}, x);
  EXPECT_EQ(flushed[0], 0x00000000u);
}

TEST(convert, floats_to_integers) {
  const std::vector<u32> x{
      b(0.5f),           b(1.5f),    b(2.5f),     b(-0.5f),    b(-1.5f),    b(2147483648.0f),
      b(-2147483904.0f), b(3e9f),    0x7fc00000u, 0x7f800000u, 0xff800000u, b(-1e20f),
      b(255.7f),         b(-129.2f), b(300.f),    b(65535.5f), 1,           b(4294967040.0f)};
  struct Case2 {
    const char* text;
    std::vector<u32> want;
  };
  const std::vector<Case2> cases{
      {"cvt.rzi.s32.f32 %d,%a;",
       {0, 1, 2, 0, u32(-1), 0x7fffffff, 0x80000000, 0x7fffffff, 0, 0x7fffffff, 0x80000000, 0x80000000, 255,
        u32(-129), 300, 65535, 0, 0x7fffffff}},
      {"cvt.rni.s32.f32 %d,%a;",
       {0, 2, 2, 0, u32(-2), 0x7fffffff, 0x80000000, 0x7fffffff, 0, 0x7fffffff, 0x80000000, 0x80000000, 256,
        u32(-129), 300, 65536, 0, 0x7fffffff}},
      {"cvt.rpi.u32.f32 %d,%a;",
       {1, 2, 3, 0, 0, 0x80000000, 0, 3000000000u, 0, 0xffffffff, 0, 0, 256, 0, 300, 65536, 1, 4294967040u}},
      {"cvt.rmi.ftz.s32.f32 %d,%a;",
       {0, 1, 2, u32(-1), u32(-2), 0x7fffffff, 0x80000000, 0x7fffffff, 0, 0x7fffffff, 0x80000000, 0x80000000,
        255, u32(-130), 300, 65535, 0, 0x7fffffff}},
      {"cvt.rzi.u8.f32 %r0,%a; cvt.u32.u8 %d,%r0;",
       {0, 1, 2, 0, 0, 255, 0, 255, 0, 255, 0, 0, 255, 0, 255, 255, 0, 255}},
      {"cvt.rzi.s8.f32 %r0,%a; cvt.s32.s8 %d,%r0;",
       {0, 1, 2, 0, u32(-1), 127, u32(-128), 127, 0, 127, u32(-128), u32(-128), 127, u32(-128), 127, 127, 0,
        127}},
      {"cvt.rni.f32.f32 %d,%a;",
       {0, b(2.f), b(2.f), 0x80000000, b(-2.f), b(2147483648.0f), b(-2147483904.0f), b(3e9f), 0x7fffffff,
        0x7f800000, 0xff800000, b(-1e20f), b(256.f), b(-129.f), b(300.f), b(65536.f), 0, b(4294967040.0f)}},
      {"cvt.sat.f32.f32 %d,%a;",
       {b(.5f), b(1.f), b(1.f), 0, 0, b(1.f), 0, b(1.f), 0, b(1.f), 0, 0, b(1.f), 0, b(1.f), b(1.f), 1,
        b(1.f)}},
  };
  for (const Case2& k : cases)
    for (bool portable : {false, true}) {
      const auto got = run_lanes<u32>(k.text, x, x, x, portable);
      for (std::size_t l = 0; l < x.size(); ++l) EXPECT_EQ(got[l], k.want[l]) << k.text << " of " << f(x[l]);
    }
}

TEST(convert, integers) {
  const std::vector<u32> x{0,      1,      0x7f,       0x80,       0xff,       0x7fff,
                           0x8000, 0xffff, 0x12345678, 0x7fffffff, 0x80000000, 0xffffffff};
  struct Case3 {
    const char* text;
    std::function<u32(u32)> want;
  };
  const std::vector<Case3> cases{
      {"cvt.s32.s8 %d,%a;", [](u32 v) { return u32(std::int32_t(std::int8_t(v))); }},
      {"cvt.u32.u16 %d,%a;", [](u32 v) { return v & 0xffff; }},
      {"cvt.sat.u8.s32 %r0,%a; mov.b32 %d,%r0;",
       [](u32 v) { return std::int32_t(v) < 0 ? 0 : std::min(v, 255u); }},
      {"cvt.sat.s8.s32 %r0,%a; and.b32 %d,%r0,255;",
       [](u32 v) { return u32(std::min(127, std::max(-128, std::int32_t(v)))) & 255; }},
      {"cvt.sat.s32.u32 %d,%a;", [](u32 v) { return std::min(v, 0x7fffffffu); }},
      {"cvt.s64.s32 %rd0,%a; shr.u64 %rd0,%rd0,32; cvt.u32.u64 %d,%rd0;",
       [](u32 v) { return v >> 31 ? ~0u : 0u; }},
      {"cvt.rn.f32.u32 %d,%a;", [](u32 v) { return b(float(v)); }},
      {"cvt.rn.f32.s32 %d,%a;", [](u32 v) { return b(float(std::int32_t(v))); }},
      {"cvt.rz.f32.u32 %d,%a;",
       [](u32 v) {
         float r = float(v);
         if (double(r) > double(v)) r = std::nextafter(r, 0.0f);
         return b(r);
       }},
      {"cvt.rp.f32.s32 %d,%a;",
       [](u32 v) {
         float r = float(std::int32_t(v));
         if (double(r) < double(std::int32_t(v))) r = std::nextafter(r, INFINITY);
         return b(r);
       }},
  };
  for (const Case3& k : cases) {
    const auto got = run_lanes<u32>(k.text, x, x, x);
    for (std::size_t l = 0; l < x.size(); ++l) EXPECT_EQ(got[l], k.want(x[l])) << k.text << " of " << x[l];
  }
}

TEST(convert, packed_and_small_formats) {
  const std::vector<u32> hi{b(1.0f), b(-448.0f), b(500.0f), 0x7fc00000, b(0.0019f), b(65504.0f), b(-0.0f)};
  const std::vector<u32> lo{b(0.1f), b(464.0f), b(-1e9f), b(2.5f), b(57344.0f), b(1e-8f), b(3.3f)};
  auto run = [&](const char* text) { return run_lanes<u32>(text, hi, lo, lo); };
  const auto e4m3 = run("cvt.rn.satfinite.e4m3x2.f32 %h0,%a,%b; cvt.u32.u16 %d,%h0;");
  const auto e5m2 = run("cvt.rn.satfinite.e5m2x2.f32 %h0,%a,%b; cvt.u32.u16 %d,%h0;");
  const auto f16 = run("cvt.rn.f16x2.f32 %d,%a,%b;");
  const auto bf16 = run("cvt.rn.bf16x2.f32 %d,%a,%b;");
  const auto relu = run("cvt.rn.relu.bf16x2.f32 %d,%a,%b;");
  const auto back = run("cvt.rn.satfinite.e4m3x2.f32 %h0,%a,%b; cvt.rn.f16x2.e4m3x2 %d,%h0;");
  for (std::size_t l = 0; l < hi.size(); ++l) {
    const double x = f(hi[l]), y = f(lo[l]);
    EXPECT_EQ(e4m3[l], u32(float8_e4m3(x).bits) << 8 | float8_e4m3(y).bits) << l;
    EXPECT_EQ(e5m2[l], u32(float8_e5m2(x).bits) << 8 | float8_e5m2(y).bits) << l;
    EXPECT_EQ(f16[l], u32(half(x).bits) << 16 | half(y).bits) << l;
    EXPECT_EQ(bf16[l], u32(bfloat16(x).bits) << 16 | bfloat16(y).bits) << l;
    auto clip = [](double v) { return v != v ? v : v > 0 ? v : 0.0; };
    EXPECT_EQ(relu[l], u32(bfloat16(clip(x)).bits) << 16 | bfloat16(clip(y)).bits) << l;
    EXPECT_EQ(back[l], u32(half(double(float8_e4m3(x))).bits) << 16 | half(double(float8_e4m3(y))).bits) << l;
  }
  // tf32 keeps 10 bits; rna rounds halves away from zero.
  const auto tf = run_lanes<u32>("cvt.rna.tf32.f32 %d,%a;",
                                 std::vector<u32>{0x3f801000, 0x3f800fff, 0xbf801000, 0x7f7fffff}, hi, lo);
  EXPECT_EQ(tf[0], 0x3f802000u);
  EXPECT_EQ(tf[1], 0x3f800000u);
  EXPECT_EQ(tf[2], 0xbf802000u);
  EXPECT_EQ(tf[3], 0x7f800000u);
  const auto pack = run_lanes<u32>("cvt.pack.sat.u8.s32.b32 %d,%a,%b,%c;", std::vector<u32>{300, u32(-5)},
                                   std::vector<u32>{7, 255}, std::vector<u32>{0xabcd});
  EXPECT_EQ(pack[0], 0xabcdff07u);
  EXPECT_EQ(pack[1], 0xabcd00ffu);
}

TEST(convert, small_blackwell_formats) {
  // All magnitudes of e2m1: 0 .5 1 1.5 2 3 4 6; ties to even.
  Bench bench(lane_kernel("cvt.rn.satfinite.e2m1x2.f32 %b0,%a,%b; cvt.u32.u8 %d,%b0;", 32, 32, "sm_100a")
                  .replace(lane_kernel("", 32, 32, "sm_100a").find(".reg .b32 %t;"), 0, ".reg .b8 %b0;\n"));
  const std::vector<float> v{0.2f, 0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f, 7.0f, -1.0f, -0.3f, 100.0f};
  const std::vector<u32> want{0, 0, 2, 2, 4, 4, 6, 6, 7, 10, 9, 7};
  std::vector<u32> in(96);
  for (std::size_t l = 0; l < v.size(); ++l) in[32 + l] = b(v[l]);
  const auto pin = bench.upload(in, "in");
  const auto out = bench.machine.alloc(128);
  const Result r = bench.run("k", {}, {32, 1, 1}, Params().add(pin).add(out));
  for (const Finding& x : r.findings) ADD_FAILURE() << describe(x);
  const auto got = bench.download<u32>(out, 32);
  for (std::size_t l = 0; l < v.size(); ++l) EXPECT_EQ(got[l], want[l]) << v[l];
}

}  // namespace cgp::emu

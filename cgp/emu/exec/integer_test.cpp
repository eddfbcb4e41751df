// SPDX-License-Identifier: Apache-2.0
// Integer and bit instructions against plain host expressions, on edge values, with and without AVX-512.
#include <algorithm>
#include <functional>

#include "cgp/emu/core/run_ptx_impl.h"

namespace cgp::emu {
using namespace testing;

namespace {
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using s32 = std::int32_t;
using u64 = std::uint64_t;
using s64 = std::int64_t;
__extension__ using u128 = unsigned __int128;
__extension__ using s128 = __int128;

const std::vector<u32> kA32{
    0,          1,          2,          3,          31,         32,         33,         0x7f,
    0x80,       0xff,       0x100,      0x7fff,     0x8000,     0xffff,     0x10000,    0x12345678,
    0x7ffffffe, 0x7fffffff, 0x80000000, 0x80000001, 0xdeadbeef, 0xfffffffe, 0xffffffff, 0x00ff00ff,
    0xf0f0f0f0, 0x55555555, 0xaaaaaaaa, 0x01020304, 0xcafebabe, 0x3f800000, 0x7f800001, 0x800000ff};
std::vector<u32> rotated(std::size_t by, u32 salt) {
  std::vector<u32> v;
  for (std::size_t i = 0; i < 32; ++i) v.push_back(kA32[(i * 7 + by) % 32] ^ (i % 3 == 0 ? salt : 0));
  return v;
}
std::vector<u64> wide(const std::vector<u32>& hi, const std::vector<u32>& lo) {
  std::vector<u64> v;
  for (std::size_t i = 0; i < 32; ++i) v.push_back(u64(hi[i]) << 32 | lo[i]);
  return v;
}

struct Case32 {
  const char* text;
  std::function<u32(u32, u32, u32)> want;
};
u32 sat(s64 v) { return u32(s32(std::clamp<s64>(v, -0x80000000ll, 0x7fffffffll))); }
u32 byte_of(u64 pair, u32 s) {
  const u32 b = u32(pair >> (8 * (s & 7))) & 255;
  return s & 8 ? (b & 128 ? 255u : 0u) : b;
}

void check(const std::vector<Case32>& cases) {
  for (int round = 0; round < 4; ++round) {
    const auto a = rotated(std::size_t(round) * 5, 0), b = rotated(std::size_t(round) * 3 + 1, 0x11),
               c = rotated(std::size_t(round) + 9, 0x80000000u);
    for (const Case32& k : cases)
      for (bool portable : {false, true}) {
        const auto got = run_lanes<u32>(k.text, a, b, c, portable);
        for (std::size_t l = 0; l < 32; ++l)
          ASSERT_EQ(got[l], k.want(a[l], b[l], c[l]))
              << k.text << " lane " << l << " a=" << a[l] << " b=" << b[l] << " c=" << c[l]
              << (portable ? " portable" : "");
      }
  }
}
}  // namespace

TEST(integer, arithmetic_32) {
  check({
      {"add.u32 %d, %a, %b;", [](u32 a, u32 b, u32) { return a + b; }},
      {"sub.s32 %d, %a, %b;", [](u32 a, u32 b, u32) { return a - b; }},
      {"add.sat.s32 %d, %a, %b;", [](u32 a, u32 b, u32) { return sat(s64(s32(a)) + s32(b)); }},
      {"sub.sat.s32 %d, %a, %b;", [](u32 a, u32 b, u32) { return sat(s64(s32(a)) - s32(b)); }},
      {"mul.lo.s32 %d, %a, %b;", [](u32 a, u32 b, u32) { return a * b; }},
      {"mul.hi.u32 %d, %a, %b;", [](u32 a, u32 b, u32) { return u32(u64(a) * b >> 32); }},
      {"mul.hi.s32 %d, %a, %b;", [](u32 a, u32 b, u32) { return u32(u64(s64(s32(a)) * s32(b)) >> 32); }},
      {"mad.lo.u32 %d, %a, %b, %c;", [](u32 a, u32 b, u32 c) { return a * b + c; }},
      {"mad.hi.s32 %d, %a, %b, %c;",
       [](u32 a, u32 b, u32 c) { return u32(u64(s64(s32(a)) * s32(b)) >> 32) + c; }},
      {"mad.hi.sat.s32 %d, %a, %b, %c;",
       [](u32 a, u32 b, u32 c) { return sat((s64(s32(a)) * s32(b) >> 32) + s32(c)); }},
      {"mul24.lo.u32 %d, %a, %b;", [](u32 a, u32 b, u32) { return u32(u64(a & 0xffffff) * (b & 0xffffff)); }},
      {"mul24.hi.s32 %d, %a, %b;",
       [](u32 a, u32 b, u32) { return u32((s64(s32(a << 8) >> 8) * (s32(b << 8) >> 8)) >> 16); }},
      {"mad24.lo.s32 %d, %a, %b, %c;",
       [](u32 a, u32 b, u32 c) { return u32(s64(s32(a << 8) >> 8) * (s32(b << 8) >> 8)) + c; }},
      {"sad.u32 %d, %a, %b, %c;", [](u32 a, u32 b, u32 c) { return c + (a > b ? a - b : b - a); }},
      {"sad.s32 %d, %a, %b, %c;",
       [](u32 a, u32 b, u32 c) { return c + u32(s32(a) > s32(b) ? a - b : b - a); }},
      {"div.u32 %d, %a, %b;", [](u32 a, u32 b, u32) { return b ? a / b : ~0u; }},
      {"div.s32 %d, %a, %b;", [](u32 a, u32 b, u32) { return b ? u32(s64(s32(a)) / s64(s32(b))) : ~0u; }},
      {"rem.u32 %d, %a, %b;", [](u32 a, u32 b, u32) { return b ? a % b : ~0u; }},
      {"rem.s32 %d, %a, %b;", [](u32 a, u32 b, u32) { return b ? u32(s64(s32(a)) % s64(s32(b))) : ~0u; }},
      {"abs.s32 %d, %a;", [](u32 a, u32, u32) { return s32(a) < 0 ? 0 - a : a; }},
      {"neg.s32 %d, %a;", [](u32 a, u32, u32) { return 0 - a; }},
      {"min.s32 %d, %a, %b;", [](u32 a, u32 b, u32) { return u32(std::min(s32(a), s32(b))); }},
      {"max.u32 %d, %a, %b;", [](u32 a, u32 b, u32) { return std::max(a, b); }},
      {"max.s32.relu %d, %a, %b;",
       [](u32 a, u32 b, u32) {
         return u32(std::max({s32(a), s32(b), 0}));
       }},
  });
}

TEST(integer, carries_chain_across_words) {
  const auto a = wide(rotated(0, 0), rotated(5, 3)), b = wide(rotated(2, 9), rotated(11, 0)),
             c = wide(rotated(1, 0), rotated(8, 1));
  const std::string split = "mov.b64 {%r0,%r1}, %a; mov.b64 {%r2,%r3}, %b; mov.b64 {%r4,%r5}, %c;\n";
  struct Case {
    std::string text;
    std::function<u64(u64, u64, u64)> want;
  };
  const std::vector<Case> cases{
      {split + "add.cc.u32 %r6,%r0,%r2; addc.u32 %r7,%r1,%r3; mov.b64 %d,{%r6,%r7};",
       [](u64 x, u64 y, u64) { return x + y; }},
      {split + "sub.cc.u32 %r6,%r0,%r2; subc.u32 %r7,%r1,%r3; mov.b64 %d,{%r6,%r7};",
       [](u64 x, u64 y, u64) { return x - y; }},
      {"add.cc.u64 %rd0,%a,%b; addc.cc.u64 %rd1,%c,%b; addc.u64 %rd2,0,0; xor.b64 %d,%rd1,%rd2;",
       [](u64 x, u64 y, u64 z) {
         const u64 carry = x + y < x;
         const u128 s = u128(z) + y + carry;
         return u64(s) ^ u64(s >> 64);
       }},
      {"sub.cc.u64 %rd0,%a,%b; subc.cc.u64 %rd1,%c,%b; subc.u64 %rd2,0,0; xor.b64 %d,%rd1,%rd2;",
       [](u64 x, u64 y, u64 z) {
         const u64 borrow = x < y;
         const bool second = u128(z) < u128(y) + borrow;
         return (z - y - borrow) ^ (second ? ~0ull : 0);
       }},
      // The flag after a subtraction, read by addc: 1 means that there was no borrow.
      {"sub.cc.u64 %rd0,%a,%b; addc.u64 %d,0,0;", [](u64 x, u64 y, u64) { return u64(x >= y); }},
      // 64 x 64 -> low 64 by 32-bit pieces
      {split + "mul.lo.u32 %r6,%r0,%r2; mul.hi.u32 %r7,%r0,%r2; mad.lo.cc.u32 %r7,%r0,%r3,%r7; "
               "madc.hi.u32 %r8,%r0,%r3,0; mad.lo.u32 %r7,%r1,%r2,%r7; mov.b64 %d,{%r6,%r7};",
       [](u64 x, u64 y, u64) { return x * y; }},
      {split + "mad.hi.cc.u32 %r6,%r0,%r2,%r4; addc.u32 %r7,0,0; mov.b64 %d,{%r6,%r7};",
       [](u64 x, u64 y, u64 z) { return u64(u64(u32(x)) * u32(y) >> 32) + u32(z); }},
      {split + "mad.lo.cc.u32 %r6,%r0,%r2,%r4; madc.hi.cc.u32 %r7,%r0,%r2,%r5; addc.u32 %r8,0,0; "
               "add.u32 %r7,%r7,%r8; mov.b64 %d,{%r6,%r7};",
       [](u64 x, u64 y, u64 z) {
         const u128 s = u128(u64(u32(x)) * u32(y)) + z;
         return u64(s) + (u64(s >> 64) << 32);
       }},
  };
  for (const Case& k : cases) {
    const auto got = run_lanes<u64>(k.text, a, b, c);
    for (std::size_t l = 0; l < 32; ++l)
      ASSERT_EQ(got[l], k.want(a[l], b[l], c[l])) << k.text << " lane " << l << " " << a[l] << " " << b[l];
  }
}

TEST(integer, arithmetic_64_and_16) {
  const auto a = wide(rotated(0, 0), rotated(5, 3)), b = wide(rotated(2, 9), rotated(11, 0)),
             c = wide(rotated(1, 0), rotated(8, 1));
  struct Case {
    const char* text;
    std::function<u64(u64, u64, u64)> want;
  };
  auto sx = [](u64 v) { return s64(v); };
  const std::vector<Case> cases{
      {"add.s64 %d,%a,%b;", [](u64 x, u64 y, u64) { return x + y; }},
      {"mul.lo.s64 %d,%a,%b;", [](u64 x, u64 y, u64) { return x * y; }},
      {"mul.hi.u64 %d,%a,%b;", [](u64 x, u64 y, u64) { return u64(u128(x) * y >> 64); }},
      {"mul.hi.s64 %d,%a,%b;", [](u64 x, u64 y, u64) { return u64(s128(s64(x)) * s64(y) >> 64); }},
      {"mad.lo.s64 %d,%a,%b,%c;", [](u64 x, u64 y, u64 z) { return x * y + z; }},
      {"div.u64 %d,%a,%b;", [](u64 x, u64 y, u64) { return y ? x / y : ~0ull; }},
      {"div.s64 %d,%a,%b;", [](u64 x, u64 y, u64) { return y ? u64(s128(s64(x)) / s64(y)) : ~0ull; }},
      {"rem.s64 %d,%a,%b;", [](u64 x, u64 y, u64) { return y ? u64(s128(s64(x)) % s64(y)) : ~0ull; }},
      {"min.s64 %d,%a,%b;", [&](u64 x, u64 y, u64) { return u64(std::min(sx(x), sx(y))); }},
      {"max.u64 %d,%a,%b;", [](u64 x, u64 y, u64) { return std::max(x, y); }},
      {"abs.s64 %d,%a;", [&](u64 x, u64, u64) { return sx(x) < 0 ? 0 - x : x; }},
      {"mov.b64 {%r0,%r1},%a; mov.b64 {%r2,%r3},%b; mul.wide.s32 %d,%r0,%r2;",
       [](u64 x, u64 y, u64) { return u64(s64(s32(x)) * s32(y)); }},
      {"mov.b64 {%r0,%r1},%a; mov.b64 {%r2,%r3},%b; mad.wide.u32 %d,%r0,%r2,%c;",
       [](u64 x, u64 y, u64 z) { return u64(u32(x)) * u32(y) + z; }},
      {"mov.b64 {%h0,%h1,%h2,%h3},%a; mov.b64 {%h4,%h5,%h6,%h7},%b; mul.lo.s16 %h8,%h0,%h4; add.s16 "
       "%h9,%h1,%h5; "
       "min.u16 %h10,%h2,%h6; max.s16 %h11,%h3,%h7; mov.b64 %d,{%h8,%h9,%h10,%h11};",
       [](u64 x, u64 y, u64) {
         auto p = [](u64 v, int i) { return u16(v >> (16 * i)); };
         return u64(u16(u32(p(x, 0)) * p(y, 0))) | u64(u16(p(x, 1) + p(y, 1))) << 16 |
                u64(std::min(p(x, 2), p(y, 2))) << 32 |
                u64(u16(std::max(std::int16_t(p(x, 3)), std::int16_t(p(y, 3))))) << 48;
       }},
      {"mov.b64 {%h0,%h1,%h2,%h3},%a; mul.wide.s16 %r0,%h0,%h1; mul.wide.u16 %r1,%h2,%h3; mov.b64 "
       "%d,{%r0,%r1};",
       [](u64 x, u64, u64) {
         const u32 lo = u32(s32(std::int16_t(x)) * std::int16_t(x >> 16));
         return u64(lo) | u64(u32(u16(x >> 32)) * u16(x >> 48)) << 32;
       }},
  };
  for (const Case& k : cases)
    for (bool portable : {false, true}) {
      const auto got = run_lanes<u64>(k.text, a, b, c, portable);
      for (std::size_t l = 0; l < 32; ++l)
        ASSERT_EQ(got[l], k.want(a[l], b[l], c[l])) << k.text << " lane " << l << " " << a[l] << " " << b[l];
    }
}

TEST(integer, bits) {
  check({
      {"and.b32 %d, %a, %b;", [](u32 a, u32 b, u32) { return a & b; }},
      {"or.b32 %d, %a, %b;", [](u32 a, u32 b, u32) { return a | b; }},
      {"xor.b32 %d, %a, %b;", [](u32 a, u32 b, u32) { return a ^ b; }},
      {"not.b32 %d, %a;", [](u32 a, u32, u32) { return ~a; }},
      {"cnot.b32 %d, %a;", [](u32 a, u32, u32) { return u32(a == 0); }},
      {"shl.b32 %d, %a, %b;", [](u32 a, u32 b, u32) { return b > 31 ? 0 : a << b; }},
      {"shr.u32 %d, %a, %b;", [](u32 a, u32 b, u32) { return b > 31 ? 0 : a >> b; }},
      {"shr.s32 %d, %a, %b;", [](u32 a, u32 b, u32) { return u32(s32(a) >> (b > 31 ? 31 : b)); }},
      {"popc.b32 %d, %a;", [](u32 a, u32, u32) { return u32(__builtin_popcount(a)); }},
      {"clz.b32 %d, %a;", [](u32 a, u32, u32) { return a ? u32(__builtin_clz(a)) : 32u; }},
      {"brev.b32 %d, %a;",
       [](u32 a, u32, u32) {
         u32 r = 0;
         for (int i = 0; i < 32; ++i) r |= (a >> i & 1) << (31 - i);
         return r;
       }},
      {"bfind.u32 %d, %a;", [](u32 a, u32, u32) { return a ? 31u - u32(__builtin_clz(a)) : ~0u; }},
      {"bfind.s32 %d, %a;",
       [](u32 a, u32, u32) {
         const u32 x = s32(a) < 0 ? ~a : a;
         return x ? 31u - u32(__builtin_clz(x)) : ~0u;
       }},
      {"bfind.shiftamt.u32 %d, %a;", [](u32 a, u32, u32) { return a ? u32(__builtin_clz(a)) : ~0u; }},
      {"and.b32 %r0, %b, 63; and.b32 %r1, %c, 63; bfe.u32 %d, %a, %r0, %r1;",
       [](u32 a, u32 b, u32 c) {
         u32 r = 0;
         for (u32 i = 0; i < (c & 63); ++i)
           if ((b & 63) + i < 32 && i < 32) r |= (a >> ((b & 63) + i) & 1) << i;
         return r;
       }},
      {"and.b32 %r0, %b, 63; and.b32 %r1, %c, 63; bfe.s32 %d, %a, %r0, %r1;",
       [](u32 a, u32 b, u32 c) {
         const u32 pos = b & 63, len = c & 63, top = std::min(pos + len - 1, 31u);
         const u32 sign = len == 0 ? 0 : a >> top & 1;
         u32 r = 0;
         for (u32 i = 0; i < 32; ++i) r |= (i < len && pos + i <= 31 ? a >> (pos + i) & 1 : sign) << i;
         return r;
       }},
      {"and.b32 %r0, %c, 31; bfi.b32 %d, %a, %b, %r0, 9;",
       [](u32 a, u32 b, u32 c) {
         u32 r = b;
         for (u32 i = 0; i < 9; ++i)
           if ((c & 31) + i < 32) r = (r & ~(1u << ((c & 31) + i))) | (a >> i & 1) << ((c & 31) + i);
         return r;
       }},
      {"lop3.b32 %d, %a, %b, %c, 0xe8;", [](u32 a, u32 b, u32 c) { return (a & b) | (b & c) | (a & c); }},
      {"lop3.b32 %d, %a, %b, %c, 0x2a;", [](u32 a, u32 b, u32 c) { return (~a | ~b) & c; }},
      {"shf.l.wrap.b32 %d, %a, %b, %c;",
       [](u32 a, u32 b, u32 c) { return u32(((u64(b) << 32 | a) << (c & 31)) >> 32); }},
      {"shf.r.clamp.b32 %d, %a, %b, %c;",
       [](u32 a, u32 b, u32 c) { return u32((u64(b) << 32 | a) >> std::min(c, 32u)); }},
      {"prmt.b32 %d, %a, %b, %c;",
       [](u32 a, u32 b, u32 c) {
         const u64 p = u64(b) << 32 | a;
         return byte_of(p, c & 15) | byte_of(p, c >> 4 & 15) << 8 | byte_of(p, c >> 8 & 15) << 16 |
                byte_of(p, c >> 12 & 15) << 24;
       }},
      {"prmt.b32.b4e %d, %a, %b, %c;",
       [](u32 a, u32 b, u32 c) {
         constexpr u32 table[] = {0x5670, 0x6701, 0x7012, 0x0123};  // PTX ISA, prmt modes
         const u64 p = u64(b) << 32 | a;
         const u32 s = table[c & 3];
         return byte_of(p, s & 7) | byte_of(p, s >> 4 & 7) << 8 | byte_of(p, s >> 8 & 7) << 16 |
                byte_of(p, s >> 12 & 7) << 24;
       }},
      {"dp4a.u32.s32 %d, %a, %b, %c;",
       [](u32 a, u32 b, u32 c) {
         for (int i = 0; i < 32; i += 8) c += u32(s32(a >> i & 255) * std::int8_t(b >> i));
         return c;
       }},
      {"dp2a.hi.s32.u32 %d, %a, %b, %c;",
       [](u32 a, u32 b, u32 c) {
         return c + u32(std::int16_t(a) * s32(b >> 16 & 255)) +
                u32(std::int16_t(a >> 16) * s32(b >> 24 & 255));
       }},
      {"bmsk.clamp.b32 %d, %a, %b;",
       [](u32 a, u32 b, u32) {
         u32 r = 0;
         for (u64 i = a; i < 32 && i < u64(a) + b; ++i) r |= 1u << i;
         return r;
       }},
      {"szext.wrap.s32 %d, %a, %b;",
       [](u32 a, u32 b, u32) {
         const u32 n = b & 31;
         return n == 0 ? 0 : u32(s32(a << (32 - n)) >> (32 - n));
       }},
      {"setp.lt.s32 %p0, %a, %b; selp.b32 %d, %c, 7, %p0;",
       [](u32 a, u32 b, u32 c) { return s32(a) < s32(b) ? c : 7; }},
      {"setp.hs.u32 %p0, %a, %b; setp.ne.and.u32 %p1|%p2, %a, %c, %p0; selp.u32 %r0, 1, 0, %p1; "
       "selp.u32 %r1, 2, 0, %p2; or.b32 %d, %r0, %r1;",
       [](u32 a, u32 b, u32 c) { return u32(a >= b && a != c) | u32(a >= b && a == c) << 1; }},
      {"set.le.u32.s32 %d, %a, %b;", [](u32 a, u32 b, u32) { return s32(a) <= s32(b) ? ~0u : 0u; }},
      {"slct.b32.s32 %d, %a, %b, %c;", [](u32 a, u32 b, u32 c) { return s32(c) >= 0 ? a : b; }},
      {"setp.eq.u32 %p0, %a, %b; setp.gt.s32 %p1, %c, 0; xor.pred %p2, %p0, %p1; not.pred %p3, %p2; "
       "and.pred %p4, %p3, %p1; or.pred %p5, %p4, %p0; selp.b32 %d, 1, 0, %p5;",
       [](u32 a, u32 b, u32 c) {
         const bool p = a == b, q = s32(c) > 0;
         return u32((!(p != q) && q) || p);
       }},
  });
}

TEST(integer, find_nth_set) {
  // base 4, offsets of both signs: PTX ISA, fns
  const std::vector<u32> mask{0xffffffff, 0x0000aaaa, 0x80000001, 0}, base{4}, offset{1};
  const auto up = run_lanes<u32>("fns.b32 %d, %a, 4, 2;", mask, base, offset);
  EXPECT_EQ(up[0], 5u);
  EXPECT_EQ(up[1], 7u);
  EXPECT_EQ(up[2], ~0u);
  EXPECT_EQ(up[3], ~0u);
  const auto down = run_lanes<u32>("fns.b32 %d, %a, 4, -2;", mask, base, offset);
  EXPECT_EQ(down[0], 3u);
  EXPECT_EQ(down[1], 1u);
  EXPECT_EQ(down[2], ~0u);
  const auto at = run_lanes<u32>("fns.b32 %d, %a, 4, 0;", mask, base, offset);
  EXPECT_EQ(at[0], 4u);
  EXPECT_EQ(at[1], ~0u);
}

TEST(integer, bytes_in_registers) {
  check({
      {"vabsdiff4.u32.u32.u32.add %d, %a, %b, %c;",
       [](u32 a, u32 b, u32 c) {
         for (int i = 0; i < 32; i += 8) c += u32(std::abs(int(a >> i & 255) - int(b >> i & 255)));
         return c;
       }},
      {"vmax4.s32.s32.s32 %d, %a, %b, %c;",
       [](u32 a, u32 b, u32) {
         u32 r = 0;
         for (int i = 0; i < 32; i += 8)
           r |= u32(std::uint8_t(std::max(std::int8_t(a >> i), std::int8_t(b >> i)))) << i;
         return r;
       }},
      {"vadd2.s32.s32.s32.sat %d, %a, %b, %c;",
       [](u32 a, u32 b, u32) {
         u32 r = 0;
         for (int i = 0; i < 32; i += 16)
           r |= u32(u16(std::clamp(std::int16_t(a >> i) + std::int16_t(b >> i), -32768, 32767))) << i;
         return r;
       }},
  });
}

}  // namespace cgp::emu

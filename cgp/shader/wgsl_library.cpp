// SPDX-License-Identifier: Apache-2.0
#include "cgp/shader/wgsl_library.h"

#include <string_view>

namespace cgp::shader {
namespace {

constexpr std::uint64_t bit(Library l) { return 1ull << unsigned(l); }

struct Entry {
  Library id;
  std::uint64_t calls;
  std::string_view text;
};

const Entry kEntries[] = {
    {Library::float_bits, 0, R"(
fn float_bits(x: u32) -> f32 {
  return bitcast<f32>(x);
}
)"},
    {Library::min_f32, 0, R"(
fn min_f32(x: f32, y: f32) -> f32 {
  let y_is_nan = (bitcast<u32>(y) & 0x7fffffffu) > 0x7f800000u;
  return select(y, x, x < y || y_is_nan);
}
)"},
    {Library::max_f32, 0, R"(
fn max_f32(x: f32, y: f32) -> f32 {
  let y_is_nan = (bitcast<u32>(y) & 0x7fffffffu) > 0x7f800000u;
  return select(y, x, x > y || y_is_nan);
}
)"},
    // tanh of a large argument may overflow inside.
    {Library::tanh_f32, 0, R"(
fn tanh_f32(x: f32) -> f32 {
  return select(tanh(x), sign(x), abs(x) > 10f);
}
)"},
    {Library::mul_high, 0, R"(
fn mul_high(x: u32, y: u32) -> u32 {
  let x0 = x & 0xffffu;
  let x1 = x >> 16u;
  let y0 = y & 0xffffu;
  let y1 = y >> 16u;
  let middle = x1 * y0 + ((x0 * y0) >> 16u);
  let other = x0 * y1 + (middle & 0xffffu);
  return x1 * y1 + (middle >> 16u) + (other >> 16u);
}
)"},
    {Library::mul_high_signed, bit(Library::mul_high), R"(
fn mul_high_signed(x: u32, y: u32) -> u32 {
  return mul_high(x, y) - select(0u, y, (x >> 31u) != 0u) - select(0u, x, (y >> 31u) != 0u);
}
)"},
    {Library::add64, 0, R"(
fn add64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {
  let low = x.x + y.x;
  return vec2<u32>(low, x.y + y.y + select(0u, 1u, low < x.x));
}
)"},
    {Library::sub64, 0, R"(
fn sub64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(x.x - y.x, x.y - y.y - select(0u, 1u, x.x < y.x));
}
)"},
    {Library::mul64, bit(Library::mul_high), R"(
fn mul64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(x.x * y.x, mul_high(x.x, y.x) + x.x * y.y + x.y * y.x);
}
)"},
    {Library::less64, 0, R"(
fn less64(x: vec2<u32>, y: vec2<u32>) -> bool {
  return x.y < y.y || (x.y == y.y && x.x < y.x);
}
)"},
    {Library::less64_signed, 0, R"(
fn less64_signed(x: vec2<u32>, y: vec2<u32>) -> bool {
  return bitcast<i32>(x.y) < bitcast<i32>(y.y) || (x.y == y.y && x.x < y.x);
}
)"},
    {Library::min64, bit(Library::less64), R"(
fn min64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {
  return select(y, x, less64(x, y));
}
)"},
    {Library::max64, bit(Library::less64), R"(
fn max64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {
  return select(x, y, less64(x, y));
}
)"},
    {Library::min64_signed, bit(Library::less64_signed), R"(
fn min64_signed(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {
  return select(y, x, less64_signed(x, y));
}
)"},
    {Library::max64_signed, bit(Library::less64_signed), R"(
fn max64_signed(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {
  return select(x, y, less64_signed(x, y));
}
)"},
    {Library::shl64, 0, R"(
fn shl64(x: vec2<u32>, n: u32) -> vec2<u32> {
  let m = n & 31u;
  let up = vec2<u32>(x.x << m, (x.y << m) | ((x.x >> 1u) >> (31u - m)));
  return select(up, vec2<u32>(0u, up.x), n >= 32u);
}
)"},
    {Library::shr64, 0, R"(
fn shr64(x: vec2<u32>, n: u32) -> vec2<u32> {
  let m = n & 31u;
  let down = vec2<u32>((x.x >> m) | ((x.y << 1u) << (31u - m)), x.y >> m);
  return select(down, vec2<u32>(down.y, 0u), n >= 32u);
}
)"},
    {Library::shr64_signed, 0, R"(
fn shr64_signed(x: vec2<u32>, n: u32) -> vec2<u32> {
  let m = n & 31u;
  let high = bitcast<i32>(x.y);
  let down = vec2<u32>((x.x >> m) | ((x.y << 1u) << (31u - m)), bitcast<u32>(high >> m));
  return select(down, vec2<u32>(down.y, bitcast<u32>(high >> 31u)), n >= 32u);
}
)"},
    // Quotient in xy, remainder in zw: bit by bit, where 32 bits are not enough.
    {Library::divide64, bit(Library::less64) | bit(Library::sub64), R"(
fn divide64(x: vec2<u32>, y: vec2<u32>) -> vec4<u32> {
  if x.y == 0u && y.y == 0u && y.x != 0u {
    return vec4<u32>(x.x / y.x, 0u, x.x % y.x, 0u);
  }
  var quotient = vec2<u32>(0u, 0u);
  var rest = vec2<u32>(0u, 0u);
  for (var i = 0u; i < 64u; i++) {
    let n = 63u - i;
    let word = select(x.x, x.y, n >= 32u);
    let carry = rest.y >> 31u;
    rest = vec2<u32>((rest.x << 1u) | ((word >> (n & 31u)) & 1u), (rest.y << 1u) | (rest.x >> 31u));
    if carry != 0u || !less64(rest, y) {
      rest = sub64(rest, y);
      let one = 1u << (n & 31u);
      quotient = quotient | select(vec2<u32>(one, 0u), vec2<u32>(0u, one), n >= 32u);
    }
  }
  return vec4<u32>(quotient, rest);
}
)"},
    {Library::div64, bit(Library::divide64), R"(
fn div64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {
  return divide64(x, y).xy;
}
)"},
    {Library::rem64, bit(Library::divide64), R"(
fn rem64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {
  return divide64(x, y).zw;
}
)"},
    {Library::div64_signed, bit(Library::divide64) | bit(Library::sub64), R"(
fn div64_signed(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {
  let zero = vec2<u32>(0u, 0u);
  let a = select(x, sub64(zero, x), (x.y >> 31u) != 0u);
  let b = select(y, sub64(zero, y), (y.y >> 31u) != 0u);
  let q = divide64(a, b).xy;
  return select(q, sub64(zero, q), ((x.y ^ y.y) >> 31u) != 0u);
}
)"},
    {Library::rem64_signed, bit(Library::divide64) | bit(Library::sub64), R"(
fn rem64_signed(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {
  let zero = vec2<u32>(0u, 0u);
  let a = select(x, sub64(zero, x), (x.y >> 31u) != 0u);
  let b = select(y, sub64(zero, y), (y.y >> 31u) != 0u);
  let r = divide64(a, b).zw;
  return select(r, sub64(zero, r), (x.y >> 31u) != 0u);
}
)"},
    // To nearest even: the upper 32 significant bits, the last of which says whether bits are left.
    {Library::float64, bit(Library::shl64), R"(
fn float64(x: vec2<u32>) -> f32 {
  if x.y == 0u {
    return f32(x.x);
  }
  let zeros = countLeadingZeros(x.y);
  let top = shl64(x, zeros);
  return f32(top.y | select(0u, 1u, top.x != 0u)) * bitcast<f32>((159u - zeros) << 23u);
}
)"},
    {Library::any_thread, 0, R"(
var<workgroup> votes: atomic<u32>;
var<workgroup> vote: u32;
fn any_thread(condition: bool, index: u32) -> bool {
  if index == 0u {
    atomicStore(&votes, 0u);
  }
  workgroupBarrier();
  if condition {
    atomicOr(&votes, 1u);
  }
  workgroupBarrier();
  if index == 0u {
    vote = atomicLoad(&votes);
  }
  return workgroupUniformLoad(&vote) != 0u;
}
)"},
};

}  // namespace

std::string library_text(std::uint64_t set) {
  for (std::uint64_t before = 0; before != set;) {
    before = set;
    for (const Entry& e : kEntries)
      if (set & bit(e.id)) set |= e.calls;
  }
  std::string out;
  for (const Entry& e : kEntries)
    if (set & bit(e.id)) out.append(e.text);
  return out;
}

}  // namespace cgp::shader

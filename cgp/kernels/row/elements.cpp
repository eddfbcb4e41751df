// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/row/elements.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "cgp/base/float16.h"

namespace cgp::kernels::row {

using namespace dsl;

std::uint32_t filled(DType t, float v) {
  if (t == DType::f32) return std::bit_cast<std::uint32_t>(v);
  const std::uint32_t half_bits = t == DType::f16 ? half(double(v)).bits : bfloat16(double(v)).bits;
  return half_bits * 0x10001u;
}

Floats floats(const Format& f, const Access& a, const std::optional<Val<u32>>& zero) {
  Floats out;
  for (const auto& w : a) {
    if (f.dtype == DType::f32) {
      out.push_back(bits<f32>(w));
    } else if (f.dtype == DType::f16) {
      const auto h = unpack<f16>(zero ? w | bits<b32>(*zero) : w);
      out.push_back(to<f32>(h[0]));
      if (f.elements > 1) out.push_back(to<f32>(h[1]));
    } else {
      out.push_back(bits<f32>(w << (zero ? *zero | 16u : Val<u32>(16))));
      if (f.elements > 1)
        out.push_back(bits<f32>(w & (zero ? bits<b32>(*zero | 0xffff0000u) : Val<b32>(0xffff0000u))));
    }
  }
  return out;
}

Access pack(const Format& f, const Floats& v) {
  Access out;
  if (f.dtype == DType::f32) {
    for (const auto& x : v) out.push_back(bits<b32>(x));
    return out;
  }
  for (std::size_t i = 0; i < v.size(); i += 2) {
    const auto& low = v[i];
    const Val<f32> high = i + 1 < v.size() ? v[i + 1] : Val<f32>(0.f);
    if (f.dtype == DType::bf16)
      out.push_back(bits<b32>(cvt<rn, bf16x2>(high, low)));
    else if (low.kernel()->sm() >= 80)  // one instruction for two halves
      out.push_back(bits<b32>(cvt<rn, f16x2>(high, low)));
    else
      out.push_back(dsl::pack<b32>(to<f16>(low), i + 1 < v.size() ? to<f16>(high) : Val<f16>(0.f)));
  }
  return out;
}

namespace {

Val<f32> in_chains(std::size_t n, const std::function<Val<f32>(std::size_t)>& first,
                   const std::function<Val<f32>(const Val<f32>&, std::size_t)>& next) {
  Floats level;
  for (std::size_t c = 0; c < std::min<std::size_t>(n, 4); ++c) {
    Floats chain{first(c)};
    for (std::size_t i = c + 4; i < n; i += 4) chain.push_back(next(chain.back(), i));
    level.push_back(chain.back());
  }
  while (level.size() > 1) {
    Floats up;
    for (std::size_t i = 0; i + 1 < level.size(); i += 2) up.push_back(level[i] + level[i + 1]);
    if (level.size() % 2) up.push_back(level.back());
    level.swap(up);
  }
  return level[0];
}

}  // namespace

Val<f32> sum(const Floats& v) {
  return in_chains(
      v.size(), [&](std::size_t i) { return v[i]; },
      [&](const Val<f32>& so_far, std::size_t i) { return so_far + v[i]; });
}
Val<f32> dot(const Floats& a, const Floats& b) {
  return in_chains(
      a.size(), [&](std::size_t i) { return a[i] * b[i]; },
      [&](const Val<f32>& so_far, std::size_t i) { return fma(a[i], b[i], so_far); });
}

Val<f32> largest(const Floats& v) {
  Floats level = v;
  while (level.size() > 1) {
    Floats next;
    for (std::size_t i = 0; i + 1 < level.size(); i += 2) next.push_back(max(level[i], level[i + 1]));
    if (level.size() % 2) next.push_back(level.back());
    level.swap(next);
  }
  return level[0];
}

}  // namespace cgp::kernels::row

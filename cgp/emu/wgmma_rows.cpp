// SPDX-License-Identifier: Apache-2.0
#include "cgp/emu/wgmma_rows.h"

#include <cstdint>
#include <cstring>

#include "cgp/base/float16.h"

namespace cgp::emu {
namespace {

// Registers 2t and 2t + 1 hold rows g (t even) or g + 8 (t odd), columns 8 * (t / 2) + 2q and the next one:
// the four lanes of a group are eight neighbouring elements, interleaved.
template <class F>
void each_pair(const WgmmaRows& r, F&& f) {
  for (int t = 0; t < r.n / 4; ++t)
    for (int g = 0; g < 8; ++g) f(t, g, (g + 8 * (t & 1)) * r.pitch + 8 * (t / 2));
}

void interleave(const std::uint32_t* a, const std::uint32_t* b, std::uint32_t* out) {
  for (int q = 0; q < 4; ++q) {
    out[2 * q] = a[q];
    out[2 * q + 1] = b[q];
  }
}
void separate(const std::uint32_t* in, std::uint32_t* a, std::uint32_t* b) {
  for (int q = 0; q < 4; ++q) {
    a[q] = in[2 * q];
    b[q] = in[2 * q + 1];
  }
}

}  // namespace

void load_rows(const WgmmaRows& r, void* matrix) {
  const auto reg = [&](int i) { return reinterpret_cast<const std::uint32_t*>(r.registers[std::size_t(i)]); };
  if (r.f16) {
    float* out = static_cast<float*>(matrix);
    each_pair(r, [&](int t, int g, int at) {
      for (int q = 0; q < 4; ++q) {
        const std::uint32_t u = reg(t)[4 * g + q];
        out[at + 2 * q] = float(half::from_bits(std::uint16_t(u)));
        out[at + 2 * q + 1] = float(half::from_bits(std::uint16_t(u >> 16)));
      }
    });
    return;
  }
  auto* out = static_cast<std::uint32_t*>(matrix);
  each_pair(r,
            [&](int t, int g, int at) { interleave(reg(2 * t) + 4 * g, reg(2 * t + 1) + 4 * g, out + at); });
}

void store_rows(const WgmmaRows& r, const void* matrix) {
  const auto reg = [&](int i) { return reinterpret_cast<std::uint32_t*>(r.registers[std::size_t(i)]); };
  if (r.f16) {
    const float* in = static_cast<const float*>(matrix);
    each_pair(r, [&](int t, int g, int at) {
      for (int q = 0; q < 4; ++q)
        reg(t)[4 * g + q] =
            half(double(in[at + 2 * q])).bits | std::uint32_t(half(double(in[at + 2 * q + 1])).bits) << 16;
    });
    return;
  }
  const auto* in = static_cast<const std::uint32_t*>(matrix);
  each_pair(r, [&](int t, int g, int at) { separate(in + at, reg(2 * t) + 4 * g, reg(2 * t + 1) + 4 * g); });
}

}  // namespace cgp::emu

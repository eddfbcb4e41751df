// SPDX-License-Identifier: Apache-2.0
#include "cgp/emu/tensor/wgmma_rows.h"

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

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

#if defined(__SSE2__)
void interleave(const std::uint32_t* a, const std::uint32_t* b, std::uint32_t* out) {
  const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a));
  const __m128i y = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_unpacklo_epi32(x, y));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 4), _mm_unpackhi_epi32(x, y));
}
void separate(const std::uint32_t* in, std::uint32_t* a, std::uint32_t* b) {
  const __m128 x = _mm_loadu_ps(reinterpret_cast<const float*>(in));
  const __m128 y = _mm_loadu_ps(reinterpret_cast<const float*>(in + 4));
  _mm_storeu_ps(reinterpret_cast<float*>(a), _mm_shuffle_ps(x, y, 0x88));
  _mm_storeu_ps(reinterpret_cast<float*>(b), _mm_shuffle_ps(x, y, 0xdd));
}
#else
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
#endif

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

// SPDX-License-Identifier: Apache-2.0
// AVX-512 BF16: 16 sums of 16 rows (8 vectors, 32 rows of weights) in registers, vdpbf16ps.
#include <immintrin.h>

#include "cgp/cpu/quant/panel_impl.h"

namespace cgp::cpu {
namespace {

using std::int64_t;

inline __m512bh as_pairs(__m512i v) {
  __m512bh out;
  __builtin_memcpy(&out, &v, sizeof out);
  return out;
}

/// 16 rows of 16 words to 16 columns.
inline void transpose_16(const std::uint16_t* rows, std::uint32_t* out) {
  constexpr int64_t out_stride = quant_versions::kPanelRows;
  __m512i a[16], b[16];
#pragma GCC unroll 16
  for (int r = 0; r < 16; ++r) a[r] = _mm512_loadu_si512(rows + r * quant_versions::kRowStride);
#pragma GCC unroll 8
  for (int r = 0; r < 16; r += 2) {
    b[r] = _mm512_unpacklo_epi32(a[r], a[r + 1]);
    b[r + 1] = _mm512_unpackhi_epi32(a[r], a[r + 1]);
  }
#pragma GCC unroll 4
  for (int r = 0; r < 16; r += 4)
    for (int i = 0; i < 2; ++i) {
      a[r + 2 * i] = _mm512_unpacklo_epi64(b[r + i], b[r + i + 2]);
      a[r + 2 * i + 1] = _mm512_unpackhi_epi64(b[r + i], b[r + i + 2]);
    }
    // a[4q + c]: of rows 4q .. 4q + 3, in each of four parts of 128 bits, column c of four
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512i low = _mm512_shuffle_i32x4(a[c], a[4 + c], 0x88),
                  low2 = _mm512_shuffle_i32x4(a[8 + c], a[12 + c], 0x88);
    const __m512i high = _mm512_shuffle_i32x4(a[c], a[4 + c], 0xdd),
                  high2 = _mm512_shuffle_i32x4(a[8 + c], a[12 + c], 0xdd);
    _mm512_storeu_si512(out + c * out_stride, _mm512_shuffle_i32x4(low, low2, 0x88));
    _mm512_storeu_si512(out + (4 + c) * out_stride, _mm512_shuffle_i32x4(high, high2, 0x88));
    _mm512_storeu_si512(out + (8 + c) * out_stride, _mm512_shuffle_i32x4(low, low2, 0xdd));
    _mm512_storeu_si512(out + (12 + c) * out_stride, _mm512_shuffle_i32x4(high, high2, 0xdd));
  }
}

/// kVectors of a group that begin at x.
constexpr int kVectors = 8;
inline void product(const std::uint32_t* panel, int64_t depth, const std::uint16_t* x, float* to, bool add) {
  __m512 sums[kVectors][2];
#pragma GCC unroll 8
  for (int j = 0; j < kVectors; ++j) sums[j][0] = sums[j][1] = _mm512_setzero_ps();
  for (int64_t e = 0; e < depth; e += 32)
    for (int64_t p = 0; p < 16; ++p) {
      const std::uint32_t* pairs = panel + 16 * e + 32 * p;
      const __m512bh w0 = as_pairs(_mm512_loadu_si512(pairs)), w1 = as_pairs(_mm512_loadu_si512(pairs + 16));
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) {
        int pair;
        __builtin_memcpy(&pair, x + quant_versions::kGroup * e + 32 * j + 2 * p, sizeof pair);
        const __m512bh v = as_pairs(_mm512_set1_epi32(pair));
        sums[j][0] = _mm512_dpbf16_ps(sums[j][0], w0, v);
        sums[j][1] = _mm512_dpbf16_ps(sums[j][1], w1, v);
      }
    }
#pragma GCC unroll 8
  for (int j = 0; j < kVectors; ++j, to += quant_versions::kSumStride)
    for (int half = 0; half < 2; ++half) {
      if (add) sums[j][half] = _mm512_add_ps(sums[j][half], _mm512_loadu_ps(to + 16 * half));
      _mm512_storeu_ps(to + 16 * half, sums[j][half]);
    }
}

}  // namespace

namespace quant_versions {

void round_to_bf16_avx512(const float* x, int64_t count, int64_t padded, std::uint16_t* out,
                          std::uint16_t* rest, int64_t step) {
  const auto mask = [](int64_t left) {
    return left >= 16 ? __mmask16(0xffff) : left <= 0 ? __mmask16(0) : __mmask16((1u << left) - 1);
  };
  for (int64_t i = 0; i < padded; i += 32, out += step) {
    const __m512 low = _mm512_maskz_loadu_ps(mask(count - i), x + i),
                 high = _mm512_maskz_loadu_ps(mask(count - i - 16), x + i + 16);
    const __m512bh rounded = _mm512_cvtne2ps_pbh(high, low);
    __m512i bits;
    __builtin_memcpy(&bits, &rounded, sizeof bits);
    _mm512_storeu_si512(out, bits);
    if (!rest) continue;
    const auto wide = [](__m256i half) {
      return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
    };
    const __m512bh left = _mm512_cvtne2ps_pbh(_mm512_sub_ps(high, wide(_mm512_extracti64x4_epi64(bits, 1))),
                                              _mm512_sub_ps(low, wide(_mm512_castsi512_si256(bits))));
    __builtin_memcpy(&bits, &left, sizeof bits);
    _mm512_storeu_si512(rest, bits);
    rest += step;
  }
}

void pack_panel_avx512(const std::uint16_t* rows, int64_t depth, std::uint32_t* out) {
  for (int64_t e = 0; e < depth; e += 32)
    for (int64_t half = 0; half < 2; ++half)
      transpose_16(rows + 16 * half * kRowStride + e, out + 16 * e + 16 * half);
}

void panel_product_avx512(const std::uint32_t* panels, std::int64_t depth, std::int64_t count,
                          const std::uint16_t* x, std::int64_t group, std::int64_t n, float* sums, bool add) {
  for (int64_t j = 0; j < n; j += kVectors) {
    const std::uint16_t* vectors = x + j / kGroup * group + j % kGroup * 32;
    for (int64_t r = 0; r < count; ++r)
      product(panels + r * kPanelRows * (depth / 2), depth, vectors, sums + j * kSumStride + r * kPanelRows,
              add);
  }
}

}  // namespace quant_versions
}  // namespace cgp::cpu

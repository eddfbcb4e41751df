// SPDX-License-Identifier: Apache-2.0
// Weights as bf16, without a stop at f32 in memory: 32 at a time, the roundings of quant::decode() and then that to bf16.
#include "cgp/cpu/quant/panel_impl.h"
#include "cgp/cpu/quant/unpack_avx2_impl.h"

namespace cgp::cpu {
namespace {

inline __m512i as_words(__m512bh v) {
  __m512i out;
  __builtin_memcpy(&out, &v, sizeof out);
  return out;
}
inline __m512 wide(__m256i half) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/// 32 values; kTwo: and what rounding took away.
template <bool kTwo>
inline void store_32(__m512 low, __m512 high, std::uint16_t* out, std::uint16_t* rest) {
  const __m512i bits = as_words(_mm512_cvtne2ps_pbh(high, low));
  _mm512_storeu_si512(out, bits);
  if constexpr (kTwo)
    _mm512_storeu_si512(
        rest, as_words(_mm512_cvtne2ps_pbh(_mm512_sub_ps(high, wide(_mm512_extracti64x4_epi64(bits, 1))),
                                           _mm512_sub_ps(low, wide(_mm512_castsi512_si256(bits))))));
}

template <class F, bool kTwo>
inline void decode_unit(Bytes p, int runs, std::uint16_t* out, std::uint16_t* rest) {
  alignas(64) float scale[16], min[16];
  const Floats16 scales = F::scales(p);
  _mm256_store_ps(scale, scales.low), _mm256_store_ps(scale + 8, scales.high);
  if constexpr (F::kMins) {
    const Floats16 mins = F::mins(p);
    _mm256_store_ps(min, mins.low), _mm256_store_ps(min + 8, mins.high);
  }
#pragma GCC unroll 8
  for (int s = 0; s < 8; ++s) {
    if (s >= runs) break;
    const __m256i codes = F::codes(p, s);
    __m512 v[2];
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m128i run = h ? _mm256_extracti128_si256(codes, 1) : _mm256_castsi256_si128(codes);
      const __m512i numbers = _mm512_sub_epi32(_mm512_cvtepu8_epi32(run), _mm512_set1_epi32(F::kZero));
      v[h] = _mm512_mul_ps(_mm512_set1_ps(scale[2 * s + h]), _mm512_cvtepi32_ps(numbers));
      if constexpr (F::kMins) v[h] = _mm512_sub_ps(v[h], _mm512_set1_ps(min[2 * s + h]));
    }
    store_32<kTwo>(v[0], v[1], out + 32 * s, kTwo ? rest + 32 * s : nullptr);
  }
}

template <class F>
struct Bf16Of {
  template <bool kTwo>
  static void all(Bytes row, int64_t k, std::uint16_t* out, std::uint16_t* rest) {
    for (; k >= 256; k -= 256, row += Unit<F>::kBytes, out += 256) {
      decode_unit<F, kTwo>(row, 8, out, rest);
      if constexpr (kTwo) rest += 256;
    }
    if (k) decode_unit<F, kTwo>(Unit<F>(row, k).data(), int(k / 32), out, rest);
  }
  static void decode(Bytes row, int64_t k, std::uint16_t* out, std::uint16_t* rest) {
    rest ? all<true>(row, k, out, rest) : all<false>(row, k, out, nullptr);
  }
  static constexpr quant_versions::DecodeBf16 value() { return decode; }
};

void decode_f16(Bytes row, int64_t k, std::uint16_t* out, std::uint16_t* rest) {
  for (int64_t i = 0; i < k; i += 32) {
    const __m512 low = _mm512_cvtph_ps(load_32(row + 2 * i)),
                 high = _mm512_cvtph_ps(load_32(row + 2 * i + 32));
    rest ? store_32<true>(low, high, out + i, rest + i) : store_32<false>(low, high, out + i, nullptr);
  }
}

constexpr quant_versions::DecodeBf16Table decoders() {
  quant_versions::DecodeBf16Table t{};
  for_formats<Bf16Of>(t.by);
  t.by[int(quant::Format::f16)] = decode_f16;
  return t;
}

}  // namespace

namespace quant_versions {
constinit const DecodeBf16Table decode_bf16_avx512 = decoders();
}  // namespace quant_versions
}  // namespace cgp::cpu

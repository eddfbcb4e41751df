// SPDX-License-Identifier: Apache-2.0
// AVX2: decoding, rounding of activations, and integer products with vpmaddubsw.
#include "cgp/cpu/quant/dot_int8_256_impl.h"

namespace cgp::cpu {
namespace {

struct Maddubs {
  static constexpr bool kAnyCode = false;  // sums of two products have 16 bits and saturate
  static __m256i dot(__m256i codes, __m256i x) {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), _mm256_set1_epi16(1));
  }
};

/// Eight codes from byte 8i on.
template <class F>
inline __m256 eight_values(__m128i codes) {
  return _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_cvtepu8_epi32(codes), _mm256_set1_epi32(F::kZero)));
}

template <class F>
void decode_unit(Bytes p, float* out) {
  alignas(32) float scale[16], min[16];
  const Floats16 scales = F::scales(p);
  _mm256_store_ps(scale, scales.low), _mm256_store_ps(scale + 8, scales.high);
  if constexpr (F::kMins) {
    const Floats16 mins = F::mins(p);
    _mm256_store_ps(min, mins.low), _mm256_store_ps(min + 8, mins.high);
  }
#pragma GCC unroll 8
  for (int s = 0; s < 8; ++s) {
    const __m256i codes = F::codes(p, s);
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m128i run = h ? _mm256_extracti128_si256(codes, 1) : _mm256_castsi256_si128(codes);
      const __m256 by = _mm256_broadcast_ss(scale + 2 * s + h);
      __m256 a = _mm256_mul_ps(by, eight_values<F>(run)),
             b = _mm256_mul_ps(by, eight_values<F>(_mm_srli_si128(run, 8)));
      if constexpr (F::kMins) {
        const __m256 less = _mm256_broadcast_ss(min + 2 * s + h);
        a = _mm256_sub_ps(a, less), b = _mm256_sub_ps(b, less);
      }
      _mm256_storeu_ps(out + 32 * s + 16 * h, a), _mm256_storeu_ps(out + 32 * s + 16 * h + 8, b);
    }
  }
}

template <class F>
struct DecodeOf {
  static void decode(Bytes row, int64_t k, float* out) {
    for (; k >= 256; k -= 256, row += Unit<F>::kBytes, out += 256) decode_unit<F>(row, out);
    if (k == 0) return;
    float last[256];
    decode_unit<F>(Unit<F>(row, k).data(), last);
    __builtin_memcpy(out, last, std::size_t(k) * sizeof(float));
  }
  static constexpr quant_versions::Decode value() { return decode; }
};

void decode_f16(Bytes row, int64_t k, float* out) {
  int64_t i = 0;
  for (; i + 8 <= k; i += 8) _mm256_storeu_ps(out + i, _mm256_cvtph_ps(load_16(row + 2 * i)));
  for (; i < k; ++i)
    out[i] = _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(load_as<std::uint16_t>(row + 2 * i))));
}
void decode_bf16(Bytes row, int64_t k, float* out) {
  int64_t i = 0;
  for (; i + 8 <= k; i += 8)
    _mm256_storeu_ps(out + i,
                     _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_16(row + 2 * i)), 16)));
  for (; i < k; ++i) {
    const std::uint32_t bits = std::uint32_t(load_as<std::uint16_t>(row + 2 * i)) << 16;
    __builtin_memcpy(out + i, &bits, 4);
  }
}
void copy_f32(Bytes row, int64_t k, float* out) {
  __builtin_memcpy(out, row, std::size_t(k) * sizeof(float));
}

constexpr quant_versions::DotTable dots() {
  quant_versions::DotTable t{};
  for_formats<Dots<Maddubs>::Of>(t.by);
  return t;
}
constexpr quant_versions::DecodeTable decoders() {
  quant_versions::DecodeTable t{};
  for_formats<DecodeOf>(t.by);
  t.by[int(quant::Format::f16)] = decode_f16;
  t.by[int(quant::Format::bf16)] = decode_bf16;
  t.by[int(quant::Format::f32)] = copy_f32;
  return t;
}

inline float max_of(__m256 v) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

/// 32 activations; `unordered` collects what is no number.
inline void round_run(const float* x, std::int8_t* q, float* d, float* sums, __m256& unordered) {
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  __m256 v[4], most = _mm256_setzero_ps();
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_loadu_ps(x + 8 * i);
    most = _mm256_max_ps(most, _mm256_and_ps(v[i], magnitude));
    unordered = _mm256_or_ps(unordered, _mm256_sub_ps(v[i], v[i]));  // NaN for NaN and infinity
  }
  const float largest = max_of(most);
  const bool none = !(largest >= 0x1p-100f);
  const float step = none ? 0.0f : largest / 127, inverse = none ? 0.0f : 127 / largest;
  __m256i n[4];
  for (int i = 0; i < 4; ++i) n[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(inverse)));
  for (int h = 0; h < 2; ++h) {
    const __m256i both = _mm256_add_epi32(n[2 * h], n[2 * h + 1]);
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    sum = _mm_hadd_epi32(sum, sum), sum = _mm_hadd_epi32(sum, sum);
    d[h] = step, sums[h] = step * float(_mm_cvtsi128_si32(sum));
  }
  // packs work in halves of 128 bits: put the pieces of four back in order
  const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3]));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q),
                      _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
}

}  // namespace

namespace quant_versions {
constinit const DotTable dot_avx2 = dots();
constinit const DecodeTable decode_avx2 = decoders();

bool round_to_int8_avx2(const float* x, int64_t k, Int8Activations* out) {
  __m256 unordered = _mm256_setzero_ps();
  for (int64_t first = 0; first < k; first += 256, ++out) {
    const int runs = k - first >= 256 ? 8 : int((k - first) / 32);
    for (int s = 0; s < runs; ++s)
      round_run(x + first + 32 * s, out->q + 32 * s, out->d + 2 * s, out->sums + 2 * s, unordered);
    for (int s = runs; s < 8; ++s) {
      __builtin_memset(out->q + 32 * s, 0, 32);
      for (int i = 2 * s; i < 2 * s + 2; ++i) out->d[i] = out->sums[i] = 0;
    }
  }
  return _mm256_movemask_ps(_mm256_cmp_ps(unordered, unordered, _CMP_UNORD_Q)) == 0;
}
}  // namespace quant_versions
}  // namespace cgp::cpu

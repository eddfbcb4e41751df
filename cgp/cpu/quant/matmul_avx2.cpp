// SPDX-License-Identifier: Apache-2.0
// AVX2: decoding, rounding of activations, and integer products with vpmaddubsw.
#include "cgp/cpu/quant/dot_int8_256_impl.h"

namespace cgp::cpu {
namespace {

using quant_versions::Int16Activations;

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

struct F16 {
  static __m256 eight(Bytes p) { return _mm256_cvtph_ps(load_16(p)); }
};
struct Bf16 {
  static __m256 eight(Bytes p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_16(p)), 16));
  }
};
/// The last count < 8.
template <class F>
inline __m256 some(Bytes p, int64_t count) {
  std::uint8_t copy[16] = {};
  __builtin_memcpy(copy, p, std::size_t(2 * count));
  return F::eight(copy);
}

template <class F>
void decode_16_bit(Bytes row, int64_t k, float* out) {
  int64_t i = 0;
  for (; i + 8 <= k; i += 8) _mm256_storeu_ps(out + i, F::eight(row + 2 * i));
  if (i == k) return;
  float last[8];
  _mm256_storeu_ps(last, some<F>(row + 2 * i, k - i));
  __builtin_memcpy(out + i, last, std::size_t(k - i) * sizeof(float));
}

template <class F>
float dot_16_bit(Bytes row, int64_t k, const float* x) {
  __m256 sums[4] = {};
  int64_t i = 0;
  for (; i + 32 <= k; i += 32)
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v)
      sums[v] = _mm256_fmadd_ps(F::eight(row + 2 * i + 16 * v), _mm256_loadu_ps(x + i + 8 * v), sums[v]);
  for (; i + 8 <= k; i += 8)
    sums[0] = _mm256_fmadd_ps(F::eight(row + 2 * i), _mm256_loadu_ps(x + i), sums[0]);
  if (i < k) {
    float last[8] = {};
    __builtin_memcpy(last, x + i, std::size_t(k - i) * sizeof(float));
    sums[1] = _mm256_fmadd_ps(some<F>(row + 2 * i, k - i), _mm256_loadu_ps(last), sums[1]);
  }
  return sum_of(_mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3])));
}

/// Blocks of 64: the high nibble of a byte comes first.
void decode_nf4(Bytes row, int64_t k, float* out) {
  const __m256 low = _mm256_loadu_ps(quant::kNf4), high = _mm256_loadu_ps(quant::kNf4 + 8);
  for (int64_t i = 0; i < k; i += 8) {
    const Bytes block = row + i / 64 * 36;
    const __m256i word = _mm256_set1_epi32(load_as<int>(block + 4 + i % 64 / 2));
    const __m256i codes = _mm256_srlv_epi32(word, _mm256_setr_epi32(4, 0, 12, 8, 20, 16, 28, 24));
    const __m256 upper = _mm256_castsi256_ps(_mm256_slli_epi32(codes, 28));  // bit 3 becomes the sign
    const __m256 value =
        _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, codes), _mm256_permutevar8x32_ps(high, codes), upper);
    _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_set1_ps(load_as<float>(block)), value));
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
  t.by[int(quant::Format::f16)] = decode_16_bit<F16>;
  t.by[int(quant::Format::bf16)] = decode_16_bit<Bf16>;
  t.by[int(quant::Format::f32)] = copy_f32;
  t.by[int(quant::Format::nf4)] = decode_nf4;
  return t;
}

inline float max_of(__m256 v) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// packs work in halves of 128 bits: the pieces of four are put back in order
inline void store_run(const __m256i (&n)[4], std::int8_t* q) {
  const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3]));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q),
                      _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
}
inline void store_run(const __m256i (&n)[4], std::int16_t* q) {
  for (int h = 0; h < 2; ++h) {
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(n[2 * h], n[2 * h + 1]), 0xd8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + 16 * h),
                        _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(words, 0xd8), 0xd8));
  }
}

/// 32 activations; `unordered` collects what is no number.
template <class A>
inline void round_run(const float* x, int s, A& out, __m256& unordered) {
  constexpr float kMost = sizeof(out.q[0]) == 1 ? 127 : 32767;
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  __m256 v[4], most = _mm256_setzero_ps();
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_loadu_ps(x + 8 * i);
    most = _mm256_max_ps(most, _mm256_and_ps(v[i], magnitude));
    unordered = _mm256_or_ps(unordered, _mm256_sub_ps(v[i], v[i]));  // NaN for NaN and infinity
  }
  const float largest = max_of(most);
  const bool none = !(largest >= 0x1p-100f);
  const float step = none ? 0.0f : largest / kMost, inverse = none ? 0.0f : kMost / largest;
  __m256i n[4];
  for (int i = 0; i < 4; ++i) n[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(inverse)));
  for (int h = 0; h < 2; ++h) {
    const __m256i both = _mm256_add_epi32(n[2 * h], n[2 * h + 1]);
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    sum = _mm_hadd_epi32(sum, sum), sum = _mm_hadd_epi32(sum, sum);
    out.d[2 * s + h] = step, out.sums[2 * s + h] = step * float(_mm_cvtsi128_si32(sum));
  }
  out.run_sums[s] = out.sums[2 * s] + out.sums[2 * s + 1];
  store_run(n, out.q + 32 * s);
}

template <class A>
bool round_all(const float* x, int64_t k, A* out) {
  __m256 unordered = _mm256_setzero_ps();
  for (int64_t first = 0; first < k; first += 256, ++out) {
    const int runs = k - first >= 256 ? 8 : int((k - first) / 32);
    for (int s = 0; s < runs; ++s) round_run(x + first + 32 * s, s, *out, unordered);
    for (int s = runs; s < 8; ++s) {
      __builtin_memset(out->q + 32 * s, 0, 32 * sizeof(out->q[0]));
      out->run_sums[s] = 0;
      for (int i = 2 * s; i < 2 * s + 2; ++i) out->d[i] = out->sums[i] = 0;
    }
  }
  return _mm256_movemask_ps(_mm256_cmp_ps(unordered, unordered, _CMP_UNORD_Q)) == 0;
}

}  // namespace

namespace quant_versions {
constinit const DotTable dot_avx2 = dots();
constinit const DecodeTable decode_avx2 = decoders();

float dot_f16_avx2(Bytes row, int64_t k, const float* x) { return dot_16_bit<F16>(row, k, x); }
float dot_bf16_avx2(Bytes row, int64_t k, const float* x) { return dot_16_bit<Bf16>(row, k, x); }

bool round_activations_avx2(const float* x, int64_t k, Int8Activations* out) { return round_all(x, k, out); }
bool round_activations_avx2(const float* x, int64_t k, Int16Activations* out) { return round_all(x, k, out); }
}  // namespace quant_versions
}  // namespace cgp::cpu

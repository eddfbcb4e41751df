// SPDX-License-Identifier: Apache-2.0
// Weights packed for AVX-512 VNNI: 16 rows, whose sums are the lanes of one register, so that a scale is loaded once for 16
// rows and no sum is added up across lanes. A group of 16 rows is a sequence of units of 256 elements of them (the last one
// of k % 256):
//   unit   d, dmin (binary16, 16 each), for K formats; then its runs of 32 elements
//   run    codes: of four elements and 16 rows (a step) 64 bytes. 4 bits: byte i of vector v holds those of step v (low
//          nibble) and v + 4. Formats of 5 and 6 bits: after them, for every step, their fifth and sixth bits, 64 each.
//          scales of 16 rows (two for runs of 16), then mins: integers of 8 bits for K formats, else binary16 or f32.
#include "cgp/cpu/quant/unpack_avx2_impl.h"

namespace cgp::cpu {
namespace {

using quant_versions::Int16Activations, quant_versions::Int8Activations;

enum class Scale { k_format, binary16, binary32 };

/// How a format is packed. `Table`: codes are nibbles that this table of bytes turns into codes.
template <class FormatOf, int kBitsOfCode, int kRunLength, Scale kScaleKind>
struct Packed {
  using F = FormatOf;
  static constexpr int kBits = kBitsOfCode, kRun = kRunLength;
  static constexpr Scale kScale = kScaleKind;
  static constexpr bool kMins = F::kMins;
  static constexpr int kScales = 32 / kRun;  ///< of a run of 32
  static constexpr int kScaleBytes = kScale == Scale::k_format ? 16 : kScale == Scale::binary16 ? 32 : 64;
  static constexpr int kPlanes = kBits == 5 ? 1 : kBits == 6 ? 2 : 0;
  static constexpr int kCodeBytes = kBits == 8 ? 512 : 256 + 64 * kPlanes;
  static constexpr int kRunBytes = kCodeBytes + kScaleBytes * (kScales + (kMins ? 1 : 0));
  static constexpr int kHeadBytes = kScale != Scale::k_format ? 0 : kMins ? 64 : 32;
  static constexpr bool kTable = requires(Bytes p) { F::nibbles(p, 0); };
};

/// The 8-bit scales and mins of a unit of a K format, and where d and dmin are.
struct Integers {
  std::int8_t scales[16];
  std::uint8_t mins[8];
};
inline void integers(const Q6K*, Bytes p, Integers& out) { __builtin_memcpy(out.scales, p + 192, 16); }
inline void integers(const Iq4Xs*, Bytes p, Integers& out) {
  const __m128i words = _mm256_cvtepi32_epi16(Iq4Xs::integers(p));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(out.scales), _mm_packs_epi16(words, words));
}
template <int kBytes>
inline void integers(const SixBitScales<kBytes>*, Bytes p, Integers& out) {
  const auto packed = SixBitScales<kBytes>::packed(p);
  __builtin_memcpy(out.scales, &packed.scales, 8);
  __builtin_memcpy(out.mins, &packed.mins, 8);
}
template <class F>
constexpr int kScaleAt = F::kBytes == 210 ? 208 : 0;

template <class P>
int64_t group_bytes(int64_t k) {
  return (k + 255) / 256 * P::kHeadBytes + k / 32 * P::kRunBytes;
}

/// Codes of step v of 8: four elements (a word) of 16 rows.
struct Steps {
  alignas(64) std::uint8_t of[8][64];
};

template <class P>
void pack_codes(const Steps& steps, std::uint8_t* out) {
  if constexpr (P::kBits == 8) {
    __builtin_memcpy(out, steps.of, 512);
  } else {
    for (int v = 0; v < 4; ++v)
      for (int i = 0; i < 64; ++i)
        out[64 * v + i] = std::uint8_t((steps.of[v][i] & 15) | (steps.of[v + 4][i] & 15) << 4);
    for (int v = 0; v < 8; ++v)
      for (int plane = 0; plane < P::kPlanes; ++plane) {
        const __mmask64 set =
            _mm512_test_epi8_mask(_mm512_load_si512(steps.of[v]), _mm512_set1_epi8(char(16 << plane)));
        __builtin_memcpy(out + 256 + 8 * (P::kPlanes * v + plane), &set, 8);
      }
  }
}

template <class P>
void store_scale(float value, int row, std::uint8_t* out) {
  if constexpr (P::kScale == Scale::binary32) {
    __builtin_memcpy(out + 4 * row, &value, 4);
  } else {
    const auto bits = std::uint16_t(_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(value), 0)));  // exact
    __builtin_memcpy(out + 2 * row, &bits, 2);
  }
}

template <class P>
void pack_group(Bytes rows, int64_t row_bytes, int64_t count, int64_t k, std::uint8_t* out) {
  using F = typename P::F;
  __builtin_memset(out, 0, std::size_t(group_bytes<P>(k)));
  alignas(32) std::uint8_t codes[16][256] = {};
  for (int64_t first = 0; first < k; first += 256) {
    const int runs = k - first >= 256 ? 8 : int((k - first) / 32);
    std::uint8_t* const unit = out;
    out += P::kHeadBytes;
    for (int64_t row = 0; row < count; ++row) {
      const Unit<F> copy(rows + row * row_bytes + first / F::kElements * F::kBytes, 32 * runs);
      const Bytes p = copy.data();
      for (int s = 0; s < 8; ++s) {
        __m256i c;
        if constexpr (P::kTable)
          c = F::nibbles(p, s);
        else
          c = F::codes(p, s);
        _mm256_store_si256(reinterpret_cast<__m256i*>(codes[row] + 32 * s), c);
      }
      if constexpr (P::kScale == Scale::k_format) {
        Integers i{};
        integers(static_cast<const F*>(nullptr), p, i);
        __builtin_memcpy(unit + 2 * row, p + kScaleAt<F>, 2);
        if constexpr (P::kMins) __builtin_memcpy(unit + 32 + 2 * row, p + 2, 2);
        for (int s = 0; s < runs; ++s) {
          std::uint8_t* scales = out + s * P::kRunBytes + P::kCodeBytes;
          for (int h = 0; h < P::kScales; ++h)
            scales[16 * h + row] = std::uint8_t(i.scales[s * P::kScales + h]);
          if constexpr (P::kMins) scales[16 * P::kScales + row] = i.mins[s];
        }
      } else {
        alignas(32) float scale[16], min[16] = {};
        const Floats16 all = F::scales(p);
        _mm256_store_ps(scale, all.low), _mm256_store_ps(scale + 8, all.high);
        if constexpr (P::kMins) {
          const Floats16 mins = F::mins(p);
          _mm256_store_ps(min, mins.low), _mm256_store_ps(min + 8, mins.high);
        }
        for (int s = 0; s < runs; ++s) {
          std::uint8_t* scales = out + s * P::kRunBytes + P::kCodeBytes;
          for (int h = 0; h < P::kScales; ++h)
            store_scale<P>(scale[2 * s + h], int(row), scales + h * P::kScaleBytes);
          if constexpr (P::kMins) store_scale<P>(min[2 * s], int(row), scales + P::kScales * P::kScaleBytes);
        }
      }
    }
    for (int s = 0; s < runs; ++s) {
      Steps steps;
      for (int v = 0; v < 8; ++v)
        for (int row = 0; row < 16; ++row)
          __builtin_memcpy(steps.of[v] + 4 * row, codes[row] + 32 * s + 4 * v, 4);
      pack_codes<P>(steps, out + s * P::kRunBytes);
    }
    out += runs * P::kRunBytes;
  }
}

/// Codes of step v.
template <class P>
inline __m512i step_codes(Bytes run, int v) {
  if constexpr (P::kBits == 8) {
    return _mm512_loadu_si512(run + 64 * v);
  } else {
    const __m512i both = _mm512_loadu_si512(run + 64 * (v % 4));
    __m512i codes = _mm512_and_si512(v < 4 ? both : _mm512_srli_epi16(both, 4), _mm512_set1_epi8(15));
    if constexpr (P::kTable) {
      constexpr bool kSmall = P::F::kZero == 16;
      const __m256i table = look_up(kSmall ? quant::kE2m1Doubled : quant::kIq4, P::F::kZero,
                                    _mm256_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0,
                                                     1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
      return _mm512_shuffle_epi8(_mm512_broadcast_i64x4(table), codes);
    }
    for (int plane = 0; plane < P::kPlanes; ++plane) {
      const auto set = load_as<__mmask64>(run + 256 + 8 * (P::kPlanes * v + plane));
      codes = _mm512_mask_add_epi8(codes, set, codes, _mm512_set1_epi8(char(16 << plane)));
    }
    return codes;
  }
}

template <class P>
inline __m512 scale_at(Bytes p, __m512 d) {
  if constexpr (P::kScale == Scale::k_format)
    return _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16(p))));
  else if constexpr (P::kScale == Scale::binary16)
    return _mm512_cvtph_ps(load_32(p));
  else
    return _mm512_loadu_ps(p);
}

/// Adds the products of four elements, from element e on, of 16 rows.
inline __m512i add_step(__m512i sums, __m512i codes, const Int8Activations& x, int e) {
  return _mm512_dpbusd_epi32(sums, codes, _mm512_set1_epi32(load_as<int>(reinterpret_cast<Bytes>(x.q + e))));
}
inline __m512i add_step(__m512i sums, __m512i codes, const Int16Activations& x, int e) {
  const Bytes four = reinterpret_cast<Bytes>(x.q + e);
  const __m512i even = _mm512_and_si512(codes, _mm512_set1_epi16(255)), odd = _mm512_srli_epi16(codes, 8);
  sums = _mm512_dpwssd_epi32(sums, even, _mm512_set1_epi32(load_as<int>(four)));
  return _mm512_dpwssd_epi32(sums, odd, _mm512_set1_epi32(load_as<int>(four + 4)));
}

template <class P, class A, int kVectors>
inline void add_run(Bytes run, int s, __m512 d, __m512 dmin, const A* x, int64_t stride, __m512* sums) {
  constexpr int kSteps = P::kRun / 4;
#pragma GCC unroll 2
  for (int h = 0; h < P::kScales; ++h) {
    __m512i dots[kVectors];
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) dots[j] = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int v = 0; v < kSteps; ++v) {
      const __m512i codes = step_codes<P>(run, h * kSteps + v);
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j)
        dots[j] = add_step(dots[j], codes, x[j * stride], 32 * s + P::kRun * h + 4 * v);
    }
    const __m512 scale = scale_at<P>(run + P::kCodeBytes + h * P::kScaleBytes, d);
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) {
      const A& a = x[j * stride];
      __m512 dot = _mm512_mul_ps(_mm512_cvtepi32_ps(dots[j]), _mm512_set1_ps(a.d[2 * s + h]));
      if constexpr (P::F::kZero != 0) {
        const float sum = P::kScales == 1 ? a.run_sums[s] : a.sums[2 * s + h];
        dot = _mm512_fnmadd_ps(_mm512_set1_ps(sum), _mm512_set1_ps(P::F::kZero), dot);
      }
      sums[j] = _mm512_fmadd_ps(dot, scale, sums[j]);
    }
  }
  if constexpr (P::kMins) {
    const __m512 mins = scale_at<P>(run + P::kCodeBytes + P::kScales * P::kScaleBytes, dmin);
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j)
      sums[j] = _mm512_fnmadd_ps(mins, _mm512_set1_ps(x[j * stride].run_sums[s]), sums[j]);
  }
}

/// Four KiB ahead: the processor's own prefetchers end at a page, and with several vectors a run has too many instructions
/// for the core to see the next page's in time.
template <class P>
inline void fetch(Bytes run) {
#pragma GCC unroll 16
  for (int i = 0; i < P::kRunBytes; i += 64)
    _mm_prefetch(reinterpret_cast<const char*>(run + 4096 + i), _MM_HINT_T0);
}

template <class P, class A, int kVectors>
void product(Bytes group, int64_t k, const A* x, int64_t stride, int64_t rows, float* y, int64_t ldy) {
  __m512 sums[kVectors];
#pragma GCC unroll 8
  for (int j = 0; j < kVectors; ++j) sums[j] = _mm512_setzero_ps();
  for (; k > 0; k -= 256, ++x) {
    __m512 d{}, dmin{};
    if constexpr (P::kScale == Scale::k_format) {
      d = _mm512_cvtph_ps(load_32(group));
      if constexpr (P::kMins) dmin = _mm512_cvtph_ps(load_32(group + 32));
    }
    group += P::kHeadBytes;
    const int runs = k >= 256 ? 8 : int(k / 32);
    for (int s = 0; s < runs; ++s, group += P::kRunBytes) {
      if constexpr (kVectors >= 4) fetch<P>(group);
      add_run<P, A, kVectors>(group, s, d, dmin, x, stride, sums);
    }
  }
  const auto mask = __mmask16((1u << rows) - 1);
#pragma GCC unroll 8
  for (int j = 0; j < kVectors; ++j) _mm512_mask_storeu_ps(y + j * ldy, mask, sums[j]);
}

template <class F, int kBits, int kRun, Scale kScale>
constexpr void add(quant_versions::PackedTable& t, quant::Format f) {
  using P = Packed<F, kBits, kRun, kScale>;
  using Q8 = Int8Activations;
  using Q16 = Int16Activations;
  t.by[int(f)] = {group_bytes<P>,
                  pack_group<P>,
                  {product<P, Q8, 1>, product<P, Q8, 2>, product<P, Q8, 4>, product<P, Q8, 8>},
                  {product<P, Q16, 1>, product<P, Q16, 2>, product<P, Q16, 4>, product<P, Q16, 8>}};
}

constexpr quant_versions::PackedTable kernels() {
  using quant::Format;
  quant_versions::PackedTable t{};
  add<Q40, 4, 32, Scale::binary16>(t, Format::q4_0);
  add<Q41, 4, 32, Scale::binary16>(t, Format::q4_1);
  add<Q50, 5, 32, Scale::binary16>(t, Format::q5_0);
  add<Q51, 5, 32, Scale::binary16>(t, Format::q5_1);
  add<Q80, 8, 32, Scale::binary16>(t, Format::q8_0);
  add<Q4K, 4, 32, Scale::k_format>(t, Format::q4_k);
  add<Q5K, 5, 32, Scale::k_format>(t, Format::q5_k);
  add<Q6K, 6, 16, Scale::k_format>(t, Format::q6_k);
  add<Iq4Nl, 4, 32, Scale::binary16>(t, Format::iq4_nl);
  add<Iq4Xs, 4, 32, Scale::k_format>(t, Format::iq4_xs);
  add<Mxfp4, 4, 32, Scale::binary32>(t, Format::mxfp4);
  add<Nvfp4, 4, 16, Scale::binary16>(t, Format::nvfp4);
  return t;
}

}  // namespace

namespace quant_versions {
constinit const PackedTable packed_avx512_vnni = kernels();
}
}  // namespace cgp::cpu

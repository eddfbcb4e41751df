// SPDX-License-Identifier: Apache-2.0
#pragma once
// The formats as vectors of 256 bits. A unit is 256 elements: one block, or several of the smaller ones. Each format has
//   kElements, kBytes   of a block
//   codes(p, s)         elements 32s .. 32s + 31 of the unit at p, a byte each, not negative
//   scales(p), mins(p)  one for 16 elements; mins only where kMins
//   kZero               value = scale * (code - kZero) - min
// The scales have the roundings of quant::decode(). Layouts: cgp/quant/blocks.h and decode.cpp.
#include <immintrin.h>

#include <cstdint>

#include "cgp/cpu/quant/matmul_impl.h"
#include "cgp/quant/blocks.h"

namespace cgp::cpu {
namespace {

using quant_versions::Bytes;
using std::int64_t;

inline __m128i load_16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline __m256i load_32(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline __m256i bytes(int v) { return _mm256_set1_epi8(char(v)); }
template <class T>
inline T load_as(Bytes p) {
  T v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

struct Floats16 {
  __m256 low, high;
};
/// Each of eight for two runs of 16.
inline Floats16 twice(__m256 v) {
  return {_mm256_permutevar8x32_ps(v, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3)),
          _mm256_permutevar8x32_ps(v, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7))};
}
inline __m256 half_at(Bytes p) { return _mm256_cvtph_ps(_mm_set1_epi16(load_as<short>(p))); }
/// The binary16 at the start of each of eight blocks.
template <int kStride>
inline __m256 eight_halves(Bytes p) {
  const auto at = [p](int i) { return load_as<short>(p + i * kStride); };
  return _mm256_cvtph_ps(_mm_setr_epi16(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)));
}
inline __m256 unsigned_bytes(__m128i v) { return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(v)); }
inline __m256 signed_bytes(__m128i v) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v)); }
/// 16 of them.
inline Floats16 unsigned_bytes_16(__m128i v, __m256 scale) {
  return {_mm256_mul_ps(scale, unsigned_bytes(v)),
          _mm256_mul_ps(scale, unsigned_bytes(_mm_srli_si128(v, 8)))};
}
inline Floats16 signed_bytes_16(__m128i v, __m256 scale) {
  return {_mm256_mul_ps(scale, signed_bytes(v)), _mm256_mul_ps(scale, signed_bytes(_mm_srli_si128(v, 8)))};
}

/// Low nibbles of 16 bytes, then their high nibbles.
inline __m256i nibbles_16(Bytes p) {
  const __m128i v = load_16(p);
  return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(v, 4), v), bytes(15));
}
/// Low or high nibbles of 32 bytes.
inline __m256i nibbles_32(Bytes p, int high) {
  const __m256i v = load_32(p);
  return _mm256_and_si256(high ? _mm256_srli_epi16(v, 4) : v, bytes(15));
}
/// `value` where bit e of 32 is set.
inline __m256i where_set(Bytes p, int value) {
  const __m256i spread =
      _mm256_shuffle_epi8(_mm256_set1_epi32(load_as<int>(p)),
                          _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
  const __m256i bit = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201u));
  return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit), bytes(value));
}
/// Two bits of 32 bytes.
inline __m256i two_bits(Bytes p, int pair) {
  return _mm256_and_si256(_mm256_srli_epi16(load_32(p), 2 * pair), bytes(3));
}
/// Entry `code` of a table of 16 bytes, each plus `zero`.
inline __m256i look_up(const std::int8_t (&table)[16], int zero, __m256i codes) {
  const __m128i t = _mm_add_epi8(load_16(table), _mm_set1_epi8(char(zero)));
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(t), codes);
}

template <int kElementsOfBlock, int kBytesOfBlock, int kZeroCode, bool kHasMins = false>
struct Layout {
  static constexpr int kElements = kElementsOfBlock, kBytes = kBytesOfBlock, kZero = kZeroCode;
  static constexpr bool kMins = kHasMins;
};
template <int kBytes, int kZero>
struct Scale16 : Layout<32, kBytes, kZero> {
  static Floats16 scales(Bytes p) { return twice(eight_halves<kBytes>(p)); }
};
template <int kBytes>
struct ScaleAndMin16 : Layout<32, kBytes, 0, true> {
  static Floats16 scales(Bytes p) { return twice(eight_halves<kBytes>(p)); }
  static Floats16 mins(Bytes p) {
    return twice(
        _mm256_xor_ps(eight_halves<kBytes>(p + 2), _mm256_set1_ps(-0.0f)));  // stored with the other sign
  }
};

struct Q40 : Scale16<18, 8> {
  static __m256i codes(Bytes p, int s) { return nibbles_16(p + 18 * s + 2); }
};
struct Q41 : ScaleAndMin16<20> {
  static __m256i codes(Bytes p, int s) { return nibbles_16(p + 20 * s + 4); }
};
struct Q50 : Scale16<22, 16> {
  static __m256i codes(Bytes p, int s) {
    return _mm256_or_si256(nibbles_16(p + 22 * s + 6), where_set(p + 22 * s + 2, 16));
  }
};
struct Q51 : ScaleAndMin16<24> {
  static __m256i codes(Bytes p, int s) {
    return _mm256_or_si256(nibbles_16(p + 24 * s + 8), where_set(p + 24 * s + 4, 16));
  }
};
struct Q80 : Scale16<34, 128> {
  static __m256i codes(Bytes p, int s) { return _mm256_xor_si256(load_32(p + 34 * s + 2), bytes(128)); }
};
struct Iq4Nl : Scale16<18, 128> {
  static __m256i nibbles(Bytes p, int s) { return nibbles_16(p + 18 * s + 2); }
  static __m256i codes(Bytes p, int s) { return look_up(quant::kIq4, 128, nibbles(p, s)); }
};
struct Mxfp4 : Layout<32, 17, 16> {
  static Floats16 scales(Bytes p) {  // quant::e8m0_half()
    const __m256i x = _mm256_setr_epi32(p[0], p[17], p[34], p[51], p[68], p[85], p[102], p[119]);
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(x, _mm256_set1_epi32(1)), 23);
    const __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), x);
    return twice(_mm256_castsi256_ps(
        _mm256_blendv_epi8(normal, subnormal, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), x))));
  }
  static __m256i nibbles(Bytes p, int s) { return nibbles_16(p + 17 * s + 1); }
  static __m256i codes(Bytes p, int s) { return look_up(quant::kE2m1Doubled, 16, nibbles(p, s)); }
};
struct Nvfp4 : Layout<64, 36, 16> {
  static __m256 ue4m3_half(__m128i v) {  // quant::ue4m3_half()
    const __m256i x = _mm256_cvtepu8_epi32(v);
    const __m256i normal = _mm256_add_epi32(_mm256_slli_epi32(x, 20), _mm256_set1_epi32(119 << 23));
    const __m256 subnormal = _mm256_mul_ps(_mm256_cvtepi32_ps(x), _mm256_set1_ps(0x1p-10f));
    return _mm256_blendv_ps(_mm256_castsi256_ps(normal), subnormal,
                            _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(8), x)));
  }
  static Floats16 scales(Bytes p) {
    const __m128i v =
        _mm_setr_epi32(load_as<int>(p), load_as<int>(p + 36), load_as<int>(p + 72), load_as<int>(p + 108));
    return {ue4m3_half(v), ue4m3_half(_mm_srli_si128(v, 8))};
  }
  static __m256i nibbles(Bytes p, int s) {
    const __m128i v = load_16(p + 36 * (s / 2) + 4 + 16 * (s % 2)), fifteen = _mm_set1_epi8(15);
    const __m128i low = _mm_and_si128(v, fifteen), high = _mm_and_si128(_mm_srli_epi16(v, 4), fifteen);
    return _mm256_set_m128i(_mm_unpackhi_epi64(low, high), _mm_unpacklo_epi64(low, high));
  }
  static __m256i codes(Bytes p, int s) { return look_up(quant::kE2m1Doubled, 16, nibbles(p, s)); }
};
struct Q2K : Layout<256, 84, 0, true> {
  static Floats16 scales(Bytes p) {
    return unsigned_bytes_16(_mm_and_si128(load_16(p), _mm_set1_epi8(15)), half_at(p + 80));
  }
  static Floats16 mins(Bytes p) {
    return unsigned_bytes_16(_mm_and_si128(_mm_srli_epi16(load_16(p), 4), _mm_set1_epi8(15)),
                             half_at(p + 82));
  }
  static __m256i codes(Bytes p, int s) { return two_bits(p + 16 + 32 * (s / 4), s % 4); }
};
struct Q3K : Layout<256, 110, 4> {
  static Floats16 scales(Bytes p) {
    const __m128i v = _mm_cvtsi64_si128(load_as<long long>(p + 96));
    const __m128i low = _mm_and_si128(_mm_unpacklo_epi64(v, _mm_srli_epi16(v, 4)), _mm_set1_epi8(15));
    const __m128i high = _mm_and_si128(
        _mm_srlv_epi32(_mm_set1_epi32(load_as<int>(p + 104)), _mm_setr_epi32(0, 2, 4, 6)), _mm_set1_epi8(3));
    const __m128i six = _mm_or_si128(low, _mm_slli_epi16(high, 4));
    return signed_bytes_16(_mm_sub_epi8(six, _mm_set1_epi8(32)), half_at(p + 108));
  }
  static __m256i codes(Bytes p, int s) {
    const __m256i bit = bytes(1 << s), set = _mm256_cmpeq_epi8(_mm256_and_si256(load_32(p), bit), bit);
    return _mm256_or_si256(two_bits(p + 32 + 32 * (s / 4), s % 4), _mm256_and_si256(set, bytes(4)));
  }
};
template <int kBytes>
struct SixBitScales : Layout<256, kBytes, 0, true> {
  static __m256 eight(std::uint64_t packed, Bytes d) {
    return _mm256_mul_ps(half_at(d), unsigned_bytes(_mm_cvtsi64_si128(static_cast<long long>(packed))));
  }
  static quant::PackedScales packed(Bytes p) {
    std::uint8_t s[12];
    __builtin_memcpy(s, p + 4, sizeof s);
    return quant::scales_of(s);
  }
  static Floats16 scales(Bytes p) { return twice(eight(packed(p).scales, p)); }
  static Floats16 mins(Bytes p) { return twice(eight(packed(p).mins, p + 2)); }
};
struct Q4K : SixBitScales<144> {
  static __m256i codes(Bytes p, int s) { return nibbles_32(p + 16 + 32 * (s / 2), s % 2); }
};
struct Q5K : SixBitScales<176> {
  static __m256i codes(Bytes p, int s) {
    const __m256i bit = bytes(1 << s), set = _mm256_cmpeq_epi8(_mm256_and_si256(load_32(p + 16), bit), bit);
    return _mm256_or_si256(nibbles_32(p + 48 + 32 * (s / 2), s % 2), _mm256_and_si256(set, bytes(16)));
  }
};
struct Q6K : Layout<256, 210, 32> {
  static Floats16 scales(Bytes p) { return signed_bytes_16(load_16(p + 192), half_at(p + 208)); }
  static __m256i codes(Bytes p, int s) {
    const int h = s / 4, t = s % 4;
    return _mm256_or_si256(nibbles_32(p + 64 * h + 32 * (t % 2), t / 2),
                           _mm256_slli_epi16(two_bits(p + 128 + 32 * h, t), 4));
  }
};
struct Iq4Xs : Layout<256, 136, 128> {
  /// Six bits each, minus 32.
  static __m256i integers(Bytes p) {
    const __m256i low = _mm256_srlv_epi32(_mm256_set1_epi32(load_as<int>(p + 4)),
                                          _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
    const __m256i high = _mm256_srlv_epi32(_mm256_set1_epi32(load_as<std::uint16_t>(p + 2)),
                                           _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
    const __m256i six = _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi32(15)),
                                        _mm256_slli_epi32(_mm256_and_si256(high, _mm256_set1_epi32(3)), 4));
    return _mm256_sub_epi32(six, _mm256_set1_epi32(32));
  }
  static Floats16 scales(Bytes p) {
    return twice(_mm256_mul_ps(half_at(p), _mm256_cvtepi32_ps(integers(p))));
  }
  static __m256i nibbles(Bytes p, int s) { return nibbles_16(p + 8 + 16 * s); }
  static __m256i codes(Bytes p, int s) { return look_up(quant::kIq4, 128, nibbles(p, s)); }
};
struct Tq20 : Layout<256, 66, 1> {
  static Floats16 scales(Bytes p) { return {half_at(p + 64), half_at(p + 64)}; }
  static __m256i codes(Bytes p, int s) { return two_bits(p + 32 * (s / 4), s % 4); }
};

/// The unit at p, or a copy of the `elements` of it that there are, followed by zeros.
template <class F>
class Unit {
 public:
  static constexpr int kBytes = 256 / F::kElements * F::kBytes;
  Unit(Bytes p, int64_t elements) {
    __builtin_memset(copy_, 0, sizeof copy_);
    __builtin_memcpy(copy_, p, std::size_t(elements / F::kElements * F::kBytes));
  }
  Bytes data() const { return copy_; }

 private:
  std::uint8_t copy_[kBytes];
};

/// by[format] = Of<F>::value, for every F.
template <template <class> class Of, class Table>
constexpr void for_formats(Table& by) {
  using quant::Format;
  const auto set = [&by](Format f, auto value) { by[int(f)] = value; };
  set(Format::q4_0, Of<Q40>::value()), set(Format::q4_1, Of<Q41>::value());
  set(Format::q5_0, Of<Q50>::value()), set(Format::q5_1, Of<Q51>::value());
  set(Format::q8_0, Of<Q80>::value()), set(Format::iq4_nl, Of<Iq4Nl>::value());
  set(Format::mxfp4, Of<Mxfp4>::value()), set(Format::nvfp4, Of<Nvfp4>::value());
  set(Format::q2_k, Of<Q2K>::value()), set(Format::q3_k, Of<Q3K>::value());
  set(Format::q4_k, Of<Q4K>::value()), set(Format::q5_k, Of<Q5K>::value());
  set(Format::q6_k, Of<Q6K>::value()), set(Format::iq4_xs, Of<Iq4Xs>::value());
  set(Format::tq2_0, Of<Tq20>::value());
}

}  // namespace
}  // namespace cgp::cpu

// SPDX-License-Identifier: Apache-2.0
#pragma once
// How kernels that are bound by memory read and write: an access is 16 bytes as four 32-bit words of packed
// elements (vector form), or one element (for data that is not 16-byte aligned). Arithmetic is on f32 values.
#include <limits>
#include <vector>

#include "cgp/dsl/core/convert.h"

namespace cgp::kernels {

template <class T, bool Vector>  // T: dsl::f32, f16 or bf16
struct Words {
  using Word = std::conditional_t<Vector, dsl::b32, T>;
  static constexpr int per_access = Vector ? 4 : 1;                      ///< words
  static constexpr int per_word = Vector ? 4 / dsl::Elem<T>::bytes : 1;  ///< elements
  static constexpr int elements = per_access * per_word;                 ///< per access
  using Access = dsl::RegGroup<Word, per_access>;

  static dsl::Val<Word> zero() {
    if constexpr (Vector)
      return dsl::Val<Word>(0);
    else
      return dsl::Val<Word>(0.f);
  }
  static dsl::Val<Word> minus_infinity() {
    if constexpr (!Vector)
      return dsl::Val<Word>(-std::numeric_limits<float>::infinity());
    else if constexpr (std::is_same_v<T, dsl::f32>)
      return dsl::Val<Word>(0xff800000u);
    else if constexpr (std::is_same_v<T, dsl::f16>)
      return dsl::Val<Word>(0xfc00fc00u);
    else
      return dsl::Val<Word>(0xff80ff80u);
  }
  /// The elements of a word, lowest address first.
  static std::vector<dsl::Val<dsl::f32>> floats(const dsl::Val<Word>& w) {
    using namespace dsl;
    if constexpr (!Vector) {
      return {to<f32>(w)};
    } else if constexpr (std::is_same_v<T, f32>) {
      return {bits<f32>(w)};
    } else if constexpr (std::is_same_v<T, f16>) {
      const auto h = unpack<f16>(w);
      return {to<f32>(h[0]), to<f32>(h[1])};
    } else {
      return {bits<f32>(w << 16), bits<f32>(w & 0xffff0000u)};
    }
  }
  static std::vector<dsl::Val<dsl::f32>> floats(const Access& a) {
    std::vector<dsl::Val<dsl::f32>> out;
    for (int i = 0; i < per_access; ++i)
      for (const auto& f : floats(a[i])) out.push_back(f);
    return out;
  }
  /// One word of `per_word` elements, each rounded to nearest even.
  static dsl::Val<Word> word(const std::vector<dsl::Val<dsl::f32>>& f) {
    using namespace dsl;
    if constexpr (!Vector)
      return to<T>(f[0]);
    else if constexpr (std::is_same_v<T, f32>)
      return bits<b32>(f[0]);
    else if constexpr (std::is_same_v<T, f16>)  // one instruction for two halves exists since sm_80
      return f[0].kernel()->sm() >= 80 ? bits<b32>(cvt<rn, f16x2>(f[1], f[0]))
                                       : pack<b32>(to<f16>(f[0]), to<f16>(f[1]));
    else
      return bits<b32>(cvt<rn, bf16x2>(f[1], f[0]));
  }
};

}  // namespace cgp::kernels

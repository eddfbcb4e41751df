// SPDX-License-Identifier: Apache-2.0
#pragma once
// Elements whose type is known when the kernel is built, not when C++ compiles: one kernel function serves
// f32, f16 and bf16, 16-byte accesses and single elements. In memory an access is `elements` elements; in
// registers it is 32-bit words; arithmetic is on f32.
#include <optional>
#include <vector>

#include "cgp/base/dtype.h"
#include "cgp/dsl/core/convert.h"
#include "cgp/dsl/memory/ptr.h"

namespace cgp::kernels::row {

using dsl::b16, dsl::b32, dsl::b8, dsl::f16, dsl::f32, dsl::Index, dsl::Kernel, dsl::Out, dsl::pred, dsl::Ptr,
    dsl::u16, dsl::u32, dsl::u64, dsl::Val;
using dsl::bits, dsl::to;
template <class T>
using In = dsl::In<T>;

using Floats = std::vector<Val<f32>>;
/// One access in registers. 16-bit types: two elements a word, lowest address in the low half; a single one
/// alone in the low half.
using Access = std::vector<Val<b32>>;

struct Format {
  DType dtype = DType::f32;  ///< f32, f16 or bf16
  int elements = 1;          ///< per access: a power of two
  int bytes() const { return elements * cgp::bytes(dtype); }
  int words() const { return bytes() < 4 ? 1 : bytes() / 4; }
};

/// The bits of a word that is `v` in every element.
std::uint32_t filled(DType t, float v);
/// The elements of an access, lowest address first. `zero`: a 0 that the compiler cannot see through; with a
/// different one at each use it converts again, instead of keeping twice as many f32 as words in registers.
Floats floats(const Format& f, const Access& a, const std::optional<Val<u32>>& zero = {});
/// Rounded to nearest even.
Access pack(const Format& f, const Floats& v);

namespace detail {
template <int N, class... Tags, class P, class I>
Access load_words(const P& p, const I& i, const Val<pred>& inside, std::uint32_t otherwise) {
  const auto got = p.template as<b32>().template ld_if<N, Tags...>(inside, i, Val<b32>(otherwise));
  Access out;
  for (int j = 0; j < N; ++j) out.push_back(got[j]);
  return out;
}
template <int N, class P, class I>
void store_words(const P& p, const I& i, const Val<pred>& inside, const Access& a) {
  std::vector<dsl::Value> v(a.begin(), a.end());
  p.template as<b32>().template st_if<N>(inside, i, dsl::RegGroup<b32, N>::from(v));
}
}  // namespace detail

/// Access `i` from `p` on where `inside` holds; elsewhere every element is `otherwise`.
template <class... Tags, class Space, class T, Index I>
Access load(const Format& f, const Ptr<Space, T>& p, const I& i, const Val<pred>& inside,
            float otherwise = 0) {
  const std::uint32_t fill = filled(f.dtype, otherwise);
  switch (f.bytes()) {
    case 2: {
      const auto v = p.template as<u16>().template ld_if<1, Tags...>(inside, i, Val<u16>(fill & 0xffffu));
      return {bits<b32>(to<u32>(v[0]))};
    }
    case 4:
      return detail::load_words<1, Tags...>(p, i, inside, fill);
    case 8:
      return detail::load_words<2, Tags...>(p, i, inside, fill);
    case 16:
      return detail::load_words<4, Tags...>(p, i, inside, fill);
    default:
      return detail::load_words<8, Tags...>(p, i, inside, fill);
  }
}
template <class Space, Index I>
void store(const Format& f, const Ptr<Space, b8>& p, const I& i, const Val<pred>& inside, const Access& a) {
  switch (f.bytes()) {
    case 2:
      p.template as<u16>().st_if(inside, i, to<u16>(bits<u32>(a[0])));
      break;
    case 4:
      detail::store_words<1>(p, i, inside, a);
      break;
    case 8:
      detail::store_words<2>(p, i, inside, a);
      break;
    case 16:
      detail::store_words<4>(p, i, inside, a);
      break;
    default:
      detail::store_words<8>(p, i, inside, a);
  }
}

inline void append(Floats& to, const Floats& more) {
  for (const auto& v : more) to.push_back(v);
}
/// Added in four chains and a tree: one chain would wait four cycles an addition.
Val<f32> sum(const Floats& v);
Val<f32> largest(const Floats& v);
/// The sum of a[i] * b[i], in such chains of fused operations.
Val<f32> dot(const Floats& a, const Floats& b);

}  // namespace cgp::kernels::row

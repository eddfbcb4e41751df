// SPDX-License-Identifier: Apache-2.0
#pragma once
// Eight neighbouring elements of a cache page, as four words of two 16-bit elements.
#include "cgp/dsl/kernel.h"
#include "cgp/dsl/mma/fragment.h"

namespace cgp::kernels::kv_impl {

using namespace dsl;

template <class Page>
inline constexpr int kWords8 = Page::bits / 4;  ///< of 32 bits, as they lie in memory
/// Four packed words of T (f16 or bf16); 8-bit pages become f16 and stay unscaled.
template <class Page>
RegGroup<b32, 4> words8(const RegGroup<b32, kWords8<Page>>& raw) {
  if constexpr (Page::bits == 16) {
    return raw;
  } else {
    const auto half = [&](int i) { return bits<b32>(cvt<rn, f16x2>(unpack<e4m3x2>(raw[i / 2])[i % 2])); };
    return RegGroup<b32, 4>(half(0), half(1), half(2), half(3));
  }
}
/// `constant`: not written while the kernel runs, which a programmatic launch cannot say of what the kernels
/// before it wrote.
template <class Page>
RegGroup<b32, 4> load8(const Val<u64>& address, const Val<pred>& there, bool constant = true) {
  return words8<Page>(In<b32>(address, 0, constant).template ld_if<kWords8<Page>>(there, 0, Val<b32>(0)));
}
template <class Page>
RegGroup<b32, 4> load8(const Ptr<mod::shared, b32>& from) {
  return words8<Page>(from.template ld<kWords8<Page>>(0));
}

}  // namespace cgp::kernels::kv_impl

// SPDX-License-Identifier: Apache-2.0
#pragma once
// Eight neighbouring elements of a cache page, as four words of two 16-bit elements.
#include "cgp/dsl/fragment.h"
#include "cgp/dsl/kernel.h"

namespace cgp::kernels::kv_parts {

using namespace dsl;

/// Four packed words of T (f16 or bf16); 8-bit pages become f16 and stay unscaled. `constant`: not written
/// while the kernel runs, which a programmatic launch cannot say of what the kernels before it wrote.
template <class Page>
RegGroup<b32, 4> load8(const Val<u64>& address, const Val<pred>& there, bool constant = true) {
  if constexpr (Page::bits == 16) {
    return In<b32>(address, 0, constant).template ld_if<4>(there, 0, Val<b32>(0));
  } else {
    const auto raw = In<b32>(address, 0, constant).template ld_if<2>(there, 0, Val<b32>(0));
    const auto half = [&](int i) { return bits<b32>(cvt<rn, f16x2>(unpack<e4m3x2>(raw[i / 2])[i % 2])); };
    return RegGroup<b32, 4>(half(0), half(1), half(2), half(3));
  }
}

}  // namespace cgp::kernels::kv_parts

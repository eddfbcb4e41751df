// SPDX-License-Identifier: Apache-2.0
// attention sm90: which tiles there are; the kernel is attention_sm90.h.
#include "cgp/kernels/attention/attention_sm90.h"

namespace cgp::kernels {

Variant attention_sm90(const AttentionConfig& c) {
  using namespace attention_parts;
  const auto made = [&]() -> Variant {
    if (c.type == DType::e4m3) return sm90_fp8(c);
    const auto is = [&](int d, int n) { return c.d_qk == d && c.d_v == d && c.columns == n; };
    if (is(64, 96)) return sm90_variant<64, 64, 96>(c);
    if (is(64, 128)) return sm90_variant<64, 64, 128>(c);
    if (is(128, 128)) return sm90_variant<128, 128, 128>(c);
    if (is(128, 176)) return sm90_variant<128, 128, 176>(c);
    return sm90_wide(c);
  };
  Variant v = made();
  if (!v.build)
    throw Unsupported(text::cat("attention_sm90: no tile of ", cgp::name(c.type), " for head dimensions ",
                                c.d_qk, " and ", c.d_v, " with ", c.columns, " keys"));
  v.only = "sm_90a";
  return v;
}

}  // namespace cgp::kernels

// SPDX-License-Identifier: Apache-2.0
// attention sm90 with e4m3 operands: which tiles there are.
#include "cgp/kernels/attention/attention_sm90.h"

namespace cgp::kernels::attention_parts {

Variant sm90_fp8(const AttentionConfig& c) {
  const auto is = [&](int d, int n) { return c.d_qk == d && c.d_v == d && c.columns == n; };
  if (is(64, 128)) return variant(c.name(), 90, attention_sm90_kernel<e4m3, 64, 64, 128>, c);
  if (is(64, 192)) return variant(c.name(), 90, attention_sm90_kernel<e4m3, 64, 64, 192>, c);
  if (is(128, 96)) return variant(c.name(), 90, attention_sm90_kernel<e4m3, 128, 128, 96>, c);
  if (is(128, 192)) return variant(c.name(), 90, attention_sm90_kernel<e4m3, 128, 128, 192>, c);
  if (is(256, 96)) return variant(c.name(), 90, attention_sm90_kernel<e4m3, 256, 256, 96>, c);
  return {};
}

}  // namespace cgp::kernels::attention_parts

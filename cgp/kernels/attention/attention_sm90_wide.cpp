// SPDX-License-Identifier: Apache-2.0
// attention sm90 with head dimensions above 128: a file of its own, since each shape takes its time to
// compile.
#include "cgp/kernels/attention/attention_sm90.h"

namespace cgp::kernels::attention_parts {

Variant sm90_wide(const AttentionConfig& c) {
  const auto is = [&](int a, int b, int n) { return c.d_qk == a && c.d_v == b && c.columns == n; };
  if (is(192, 128, 112)) return sm90_variant<192, 128, 112>(c);
  if (is(256, 256, 64)) return sm90_variant<256, 256, 64>(c);
  if (is(256, 256, 80)) return sm90_variant<256, 256, 80>(c);
  return {};
}

}  // namespace cgp::kernels::attention_parts

// SPDX-License-Identifier: Apache-2.0
// attention sm90 with head dimensions above 128: a file of its own, since each shape takes its time to
// compile.
#include "cgp/kernels/attention/attention_sm90.h"

namespace cgp::kernels::attention_parts {

Variant sm90_wide(DType type, std::string name, int d_qk, int d_v, int columns, const Sm90Tune& t) {
  const auto is = [&](int a, int b, int n) { return d_qk == a && d_v == b && columns == n; };
  if (is(192, 128, 112)) return sm90_variant<192, 128, 112>(type, std::move(name), t);
  if (is(256, 256, 64)) return sm90_variant<256, 256, 64>(type, std::move(name), t);
  if (is(256, 256, 80)) return sm90_variant<256, 256, 80>(type, std::move(name), t);
  return {};
}

}  // namespace cgp::kernels::attention_parts

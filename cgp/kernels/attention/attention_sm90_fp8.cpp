// SPDX-License-Identifier: Apache-2.0
// attention sm90 with e4m3 operands: which tiles there are.
#include "cgp/kernels/attention/attention_sm90.h"

namespace cgp::kernels::attention_parts {

Variant sm90_fp8(std::string name, int d_qk, int d_v, int columns, const Sm90Tune& t) {
  Variant v;
  const auto is = [&](int d, int n) { return d_qk == d && d_v == d && columns == n; };
  if (is(64, 128)) v = variant(std::move(name), 90, attention_sm90_kernel<e4m3, 64, 64, 128>, t);
  if (is(64, 192)) v = variant(std::move(name), 90, attention_sm90_kernel<e4m3, 64, 64, 192>, t);
  if (is(128, 96)) v = variant(std::move(name), 90, attention_sm90_kernel<e4m3, 128, 128, 96>, t);
  if (is(128, 192)) v = variant(std::move(name), 90, attention_sm90_kernel<e4m3, 128, 128, 192>, t);
  if (is(256, 96)) v = variant(std::move(name), 90, attention_sm90_kernel<e4m3, 256, 256, 96>, t);
  v.only = "sm_90a";
  return v;
}

}  // namespace cgp::kernels::attention_parts

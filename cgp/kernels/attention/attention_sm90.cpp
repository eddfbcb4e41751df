// SPDX-License-Identifier: Apache-2.0
// attention sm90: which tiles there are; the kernel is attention_sm90.h.
#include "cgp/kernels/attention/attention_sm90.h"

namespace cgp::kernels {

Variant attention_sm90(DType type, int d_qk, int d_v, int columns, const AttentionSm90Tuning& tune,
                       const AttentionFeatures& f, DType out) {
  using namespace attention_parts;
  auto name = text::cat(
      "attention_", cgp::name(type), type == DType::e4m3 ? text::cat("_", cgp::name(out)) : "", "_sm90_",
      d_qk, "_", d_v, tune.depth ? text::cat("_k", tune.depth) : "",
      tune.width ? text::cat("_v", tune.width) : "", "__", 64 * tune.warpgroups, "x", columns, "_s",
      tune.stages, tune.queries > 1 ? text::cat("_q", tune.queries) : "",
      tune.turns == 2 ? "_tt"
      : tune.turns    ? "_t"
                      : "",
      tune.persistent ? "_p" : "", tune.lazy ? "_z" : "", type == DType::e4m3 && tune.promoted ? "_sums" : "",
      tune.polynomial ? text::cat("_e", tune.polynomial) : "", f.text());
  const Sm90Tune t{f, tune, out};
  const auto checked = [&](Variant v) {
    if (!v.build)
      throw Unsupported(text::cat("attention_sm90: no tile of ", cgp::name(type), " for head dimensions ",
                                  d_qk, " and ", d_v, " with ", columns, " keys"));
    return v;
  };
  if (type == DType::e4m3) return checked(sm90_fp8(std::move(name), d_qk, d_v, columns, t));
  const auto is = [&](int a, int b, int n) { return d_qk == a && d_v == b && columns == n; };
  if (is(64, 64, 96)) return sm90_variant<64, 64, 96>(type, std::move(name), t);
  if (is(64, 64, 128)) return sm90_variant<64, 64, 128>(type, std::move(name), t);
  if (is(128, 128, 128)) return sm90_variant<128, 128, 128>(type, std::move(name), t);
  if (is(128, 128, 176)) return sm90_variant<128, 128, 176>(type, std::move(name), t);
  return checked(sm90_wide(type, std::move(name), d_qk, d_v, columns, t));
}

}  // namespace cgp::kernels

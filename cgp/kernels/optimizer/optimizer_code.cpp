// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/optimizer/optimizer_code.h"

#include <cmath>
#include <limits>
#include <vector>

namespace cgp::kernels {

DynamicCode dynamic_code(bool is_signed) {
  DynamicCode code;
  std::vector<double> magnitudes{0}, thresholds;
  for (int i = 0; i < 7; ++i) {
    const int parts = is_signed ? 1 << i : 2 << i;
    const double unit = std::pow(10., i - 6), first = double(magnitudes.size());
    code.decades[std::size_t(1 + i)] = {float(parts / 0.9 / unit), float(first - parts / 9.), float(first),
                                        float(first + parts - 1)};
    const double before = magnitudes.back();
    for (int part = 0; part < parts; ++part) magnitudes.push_back(unit * (0.1 + 0.9 * (part + 0.5) / parts));
    thresholds.push_back((before + magnitudes[std::size_t(first)]) / 2);
  }
  const auto top = float(magnitudes.size());
  thresholds.push_back((magnitudes.back() + 1) / 2), magnitudes.push_back(1);
  code.decades[8] = {0, top, top, top};
  // A second moment that is not 0 stays so: the step divides by its root.
  if (!is_signed) thresholds[0] = std::numeric_limits<float>::min();

  const std::size_t zero = is_signed ? 127 : 0;
  for (std::size_t i = 0; i < magnitudes.size(); ++i) {
    code.values[zero + i] = float(magnitudes[i]);
    if (is_signed && i <= zero) code.values[zero - i] = -float(magnitudes[i]);
  }
  unsigned below = 0;
  for (std::size_t e = 0; e < code.binades.size(); ++e) {
    const double end = std::ldexp(1., int(e + code.kLowestExponent) - 126);
    const bool inside = below < thresholds.size() && thresholds[below] < end;
    code.binades[e] = {inside ? float(thresholds[below]) : std::numeric_limits<float>::infinity(), below};
    if (inside) ++below;
  }
  return code;
}

}  // namespace cgp::kernels

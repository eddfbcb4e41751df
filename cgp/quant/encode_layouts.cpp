// SPDX-License-Identifier: Apache-2.0
#include "cgp/quant/encode_layouts.h"

#include <algorithm>
#include <cmath>

#include "cgp/base/error.h"
#include "cgp/base/float16.h"
#include "cgp/base/text.h"

namespace cgp::quant {
namespace {

using text::cat;

void check_values(std::string_view format, std::span<const float> values, std::uint64_t rows,
                  std::uint64_t cols) {
  if ((cols && rows > ~std::uint64_t(0) / cols) || values.size() != rows * cols)
    throw ArgumentError({cat(format, ": there must be rows * cols values"),
                         {},
                         cat("there are ", values.size(), ", rows = ", rows, ", cols = ", cols),
                         {}});
  for (std::size_t at = 0; at < values.size(); ++at)
    if (!std::isfinite(values[at]))
      throw ArgumentError(
          {"only finite values can be quantised", {}, cat("element ", at, " is ", values[at]), {}});
}

/// value = scale * (code - zero)
struct Int4Group {
  std::uint16_t scale = 0;
  int zero = 0;
};
int int4_code(float x, float inverse, int zero) {
  return std::clamp(int(std::lrint(x * inverse)) + zero, 0, 15);
}

Int4Group best_group(std::span<const float> x) {
  const auto [least, most] = std::minmax_element(x.begin(), x.end());
  const float lo = std::min(*least, 0.f), hi = std::max(*most, 0.f);
  Int4Group best;
  double best_error = INFINITY;
  for (int clip = 0; clip <= 16; ++clip) {
    const float keep = 1 - float(clip) / 48;
    const half scale{double((hi - lo) * keep / 15)};
    const float s = float(scale);
    if (!std::isfinite(s))
      throw ArgumentError(
          {"int4: a group's scale must fit binary16", {}, cat("its values span ", hi - lo), {}});
    const float inverse = s > 0 ? 1 / s : 0;
    const int middle = int(std::lrint(-lo * keep * inverse));
    for (int zero = std::max(middle - 1, 0); zero <= std::min(middle + 1, 15); ++zero) {
      double error = 0;
      for (const float v : x) {
        const double off = double(v) - double(s * float(int4_code(v, inverse, zero) - zero));
        error += off * off;
      }
      if (error < best_error) best_error = error, best = {scale.bits, zero};
    }
  }
  return best;
}

}  // namespace

Int4Tensors encode_int4(std::span<const float> values, std::uint64_t rows, std::uint64_t cols,
                        std::uint64_t group) {
  check_values("int4", values, rows, cols);
  if (!group || group % 8 || cols % group || rows % 8)
    throw ArgumentError({"int4: rows and group must be multiples of 8, cols of group",
                         {},
                         cat("rows = ", rows, ", cols = ", cols, ", group = ", group),
                         {}});
  const std::uint64_t groups = cols / group;
  Int4Tensors t;
  t.qweight.resize(rows * cols / 8), t.qzeros.resize(groups * rows / 8), t.scales.resize(groups * rows);
  for (std::uint64_t row = 0; row < rows; ++row)
    for (std::uint64_t g = 0; g < groups; ++g) {
      const auto x = values.subspan(row * cols + g * group, group);
      const auto [scale, zero] = best_group(x);
      t.scales[g * rows + row] = scale;
      t.qzeros[(g * rows + row) / 8] |= std::uint32_t(zero) << (4 * (row % 8));
      const float s = float(half::from_bits(scale)), inverse = s > 0 ? 1 / s : 0;
      for (std::uint64_t i = 0; i < group; ++i) {
        const std::uint64_t col = g * group + i;
        t.qweight[col / 8 * rows + row] |= std::uint32_t(int4_code(x[i], inverse, zero)) << (4 * (col % 8));
      }
    }
  return t;
}

Fp8Tensors encode_fp8(std::span<const float> values, std::uint64_t rows, std::uint64_t cols,
                      std::uint64_t scale_rows, std::uint64_t scale_cols) {
  constexpr float kMost = 448;
  check_values("fp8", values, rows, cols);
  if (!scale_rows || !scale_cols)
    throw ArgumentError({"fp8: a scale must cover a tile", {}, cat(scale_rows, " x ", scale_cols), {}});
  const auto tiles = [](std::uint64_t n, std::uint64_t tile) { return n / tile + (n % tile != 0); };
  const std::uint64_t across = tiles(cols, scale_cols);
  Fp8Tensors t;
  t.codes.resize(values.size()), t.scales.resize(tiles(rows, scale_rows) * across);
  const auto scale_of = [&](std::uint64_t i) -> float& {
    return t.scales[i / cols / scale_rows * across + i % cols / scale_cols];
  };
  for (std::uint64_t i = 0; i < values.size(); ++i) scale_of(i) = std::max(scale_of(i), std::fabs(values[i]));
  for (auto& s : t.scales) s = s > 0 ? s / kMost : 1;
  for (std::uint64_t i = 0; i < values.size(); ++i)
    t.codes[i] = float8_e4m3{double(std::clamp(values[i] / scale_of(i), -kMost, kMost))}.bits;
  return t;
}

}  // namespace cgp::quant

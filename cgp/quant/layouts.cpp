// SPDX-License-Identifier: Apache-2.0
#include "cgp/quant/layouts.h"

#include <cmath>
#include <vector>

#include "cgp/base/error.h"
#include "cgp/base/float16.h"
#include "cgp/base/text.h"
#include "cgp/quant/blocks.h"

namespace cgp::quant {
namespace {

using text::cat;

[[noreturn]] void bad(std::string rule, std::string got) {
  throw ArgumentError(ErrorText{std::move(rule), {}, std::move(got), {}});
}

struct Checker {
  std::string_view format;
  void size(std::string_view tensor, std::uint64_t have, std::uint64_t need) const {
    if (have != need) bad(cat(format, ": ", tensor, " must have ", need, " elements"), cat("it has ", have));
  }
  void multiple(std::string_view what, std::uint64_t n, std::uint64_t of) const {
    if (of == 0 || n % of) bad(cat(format, ": ", what, " must be a multiple of ", of), cat(what, " = ", n));
  }
  // rows * cols, checked.
  std::uint64_t elements(std::uint64_t rows, std::uint64_t cols) const {
    if (cols && rows > ~std::uint64_t(0) / 4 / cols)
      bad(cat(format, ": rows * cols is too large"), cat(rows, " x ", cols));
    return rows * cols;
  }
  template <class W>
  void result(const W& w, std::span<const float> values) const {
    size("the result", values.size(), elements(w.rows, w.cols));
  }
  template <class T, class F>
  void finite(std::string_view tensor, std::span<const T> v, const F& value) const {
    for (std::size_t i = 0; i < v.size(); ++i)
      if (!std::isfinite(value(v[i])))
        bad(cat(format, ": ", tensor, " must be finite"), cat(tensor, "[", i, "] is ", value(v[i])));
  }
};

float wide(std::uint16_t bits) { return float(half::from_bits(bits)); }
int nibble(std::uint32_t word, std::uint64_t i) { return int(word >> (4 * i) & 15); }

void check_group(const Checker& c, std::uint64_t cols, std::uint64_t group) {
  if (group == 0 || group % 8) bad(cat(c.format, ": group must be a multiple of 8"), cat("group = ", group));
  c.multiple("cols", cols, group);
}

}  // namespace

void check(const Gptq& w) {
  const Checker c{"GPTQ"};
  const auto n = c.elements(w.rows, w.cols);
  check_group(c, w.cols, w.group), c.multiple("rows", w.rows, 8);
  const std::uint64_t groups = w.cols / w.group;
  c.size("qweight", w.qweight.size(), n / 8), c.size("qzeros", w.qzeros.size(), groups * w.rows / 8);
  c.size("scales", w.scales.size(), groups * w.rows);
  c.finite("scales", w.scales, wide);
  if (!w.g_idx.empty()) c.size("g_idx", w.g_idx.size(), w.cols);
  for (std::size_t i = 0; i < w.g_idx.size(); ++i)
    if (w.g_idx[i] < 0 || std::uint64_t(w.g_idx[i]) >= groups)
      bad(cat("GPTQ: g_idx must be from 0 to ", groups, " - 1"), cat("g_idx[", i, "] is ", w.g_idx[i]));
}
void decode(const Gptq& w, std::span<float> values) {
  check(w), Checker{"GPTQ"}.result(w, values);
  for (std::uint64_t col = 0; col < w.cols; ++col) {
    const std::uint64_t g = w.g_idx.empty() ? col / w.group : std::uint64_t(w.g_idx[col]);
    for (std::uint64_t row = 0; row < w.rows; ++row) {
      const int q = nibble(w.qweight[col / 8 * w.rows + row], col % 8);
      const int zero = nibble(w.qzeros[(g * w.rows + row) / 8], row % 8) + w.zeros_minus_one;
      values[row * w.cols + col] = wide(w.scales[g * w.rows + row]) * float(q - zero);
    }
  }
}

void check(const Awq& w) {
  const Checker c{"AWQ"};
  const auto n = c.elements(w.rows, w.cols);
  check_group(c, w.cols, w.group), c.multiple("rows", w.rows, 8);
  const std::uint64_t groups = w.cols / w.group;
  c.size("qweight", w.qweight.size(), n / 8), c.size("qzeros", w.qzeros.size(), groups * w.rows / 8);
  c.size("scales", w.scales.size(), groups * w.rows);
  c.finite("scales", w.scales, wide);
}
void decode(const Awq& w, std::span<float> values) {
  check(w), Checker{"AWQ"}.result(w, values);
  constexpr int kPlace[] = {0, 4, 1, 5, 2, 6, 3, 7};  // nibble of each output in its word
  for (std::uint64_t col = 0; col < w.cols; ++col)
    for (std::uint64_t row = 0; row < w.rows; ++row) {
      const std::uint64_t g = col / w.group, place = std::uint64_t(kPlace[row % 8]);
      const int q = nibble(w.qweight[(col * w.rows + row) / 8], place);
      const int zero = nibble(w.qzeros[(g * w.rows + row) / 8], place);
      values[row * w.cols + col] = wide(w.scales[g * w.rows + row]) * float(q - zero);
    }
}

namespace {

/// One for each block, from its codes where they are quantised.
std::vector<float> absmax_of(const Checker& c, const BnbNf4& w, std::uint64_t blocks) {
  std::vector<float> absmax(w.absmax.begin(), w.absmax.end());
  if (!w.absmax.empty() || !blocks) return absmax;
  c.size("absmax_codes", w.absmax_codes.size(), blocks), c.size("absmax_table", w.absmax_table.size(), 256);
  c.size("absmax_scales", w.absmax_scales.size(), (blocks + w.absmax_block - 1) / w.absmax_block);
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const float scaled = w.absmax_table[w.absmax_codes[i]] * w.absmax_scales[i / w.absmax_block];
    absmax.push_back(scaled + w.absmax_offset);
  }
  return absmax;
}

}  // namespace

std::vector<float> absmax(const BnbNf4& w) {
  const Checker c{"NF4"};
  const auto n = c.elements(w.rows, w.cols);
  c.multiple("rows * cols", n, 2);
  if (w.block == 0 || w.block % 2 || w.absmax_block == 0)
    bad("NF4: blocks must have an even number of elements", cat("block = ", w.block));
  const std::uint64_t blocks = (n + w.block - 1) / w.block;
  c.size("codes", w.codes.size(), n / 2);
  auto all = absmax_of(c, w, blocks);
  c.size("absmax", all.size(), blocks);
  c.finite("absmax", std::span<const float>(all), [](float v) { return v; });
  return all;
}

void check(const BnbNf4& w) { (void)absmax(w); }
void decode(const BnbNf4& w, std::span<float> values) {
  const auto scales = absmax(w);
  Checker{"NF4"}.result(w, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const int code = i % 2 ? w.codes[i / 2] & 15 : w.codes[i / 2] >> 4;
    values[i] = scales[i / w.block] * kNf4[code];
  }
}

namespace {

std::uint64_t tiles(std::uint64_t n, std::uint64_t tile) { return n / tile + (n % tile != 0); }

}  // namespace

void check(const Fp8& w) {
  const Checker c{"fp8"};
  const auto n = c.elements(w.rows, w.cols);
  if (w.type != DType::e4m3 && w.type != DType::e5m2)
    bad("fp8: codes must be e4m3 or e5m2", cat("they are ", name(w.type)));
  if (w.scale_rows == 0 || w.scale_cols == 0)
    bad("fp8: a scale must cover a tile", cat(w.scale_rows, " x ", w.scale_cols));
  c.size("codes", w.codes.size(), n);
  c.size("scales", w.scales.size(), tiles(w.rows, w.scale_rows) * tiles(w.cols, w.scale_cols));
  c.finite("scales", w.scales, [](float v) { return v; });
}
void decode(const Fp8& w, std::span<float> values) {
  check(w), Checker{"fp8"}.result(w, values);
  const std::uint64_t across = tiles(w.cols, w.scale_cols);
  for (std::uint64_t i = 0; i < values.size(); ++i) {
    const float scale = w.scales[i / w.cols / w.scale_rows * across + i % w.cols / w.scale_cols];
    const std::uint8_t code = w.codes[i];
    const float v =
        w.type == DType::e4m3 ? float(float8_e4m3::from_bits(code)) : float(float8_e5m2::from_bits(code));
    values[i] = scale * v;
  }
}

}  // namespace cgp::quant

// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/weight_only/weight_only_tensors.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/weight_only/weight_only_tile.h"

namespace cgp::kernels {
namespace {

WeightFormat format_of(std::string_view kind, std::uint64_t group) {
  const auto f = int4_format(group);
  if (!f)
    throw Unsupported({text::cat(kind, ": packed weights have groups of 32, 64 or 128 inputs"),
                       {},
                       text::cat("group = ", group),
                       "use the weight as it is: it is dequantised for each product"});
  return *f;
}

std::uint8_t nibble(std::uint32_t word, std::uint64_t i) { return std::uint8_t(word >> (4 * i) & 15); }

// code(row, col) and zero(row, group) are those of the tensors.
template <class W, class Code, class Zero>
void pack(WeightFormat f, const W& w, std::span<std::byte> packed, const Code& code, const Zero& zero) {
  pack_tiles(f, w.rows, w.cols, packed, [&](std::uint64_t row, std::uint64_t first) {
    WeightBlock b;
    for (std::uint64_t i = 0; i < 256 && first + i < w.cols; ++i) {
      b.code[i] = code(row, first + i);
      if (i % w.group) continue;
      const std::uint64_t g = (first + i) / w.group;
      b.d[i / w.group] = w.scales[g * w.rows + row], b.zero[i / w.group] = zero(row, g);
    }
    return b;
  });
}

}  // namespace

std::optional<WeightFormat> int4_format(std::uint64_t group) {
  for (const auto f : {WeightFormat::int4_g32, WeightFormat::int4_g64, WeightFormat::int4_g128})
    if (std::uint64_t(layout(f).group) == group) return f;
  return {};
}

void pack_weights(const quant::Gptq& w, std::span<std::byte> packed) {
  quant::check(w);
  const auto f = format_of("GPTQ", w.group);
  for (std::size_t i = 0; i < w.g_idx.size(); ++i)
    if (std::uint64_t(w.g_idx[i]) != i / w.group)
      throw Unsupported({"GPTQ: packed weights have their groups in order (no act-order)",
                         {},
                         text::cat("g_idx[", i, "] is ", w.g_idx[i], ", not ", i / w.group),
                         "use the weight as it is: it is dequantised for each product"});
  pack(
      f, w, packed,
      [&](std::uint64_t row, std::uint64_t col) {
        return nibble(w.qweight[col / 8 * w.rows + row], col % 8);
      },
      [&](std::uint64_t row, std::uint64_t g) {
        return std::uint8_t(nibble(w.qzeros[(g * w.rows + row) / 8], row % 8) + w.zeros_minus_one);
      });
}

void pack_weights(const quant::Awq& w, std::span<std::byte> packed) {
  quant::check(w);
  constexpr std::uint8_t kPlace[] = {0, 4, 1, 5, 2, 6, 3, 7};  // nibble of each output in its word
  pack(
      format_of("AWQ", w.group), w, packed,
      [&](std::uint64_t row, std::uint64_t col) {
        return nibble(w.qweight[(col * w.rows + row) / 8], kPlace[row % 8]);
      },
      [&](std::uint64_t row, std::uint64_t g) {
        return nibble(w.qzeros[(g * w.rows + row) / 8], kPlace[row % 8]);
      });
}

void pack_weights(const quant::BnbNf4& w, std::span<std::byte> packed) {
  const auto absmax = quant::absmax(w);
  if (w.block != 64 || w.cols % 64)
    throw Unsupported({"NF4: packed weights have blocks of 64 inputs, and rows of whole blocks",
                       {},
                       text::cat("block = ", w.block, ", cols = ", w.cols),
                       "use the weight as it is: it is dequantised for each product"});
  pack_tiles(WeightFormat::nf4, w.rows, w.cols, packed, [&](std::uint64_t row, std::uint64_t first) {
    WeightBlock b;
    for (std::uint64_t i = 0; i < 256 && first + i < w.cols; ++i) {
      const std::uint64_t at = row * w.cols + first + i;
      b.code[i] = at % 2 ? w.codes[at / 2] & 15 : w.codes[at / 2] >> 4;
      if (i % 64 == 0) b.absmax[i / 64] = absmax[at / 64];
    }
    return b;
  });
}

}  // namespace cgp::kernels

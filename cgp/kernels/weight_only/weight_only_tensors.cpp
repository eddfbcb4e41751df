// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/weight_only/weight_only_tensors.h"

#include <cstring>

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

std::vector<std::uint32_t> packed_inputs(const quant::Gptq& w) {
  std::vector<std::uint32_t> inputs(w.g_idx.size());
  std::vector<std::uint64_t> count(std::size_t(w.group ? w.cols / w.group : 0));
  bool in_order = true;
  for (std::size_t i = 0; i < w.g_idx.size(); ++i) {
    const auto g = std::size_t(w.g_idx[i]);
    in_order = in_order && g == i / w.group;
    if (g < count.size() && count[g] < w.group) inputs[g * w.group + count[g]] = std::uint32_t(i);
    if (g >= count.size() || ++count[g] > w.group)
      throw Unsupported({text::cat("GPTQ: packed weights have ", w.group, " inputs in each group"),
                         {},
                         text::cat("g_idx[", i, "] is ", w.g_idx[i], ", of ", count.size(),
                                   " groups, and the group has its inputs already"),
                         "use the weight as it is: it is dequantised for each product"});
  }
  if (in_order) inputs.clear();
  return inputs;
}
std::uint64_t packed_bytes(const quant::Gptq& w) {
  return packed_bytes(format_of("GPTQ", w.group), w.rows, w.cols) + 4 * packed_inputs(w).size();
}

void pack_weights(const quant::Gptq& w, std::span<std::byte> packed) {
  quant::check(w);
  const auto f = format_of("GPTQ", w.group);
  const auto inputs = packed_inputs(w);
  if (packed.size() != packed_bytes(w))
    throw ArgumentError(text::cat("packed weights have ", packed_bytes(w), " bytes, not ", packed.size()));
  const auto tiles = packed.first(packed.size() - 4 * inputs.size());
  if (!inputs.empty()) std::memcpy(&packed[tiles.size()], inputs.data(), 4 * inputs.size());
  pack(
      f, w, tiles,
      [&](std::uint64_t row, std::uint64_t col) {
        const std::uint64_t input = inputs.empty() ? col : inputs[col];
        return nibble(w.qweight[input / 8 * w.rows + row], input % 8);
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

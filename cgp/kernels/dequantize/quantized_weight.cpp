// SPDX-License-Identifier: Apache-2.0
// Names of formats, and what a weight's tensors must be.
#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/dequantize/dequantize.h"

namespace cgp::kernels {
namespace {

constexpr std::string_view kNames[] = {
#define CGP_FORMAT(name, ggml, elements, bytes, encodes) #name,
#include "cgp/quant/formats.def"
#undef CGP_FORMAT
    "gptq", "awq", "bnb_nf4", "fp8_e4m3", "fp8_e5m2"};
constexpr std::size_t kBlockFormats = std::size_t(QuantizedFormat::gptq);

std::uint64_t tiles(std::uint64_t n, std::uint64_t tile) { return n / tile + (n % tile != 0); }

struct WeightCheck {
  const QuantizedWeight& w;
  row::Checker c;

  /// Exactly `elements` of a type, at a multiple of its size.
  void tensor(std::string_view argument, const View& v, std::initializer_list<DType> types,
              std::uint64_t elements) const {
    c.present(argument, v, types, false);
    if (v.elements != elements)
      c.fail(
          argument,
          text::cat("of ", name(w.format), " [", w.rows, ", ", w.cols, "] must have ", elements, " elements"),
          text::cat("it has ", v.elements));
    if (v.address % std::uint64_t(bytes(v.dtype)))
      c.fail(argument, "must lie at a multiple of its elements' size",
             text::cat("its address is ", v.address));
  }
  void absent(std::string_view argument, const View& v) const {
    if (v.given) c.fail(argument, text::cat("is no tensor of ", name(w.format)), "it was given");
  }
  void multiple(std::string_view argument, std::uint64_t n, std::uint64_t of) const {
    if (of == 0 || n % of)
      c.fail(argument, text::cat("must be a multiple of ", of), text::cat(argument, " = ", n));
  }

  void blocks(quant::Format f) const {
    const auto& i = quant::info(f);
    if (w.cols % i.elements)
      c.fail("cols", text::cat("must be a multiple of ", i.elements, ", the elements of a block of ", i.name),
             text::cat("cols = ", w.cols));
    c.present("codes", w.codes, {DType::u8}, false);
    const auto need = quant::bytes_of(f, w.rows * w.cols);
    if (w.codes.elements != need)
      c.fail("codes", text::cat("of ", i.name, " [", w.rows, ", ", w.cols, "] must have ", need, " bytes"),
             text::cat("there are ", w.codes.elements));
    if (i.elements == 1 && w.codes.address % i.bytes)
      c.fail("codes", "must lie at a multiple of its elements' size",
             text::cat("its address is ", w.codes.address));
    absent("scales", w.scales), absent("zeros", w.zeros), absent("g_idx", w.g_idx);
  }
  void words() const {
    multiple("rows", w.rows, 8), multiple("group", w.group, 8), multiple("cols", w.cols, w.group);
    const std::uint64_t groups = w.cols / w.group;
    tensor("codes", w.codes, {DType::u32, DType::s32}, w.rows * w.cols / 8);
    tensor("zeros", w.zeros, {DType::u32, DType::s32}, groups * w.rows / 8);
    tensor("scales", w.scales, {DType::f16}, groups * w.rows);
    if (w.g_idx.given && w.format == QuantizedFormat::gptq)
      tensor("g_idx", w.g_idx, {DType::s32, DType::u32}, w.cols);
    else
      absent("g_idx", w.g_idx);
  }
  void bnb() const {
    const std::uint64_t n = w.rows * w.cols;
    multiple("rows * cols", n, 2);
    if (w.group == 0 || w.group % 2) c.fail("group", "must be even", text::cat("group = ", w.group));
    const std::uint64_t blocks = tiles(n, w.group);
    tensor("codes", w.codes, {DType::u8}, n / 2);
    tensor("scales", w.scales, {DType::f32, DType::u8}, blocks);
    if (w.scales.dtype == DType::u8) {
      if (!w.absmax_block) c.fail("absmax_block", "must be at least 1", "absmax_block = 0");
      tensor("absmax_table", w.absmax_table, {DType::f32}, 256);
      tensor("absmax_scales", w.absmax_scales, {DType::f32}, tiles(blocks, w.absmax_block));
    }
    absent("zeros", w.zeros), absent("g_idx", w.g_idx);
  }
  void fp8() const {
    if (!w.scale_rows || !w.scale_cols)
      c.fail("scales", "must cover a tile of weights each", text::cat(w.scale_rows, " x ", w.scale_cols));
    const DType type = w.format == QuantizedFormat::fp8_e4m3 ? DType::e4m3 : DType::e5m2;
    tensor("codes", w.codes, {type, DType::u8}, w.rows * w.cols);
    tensor("scales", w.scales, {DType::f32}, tiles(w.rows, w.scale_rows) * tiles(w.cols, w.scale_cols));
    absent("zeros", w.zeros), absent("g_idx", w.g_idx);
  }
};

}  // namespace

std::span<const std::string_view> DequantizeConfig::names() { return kNames; }
std::string_view name(QuantizedFormat f) { return kNames[std::size_t(f)]; }

QuantizedFormat quantized_format_named(std::string_view name) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == name) return QuantizedFormat(i);
    names.emplace_back(kNames[i]);
  }
  throw ArgumentError({text::cat("there is no weight format ", name),
                       {},
                       text::cat("formats: ", text::join(names, ", ")),
                       text::cat("did you mean ", text::join(text::closest(name, names, 2), " or "), "?")});
}

std::optional<quant::Format> block_format(QuantizedFormat f) {
  if (std::size_t(f) >= kBlockFormats) return {};
  return quant::Format(f);
}

void check(const QuantizedWeight& w, std::string_view op) {
  const WeightCheck c{w, row::Checker{op}};
  if (w.cols && w.rows > (~std::uint64_t(0) >> 4) / w.cols)
    c.c.fail("rows", "times cols is too large", text::cat(w.rows, " x ", w.cols));
  if (const auto f = block_format(w.format))
    c.blocks(*f);
  else if (w.format == QuantizedFormat::bnb_nf4)
    c.bnb();
  else if (w.format == QuantizedFormat::fp8_e4m3 || w.format == QuantizedFormat::fp8_e5m2)
    c.fp8();
  else
    c.words();
}

std::uint64_t stored_bytes(const QuantizedWeight& w) {
  std::uint64_t all = 0;
  for (const View* v : {&w.codes, &w.scales, &w.zeros, &w.g_idx, &w.absmax_table, &w.absmax_scales})
    if (v->given) all += v->elements * std::uint64_t(bytes(v->dtype));
  return all;
}

}  // namespace cgp::kernels

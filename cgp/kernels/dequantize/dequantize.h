// SPDX-License-Identifier: Apache-2.0
#pragma once
// Quantised weights to f32, f16 or bf16: out[r, c] is the value of weight (first_row + r, first_col + c), as cgp/quant decodes it. f32
// results equal cgp::quant::decode() bit by bit, 16-bit ones are those rounded to nearest even. Weights lie as in the
// file; any number of rows and columns, at any alignment that their element types allow.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cgp/kernels/catalog/catalog.h"
#include "cgp/kernels/common/variant.h"
#include "cgp/kernels/common/view.h"
#include "cgp/quant/formats.h"

namespace cgp::kernels {

/// Blocks of one format of cgp/quant (with its name), or weights whose codes and scales are separate tensors.
enum class QuantizedFormat : std::uint8_t {
#define CGP_FORMAT(name, ggml, elements, bytes, encodes) name,
#include "cgp/quant/formats.def"
#undef CGP_FORMAT
  gptq,      ///< int4, eight inputs a word (quant::Gptq)
  awq,       ///< int4, eight outputs a word (quant::Awq)
  bnb_nf4,   ///< NF4 of bitsandbytes (quant::BnbNf4)
  fp8_e4m3,  ///< 8-bit floats with scales (quant::Fp8)
  fp8_e5m2
};
std::string_view name(QuantizedFormat f);
/// ArgumentError names the closest formats.
QuantizedFormat quantized_format_named(std::string_view name);
/// The format of its blocks; none where codes and scales are separate tensors.
std::optional<quant::Format> block_format(QuantizedFormat f);

/// A weight of `rows` outputs and `cols` inputs in the memory of a device.
///              blocks          gptq                 awq                 bnb_nf4                     fp8
///   codes      u8 [bytes]      u32 [cols/8, rows]   u32 [cols, rows/8]  u8 [rows * cols / 2]        u8 [rows, cols]
///   scales     -               f16 [groups, rows]   f16 [groups, rows]  f32 [blocks], or their      f32 [tiles down,
///                                                                       codes: u8 [blocks]          tiles across]
///   zeros      -               u32 [groups, rows/8] the same            -                           -
///   g_idx      -               s32 [cols], optional -                   -                           -
///   absmax_table, absmax_scales                                         f32 [256], f32 [ceil(blocks / absmax_block)],
///                                                                       both with codes
struct QuantizedWeight {
  QuantizedFormat format = QuantizedFormat::q4_0;
  std::uint64_t rows = 0, cols = 0;
  View codes{}, scales{}, zeros{}, g_idx{}, absmax_table{}, absmax_scales{};
  std::uint64_t group = 128;  ///< inputs that share a scale (GPTQ, AWQ), elements that share an absmax (NF4)
  bool zeros_minus_one = true;  ///< GPTQ: zeros hold zero - 1
  std::uint64_t absmax_block = 256;
  float absmax_offset = 0;
  std::uint64_t scale_rows = 128, scale_cols = 128;  ///< fp8: weights that share a scale
};
/// ArgumentError of operation `op` naming the tensor whose type, size or alignment does not fit, the format or the group.
void check(const QuantizedWeight& w, std::string_view op);
/// Bytes of the weight in the file.
std::uint64_t stored_bytes(const QuantizedWeight& w);

struct Dequantize {
  QuantizedWeight weight;
  View out;                               ///< [rows, cols]: f32, f16 or bf16
  std::uint64_t first_row = 0, rows = 0;  ///< of the weight; GPTQ and AWQ: multiples of 8
  /// Of the weight: whole blocks, multiples of 8. 0: all columns from the first on.
  std::uint64_t first_col = 0, cols = 0;
  row::Layout out_layout{};  ///< pitch alone
  /// u32 [1], optional: set to 1 where a scale of a block that is read is NaN or infinite; never set to 0.
  View error_flag{};
};
/// Columns that a part of the weight must be a multiple of.
std::uint64_t column_step(QuantizedFormat f);
/// ArgumentError where the weight, the part or a view do not fit; Unsupported for 2^32 columns or rows and more.
void dequantize(runtime::Stream& s, const Dequantize& d);

struct DequantizeConfig {
  QuantizedFormat format = QuantizedFormat::q4_0;
  DType type = DType::bf16;  ///< of out
  int align = 1;             ///< of the codes of a row, in bytes: 1, 2, 4, 8 or 16
  bool ragged = false;       ///< codes are read and scales found for each element
  bool scalar = false;       ///< results are stored one by one
  bool g_idx = false;        ///< GPTQ: groups by index
  bool nested = false;       ///< NF4: absmax is quantised
  bool checked = false;      ///< scales that are no numbers raise `error_flag`
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.choice("format", names(), c.format), v.type("type", "", c.type), v.number("align", "align", c.align);
    v.flag("ragged", c.ragged), v.flag("scalar", c.scalar), v.flag("g_idx", c.g_idx);
    v.flag("nested", c.nested), v.flag("checked", c.checked);
  }
  static std::span<const std::string_view> names();
};
/// The selector: a function of shapes, addresses and what is given.
DequantizeConfig dequantize_config(const Dequantize& d);
Variant dequantize_variant(const DequantizeConfig& c);

KernelEntry dequantize_entry();

}  // namespace cgp::kernels

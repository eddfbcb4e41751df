// SPDX-License-Identifier: Apache-2.0
#pragma once
// Formats of quantised weights: their names, GGML type ids and block sizes. A row of a tensor is a sequence of
// blocks; layouts are in blocks.h, conversion to and from f32 in decode.h and encode.h. Weights whose codes,
// scales and zeros are separate tensors (GPTQ, AWQ, bitsandbytes, fp8 with scales) are in layouts.h.
#include <cstdint>
#include <span>
#include <string_view>

namespace cgp::quant {

enum class Format : std::uint8_t {
#define CGP_FORMAT(name, ggml, elements, bytes, encodes) name,
#include "cgp/quant/formats.def"
#undef CGP_FORMAT
};

struct FormatInfo {
  Format format;
  std::string_view name;          ///< "q4_k"
  int ggml_type;                  ///< in GGUF files; -1: GGML does not have it
  std::uint64_t elements, bytes;  ///< of a block
  bool encodes;                   ///< encode() makes it
  double bits_per_weight() const { return 8.0 * double(bytes) / double(elements); }
};
const FormatInfo& info(Format f);
std::span<const FormatInfo> all_formats();

/// ArgumentError names the closest formats.
Format format_named(std::string_view name);
/// ArgumentError for ids that are no format of weights; `tensor` is named in it.
Format format_of_ggml_type(std::uint32_t id, std::string_view tensor = {});
/// Bytes of `elements` values. ArgumentError unless they fill whole blocks.
std::uint64_t bytes_of(Format f, std::uint64_t elements);

}  // namespace cgp::quant

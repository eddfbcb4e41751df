// SPDX-License-Identifier: Apache-2.0
#pragma once
// From a model file to one with smaller weights.
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cgp/model/source/source.h"

namespace cgp::engine {

/// What a file is quantised to: one type for most tensors, and a rule that gives some of them more bits.
struct QuantizeMix {
  std::string_view name;    ///< "Q4_K_M"
  std::uint32_t file_type;  ///< general.file_type
  std::string_view type;    ///< of most tensors: a name of ggml_types.h
};
std::vector<QuantizeMix> quantize_mixes();
/// ArgumentError names the closest ones. Upper or lower case.
QuantizeMix quantize_mix(std::string_view name);

/// The type of each tensor, in the file's order, as llama.cpp chooses without an importance matrix (llama-quant.cpp,
/// 2025): norms, biases, routers and position tables stay; output and what stands in for it gets Q6_K; of the M mixes the
/// values and down projections of every third layer and of the first and last eighths get Q6_K. A row that is no whole number of
/// blocks gets the type with blocks of 32 of the same bits, else F16.
std::vector<std::string_view> quantized_types(const model::Source& file, const QuantizeMix& mix);

struct QuantizeOptions {
  int threads = 0;          ///< 0: all processors
  bool requantize = false;  ///< takes tensors that are quantised already, which loses more than from F16
  std::function<void(double fraction)> progress = {};
};
struct QuantizeResult {
  std::uint64_t bytes_before = 0, bytes_after = 0;  ///< of tensors
  std::map<std::string, std::int64_t> tensors;      ///< by type
};

/// Writes `out` under a temporary name and renames it: all of it or nothing. All metadata is kept but general.file_type and
/// general.quantization_version; those that say where a split file's parts are are left out. Throws ArgumentError where a tensor
/// is quantised already and may not be again, or is no GGUF file's; Unsupported for types that are decoded only; Error with
/// the system's reason.
QuantizeResult quantize(const model::Source& file, const std::string& out, const QuantizeMix& mix,
                        const QuantizeOptions& options = {});

}  // namespace cgp::engine

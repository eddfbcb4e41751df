// SPDX-License-Identifier: Apache-2.0
#pragma once
// The element types of GGUF tensors: their numbers in the file, names and block sizes.
#include <cstdint>
#include <span>
#include <string_view>

namespace cgp::model {

/// A row of a tensor is a whole number of blocks; a block holds `block_elements` values in `block_bytes` bytes.
struct GgmlType {
  std::uint32_t id;  ///< the number in the file
  std::string_view name;
  std::uint32_t block_elements;
  std::uint32_t block_bytes;
};

/// Every type in use, ascending by id. Numbers that GGML has withdrawn are absent.
std::span<const GgmlType> ggml_types();
/// Null for an unknown or withdrawn number or name ("Q4_K").
const GgmlType* find_ggml_type(std::uint32_t id);
const GgmlType* find_ggml_type(std::string_view name);

}  // namespace cgp::model

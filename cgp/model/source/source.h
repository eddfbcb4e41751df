// SPDX-License-Identifier: Apache-2.0
#pragma once
// A model to run, wherever it comes from: metadata by GGUF's keys and tensors by GGUF's names, over memory that is mapped.
// A GGUF file is one (gguf/gguf.h), a Hugging Face folder another (hugging_face.h).
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cgp/model/files/mapped_file.h"
#include "cgp/model/gguf/ggml_types.h"
#include "cgp/model/gguf/gguf_value.h"

namespace cgp::model {

/// How the bytes of a tensor lie in the file.
enum class TensorLayout : std::uint8_t {
  rows,        ///< row by row, as in GGUF
  transposed,  ///< shape[0] rows of shape[1] values (GPT-2's Conv1D)
  minus_one    ///< row by row, each value one less than GGUF's (Gemma's norms)
};

struct GgufTensor {
  std::string_view name;
  const GgmlType* type = nullptr;
  std::vector<std::uint64_t> shape;  ///< 1 to 4 sizes, GGUF's order: shape[0] varies fastest
  std::uint64_t elements = 0;
  std::span<const std::byte> data;  ///< little endian blocks; empty where there are `parts`
  TensorLayout layout = TensorLayout::rows;
  /// Of a tensor of three dimensions whose matrices lie apart (the experts of a Hugging Face folder): each matrix.
  std::vector<std::span<const std::byte>> parts = {};

  /// Values and bytes of one row, which is shape[0] values.
  std::uint64_t row_bytes() const { return shape[0] / type->block_elements * type->block_bytes; }
};

class Source {
 public:
  /// A folder with config.json, or a GGUF file (of a split model the first). Throws what Gguf::open() and
  /// HuggingFaceFolder::open() throw.
  static std::shared_ptr<const Source> open(const std::string& path);

  const std::string& path() const { return path_; }

  struct Entry {
    std::string_view key;
    GgufValue value;
  };
  /// In the order of the file.
  const std::deque<Entry>& metadata() const { return metadata_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  /// Null where there is none.
  const GgufValue* find(std::string_view key) const;
  const GgufTensor* find_tensor(std::string_view name) const;
  /// Throws ParseError that names the tensor, with the closest names.
  const GgufTensor& tensor(std::string_view name) const;

  /// The value of a key. Integers of any width convert if they fit, other types do not. The functions without
  /// "find" throw ParseError that names a missing key; all throw where the type or the range is wrong.
  std::uint64_t integer(std::string_view key) const;
  double number(std::string_view key) const;
  std::string_view string(std::string_view key) const;
  std::optional<std::uint64_t> find_integer(std::string_view key) const;
  std::optional<std::int64_t> find_signed(std::string_view key) const;
  std::optional<double> find_number(std::string_view key) const;
  std::optional<bool> find_bool(std::string_view key) const;
  std::optional<std::string_view> find_string(std::string_view key) const;
  /// Null where there is none; throws where the value is no array of `element`.
  const GgufArray* find_array(std::string_view key, GgufType element) const;

 protected:
  Source() = default;
  [[noreturn]] void wrong_type(std::string_view key, const GgufValue& value, std::string_view want) const;
  [[noreturn]] void missing(std::string_view key) const;

  std::string path_;
  std::vector<MappedFile> files_;
  std::deque<Entry> metadata_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> keys_, tensor_names_;
};

}  // namespace cgp::model

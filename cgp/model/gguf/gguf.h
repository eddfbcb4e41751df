// SPDX-License-Identifier: Apache-2.0
#pragma once
// GGUF version 2 and 3, little endian: metadata and a table of tensors over memory that is mapped, not read.
//
// Every count, length, offset and product is checked against overflow and against the bytes that are there, before
// anything of that size is allocated. Errors are ParseError: where() names the file and the byte offset, and the
// key or tensor once it is known. Next: gguf_writer.h.
#include <cstddef>
#include <cstdint>
#include <deque>
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

struct GgufTensor {
  std::string_view name;
  const GgmlType* type = nullptr;
  std::vector<std::uint64_t> shape;  ///< 1 to 4 sizes as in the file: shape[0] varies fastest
  std::uint64_t elements = 0;
  std::span<const std::byte> data;  ///< little endian blocks, row by row

  /// Values and bytes of one row, which is shape[0] values.
  std::uint64_t row_bytes() const { return shape[0] / type->block_elements * type->block_bytes; }
};

class Gguf {
 public:
  /// Maps the file. Of a split model this must be the first file ("…-00001-of-00003.gguf"): the others are found
  /// beside it, and their tensors follow in order.
  static Gguf open(const std::string& path);
  /// Reads one file that lies in memory, which must outlive the result. `name` stands in errors. A part of a split
  /// model is read as it is.
  static Gguf parse(std::span<const std::byte> bytes, const std::string& name);

  std::uint32_t version() const { return version_; }
  /// Every tensor's offset from the start of the data is a multiple of this power of two.
  std::uint64_t alignment() const { return alignment_; }
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

 private:
  struct Reader;
  void add_part(const std::string& path, std::uint64_t part, std::uint64_t parts);
  [[noreturn]] void wrong_type(std::string_view key, const GgufValue& value, std::string_view want) const;
  [[noreturn]] void missing(std::string_view key) const;

  std::string path_;
  std::uint32_t version_ = 0;
  std::uint64_t alignment_ = 32;
  std::vector<MappedFile> files_;
  std::deque<Entry> metadata_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> keys_, tensor_names_;
};

}  // namespace cgp::model

// SPDX-License-Identifier: Apache-2.0
#pragma once
// safetensors: tensors over memory that is mapped, alone or in several files under one index; and a writer.
//
// The header's JSON, every shape, size and offset is checked before use; the tensors must cover the data without a
// hole or an overlap. Errors are ParseError: where() names the file, the byte and the tensor.
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cgp/model/files/mapped_file.h"

namespace cgp::model {

struct SafetensorsType {
  std::string_view name;
  std::uint32_t bits;  ///< of one value
};
std::span<const SafetensorsType> safetensors_types();
/// Null for an unknown name.
const SafetensorsType* find_safetensors_type(std::string_view name);

struct SafetensorsTensor {
  std::string name;
  const SafetensorsType* type = nullptr;
  std::vector<std::uint64_t> shape;  ///< the last size varies fastest; empty for a scalar
  std::span<const std::byte> data;   ///< little endian
};

class Safetensors {
 public:
  /// A .safetensors file, or the .json index of several that lie beside it.
  static Safetensors open(const std::string& path);
  /// Reads one file that lies in memory, which must outlive the result. `name` stands in errors.
  static Safetensors parse(std::span<const std::byte> bytes, const std::string& name);

  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }
  /// Null where there is none.
  const SafetensorsTensor* find(std::string_view name) const;
  /// The strings under "__metadata__" of a single file.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// The mapped files, which the data of all tensors lies in: they must now live as long as it is used.
  std::vector<MappedFile> take_files() { return std::move(files_); }

 private:
  static Safetensors open_index(const std::string& path);
  void add(SafetensorsTensor tensor);

  std::vector<MappedFile> files_;
  std::vector<SafetensorsTensor> tensors_;
  std::unordered_map<std::string, std::size_t> names_;
  std::map<std::string, std::string> metadata_;
};

/// Writes tensors in this order. ArgumentError where a size is not that of its shape or a name comes twice; Error with
/// the system's reason where the file cannot be written.
void write_safetensors(const std::string& path, std::span<const SafetensorsTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace cgp::model

// SPDX-License-Identifier: Apache-2.0
#pragma once
// Writes GGUF version 3: keys, then tensors, then one pass over their data.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cgp/model/gguf/ggml_types.h"
#include "cgp/model/gguf/gguf_value.h"

namespace cgp::model {

class GgufWriter {
 public:
  /// `alignment` is a power of two; another one than 32 is written as general.alignment. ArgumentError otherwise.
  explicit GgufWriter(std::uint64_t alignment = 32);

  /// A scalar or a string: add("llama.block_count", 30u). A key that was added before is an ArgumentError.
  template <class T>
  requires(std::is_arithmetic_v<T>) void add(std::string_view key, T value) {
    begin(key, gguf_type_of<T>());
    raw(&value, sizeof value);
  }
  void add(std::string_view key, std::string_view value);
  void add(std::string_view key, const char* value) { add(key, std::string_view(value)); }
  /// An array of scalars or strings.
  template <class T>
  requires(std::is_arithmetic_v<T>) void add_array(std::string_view key, std::span<const T> values) {
    begin_array(key, gguf_type_of<T>(), values.size());
    raw(values.data(), values.size_bytes());
  }
  void add_array(std::string_view key, std::span<const std::string_view> values);
  /// A value read from another file, arrays of arrays included.
  void add(std::string_view key, const GgufValue& value);

  /// `data` is not copied: it must live until the file is written. ArgumentError where its size is not that of the
  /// shape (shape[0] varies fastest), or a name comes twice.
  void add_tensor(std::string_view name, const GgmlType& type, std::vector<std::uint64_t> shape,
                  std::span<const std::byte> data);
  /// The same of data that `make` gives when it is written, so that not all of a file is in memory.
  void add_tensor(std::string_view name, const GgmlType& type, std::vector<std::uint64_t> shape,
                  std::function<std::vector<std::byte>()> make);

  /// The whole file in memory.
  std::string bytes() const;
  /// Writes under a temporary name beside it and renames. Throws Error with the system's reason.
  void write(const std::string& path) const;

 private:
  struct Tensor {
    std::string name;
    const GgmlType* type;
    std::vector<std::uint64_t> shape;
    std::uint64_t size;  ///< bytes
    std::span<const std::byte> data;
    std::function<std::vector<std::byte>()> make;  ///< empty: data
  };
  void begin(std::string_view key, GgufType type);
  void begin_array(std::string_view key, GgufType element, std::uint64_t count);
  void raw(const void* data, std::size_t size);
  void put(std::string_view s);
  void put(const GgufArray& array);
  void add(Tensor tensor);
  std::string header() const;
  template <class Sink>
  void write_to(Sink&& sink) const;

  std::uint64_t alignment_;
  std::string entries_;  // keys and values as in the file
  std::vector<std::string> keys_;
  std::vector<Tensor> tensors_;
};

}  // namespace cgp::model

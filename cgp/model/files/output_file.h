// SPDX-License-Identifier: Apache-2.0
#pragma once
// A file written piece by piece under a temporary name: readers of the final name see all of it or nothing.
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

namespace cgp::model {

class OutputFile {
 public:
  /// Every function throws Error with the path and the system's reason.
  explicit OutputFile(std::string path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  /// Removes the temporary file unless commit() succeeded.
  ~OutputFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  /// Gives the file its final name.
  void commit();

 private:
  [[noreturn]] void fail();
  std::string path_, temporary_;
  std::FILE* file_ = nullptr;
};

}  // namespace cgp::model

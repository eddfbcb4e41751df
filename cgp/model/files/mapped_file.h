// SPDX-License-Identifier: Apache-2.0
#pragma once
// A file mapped into memory for reading: nothing is read until it is used, and the page cache is shared.
#include <cstddef>
#include <span>
#include <string>

namespace cgp::model {

class MappedFile {
 public:
  MappedFile() = default;
  /// Throws Error with the path and the system's reason. An empty file gives empty bytes.
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace cgp::model

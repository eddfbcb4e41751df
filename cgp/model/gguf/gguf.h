// SPDX-License-Identifier: Apache-2.0
#pragma once
// GGUF version 2 and 3, little endian: metadata and a table of tensors over memory that is mapped, not read.
//
// Every count, length, offset and product is checked against overflow and against the bytes that are there, before
// anything of that size is allocated. Errors are ParseError: where() names the file and the byte offset, and the
// key or tensor once it is known. Next: gguf_writer.h.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "cgp/model/source/source.h"

namespace cgp::model {

class Gguf : public Source {
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

 private:
  struct Reader;
  void add_part(const std::string& path, std::uint64_t part, std::uint64_t parts);

  std::uint32_t version_ = 0;
  std::uint64_t alignment_ = 32;
};

}  // namespace cgp::model

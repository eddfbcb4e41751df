// SPDX-License-Identifier: Apache-2.0
#pragma once
// Names and source lines of instructions, from a program's own ELF file: the tables .symtab and .dynsym, those of its
// separate debug file (/usr/lib/debug/.build-id), and the line tables of DWARF 2 to 5. Compressed debug sections and
// inlined functions are not read: an inlined function's time is its caller's.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace cgp::profile {

struct SourceLine {
  std::string file;
  std::uint32_t line = 0;
  auto operator<=>(const SourceLine&) const = default;
};

class ElfFile {
 public:
  /// Null where there is no little-endian ELF file of 64 bits.
  static std::unique_ptr<ElfFile> open(const std::string& path);
  ~ElfFile();

  /// Where the loader puts what is at `offset` of the file, before relocation; 0: nowhere.
  std::uint64_t address_of(std::uint64_t offset) const;
  struct Section {
    std::uint64_t address = 0;  ///< before relocation
    std::string_view bytes;
  };
  /// Empty where there is none.
  Section section(std::string_view name) const;
  /// The function that has `address`, as it is written in the table; empty: none.
  std::string_view function_at(std::uint64_t address) const;
  /// Its first byte, and the one behind its last; 0 and 0: none.
  std::pair<std::uint64_t, std::uint64_t> range_at(std::uint64_t address) const;
  /// The lines of those of `addresses` (ascending) that a line table has.
  std::map<std::uint64_t, SourceLine> lines_at(const std::vector<std::uint64_t>& addresses) const;

 private:
  struct Impl;
  explicit ElfFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// The rows of .debug_line that `addresses` (ascending) fall into. `str` and `line_str` are .debug_str and
/// .debug_line_str. What is damaged ends the reading of its unit, not of the others.
std::map<std::uint64_t, SourceLine> read_lines(std::string_view line, std::string_view str,
                                               std::string_view line_str,
                                               const std::vector<std::uint64_t>& addresses);

}  // namespace cgp::profile

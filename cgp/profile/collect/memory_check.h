// SPDX-License-Identifier: Apache-2.0
#pragma once
// What valgrind and compute-sanitizer find in a whole program, in one form. Kernels alone are checked on the
// emulator (cgp run), which knows more of them.
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cgp/profile/measure/process.h"

namespace cgp::profile {

struct MemoryError {
  std::string kind;                ///< "invalid write", "uninitialised condition", "leak"
  std::string what;                ///< the tool's sentence
  std::vector<std::string> where;  ///< "function at file:line", the innermost first
  std::vector<std::string> notes;  ///< thread, block of memory
  std::uint64_t count = 1;
};

struct MemoryReport {
  std::string tool;
  std::vector<MemoryError> errors;
  measure::ProcessResult process{};
};

/// `tool`: memcheck, racecheck, initcheck or synccheck of compute-sanitizer; alignment: at full speed until
/// an access is not aligned as its instruction asks; empty: valgrind, and alignment where it cannot tell.
/// Throws Unsupported without the program, or when valgrind meets an instruction that it cannot execute.
MemoryReport check_memory(const std::vector<std::string>& command, const std::string& tool,
                          double timeout_seconds);

/// valgrind --xml=yes. Throws ParseError when it is none.
std::vector<MemoryError> read_valgrind_xml(std::string_view xml, const std::string& origin);
/// The lines that begin with "=========".
std::vector<MemoryError> read_compute_sanitizer(std::string_view text);

std::string memory_text(const MemoryReport& report);
nlohmann::ordered_json to_json(const MemoryReport& report);

}  // namespace cgp::profile

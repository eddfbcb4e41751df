// SPDX-License-Identifier: Apache-2.0
#pragma once
// Findings of the static analyses: a class with a stable code and severity (bugs.def), and a place.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cgp::ptx {

enum class Severity : std::uint8_t { P0, P1, P2 };
std::string_view name(Severity s);

enum class Bug : std::uint8_t {
#define CGP_BUG(code, severity, name, title, hint) code,
#include "cgp/ptx/analysis/bugs.def"
};

struct BugClass {
  Bug bug;
  std::string_view code;  ///< "ANA-B01"
  Severity severity;
  std::string_view name, title, hint;  ///< name: "barrier.divergent"
};
std::span<const BugClass> bug_classes();
const BugClass& bug_class(Bug b);
/// By code ("ANA-B01", "B01") or name; throws ArgumentError with the closest ones.
Bug parse_bug(std::string_view text);

struct BugReport {
  Bug bug;
  std::string why;           ///< one sentence with the facts
  std::uint32_t inst = ~0u;  ///< index into the body; ~0u: the function as a whole
  std::uint32_t ptx_line = 0;
  std::uint32_t loc = ~0u;  ///< index into Module::locs
  std::string instruction;  ///< printed
  std::string function;
};

/// The table of bug classes as Markdown.
std::string bug_markdown();

}  // namespace cgp::ptx

// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where in the C++ source a call was written. std::source_location is not usable on every compiler we
// support (docs/architecture.md, "Dialect"); the builtins below are, and name the caller when defaulted.

namespace cgp {

struct Here {
  const char* file = "";
  int line = 0;
  static constexpr Here now(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
  friend constexpr bool operator==(const Here&, const Here&) = default;
};

}  // namespace cgp

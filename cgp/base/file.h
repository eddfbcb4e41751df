// SPDX-License-Identifier: Apache-2.0
#pragma once
// Whole-file reading and writing with errors that name the path and the system's reason.
#include <cstddef>
#include <string>
#include <string_view>

namespace cgp {

/// The whole file as bytes. Throws Error with the path and errno's text.
std::string read_file(const std::string& path);
/// Writes through a temporary name in the same folder and renames, so readers see all or nothing. Links stay
/// and lead to the new content; what is no file (/dev/stdout, a pipe) is written as it is.
void write_file(const std::string& path, std::string_view content);

/// Why `path` cannot be written, as far as can be told without doing it; empty when it can.
std::string write_problem(const std::string& path);

}  // namespace cgp

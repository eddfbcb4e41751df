// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tables as other profilers write them: RFC 4180, with thousands separators in numbers and units that change
// from file to file.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cgp::profile {

/// Rows of fields. Quotes may hold commas, doubled quotes and line ends. Throws ParseError (`origin` names
/// the file) for a quote that is never closed.
std::vector<std::vector<std::string>> parse_csv(std::string_view text, const std::string& origin);

/// Quoted where it must be.
std::string csv_field(const std::string& text);

/// "1,234.5" -> 1234.5; "0x1f" -> 31. Absent for anything that is no number as a whole.
std::optional<double> parse_number(std::string_view text);

/// What a number in `unit` is multiplied by to be in bytes, nanoseconds, Hz, or per second: "Kbyte" 1e3,
/// "usecond" and "us" 1e3, "Gbyte/s" 1e9, "Ghz" 1e9; 1 for all others.
double unit_scale(std::string_view unit);

}  // namespace cgp::profile

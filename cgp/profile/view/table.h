// SPDX-License-Identifier: Apache-2.0
#pragma once
// Aligned columns, and numbers as people read them.
#include <string>
#include <vector>

namespace cgp::profile {

class Table {
 public:
  /// A column whose header begins with '<' is aligned to the left, others to the right.
  explicit Table(std::vector<std::string> header);
  void row(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  std::string text(int indent = 2) const;
  std::string markdown() const;

 private:
  std::vector<std::string> header_;
  std::vector<bool> left_;
  std::vector<std::vector<std::string>> rows_;
};

/// Columns that `s` takes on a terminal: code points, not bytes.
std::size_t columns(const std::string& s);
/// 1234.5 -> "1.23 ms" for microseconds; three digits that count.
std::string time_text(double us);
/// Three significant digits, no exponent between 0.001 and 1e9.
std::string number_text(double v);
/// "+3.1 %", "-0.4 %".
std::string percent_text(double share);
/// What a program printed, without what would steer the terminal: control characters become their names in
/// hex.
std::string visible(const std::string& s);
/// Cut in the middle to at most `most` columns.
std::string fitted(const std::string& s, std::size_t most);

}  // namespace cgp::profile

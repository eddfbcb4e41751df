// SPDX-License-Identifier: Apache-2.0
#pragma once
// The language in which contracts state what must hold: numbers, metrics and raw counters by name, + - * / (
// ), comparisons, and, or, not, "CHECK when CONDITION", and the functions abs, min, max, log2, classify.
//
//   global_load_efficiency_pct >= 80 and shared_bank_conflicts == 0
//   abs(ridge_point - 327.4) < 0.5
//   warp_execution_efficiency_pct == 100 when padding_waste_pct == 0
//   bound == "compute"
//
// A name that is no metric is an error, never false. A metric that is absent makes the answer "unknown",
// never true or false: unknown spreads, except that false and unknown is false, and true or unknown is true.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace cgp::profile {

/// A number, a text or a truth; or nothing, with the reason.
struct Known {
  std::variant<std::monostate, double, bool, std::string> value;
  std::string why;  ///< of nothing
  bool known() const { return !std::holds_alternative<std::monostate>(value); }
};

/// Value of a name; std::nullopt: there is no such name.
using Lookup = std::function<std::optional<Known>(const std::string&)>;

class Expression {
 public:
  /// Throws ParseError with the column and a caret.
  explicit Expression(const std::string& text);
  ~Expression();
  Expression(Expression&&) noexcept;
  Expression& operator=(Expression&&) noexcept;
  /// Throws ArgumentError for names that do not exist and for operands of the wrong type.
  Known evaluate(const Lookup& lookup) const;
  /// All names that it uses.
  std::vector<std::string> names() const;
  const std::string& text() const { return text_; }

  struct Node;

 private:
  std::string text_;
  std::unique_ptr<Node> root_;
};

}  // namespace cgp::profile

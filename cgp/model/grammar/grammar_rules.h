// SPDX-License-Identifier: Apache-2.0
#pragma once
// A grammar as one nondeterministic automaton a rule, over bytes and calls of rules. Internal to cgp/model/grammar.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cgp::model {

struct GrammarRules {
  enum class Op : std::uint8_t { bytes, call, split, accept };
  struct Node {
    Op op;
    std::uint8_t first = 0, last = 0;  ///< bytes, then node a
    std::uint32_t a = 0;               ///< what follows
    std::uint32_t b = 0;               ///< call: the rule; split: the other way
  };
  struct Rule {
    std::string name;
    std::uint32_t start = 0;
    bool nullable = false;  ///< derives the empty text
  };
  std::vector<Node> nodes;
  std::vector<Rule> rules;
  std::uint32_t root = 0;
  /// Bytes that no node tells apart have one class.
  std::array<std::uint8_t, 256> byte_class{};
  std::uint32_t classes = 1;
  std::string text;  ///< the GBNF
};

/// An expression as parsed.
struct GrammarExpr {
  enum class Kind : std::uint8_t { text, characters, rule, sequence, alternatives, repeat };
  static constexpr std::uint32_t kUnlimited = ~std::uint32_t(0);
  using Ranges = std::vector<std::pair<std::uint32_t, std::uint32_t>>;  ///< code points, first and last

  Kind kind = Kind::sequence;
  std::uint32_t rule = 0, min = 0, max = 0;
  std::string text;
  Ranges ranges;
  std::vector<GrammarExpr> children;
};
struct GrammarRuleText {
  std::string name;
  GrammarExpr expr;
  std::string where;  ///< for errors
};

/// The automaton of parsed rules; the texts are those of rule `root`. Throws ParseError for left recursion, for rules that
/// derive no finite text, and for what becomes too large.
GrammarRules compile_rules(const std::vector<GrammarRuleText>& rules, std::uint32_t root);

/// `schema` in GBNF.
std::string gbnf_of_json_schema(std::string_view schema, const std::string& name);
/// `pattern` (ECMA-262) as a GBNF expression of what stands between the quotes of a JSON string.
std::string gbnf_of_pattern(std::string_view pattern, const std::string& where);
/// Whole numbers from *first to *last; null: no limit.
std::string gbnf_of_integers(const std::int64_t* first, const std::int64_t* last);
/// Text in GBNF's quotes.
std::string gbnf_literal(std::string_view text);

}  // namespace cgp::model

// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a model may write: a context-free grammar over UTF-8 text. grammar_matcher.h makes masks of tokens from it.
//
// GBNF is llama.cpp's notation: `name ::= alternatives`, "text" with \n \r \t \\ \" \[ \] \xHH \uHHHH \UHHHHHHHH, [a-z] and
// [^a-z], `.` for any character, ( ), |, the repetitions * + ? {m} {m,} {m,n}, comments after #. The text is what the
// rule `root` derives. References to tokens (<think>, <[12]>) are Unsupported. A rule that begins with itself is refused
// (write `a ::= b ("," b)*`), as is one that derives no finite text.
//
// JSON schema is draft 2020-12. Every text that is accepted is JSON that the schema admits; not every such text is accepted:
//   - Properties come in the schema's order. Without `additionalProperties` there are no others; where it is true or a schema,
//     others follow the named ones, with keys that have no escapes.
//   - White space is none or what a pretty printer writes: after [ { , : and before ] } one space, or a line break and at most
//     20 spaces or tabs.
//   - Names, `const` and `enum` are written with the fewest escapes. Numbers have at most 20 digits before the point, 20
//     behind it and 3 in the exponent.
//   - `oneOf` is `anyOf`.
// Keywords: type, properties, required, additionalProperties, items, prefixItems, minItems, maxItems, minLength, maxLength,
// pattern, format (date, time, date-time, uuid; others say nothing), minimum, maximum, exclusiveMinimum, exclusiveMaximum,
// enum, const, anyOf, oneOf, allOf, $ref within the schema, $defs, definitions. Annotations (title, default, …) say nothing. Other
// keywords, and those beside which they cannot be held, are Unsupported, by name and with their place.
#include <memory>
#include <string>
#include <string_view>

namespace cgp::model {

struct GrammarRules;

/// Immutable; copies share.
class Grammar {
 public:
  /// `name` is what errors call the text. Throws ParseError with line, or byte, and Unsupported. At most 1 MB of text, 200
  /// nested groups and 500,000 states after repetitions are written out.
  static Grammar parse_gbnf(std::string_view text, const std::string& name = "grammar");
  static Grammar from_json_schema(std::string_view text, const std::string& name = "schema");
  /// Any JSON object.
  static Grammar json();

  /// As GBNF, of a schema too.
  const std::string& text() const;
  const GrammarRules& rules() const { return *rules_; }

 private:
  explicit Grammar(std::shared_ptr<const GrammarRules> rules) : rules_(std::move(rules)) {}
  std::shared_ptr<const GrammarRules> rules_;
};

}  // namespace cgp::model

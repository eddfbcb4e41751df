// SPDX-License-Identifier: Apache-2.0
// Grammars and their masks, against a matcher that tries everything.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>

#include "cgp/base/error.h"
#include "cgp/base/random.h"
#include "cgp/base/text.h"
#include "cgp/model/grammar/grammar_automaton.h"
#include "cgp/model/grammar/grammar_matcher.h"
#include "cgp/model/unicode/unicode.h"

namespace cgp::model {
namespace {

using text::cat;

std::shared_ptr<const TokenTrie> bytes_only() {
  std::vector<std::string> words;
  for (int b = 0; b < 256; ++b) words.push_back(std::string(1, char(b)));
  words.push_back("");
  return std::make_shared<const TokenTrie>(std::move(words), std::vector<Token>{256});
}
bool admits(const Grammar& g, std::string_view text) {
  GrammarMatcher m(CompiledGrammar(g, bytes_only()));
  return m.accept(text) && m.can_end();
}
bool admits(std::string_view gbnf, std::string_view text) { return admits(Grammar::parse_gbnf(gbnf), text); }
bool schema_admits(std::string_view schema, std::string_view text) {
  return admits(Grammar::from_json_schema(schema), text);
}
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}
bool allowed(std::span<const std::uint32_t> mask, Token t) {
  return mask[std::size_t(t) / 32] >> (t % 32) & 1;
}

TEST(Gbnf, TextsOfTheNotation) {
  const struct {
    const char *gbnf, *yes, *no;
  } cases[] = {
      {"root ::= \"a\" | \"bc\"", "bc", "b"},
      {"root ::= \"a\"* \"b\"+ \"c\"?", "aabb", "aac"},
      {"root ::= [a-c]{2,3}", "abc", "abca"},
      {"root ::= [a-c]{2}", "ab", "a"},
      {"root ::= [a-c]{2,}", "abcabc", "a"},
      {"root ::= [^a\\n-]", "b", "-"},
      {"root ::= [^a\\n-]", "\xC3\xA9", "\n"},
      {"root ::= \".\" . \".\"", ".\xE2\x82\xAC.", ".\xE2\x82."},
      {"root ::= \"\\x41\\u00e9\\U0001F600\\\"\\[\\]\"", "A\xC3\xA9\xF0\x9F\x98\x80\"[]", "A\xC3\xA9"},
      {"root ::= x # comment\nx ::= (\"a\"\n | \"b\" # another\n)\n  | \"c\"", "c", "ab"},
      {"root ::= \"(\" root? \")\"", "((()))", "(()"},
      {"root ::= (\"a\"*)* \"b\"", "aab", "aa"},
      {"root ::= empty \"a\" empty\nempty ::=", "a", "aa"},
      {"root ::= s s\ns ::= \"a\" s \"b\" | \"a\" s \"c\" | \"\"", "aabcab", "aab"},
      {"root ::= [\xC3\xA0-\xC3\xBF\xE2\x82\xAC]+", "\xC3\xA9\xE2\x82\xAC", "\xC3\x80"},
      {"root ::= [\\x00-\\U0010FFFF]", "\xF4\x8F\xBF\xBF", "\xED\xA0\x80"},
  };
  for (const auto& c : cases) {
    EXPECT_TRUE(admits(c.gbnf, c.yes)) << c.gbnf;
    EXPECT_FALSE(admits(c.gbnf, c.no)) << c.gbnf;
  }
}

TEST(Gbnf, ErrorsNameTheirPlace) {
  const struct {
    const char *gbnf, *says;
  } cases[] = {
      {"root ::= \"a", "line 1, column 10"},
      {"root ::= x\n\nx ::= [a", "line 3, column 7"},
      {"root ::= itme\nitem ::= \"a\"", "is 'item' meant?"},
      {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1"},
      {"start ::= \"a\"", "a rule 'root'"},
      {"root ::= (\"a\"", "a group ends"},
      {"root ::= *", "something to repeat"},
      {"root ::= \"a\"{3,2}", "ascend"},
      {"root ::= \"\\q\"", "an escape is one of"},
      {"root ::= \"a\" )", "a rule ends with its line"},
      {"root ::= [b-a]", "ascends"},
      {"root ::= []", "has a character"},
      {"root = \"a\"", "::="},
      {"root ::= <think>", "here it names a token"},
      {"root ::= root \"a\" | \"b\"", "root > root"},
      {"root ::= x\nx ::= \"a\"? y\ny ::= z\nz ::= x \"b\" | \"c\"", "x > y > z > x"},
      {"root ::= \"a\" x\nx ::= \"b\" x", "'x' always goes on"},
      {"root ::= ((\"a\"{1000}){1000}){1000}", "at most 500000 states"},
      {"root ::= ((\"\"{1000000}){1000000}){1000000}", "at most 500000 states"},
      {"root ::= \"\xFF\"", "UTF-8"},
  };
  for (const auto& c : cases) {
    const std::string e = error_of([&] { Grammar::parse_gbnf(c.gbnf, "g.gbnf"); });
    EXPECT_NE(e.find(c.says), e.npos) << c.gbnf << "\n" << e;
  }
  EXPECT_NE(error_of([] { Grammar::parse_gbnf("root ::= " + std::string(300, '(')); }).find("200 deep"),
            std::string::npos);
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 2000; ++i) chain += cat("r", i, " ::= r", i + 1, "\n");
  EXPECT_NE(error_of([&] { Grammar::parse_gbnf(chain + "r2000 ::= \"a\""); }).find("1000 deep"),
            std::string::npos);
}

/// A random grammar, and all the ends that its parts have in a text.
class Oracle {
 public:
  explicit Oracle(SplitMix64& random) : random_(random) {
    for (int i = 0; i < kRules; ++i) rules_.push_back(expr(i, 3));
  }
  std::string gbnf() const {
    std::string out;
    for (int i = 0; i < kRules; ++i)
      out += cat(i ? cat("r", i) : "root", " ::= ", print(rules_[std::size_t(i)]), "\n");
    return out;
  }
  bool admits(const std::string& text) const { return ends(rules_[0], text, 0).count(text.size()) > 0; }

 private:
  static constexpr int kRules = 3;
  struct Expr {
    char kind;  // l: literal, c: class, r: rule, s: sequence, a: alternatives, q: repetition
    std::string literal;
    int rule = 0, min = 0, max = 0;
    std::vector<Expr> children = {};
  };
  std::uint64_t pick(std::uint64_t n) { return random_.next() % n; }
  Expr expr(int rule, int depth) {
    static const char* kWords[] = {"a", "b", "ab", "\xC3\xA9", "", "\xC3\xA8"};
    switch (depth == 0 ? pick(2) : pick(7)) {
      case 0:
        return {'l', kWords[pick(6)]};
      case 1:
        return {'c', pick(2) ? "ab"
                             : "\xC3\xA9"
                               "b"};
      case 2:
        // Recursion behind a byte, or to a later rule.
        if (rule + 1 < kRules) return {'r', "", rule + 1 + int(pick(std::uint64_t(kRules - rule - 1)))};
        return {
            'a',
            "",
            0,
            0,
            0,
            {{'s', "", 0, 0, 0, {{'l', "a"}, {'r', "", int(pick(kRules))}, {'l', pick(2) ? "b" : ""}}}, {'l', "b"}}};
      case 3:
      case 4: {
        Expr out{'s', ""};
        for (std::uint64_t n = 1 + pick(3); n > 0; --n) out.children.push_back(expr(rule, depth - 1));
        return out;
      }
      case 5: {
        Expr out{'a', ""};
        for (std::uint64_t n = 2 + pick(2); n > 0; --n) out.children.push_back(expr(rule, depth - 1));
        return out;
      }
      default: {
        const int min = int(pick(3));
        return {'q', "", 0, min, pick(2) ? min + int(pick(3)) : -1, {expr(rule, depth - 1)}};
      }
    }
  }
  static std::string print(const Expr& e) {
    std::string out;
    switch (e.kind) {
      case 'l':
        return cat('"', e.literal, '"');
      case 'c':
        return cat('[', e.literal, ']');
      case 'r':
        return e.rule ? cat("r", e.rule) : "root";
      case 'q':
        return cat(print(e.children[0]), "{", e.min, ",", e.max < 0 ? "" : std::to_string(e.max), "}");
      default:
        for (const Expr& c : e.children) out += cat(out.empty() ? "" : e.kind == 'a' ? " | " : " ", print(c));
        return cat("(", out, ")");
    }
  }
  using Ends = std::set<std::size_t>;
  Ends ends(const Expr& e, const std::string& text, std::size_t at) const {
    Ends out;
    switch (e.kind) {
      case 'l':
        if (text.compare(at, e.literal.size(), e.literal) == 0) out.insert(at + e.literal.size());
        break;
      case 'c':
        for (std::size_t i = 0; i < e.literal.size();) {
          const std::size_t n = unicode::decode(e.literal, i).size;
          if (text.compare(at, n, e.literal, i, n) == 0) out.insert(at + n);
          i += n;
        }
        break;
      case 'r':
        return ends(rules_[std::size_t(e.rule)], text, at);
      case 's':
        out = {at};
        for (const Expr& c : e.children) out = step(c, text, out);
        break;
      case 'a':
        for (const Expr& c : e.children) out.merge(ends(c, text, at));
        break;
      default: {
        Ends reached = {at};
        for (int i = 0; i < e.min; ++i) reached = step(e.children[0], text, reached);
        out = reached;
        for (int i = e.min; (e.max < 0 || i < e.max) && !reached.empty(); ++i) {
          Ends next;
          for (std::size_t x : step(e.children[0], text, reached))
            if (out.insert(x).second) next.insert(x);
          reached = next;
        }
      }
    }
    return out;
  }
  Ends step(const Expr& e, const std::string& text, const Ends& from) const {
    Ends out;
    for (std::size_t at : from) out.merge(ends(e, text, at));
    return out;
  }
  SplitMix64& random_;
  std::vector<Expr> rules_;
};

TEST(Gbnf, RandomGrammarsAdmitWhatTryingEverythingAdmits) {
  SplitMix64 random(18);
  int yes = 0, grammars = 0;
  const char* kCharacters[] = {"a", "b", "\xC3\xA9", "\xC3\xA8"};
  const auto tokens = bytes_only();
  for (int i = 0; i < 150; ++i) {
    const Oracle oracle(random);
    std::optional<CompiledGrammar> compiled;
    if (!error_of([&] { compiled.emplace(Grammar::parse_gbnf(oracle.gbnf()), tokens); }).empty()) continue;
    ++grammars;
    for (int t = 0; t < 40; ++t) {
      std::string text;
      for (std::uint64_t n = random.next() % 7; n > 0; --n)
        text += kCharacters[random.next() % (random.next() % 2 ? 4 : 2)];
      GrammarMatcher m(*compiled);
      const bool got = m.accept(text) && m.can_end(), want = oracle.admits(text);
      ASSERT_EQ(got, want) << oracle.gbnf() << "text '" << text << "'";
      yes += want;
    }
  }
  EXPECT_GT(grammars, 100);
  EXPECT_GT(yes, 500);
}

/// Words that end within characters and span several rules.
std::shared_ptr<const TokenTrie> mixed_words(bool with_bytes) {
  std::vector<std::string> words = {
      "<end>", "",   "{\"",    "\": ", "\",",  "\"}",   "true",     "fal",      "se}",
      "12",    "-",  ".5e",    "null", "\xC3", "\xA9",  "\xF0\x9F", "\x98\x80", "\xC3\xA9\"",
      "abc",   "ab", "a\": [", "]}",   "],",   "\\u00", "\\",       "n\"",      "{}",
      "[]",    "[[", "}}",     " ",    "  ",   "\n",    "\n    ",   "a",        "b",
      "c",     "\"", "{",      "}",    "[",    "]",     ":",        ",",        "1"};
  for (int b = 0; with_bytes && b < 256; ++b) words.push_back(std::string(1, char(b)));
  return std::make_shared<const TokenTrie>(std::move(words), std::vector<Token>{0});
}

TEST(GrammarMatcher, MasksAreTheTokensThatAreAccepted) {
  const auto tokens = mixed_words(true);
  const Grammar grammars[] = {
      Grammar::json(), Grammar::parse_gbnf("root ::= ([a-c\xC3\xA9] | \"\\U0001F600\")* \"\\\"\"?"),
      Grammar::parse_gbnf("root ::= x \" \" root | x\nx ::= \"a\" x \"b\" | \"a\" x \"c\" | \"ab\" | [1-9]*"),
      Grammar::from_json_schema(
          R"({"properties": {"a": {"type": "array", "items": {"type": "integer"}}, "b": {"$ref": "#"}}})")};
  SplitMix64 random(3);
  std::size_t steps = 0;
  for (const Grammar& g : grammars) {
    const CompiledGrammar compiled(g, tokens);
    for (int i = 0; i < 60; ++i) {
      GrammarMatcher m(compiled);
      for (int step = 0; step < 25 && !m.ended(); ++step, ++steps) {
        const auto mask = m.mask();
        std::vector<Token> may;
        for (Token t = 0; std::size_t(t) < tokens->size(); ++t) {
          GrammarMatcher next = m;  // a checkpoint
          const bool accepted = next.accept(t);
          ASSERT_EQ(allowed(mask, t), accepted) << g.text() << "token '" << tokens->bytes(t) << "'";
          if (accepted) may.push_back(t);
        }
        ASSERT_FALSE(may.empty()) << g.text();
        ASSERT_TRUE(m.accept(may[random.next() % may.size()]));
      }
    }
  }
  EXPECT_GT(steps, 1000u);
}

TEST(GrammarMatcher, PartsOfCharactersComeInOrder) {
  const auto tokens = mixed_words(false);
  GrammarMatcher m(CompiledGrammar(Grammar::parse_gbnf("root ::= \"\xC3\xA9\" \"\\U0001F600\""), tokens));
  const auto only = [&](Token want) {
    for (Token t = 0; std::size_t(t) < tokens->size(); ++t) EXPECT_EQ(allowed(m.mask(), t), t == want) << t;
    EXPECT_TRUE(m.accept(want));
  };
  only(13), only(14), only(15), only(16), only(0);
  EXPECT_TRUE(m.ended());
  for (std::uint32_t word : m.mask()) EXPECT_EQ(word, 0u);
  EXPECT_FALSE(m.accept(0));
}

TEST(GrammarMatcher, AmbiguityAndDepthAreBounded) {
  // 2^n readings of n letters are as many stacks, but one state.
  GrammarMatcher m(CompiledGrammar(Grammar::parse_gbnf("root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"\""),
                                   bytes_only()));
  EXPECT_TRUE(m.accept(std::string(500, 'a')));
  EXPECT_TRUE(m.accept("bcbc"));
  GrammarMatcher deep(CompiledGrammar(Grammar::json(), bytes_only()));
  EXPECT_TRUE(deep.accept("{\"a\":" + std::string(900, '[')));
  EXPECT_NE(error_of([&] { deep.accept(std::string(200, '[')); }).find("at most 1000 rules"),
            std::string::npos);
  GrammarMatcher flat(CompiledGrammar(Grammar::parse_gbnf("root ::= \"a\" root | \"b\""), bytes_only()));
  EXPECT_TRUE(flat.accept(std::string(5000, 'a'))) << "a rule at the end of another one does not nest";
}

TEST(GrammarMatcher, AStateMovesToAnotherAutomaton) {
  const auto tokens = mixed_words(true);
  const Grammar g = Grammar::json();
  GrammarAutomaton a(g.rules(), *tokens), b(g.rules(), *tokens);
  auto state = a.start();
  for (char c : std::string_view("{\"a\":[[1,{\"b\": [\"\xC3"))
    state = a.step(state, static_cast<unsigned char>(c));
  const auto moved = b.import(a, state);
  EXPECT_EQ(*a.mask(state), *b.mask(moved));
  auto end = moved;
  for (char c : std::string_view("\xA9\"]}]]}")) end = b.step(end, static_cast<unsigned char>(c));
  EXPECT_TRUE(b.complete(end));
}

TEST(JsonSchema, TextsOfTheKeywords) {
  const struct {
    const char *schema, *yes, *no;
  } cases[] = {
      {"{}", R"([1, {"a": null}, "x", -2.5e-3, true])", "[1,]"},
      {R"({"type": "object"})", "{\n  \"a\": 1,\n  \"b\": []\n}", "[]"},
      {R"({"type": "string"})", R"("\u00e9\ud83d\ude00\n/")", R"("\ud83d")"},
      {R"({"type": ["integer", "null"]})", "null", "1.5"},
      {R"({"type": "boolean"})", "true", "1"},
      {R"({"enum": ["a", 1, null, {"x": [1, "y"]}]})", R"({"x": [1,"y"]})", "\"b\""},
      {R"({"const": "q\"\n"})", R"("q\"\n")", "\"q\""},
      {R"({"type": "string", "enum": ["a", 1]})", "\"a\"", "1"},
      {R"({"type": "string", "minLength": 2, "maxLength": 3})", "\"\xC3\xA9\xC3\xA9\"", "\"abcd\""},
      {R"({"type": "string", "pattern": "^[a-z]+\\d{2}$"})", "\"ab12\"", "\"ab1\""},
      {R"({"type": "string", "pattern": "^(a|\"b)\\s?$"})", R"("\"b\t")", R"("b")"},
      {R"({"type": "string", "pattern": "b"})", R"("a\nbc")", R"("ac")"},
      {R"({"type": "string", "format": "date"})", "\"2024-02-28\"", "\"2024-13-01\""},
      {R"({"type": "string", "format": "date-time"})", "\"2024-02-28T23:59:00.5Z\"", "\"2024-02-28\""},
      {R"({"type": "string", "format": "uuid"})", "\"01234567-89ab-cdef-0123-456789abcdef\"", "\"0123\""},
      {R"({"type": "integer", "minimum": -12, "maximum": 345})", "-12", "-13"},
      {R"({"type": "integer", "minimum": -12, "maximum": 345})", "345", "346"},
      {R"({"type": "integer", "exclusiveMinimum": 99})", "100", "99"},
      {R"({"type": "number", "minimum": 0, "maximum": 1})", "0.75", "1.01"},
      {R"({"type": "number", "exclusiveMinimum": 0})", "0.01", "0.0"},
      {R"({"type": "number", "minimum": -3, "exclusiveMaximum": -1})", "-1.5", "-1.0"},
      {R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2})", "[1, 2]", "[]"},
      {R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2})", "[1]", "[1,2,3]"},
      {R"({"prefixItems": [{"type": "integer"}, {"type": "null"}], "minItems": 1})", "[1,null]", "[]"},
      {R"({"prefixItems": [{"type": "integer"}], "items": {"type": "null"}})", "[1,null,null]", "[null]"},
      {R"({"properties": {"a": {"type": "integer"}, "b": {}, "c": {"type": "null"}}, "required": ["b"]})",
       R"({"b": 1, "c": null})", R"({"a": 1})"},
      {R"({"properties": {"a": {"type": "integer"}}, "additionalProperties": false})", "{}", R"({"b": 1})"},
      {R"({"properties": {"ab": {"type": "integer"}, "a": {}}, "additionalProperties": {"type": "null"}})",
       R"({"ab": 1,"abc": null, "b":null})", R"({"abc": 1})"},
      {R"({"properties": {"ab": {"type": "integer"}}, "additionalProperties": true})", R"({"": 1, "a": 2})",
       R"({"ab": "x"})"},
      {R"({"anyOf": [{"type": "integer"}, {"type": "string"}]})", "\"a\"", "null"},
      {R"({"type": "object", "properties": {"a": {}}, "anyOf": [{"required": ["a"]}]})", R"({"a": 1})", "{}"},
      {R"({"allOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"b": {"type": "null"}}, "required": ["b"]}]})",
       R"({"a": 1, "b": null})", R"({"a": 1})"},
      {R"({"$ref": "#/$defs/tree", "$defs": {"tree": {"properties": {"l": {"$ref": "#/$defs/tree"}}}}})",
       R"({"l": {"l": {}}})", R"({"r": {}})"},
      {R"({"properties": {"a/b": {"enum": [1]}, "c": {"$ref": "#/properties/a~1b"}}})", R"({"c": 1})",
       R"({"c": 2})"},
  };
  for (const auto& c : cases) {
    EXPECT_TRUE(schema_admits(c.schema, c.yes)) << c.schema << Grammar::from_json_schema(c.schema).text();
    EXPECT_FALSE(schema_admits(c.schema, c.no)) << c.schema << Grammar::from_json_schema(c.schema).text();
  }
}

TEST(JsonSchema, EveryWholeNumberOfARange) {
  for (const auto& [low, high] : {std::pair(-105, 99), {0, 0}, {7, 1203}, {-9, -1}, {-120, -95}, {98, 101}}) {
    const Grammar g = Grammar::from_json_schema(
        cat(R"({"type": "integer", "minimum": )", low, R"(, "maximum": )", high, "}"));
    const CompiledGrammar compiled(g, bytes_only());
    for (int x = low - 30; x <= high + 30; ++x) {
      GrammarMatcher m(compiled);
      EXPECT_EQ(m.accept(std::to_string(x)) && m.can_end(), x >= low && x <= high)
          << x << " in " << low << " to " << high;
    }
  }
}

TEST(JsonSchema, WhatItCannotSayIsNamed) {
  const struct {
    const char *schema, *says;
  } cases[] = {
      {R"({"properties": {"a": {"not": {}}}})", "#/properties/a"},
      {R"({"patternProperties": {}})", "'patternProperties'"},
      {R"({"type": "number", "multipleOf": 2})", "'multipleOf'"},
      {R"({"type": "array", "uniqueItems": true})", "'uniqueItems'"},
      {R"({"minLenght": 2})", "'minLenght'"},
      {"false", "admits nothing"},
      {R"({"type": "strnig"})", "a type is one of"},
      {R"({"$ref": "#/$defs/x"})", "there is no '#/$defs/x'"},
      {R"({"$ref": "http://example.com/x"})", "not within the schema"},
      {R"({"$ref": "#"})", "refer to itself"},
      {R"({"anyOf": [{"$ref": "#"}]})", "begin with itself"},
      {R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})", "always goes on"},
      {R"({"type": "string", "pattern": "^(?=a)b$"})", "a lookaround"},
      {R"({"type": "string", "pattern": "^[a$"})", "#, pattern, byte"},
      {R"({"type": "string", "pattern": "a", "minLength": 1})", "at one place"},
      {R"({"type": "number", "minimum": 0.5})", "with a fraction"},
      {R"({"type": "integer", "minimum": 2, "maximum": 1})", "at most maximum"},
      {R"({"properties": {"a": 1}})", "#/properties/a"},
      {R"({"type": "string")", "byte"},
  };
  for (const auto& c : cases) {
    const std::string e = error_of([&] { Grammar::from_json_schema(c.schema); });
    EXPECT_NE(e.find(c.says), e.npos) << c.schema << "\n" << e;
  }
  std::string doubling = R"({"$ref": "#/$defs/d0", "$defs": {"d28": {"type": "null"})";
  for (int i = 0; i < 28; ++i)
    doubling += cat(R"(, "d)", i, R"(": {"allOf": [{"$ref": "#/$defs/d)", i + 1, R"("}, {"$ref": "#/$defs/d)",
                    i + 1, R"("}]})");
  EXPECT_NE(error_of([&] { Grammar::from_json_schema(doubling + "}}"); }).find("parts to merge"),
            std::string::npos);
}

TEST(GrammarMutation, DamagedGrammarsEndInMasksOrErrors) {
  const std::string sources[] = {
      "root ::= item (\",\" ws item)* ws # list\nitem ::= [a-z\\u00e9]{2,5} | \"(\" item? \")\" | num\nnum "
      "::= \"-\"? [0-9]+ (\".\" [0-9]+)?\nws ::= [ \\n]*",
      Grammar::json().text(),
      R"({"type": "object", "properties": {"a": {"type": "string", "pattern": "^a+(b|[c-e])*$"}, "n": {"type": "integer", "minimum": -3, "maximum": 44}, "t": {"$ref": "#/$defs/t"}}, "required": ["a"], "$defs": {"t": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/t"}, "maxItems": 4}, {"enum": ["x", 1]}]}}})"};
  const char* wanted = std::getenv("CGP_MUTATIONS");
  const int cases = wanted ? std::atoi(wanted) / 10 : 1500;
  SplitMix64 random(5);
  const auto tokens = mixed_words(true);
  int read = 0, refused = 0;
  for (int i = 0; i < cases; ++i) {
    const std::size_t which = random.next() % 3;
    std::string text = sources[which];
    for (std::uint64_t n = 1 + random.next() % 3; n > 0 && !text.empty(); --n) {
      const std::size_t at = random.next() % text.size();
      switch (random.next() % 5) {
        case 0:
          text[at] = char(random.next());
          break;
        case 1:
          text.erase(at, random.next() % 8);
          break;
        case 2:
          text.insert(at, text.substr(random.next() % text.size(), random.next() % 24));
          break;
        case 3:
          text[at] = "(){}[]*+?|\\\"$#^.9-"[random.next() % 18];
          break;
        default:
          std::swap(text[at], text[random.next() % text.size()]);
      }
    }
    try {
      GrammarMatcher m(
          CompiledGrammar(which < 2 ? Grammar::parse_gbnf(text) : Grammar::from_json_schema(text), tokens));
      for (int step = 0; step < 6; ++step) {
        const auto mask = m.mask();
        std::vector<Token> may;
        for (Token t = 0; std::size_t(t) < tokens->size(); ++t)
          if (allowed(mask, t)) may.push_back(t);
        if (may.empty() || m.ended()) break;
        ASSERT_TRUE(m.accept(may[random.next() % may.size()])) << text;
      }
      ++read;
    } catch (const Error& e) {
      ASSERT_FALSE(e.where().empty()) << e.what() << "\n" << text;
      ++refused;
    }
  }
  EXPECT_GT(read, cases / 50);
  EXPECT_GT(refused, cases / 10);
}

}  // namespace
}  // namespace cgp::model

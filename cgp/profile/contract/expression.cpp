// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/contract/expression.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::profile {

using text::cat;

struct Expression::Node {
  std::string op;  ///< "number", "text", "name", "call", "-" (unary: one child), or the operator
  double number = 0;
  std::string word;
  std::vector<std::unique_ptr<Node>> children;
};

namespace {

using Node = Expression::Node;
using NodePtr = std::unique_ptr<Node>;

NodePtr node(std::string op, std::vector<NodePtr> children = {}) {
  auto n = std::make_unique<Node>();
  n->op = std::move(op);
  n->children = std::move(children);
  return n;
}

NodePtr pair(std::string op, NodePtr a, NodePtr b) {
  auto n = node(std::move(op));
  n->children.push_back(std::move(a));
  n->children.push_back(std::move(b));
  return n;
}

class Parser {
  static constexpr std::size_t kLongest = 2000;

 public:
  explicit Parser(const std::string& text) : text_(text) {
    if (text.size() > kLongest)  // what is nested is read and evaluated by recursion
      throw ParseError(ErrorText{
          cat("a check has at most ", kLongest, " characters"), {}, cat("it has ", text.size()), {}});
    next();
  }

  NodePtr all() {
    NodePtr n = either();
    if (token_ == "when") {
      next();
      n = pair("when", std::move(n), either());
    }
    if (!token_.empty()) fail("the check ends here");
    return n;
  }

 private:
  NodePtr either() {
    NodePtr n = both();
    while (token_ == "or" || token_ == "||") next(), n = pair("or", std::move(n), both());
    return n;
  }
  NodePtr both() {
    NodePtr n = negation();
    while (token_ == "and" || token_ == "&&") next(), n = pair("and", std::move(n), negation());
    return n;
  }
  NodePtr negation() {
    if (token_ != "not" && token_ != "!") return comparison();
    next();
    auto n = node("not");
    n->children.push_back(negation());
    return n;
  }
  NodePtr comparison() {
    NodePtr n = sum();
    for (const char* op : {"==", "!=", "<=", ">=", "<", ">"})
      if (token_ == op) {
        next();
        return pair(op, std::move(n), sum());
      }
    if (token_ == "=") fail("equality is written ==");
    return n;
  }
  NodePtr sum() {
    NodePtr n = product();
    while (token_ == "+" || token_ == "-") {
      const std::string op = token_;
      next(), n = pair(op, std::move(n), product());
    }
    return n;
  }
  NodePtr product() {
    NodePtr n = sign();
    while (token_ == "*" || token_ == "/") {
      const std::string op = token_;
      next(), n = pair(op, std::move(n), sign());
    }
    return n;
  }
  NodePtr sign() {
    if (token_ != "-") return atom();
    next();
    auto n = node("negate");
    n->children.push_back(sign());
    return n;
  }
  NodePtr atom() {
    if (token_ == "(") {
      next();
      NodePtr n = either();
      take(")");
      return n;
    }
    if (kind_ == 'n') {
      auto n = node("number");
      n->number = std::strtod(token_.c_str(), nullptr);
      next();
      return n;
    }
    if (kind_ == 's' || kind_ == 'w') {
      auto n = node(kind_ == 's' ? "text" : "name");
      n->word = token_;
      const bool name = kind_ == 'w';
      next();
      if (name && token_ == "(") return call(std::move(n));
      return n;
    }
    fail(token_.empty() ? "a value is missing at the end" : "a value must stand here");
  }
  NodePtr call(NodePtr n) {
    n->op = "call";
    next();
    if (token_ != ")") {
      n->children.push_back(either());
      while (token_ == ",") next(), n->children.push_back(either());
    }
    take(")");
    return n;
  }
  void take(const std::string& what) {
    if (token_ != what) fail(cat("'", what, "' is missing"));
    next();
  }
  [[noreturn]] void fail(const std::string& rule) const {
    throw ParseError(rule, 1, int(start_) + 1, text_, "docs/profiler.md has the language of checks");
  }
  void next() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    start_ = at_, kind_ = 'o', token_.clear();
    if (at_ >= text_.size()) return;
    const char c = text_[at_];
    const auto is = [&](std::size_t i, auto f) {
      return i < text_.size() && f(static_cast<unsigned char>(text_[i]));
    };
    if (std::isdigit(static_cast<unsigned char>(c)) ||
        (c == '.' && is(at_ + 1, [](int d) { return std::isdigit(d); }))) {
      kind_ = 'n';
      char* end = nullptr;
      std::strtod(text_.c_str() + at_, &end);
      token_ = text_.substr(at_, std::size_t(end - text_.c_str()) - at_);
      at_ += token_.size();
      if (is(at_, [](int d) { return d == '%'; })) ++at_;  // "10%" is 10: percentages are in percent
    } else if (std::isalpha(static_cast<unsigned char>(c)) || c == '_') {
      kind_ = 'w';
      while (is(at_, [](int d) { return std::isalnum(d) || d == '_' || d == '.'; })) token_ += text_[at_++];
      if (token_ == "and" || token_ == "or" || token_ == "not" || token_ == "when") kind_ = 'o';
    } else if (c == '"' || c == '\'') {
      kind_ = 's';
      const auto close = text_.find(c, at_ + 1);
      if (close == std::string::npos) fail("the quote is not closed");
      token_ = text_.substr(at_ + 1, close - at_ - 1);
      at_ = close + 1;
    } else {
      for (const char* op : {"==", "!=", "<=", ">=", "&&", "||"})
        if (text_.compare(at_, 2, op) == 0) token_ = op;
      if (token_.empty()) token_ = c;
      at_ += token_.size();
    }
  }

  const std::string& text_;
  std::size_t at_ = 0, start_ = 0;
  char kind_ = 'o';
  std::string token_;
};

Known unknown(const std::string& why) { return {std::monostate{}, why}; }

double number(const Known& k, const std::string& op) {
  if (const double* d = std::get_if<double>(&k.value)) return *d;
  if (const bool* b = std::get_if<bool>(&k.value)) return *b ? 1 : 0;
  throw ArgumentError(ErrorText{cat("'", op, "' works on numbers"),
                                {},
                                cat("it was given the text \"", std::get<std::string>(k.value), "\""),
                                {}});
}
bool truth(const Known& k, const std::string& op) {
  if (const bool* b = std::get_if<bool>(&k.value)) return *b;
  throw ArgumentError(ErrorText{cat("'", op, "' works on what is true or false"),
                                {},
                                "it was given a number or text",
                                "compare it with something"});
}

Known evaluate(const Node& n, const Lookup& lookup);

Known compare(const Node& n, const Known& a, const Known& b) {
  const auto *sa = std::get_if<std::string>(&a.value), *sb = std::get_if<std::string>(&b.value);
  if (sa || sb) {
    if (!sa || !sb || (n.op != "==" && n.op != "!="))
      throw ArgumentError(ErrorText{"texts are only compared with texts, by == and !=", {}, {}, {}});
    return {(*sa == *sb) == (n.op == "=="), {}};
  }
  const double x = number(a, n.op), y = number(b, n.op);
  // Decimal fractions are not exact: equal means to 1e-9.
  const bool equal = std::fabs(x - y) <= 1e-9 * std::max({1.0, std::fabs(x), std::fabs(y)});
  if (n.op == "==") return {equal, {}};
  if (n.op == "!=") return {!equal, {}};
  if (n.op == "<=") return {x < y || equal, {}};
  if (n.op == ">=") return {x > y || equal, {}};
  return {n.op == "<" ? x < y && !equal : x > y && !equal, {}};
}

Known call(const Node& n, const Lookup& lookup) {
  std::vector<Known> arguments;
  for (const auto& c : n.children) arguments.push_back(evaluate(*c, lookup));
  const auto expect = [&](std::size_t count) {
    if (arguments.size() != count)
      throw ArgumentError(ErrorText{cat(n.word, " takes ", count, count == 1 ? " value" : " values"),
                                    {},
                                    cat(arguments.size(), " given"),
                                    {}});
  };
  const bool two = n.word == "min" || n.word == "max";
  if (!two && n.word != "abs" && n.word != "log2" && n.word != "classify")
    throw ArgumentError(
        ErrorText{cat("there is no function ", n.word), {}, {}, "there are abs, min, max, log2, classify"});
  expect(two ? 2 : 1);
  for (const auto& a : arguments)
    if (!a.known()) return a;
  const double x = number(arguments[0], n.word);
  if (n.word == "abs") return {std::fabs(x), {}};
  if (n.word == "log2") return x > 0 ? Known{std::log2(x), {}} : unknown(cat("log2 of ", x));
  if (n.word == "min") return {std::min(x, number(arguments[1], n.word)), {}};
  if (n.word == "max") return {std::max(x, number(arguments[1], n.word)), {}};
  // classify(intensity): the side of the ridge
  const auto ridge = lookup("ridge_point");
  if (!ridge || !ridge->known()) return unknown("classify needs ridge_point");
  return {std::string(x < number(*ridge, "classify") ? "memory" : "compute"), {}};
}

Known logic(const Node& n, const Lookup& lookup) {
  const Known a = evaluate(*n.children[0], lookup);
  if (n.op == "not") return a.known() ? Known{!truth(a, "not"), {}} : a;
  const Known b = evaluate(*n.children[1], lookup);
  if (n.op == "when") {
    if (!b.known()) return b;
    return truth(b, "when") ? a : unknown("its condition does not hold");
  }
  const bool decides = n.op == "or";
  for (const Known* k : {&a, &b})
    if (k->known() && truth(*k, n.op) == decides) return {decides, {}};
  if (!a.known()) return a;
  if (!b.known()) return b;
  return {!decides, {}};
}

Known evaluate(const Node& n, const Lookup& lookup) {
  if (n.op == "number") return {n.number, {}};
  if (n.op == "text") return {n.word, {}};
  if (n.op == "name") {
    if (n.word == "true" || n.word == "false") return {n.word == "true", {}};
    const auto found = lookup(n.word);
    if (!found)
      throw ArgumentError(ErrorText{
          cat("\"", n.word, "\" is no metric and no counter"), {}, {}, "cgp metrics names all of them"});
    return *found;
  }
  if (n.op == "call") return call(n, lookup);
  if (n.op == "and" || n.op == "or" || n.op == "not" || n.op == "when") return logic(n, lookup);
  const Known a = evaluate(*n.children[0], lookup);
  if (n.op == "negate") return a.known() ? Known{-number(a, "-"), {}} : a;
  const Known b = evaluate(*n.children[1], lookup);
  if (!a.known()) return a;
  if (!b.known()) return b;
  if (n.op == "+") return {number(a, "+") + number(b, "+"), {}};
  if (n.op == "-") return {number(a, "-") - number(b, "-"), {}};
  if (n.op == "*") return {number(a, "*") * number(b, "*"), {}};
  if (n.op == "/") {
    const double divisor = number(b, "/");
    return divisor != 0 ? Known{number(a, "/") / divisor, {}} : unknown("a division by zero");
  }
  return compare(n, a, b);
}

void collect(const Node& n, std::vector<std::string>& out) {
  if (n.op == "name" && n.word != "true" && n.word != "false" &&
      std::find(out.begin(), out.end(), n.word) == out.end())
    out.push_back(n.word);
  for (const auto& c : n.children) collect(*c, out);
}

}  // namespace

Expression::Expression(const std::string& text) : text_(text), root_(Parser(text_).all()) {}
Expression::~Expression() = default;
Expression::Expression(Expression&&) noexcept = default;
Expression& Expression::operator=(Expression&&) noexcept = default;

Known Expression::evaluate(const Lookup& lookup) const { return profile::evaluate(*root_, lookup); }

std::vector<std::string> Expression::names() const {
  std::vector<std::string> out;
  collect(*root_, out);
  return out;
}

}  // namespace cgp::profile

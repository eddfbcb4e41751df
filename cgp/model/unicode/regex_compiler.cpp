// SPDX-License-Identifier: Apache-2.0
// From a pattern's text to a program: recursive descent into a tree, then instructions.
#include <algorithm>
#include <memory>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/model/unicode/regex.h"

namespace cgp::model::unicode {

using text::cat;

namespace {

constexpr std::uint32_t kUnbounded = ~0u;
constexpr int kMaxGroupDepth = 50;
constexpr std::size_t kMaxProgram = 20000;

struct Node {
  enum Kind { cls, sequence, choice, repeat, look, assertion } kind;
  std::uint32_t index = 0;  // of a class; a Regex::Op of an assertion
  std::uint32_t min = 0, max = 0;
  bool possessive = false, negated = false;
  std::vector<Node> parts = {};
};

void set_ascii(CharClass& c) {
  for (unsigned p = 0; p < 128; ++p) {
    bool in =
        (c.categories >> category(p) & 1) || (c.spaces && is_space(p)) || (c.not_spaces && !is_space(p));
    for (auto [first, last] : c.ranges) in |= first <= p && p <= last;
    if (in != c.negated) c.ascii[p >> 6] |= 1ull << (p & 63);
  }
}

}  // namespace

class RegexCompiler {
 public:
  RegexCompiler(std::string_view pattern, Regex& out) : pattern_(pattern), out_(out) {}

  void run() {
    Node tree = alternatives(0);
    if (at_ < pattern_.size()) fail("')' has no '('");
    std::vector<Node> outer;
    if (tree.kind == Node::choice && tree.parts.size() <= 32)
      outer = std::move(tree.parts);
    else
      outer.push_back(std::move(tree));
    out_.first_ = {0, 0};
    for (std::size_t i = 0; i < outer.size(); ++i) {
      out_.alternatives_.push_back(std::uint32_t(out_.program_.size()));
      std::array<std::uint64_t, 2> first{};
      if (first_of(outer[i], first)) first = {~0ull, ~0ull};
      for (unsigned b = 0; b < 256; ++b)
        if (b >= 128 || (first[b >> 6] >> (b & 63) & 1)) out_.candidates_[b] |= 1u << i;
      for (int w = 0; w < 2; ++w) out_.first_[w] |= first[w];
      emit(outer[i]);
      add({Regex::Op::accept});
    }
    make_possessive();
  }

 private:
  [[noreturn]] void fail(std::string_view why) const {
    throw ParseError(ErrorText{"a pre-tokenizer's pattern must be a regular expression",
                               cat("character ", at_, " of '", pattern_.substr(0, 200), "'"),
                               std::string(why),
                               {}});
  }
  [[noreturn]] void unsupported(std::string_view what) const {
    throw Unsupported(ErrorText{cat("patterns of pre-tokenizers cannot have ", what),
                                cat("character ", at_, " of '", pattern_.substr(0, 200), "'"),
                                {},
                                {}});
  }
  bool has(std::string_view s) {
    if (pattern_.substr(at_, s.size()) != s) return false;
    at_ += s.size();
    return true;
  }
  std::uint32_t next() {
    if (at_ == pattern_.size()) fail("it ends too early");
    Decoded c = decode(pattern_, at_);
    at_ += c.size;
    return c.point;
  }

  Node alternatives(int depth) {
    if (depth > kMaxGroupDepth) fail(cat("groups are nested more than ", kMaxGroupDepth, " deep"));
    Node out{Node::choice};
    do {
      out.parts.push_back(sequence(depth));
    } while (has("|"));
    return out.parts.size() == 1 ? std::move(out.parts[0]) : std::move(out);
  }

  Node sequence(int depth) {
    Node out{Node::sequence};
    while (at_ < pattern_.size() && pattern_[at_] != '|' && pattern_[at_] != ')') {
      Node item = atom(depth);
      quantify(item);
      out.parts.push_back(std::move(item));
    }
    return out;
  }

  void quantify(Node& item) {
    while (at_ < pattern_.size()) {
      std::uint32_t min, max;
      if (has("?")) {
        min = 0, max = 1;
      } else if (has("*")) {
        min = 0, max = kUnbounded;
      } else if (has("+")) {
        min = 1, max = kUnbounded;
      } else if (pattern_[at_] == '{' && at_ + 1 < pattern_.size() &&
                 (is_digit(pattern_[at_ + 1]) || pattern_[at_ + 1] == ',')) {
        ++at_;
        min = is_digit(pattern_[at_]) ? number() : 0;
        max = min;
        if (has(",")) max = at_ < pattern_.size() && is_digit(pattern_[at_]) ? number() : kUnbounded;
        if (!has("}")) fail("'{' needs '}'");
        if (max < min) fail("a repetition's greatest count is below its smallest");
      } else {
        return;
      }
      if (item.kind == Node::look || item.kind == Node::assertion) fail("nothing stands before a quantifier");
      if (has("?")) unsupported("lazy quantifiers");
      bool possessive = has("+");
      if (possessive && item.kind != Node::cls) unsupported("possessive groups");
      Node whole{Node::repeat};
      whole.min = min;
      whole.max = max;
      whole.possessive = possessive;
      whole.parts.push_back(std::move(item));
      item = std::move(whole);
    }
  }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  std::uint32_t number() {
    std::uint32_t n = 0;
    while (at_ < pattern_.size() && is_digit(pattern_[at_])) {
      n = n * 10 + std::uint32_t(pattern_[at_++] - '0');
      if (n > 100000) fail("a repetition's count is over 100,000");
    }
    return n;
  }

  Node atom(int depth) {
    if (has("(")) {
      Node out;
      bool outer_case = ignore_case_;
      bool look = false;
      if (has("?")) {
        if (has("i:")) {
          ignore_case_ = true;
        } else if (has("=") || has("!")) {
          look = true;
          out = Node{Node::look};
          out.negated = pattern_[at_ - 1] == '!';
        } else if (!has(":")) {
          unsupported("this kind of group");
        }
      }
      Node inside = alternatives(depth + 1);
      if (look)
        out.parts.push_back(std::move(inside));
      else
        out = std::move(inside);
      ignore_case_ = outer_case;
      if (!has(")")) fail("'(' needs ')'");
      return out;
    }
    if (has("[")) return class_node(bracket());
    if (has("^")) return assertion(Regex::Op::start);
    if (has("$")) return assertion(Regex::Op::end);
    if (has("\\b")) return assertion(Regex::Op::word);
    if (has("\\B")) return assertion(Regex::Op::not_word);
    CharClass c;
    if (has(".")) {
      c.negated = true;
      c.ranges.push_back({'\n', '\n'});
    } else if (has("\\")) {
      if (std::optional<std::uint32_t> p = escape(c)) literal(c, *p);
    } else {
      std::uint32_t p = next();
      if (p == '?' || p == '*' || p == '+') fail("nothing stands before a quantifier");
      literal(c, p);
    }
    return class_node(std::move(c));
  }
  static Node assertion(Regex::Op op) {
    Node out{Node::assertion};
    out.index = std::uint32_t(op);
    return out;
  }
  void literal(CharClass& c, std::uint32_t p) const {
    c.ranges.push_back({p, p});
    if (!ignore_case_) return;
    if (p >= 128) unsupported("letters beyond ASCII without regard to case");
    if (std::uint32_t small = p | 32; small >= 'a' && small <= 'z') {
      c.ranges.push_back({p ^ 32, p ^ 32});
      if (small == 's') c.ranges.push_back({0x17F, 0x17F});    // LATIN SMALL LETTER LONG S folds to s
      if (small == 'k') c.ranges.push_back({0x212A, 0x212A});  // KELVIN SIGN folds to k
    }
  }

  /// After a backslash: adds a class to `c`, or gives the one character that is meant.
  std::optional<std::uint32_t> escape(CharClass& c) {
    std::uint32_t p = next();
    switch (p) {
      case 'p':
      case 'P': {
        if (!has("{")) unsupported("\\p without braces");
        std::size_t end = pattern_.find('}', at_);
        if (end == pattern_.npos) fail("'{' needs '}'");
        std::string_view name = pattern_.substr(at_, end - at_);
        bool negated = p == 'P';
        if (!name.empty() && name[0] == '^') {
          negated = !negated;
          name.remove_prefix(1);
        }
        CategorySet set = category_set(name);
        if (set == 0) unsupported(cat("the property '", name, "': general categories are known"));
        c.categories |= negated ? ~set : set;
        at_ = end + 1;
        return {};
      }
      case 's':
        c.spaces = true;
        return {};
      case 'S':
        c.not_spaces = true;
        return {};
      case 'd':
        c.categories |= 1u << Nd;
        return {};
      case 'D':
        c.categories |= ~(1u << Nd);
        return {};
      case 'w':
        c.categories |= kWord;
        return {};
      case 'W':
        c.categories |= ~kWord;
        return {};
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      case 'x':
        return hex(has("{") ? 0 : 2);
      case 'u':
        return hex(has("{") ? 0 : 4);
    }
    if (p < 128 && (is_digit(char(p)) || (p | 32) - 'a' < 26)) unsupported(cat("the escape \\", char(p)));
    return p;
  }
  /// `digits` of them, or with 0 as many as there are before '}'.
  std::uint32_t hex(int digits) {
    std::uint32_t value = 0;
    for (int i = 0; digits == 0 || i < digits; ++i) {
      if (digits == 0 && has("}")) break;
      std::uint32_t p = next(), digit = p <= '9' ? p - '0' : (p | 32) - 'a' + 10;
      if (digit > 15 || p < '0') fail("hexadecimal digits are needed");
      value = value * 16 + digit;
      if (value > 0x10FFFF) fail("there is no such code point");
    }
    return value;
  }

  CharClass bracket() {
    CharClass c;
    c.negated = has("^");
    bool first = true;
    while (!has("]") || first) {
      first = false;
      if (has("&&")) unsupported("intersections of classes");
      if (pattern_.substr(at_, 1) == "[") unsupported("classes within classes");
      std::optional<std::uint32_t> low = has("\\") ? escape(c) : next();
      if (!low) continue;
      if (pattern_.substr(at_, 1) != "-" || pattern_.substr(at_, 2) == "-]") {
        if (ignore_case_)
          literal(c, *low);
        else
          c.ranges.push_back({*low, *low});
        continue;
      }
      ++at_;
      std::optional<std::uint32_t> high = has("\\") ? escape(c) : next();
      if (!high || *high < *low) fail("a range of characters must ascend");
      if (ignore_case_) unsupported("ranges without regard to case");
      c.ranges.push_back({*low, *high});
    }
    return c;
  }

  Node class_node(CharClass c) {
    set_ascii(c);
    Node out{Node::cls};
    out.index = std::uint32_t(out_.classes_.size());
    out_.classes_.push_back(std::move(c));
    return out;
  }

  /// Adds the ASCII bytes that a match may begin with; true where it may be empty.
  bool first_of(const Node& n, std::array<std::uint64_t, 2>& first) const {
    switch (n.kind) {
      case Node::cls:
        for (int w = 0; w < 2; ++w) first[w] |= out_.classes_[n.index].ascii[w];
        return false;
      case Node::sequence:
        for (const Node& p : n.parts)
          if (!first_of(p, first)) return false;
        return true;
      case Node::choice: {
        bool empty = false;
        for (const Node& p : n.parts) empty |= first_of(p, first);
        return empty;
      }
      case Node::repeat:
        return first_of(n.parts[0], first) || n.min == 0;
      default:
        return true;
    }
  }

  std::uint32_t add(Regex::Instruction i) {
    if (out_.program_.size() >= kMaxProgram) fail("it is too long");
    out_.program_.push_back(i);
    return std::uint32_t(out_.program_.size() - 1);
  }
  std::uint32_t here() const { return std::uint32_t(out_.program_.size()); }

  void emit(const Node& n) {
    using Op = Regex::Op;
    switch (n.kind) {
      case Node::cls:
        add({Op::possessive, n.index, 1, 1});
        break;
      case Node::sequence:
        for (const Node& p : n.parts) emit(p);
        break;
      case Node::choice: {
        std::vector<std::uint32_t> jumps;
        for (std::size_t i = 0; i + 1 < n.parts.size(); ++i) {
          std::uint32_t split = add({Op::split});
          emit(n.parts[i]);
          jumps.push_back(add({Op::jump}));
          out_.program_[split].target = here();
        }
        emit(n.parts.back());
        for (std::uint32_t j : jumps) out_.program_[j].target = here();
        break;
      }
      case Node::repeat:
        emit_repeat(n);
        break;
      case Node::look: {
        std::uint32_t look = add({n.negated ? Op::not_ahead : Op::ahead});
        emit(n.parts[0]);
        add({Op::accept});
        out_.program_[look].target = here();
        break;
      }
      case Node::assertion:
        add({Op(n.index)});
        break;
    }
  }
  void emit_repeat(const Node& n) {
    using Op = Regex::Op;
    const Node& body = n.parts[0];
    if (body.kind == Node::cls) {
      add({n.possessive || n.min == n.max ? Op::possessive : Op::span, body.index, n.min, n.max});
      return;
    }
    for (std::uint32_t i = 0; i < n.min; ++i) emit(body);
    if (n.max == kUnbounded) {
      std::uint32_t slot = out_.slots_++;
      std::uint32_t split = add({Op::split});
      add({Op::mark, slot});
      emit(body);
      add({Op::progress, slot});
      add({Op::jump, 0, 0, 0, split});
      out_.program_[split].target = here();
      return;
    }
    std::vector<std::uint32_t> splits;
    for (std::uint32_t i = n.min; i < n.max; ++i) {
      splits.push_back(add({Op::split}));
      emit(body);
    }
    for (std::uint32_t s : splits) out_.program_[s].target = here();
  }

  /// A span need not give characters back where what follows could not take them.
  void make_possessive() {
    using Op = Regex::Op;
    for (std::size_t i = 0; i + 1 < out_.program_.size(); ++i) {
      Regex::Instruction& span = out_.program_[i];
      const Regex::Instruction& next = out_.program_[i + 1];
      if (span.op != Op::span) continue;
      bool takes = next.op == Op::span || next.op == Op::possessive;
      if (next.op == Op::accept ||
          (takes && next.min > 0 && out_.classes_[span.cls].disjoint(out_.classes_[next.cls])))
        span.op = Op::possessive;
    }
  }

  static constexpr CategorySet kWord = 1u << Ll | 1u << Lm | 1u << Lo | 1u << Lt | 1u << Lu | 1u << Mc |
                                       1u << Me | 1u << Mn | 1u << Nd | 1u << Pc;
  std::string_view pattern_;
  Regex& out_;
  std::size_t at_ = 0;
  bool ignore_case_ = false;
};

Regex::Regex(std::string_view pattern) { RegexCompiler(pattern, *this).run(); }

}  // namespace cgp::model::unicode

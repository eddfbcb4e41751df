// SPDX-License-Identifier: Apache-2.0
#include "cgp/model/grammar/grammar_rules.h"

#include <algorithm>
#include <bitset>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/model/unicode/unicode.h"

namespace cgp::model {
namespace {

using std::uint32_t;
using std::uint8_t;
using text::cat;
using Op = GrammarRules::Op;
using Kind = GrammarExpr::Kind;

constexpr std::size_t kMaxNodes = 500'000;
constexpr std::size_t kMaxRecursion = 1000;

/// Writes expressions from the end to the start: each part knows what follows it.
class RuleWriter {
 public:
  explicit RuleWriter(GrammarRules& out) : out_(out) {}

  uint32_t write(const GrammarExpr& e, uint32_t next) {
    if (++steps_ > 4 * kMaxNodes) too_large();
    switch (e.kind) {
      case Kind::text:
        for (std::size_t i = e.text.size(); i-- > 0;)
          next = bytes(uint8_t(e.text[i]), uint8_t(e.text[i]), next);
        return next;
      case Kind::characters:
        return characters(e.ranges, next);
      case Kind::rule:
        return add({Op::call, 0, 0, next, e.rule});
      case Kind::sequence:
        for (std::size_t i = e.children.size(); i-- > 0;) next = write(e.children[i], next);
        return next;
      case Kind::alternatives: {
        uint32_t all = write(e.children.back(), next);
        for (std::size_t i = e.children.size() - 1; i-- > 0;)
          all = add({Op::split, 0, 0, write(e.children[i], next), all});
        return all;
      }
      case Kind::repeat:
        return repeat(e, next);
    }
    return next;
  }
  uint32_t add(GrammarRules::Node node) {
    if (out_.nodes.size() == kMaxNodes) too_large();
    out_.nodes.push_back(node);
    return uint32_t(out_.nodes.size() - 1);
  }

 private:
  [[noreturn]] void too_large() const {
    throw ParseError(ErrorText{
        cat("a grammar has at most ", kMaxNodes, " states"), cat("rule '", out_.rules.back().name, "'"),
        "with its repetitions written out it has more", "use smaller numbers of repetitions"});
  }
  uint32_t bytes(uint8_t first, uint8_t last, uint32_t next) {
    return add({Op::bytes, first, last, next, 0});
  }

  uint32_t repeat(const GrammarExpr& e, uint32_t next) {
    const GrammarExpr& child = e.children[0];
    uint32_t at = next;
    uint32_t required = e.min;
    if (e.max == GrammarExpr::kUnlimited) {
      const uint32_t loop = add({Op::split, 0, 0, 0, next});
      at = out_.nodes[loop].a = write(child, loop);
      if (required > 0)
        --required;
      else
        at = loop;
    } else {
      for (uint32_t i = e.min; i < e.max; ++i) {
        const uint32_t one = write(child, at);
        at = add({Op::split, 0, 0, one, next});
      }
    }
    for (uint32_t i = 0; i < required; ++i) at = write(child, at);
    return at;
  }

  /// UTF-8 of ranges of characters, as sequences of ranges of bytes that share their ends.
  uint32_t characters(const GrammarExpr::Ranges& ranges, uint32_t next) {
    starts_.clear(), tails_.clear();
    for (auto [first, last] : ranges) {
      if (first < 0xD800) range(first, std::min(last, uint32_t(0xD7FF)), next);
      if (last > 0xDFFF) range(std::max(first, uint32_t(0xE000)), last, next);
    }
    if (starts_.empty())
      throw ParseError(ErrorText{"a class of characters has a character",
                                 cat("rule '", out_.rules.back().name, "'"),
                                 "it is empty",
                                 {}});
    uint32_t all = starts_.back();
    for (std::size_t i = starts_.size() - 1; i-- > 0;) all = add({Op::split, 0, 0, starts_[i], all});
    return all;
  }
  void range(uint32_t first, uint32_t last, uint32_t next) {
    for (uint32_t limit : {0x7Fu, 0x7FFu, 0xFFFFu})
      if (first <= limit && last > limit) {
        range(first, limit, next);
        return range(limit + 1, last, next);
      }
    // Both ends have as many bytes. Below the bytes that they share, all must be free.
    for (uint32_t bits = first < 0x80      ? 0
                         : first < 0x800   ? 6
                         : first < 0x10000 ? 12
                                           : 18,
                  low = 6;
         low <= bits; low += 6) {
      const uint32_t mask = (1u << low) - 1;
      if ((first & ~mask) == (last & ~mask)) break;
      if ((first & mask) != 0) {
        range(first, first | mask, next);
        return range((first | mask) + 1, last, next);
      }
      if ((last & mask) != mask) {
        range(first, (last & ~mask) - 1, next);
        return range(last & ~mask, last, next);
      }
    }
    std::string a, b;
    unicode::append(a, first);
    unicode::append(b, last);
    for (std::size_t i = a.size(); i-- > 0;) {
      const GrammarRules::Node node{Op::bytes, uint8_t(a[i]), uint8_t(b[i]), next, 0};
      const auto same = std::find_if(tails_.begin(), tails_.end(), [&](uint32_t t) {
        const auto& n = out_.nodes[t];
        return n.first == node.first && n.last == node.last && n.a == node.a;
      });
      if (i > 0 && same != tails_.end()) {
        next = *same;
      } else {
        next = add(node);
        if (i > 0 && tails_.size() < 16) tails_.push_back(next);
      }
    }
    starts_.push_back(next);
  }

  GrammarRules& out_;
  std::size_t steps_ = 0;
  std::vector<uint32_t> starts_, tails_;  ///< of the class that is written
};

/// From the start of each rule over what `passes_bytes` lets pass and over calls of rules that reach their ends so themselves.
struct Reached {
  std::vector<bool> ends;                     ///< the rule's accept is reached
  std::vector<std::vector<uint32_t>> called;  ///< by rule: what it calls on the way
};
Reached reach(const GrammarRules& g, bool passes_bytes) {
  const std::size_t n = g.rules.size();
  Reached out{std::vector<bool>(n), std::vector<std::vector<uint32_t>>(n)};
  std::vector<bool> seen(g.nodes.size());
  std::vector<std::vector<std::pair<uint32_t, uint32_t>>> waiting(
      n);  // for the rule: rule and node that go on
  std::vector<std::pair<uint32_t, uint32_t>> work;
  for (uint32_t r = 0; r < n; ++r) work.push_back({r, g.rules[r].start});
  while (!work.empty()) {
    const auto [rule, at] = work.back();
    work.pop_back();
    if (seen[at]) continue;
    seen[at] = true;
    const GrammarRules::Node& node = g.nodes[at];
    switch (node.op) {
      case Op::bytes:
        if (passes_bytes) work.push_back({rule, node.a});
        break;
      case Op::split:
        work.push_back({rule, node.a});
        work.push_back({rule, node.b});
        break;
      case Op::call:
        out.called[rule].push_back(node.b);
        if (out.ends[node.b])
          work.push_back({rule, node.a});
        else
          waiting[node.b].push_back({rule, node.a});
        break;
      case Op::accept:
        out.ends[rule] = true;
        work.insert(work.end(), waiting[rule].begin(), waiting[rule].end());
        waiting[rule].clear();
        break;
    }
  }
  return out;
}

/// Throws where a rule begins with itself, or rules begin with one another too deep.
void check_left_recursion(const GrammarRules& g, const std::vector<std::vector<uint32_t>>& called,
                          const std::vector<GrammarRuleText>& texts) {
  enum : uint8_t { unseen, open, done };
  std::vector<uint8_t> state(g.rules.size(), unseen);
  std::vector<std::size_t> depth(g.rules.size(), 1), next(g.rules.size());
  for (uint32_t r = 0; r < g.rules.size(); ++r) {
    if (state[r] != unseen) continue;
    std::vector<uint32_t> path = {r};
    state[r] = open;
    while (!path.empty()) {
      const uint32_t top = path.back();
      if (next[top] == called[top].size()) {
        state[top] = done;
        path.pop_back();
        if (!path.empty()) depth[path.back()] = std::max(depth[path.back()], depth[top] + 1);
        continue;
      }
      const uint32_t to = called[top][next[top]++];
      if (state[to] == open) {
        std::string circle = g.rules[to].name;
        for (auto it = std::find(path.begin(), path.end(), to) + 1; it != path.end() && circle.size() < 200;
             ++it)
          circle += cat(" > ", g.rules[*it].name);
        throw ParseError(ErrorText{"a rule does not begin with itself", texts[to].where,
                                   cat(circle, " > ", g.rules[to].name),
                                   "write a ::= b (c b)* for a ::= a c b | b"});
      }
      if (state[to] == done) depth[top] = std::max(depth[top], depth[to] + 1);
      if (state[to] == unseen) state[to] = open, path.push_back(to);
    }
    if (depth[r] > kMaxRecursion)
      throw ParseError(ErrorText{cat("rules begin with one another at most ", kMaxRecursion, " deep"),
                                 texts[r].where,
                                 cat("from '", g.rules[r].name, "' it is ", depth[r]),
                                 {}});
  }
}

void set_byte_classes(GrammarRules& g) {
  std::bitset<257> begins;
  for (const auto& n : g.nodes)
    if (n.op == Op::bytes) begins.set(n.first), begins.set(n.last + std::size_t(1));
  uint32_t c = 0;
  for (std::size_t b = 0; b < 256; ++b) {
    if (b > 0 && begins[b]) ++c;
    g.byte_class[b] = uint8_t(c);
  }
  g.classes = c + 1;
}

}  // namespace

GrammarRules compile_rules(const std::vector<GrammarRuleText>& texts, uint32_t root) {
  GrammarRules g;
  g.root = root;
  RuleWriter writer(g);
  for (const GrammarRuleText& t : texts) {
    g.rules.push_back({t.name});
    const uint32_t end = writer.add({Op::accept});
    g.rules.back().start = writer.write(t.expr, end);
  }
  const Reached empty = reach(g, false), finite = reach(g, true);
  check_left_recursion(g, empty.called, texts);
  for (std::size_t r = g.rules.size(); r-- > 0;) {
    g.rules[r].nullable = empty.ends[r];
    if (!finite.ends[r])
      throw ParseError(ErrorText{
          "a rule derives a finite text", texts[r].where, cat("'", texts[r].name, "' always goes on"), {}});
  }
  set_byte_classes(g);
  return g;
}

}  // namespace cgp::model

// SPDX-License-Identifier: Apache-2.0
#include "cgp/model/unicode/regex.h"

#include <algorithm>
#include <bit>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::model::unicode {

bool CharClass::has_wide(std::uint32_t point) const {
  bool in = categories >> category(point) & 1;
  if (!in && spaces) in = is_space(point);
  if (!in && not_spaces) in = !is_space(point);
  for (std::size_t i = 0; !in && i < ranges.size(); ++i)
    in = ranges[i].first <= point && point <= ranges[i].second;
  return in != negated;
}

bool CharClass::disjoint(const CharClass& other) const {
  if ((ascii[0] & other.ascii[0]) || (ascii[1] & other.ascii[1])) return false;
  // Categories that characters of the class may have, beyond ASCII.
  auto reach = [](const CharClass& c) -> CategorySet {
    if (c.negated) return ~c.categories;
    if (c.not_spaces || std::any_of(c.ranges.begin(), c.ranges.end(), [](auto r) { return r.second >= 128; }))
      return ~0u;
    return c.categories | (c.spaces ? 1u << Cc | 1u << Zl | 1u << Zp | 1u << Zs : 0);
  };
  return (reach(*this) & reach(other)) == 0;
}

struct Regex::Matcher {
  struct Choice {
    std::uint32_t pc;       // where to go on; ~slot of a mark to restore
    std::size_t at, least;  // a span may give back down to `least`; the old value of a slot
    bool is_mark;
  };

  const Regex& regex;
  std::string_view text;
  std::vector<Choice>& stack;
  std::vector<std::size_t>& slots;
  std::size_t steps_left;

  /// Whether one of the class's characters stands at `at`, which moves on.
  bool take(const CharClass& c, std::size_t& at) const {
    auto b = static_cast<unsigned char>(text[at]);
    if (b < 128) {
      if (!c.has_ascii(b)) return false;
      ++at;
      return true;
    }
    Decoded d = decode(text, at);
    if (!c.has_wide(d.point)) return false;
    at += d.size;
    return true;
  }
  bool is_word(std::size_t at) const {
    constexpr CategorySet kWord = 1u << Ll | 1u << Lm | 1u << Lo | 1u << Lt | 1u << Lu | 1u << Mc | 1u << Me |
                                  1u << Mn | 1u << Nd | 1u << Pc;
    return kWord >> category(decode(text, at).point) & 1;
  }
  bool at_boundary(std::size_t at) const {
    bool before = at > 0 && is_word(previous(text, 0, at)), after = at < text.size() && is_word(at);
    return before != after;
  }

  std::optional<std::size_t> run(std::uint32_t pc, std::size_t at) {
    const std::size_t base = stack.size();
    while (true) {
      const Instruction& i = regex.program_[pc];
      bool ok = true;
      switch (i.op) {
        case Op::span:
        case Op::possessive: {
          const CharClass& c = regex.classes_[i.cls];
          std::size_t least = at;
          std::uint32_t n = 0;
          for (; n < i.max && at < text.size() && take(c, at); ++n)
            if (n + 1 == i.min) least = at;
          ok = n >= i.min;
          if (ok && i.op == Op::span && at > least) stack.push_back({pc + 1, at, least, false});
          ++pc;
          break;
        }
        case Op::split:
          stack.push_back({i.target, at, at, false});
          ++pc;
          break;
        case Op::jump:
          pc = i.target;
          break;
        case Op::mark:
          stack.push_back({i.cls, slots[i.cls], 0, true});
          slots[i.cls] = at;
          ++pc;
          break;
        case Op::progress:
          ok = at != slots[i.cls];
          ++pc;
          break;
        case Op::ahead:
        case Op::not_ahead:
          ok = run(pc + 1, at).has_value() == (i.op == Op::ahead);
          pc = i.target;
          break;
        case Op::start:
          ok = at == 0;
          ++pc;
          break;
        case Op::end:
          ok = at == text.size();
          ++pc;
          break;
        case Op::word:
        case Op::not_word:
          ok = at_boundary(at) == (i.op == Op::word);
          ++pc;
          break;
        case Op::accept:
          while (stack.size() > base) undo();
          return at;
      }
      if (!ok && !backtrack(base, pc, at)) return {};
      if (--steps_left == 0)
        throw Error(ErrorText{"a pre-tokenizer's pattern must match in a bounded number of steps",
                              {},
                              text::cat("it takes more than 64 a byte on a text of ", text.size(), " bytes"),
                              {}});
    }
  }
  /// Forgets the topmost choice.
  void undo() {
    if (stack.back().is_mark) slots[stack.back().pc] = stack.back().at;
    stack.pop_back();
  }
  bool backtrack(std::size_t base, std::uint32_t& pc, std::size_t& at) {
    while (stack.size() > base && stack.back().is_mark) undo();
    if (stack.size() == base) return false;
    Choice& c = stack.back();
    pc = c.pc;
    at = c.at;
    if (c.at > c.least) {
      at = c.at = previous(text, c.least, c.at);
      if (at == c.least) stack.pop_back();
    } else {
      stack.pop_back();
    }
    return true;
  }
};

std::optional<std::size_t> Regex::match(std::string_view text, std::size_t at) const {
  static thread_local std::vector<Matcher::Choice> stack;
  static thread_local std::vector<std::size_t> slots;
  stack.clear();
  slots.assign(slots_, ~std::size_t(0));
  Matcher matcher{*this, text, stack, slots, 1000000 + 64 * text.size()};
  std::uint32_t todo = at < text.size() ? candidates_[static_cast<unsigned char>(text[at])] : ~0u;
  for (std::uint32_t i = 0; i < alternatives_.size(); ++i) {
    if (!(todo >> i & 1)) continue;
    if (std::optional<std::size_t> end = matcher.run(alternatives_[i], at)) return end;
  }
  return {};
}

}  // namespace cgp::model::unicode

// SPDX-License-Identifier: Apache-2.0
#pragma once
// Merging neighbours, the best pair first: what byte-pair encoding and SentencePiece's BPE share.
#include <algorithm>
#include <cstdint>
#include <queue>
#include <vector>

#include "cgp/model/tokenizer/vocabulary.h"

namespace cgp::model {

struct Symbol {
  std::uint32_t begin = 0, end = 0;  ///< bytes of the text
  Token token = kNoToken;            ///< kNoToken: no word of the vocabulary
};

struct Merge {
  static constexpr std::uint32_t kNever = ~0u;
  std::uint32_t priority = kNever;  ///< the least comes first, and of equal ones the leftmost
  Token token = kNoToken;
};

/// Merges `symbols` until no pair is left that lookup(left, right) -> Merge would merge.
template <class Lookup>
void merge_symbols(std::vector<Symbol>& symbols, Lookup&& lookup) {
  constexpr std::size_t kShort = 48;
  const std::size_t n = symbols.size();
  if (n < 2) return;
  if (n <= kShort) {  // a scan for the best pair is faster than a heap
    Merge pairs[kShort];
    for (std::size_t i = 0; i + 1 < n; ++i) pairs[i] = lookup(symbols[i], symbols[i + 1]);
    std::size_t count = n;
    while (true) {
      std::size_t best = 0;
      std::uint32_t priority = Merge::kNever;
      for (std::size_t i = 0; i + 1 < count; ++i)
        if (pairs[i].priority < priority) priority = pairs[best = i].priority;
      if (priority == Merge::kNever) break;
      symbols[best] = {symbols[best].begin, symbols[best + 1].end, pairs[best].token};
      std::copy(symbols.begin() + best + 2, symbols.begin() + count, symbols.begin() + best + 1);
      std::copy(pairs + best + 1, pairs + count - 1, pairs + best);
      --count;
      if (best > 0) pairs[best - 1] = lookup(symbols[best - 1], symbols[best]);
      if (best + 1 < count) pairs[best] = lookup(symbols[best], symbols[best + 1]);
    }
    symbols.resize(count);
    return;
  }

  struct Candidate {
    std::uint32_t priority, left;
    std::uint32_t end;  // of the right one: of another length the candidate is outdated
    std::uint32_t middle;
    Token token;
    bool operator<(const Candidate& o) const {  // std::priority_queue puts the greatest first
      return priority != o.priority ? priority > o.priority : left > o.left;
    }
  };
  constexpr std::uint32_t kNone = ~0u;
  std::vector<std::uint32_t> next(n), previous(n);
  std::priority_queue<Candidate> queue;
  auto consider = [&](std::uint32_t left, std::uint32_t right) {
    if (Merge m = lookup(symbols[left], symbols[right]); m.priority != Merge::kNever)
      queue.push({m.priority, left, symbols[right].end, symbols[right].begin, m.token});
  };
  for (std::uint32_t i = 0; i < n; ++i) {
    next[i] = i + 1 < n ? i + 1 : kNone;
    previous[i] = i > 0 ? i - 1 : kNone;
    if (i > 0) consider(i - 1, i);
  }
  while (!queue.empty()) {
    Candidate c = queue.top();
    queue.pop();
    std::uint32_t right = next[c.left];
    if (symbols[c.left].begin == symbols[c.left].end || right == kNone || symbols[c.left].end != c.middle ||
        symbols[right].end != c.end)
      continue;
    symbols[c.left].end = c.end;
    symbols[c.left].token = c.token;
    symbols[right].begin = symbols[right].end;  // gone
    next[c.left] = next[right];
    if (next[right] != kNone) previous[next[right]] = c.left;
    if (previous[c.left] != kNone) consider(previous[c.left], c.left);
    if (next[c.left] != kNone) consider(c.left, next[c.left]);
  }
  std::erase_if(symbols, [](const Symbol& s) { return s.begin == s.end; });
}

}  // namespace cgp::model

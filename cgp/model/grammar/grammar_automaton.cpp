// SPDX-License-Identifier: Apache-2.0
#include "cgp/model/grammar/grammar_automaton.h"

#include <algorithm>
#include <cstring>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::model {

using std::uint32_t;
using std::uint64_t;
using Op = GrammarRules::Op;

/// What tokens do from a frame on, whatever is below it.
struct FrameTokens {
  std::vector<Token> few;         ///< those that may come, or
  GrammarAutomaton::Mask many;    ///< their bits
  std::vector<uint32_t> left_at;  ///< nodes of the trie where the frame's rule may have ended
};

namespace {

constexpr std::size_t kMasks = 256;

template <class T>
std::string key_of(const std::vector<T>& v, char tag = 0) {
  std::string out(v.size() * sizeof(T) + 1, tag);
  if (!v.empty()) std::memcpy(out.data(), v.data(), v.size() * sizeof(T));
  return out;
}
uint64_t pair_key(uint32_t a, uint32_t b) { return uint64_t(a) << 32 | b; }

}  // namespace

GrammarAutomaton::GrammarAutomaton(const GrammarRules& rules, const TokenTrie& trie)
    : rules_(rules),
      trie_(trie),
      class_byte_(rules.classes),
      frames_(1),
      rule_starts_(rules.rules.size(), kUnknown),
      visited_(rules.nodes.size()),
      path_(trie.longest() + 1) {
  for (std::size_t b = 256; b-- > 0;) class_byte_[rules.byte_class[b]] = static_cast<unsigned char>(b);
  intern({});
  intern({{kExit, kDead}});
  const StackSet empty = rules.rules[rules.root].nullable ? kEmpty : kDead;
  start_ = unite(close(rule_start(rules.root), kEmpty), empty);
}

void GrammarAutomaton::work(std::size_t steps) {
  work_ += steps;
  if (work_ > kMostWork || bytes_ > kMostBytes)
    throw Error(ErrorText{"a grammar is nearly unambiguous",
                          {},
                          "the text so far can be read in too many ways at once",
                          "write alternatives that differ in their first characters"});
}

/// The frame of what `seeds` reach without a byte. The start of a rule never accepts: its caller has gone on without it.
GrammarAutomaton::Frame GrammarAutomaton::frame(std::vector<uint32_t> seeds, bool starts) {
  FrameData out;
  ++round_;
  while (!seeds.empty()) {
    const uint32_t at = seeds.back();
    seeds.pop_back();
    if (visited_[at] == round_) continue;
    visited_[at] = round_;
    const GrammarRules::Node& node = rules_.nodes[at];
    switch (node.op) {
      case Op::bytes:
        out.takes_bytes = true;
        out.nodes.push_back(at);
        break;
      case Op::call:
        out.has_calls = true;
        out.nodes.push_back(at);
        if (rules_.rules[node.b].nullable) seeds.push_back(node.a);
        break;
      case Op::split:
        seeds.push_back(node.b);
        seeds.push_back(node.a);
        break;
      case Op::accept:
        out.accepts = !starts;
        break;
    }
  }
  if (out.nodes.empty() && !out.accepts) return kExit;
  std::sort(out.nodes.begin(), out.nodes.end());
  work(1 + out.nodes.size());
  const auto [it, added] =
      frame_index_.try_emplace(key_of(out.nodes, char(out.accepts)), uint32_t(frames_.size()));
  if (added) {
    bytes_ += 300 + 8 * out.nodes.size() + 4 * rules_.classes;
    out.next.assign(rules_.classes, kUnknown);
    frames_.push_back(std::move(out));
  }
  return it->second;
}

GrammarAutomaton::Frame GrammarAutomaton::rule_start(uint32_t rule) {
  if (rule_starts_[rule] == kUnknown) rule_starts_[rule] = frame({rules_.rules[rule].start}, true);
  return rule_starts_[rule];
}

GrammarAutomaton::Frame GrammarAutomaton::frame_step(Frame f, uint32_t byte_class) {
  if (frames_[f].next[byte_class] != kUnknown) return frames_[f].next[byte_class];
  const unsigned char byte = class_byte_[byte_class];
  std::vector<uint32_t> seeds;
  for (uint32_t n : frames_[f].nodes) {
    const GrammarRules::Node& node = rules_.nodes[n];
    if (node.op == Op::bytes && node.first <= byte && byte <= node.last) seeds.push_back(node.a);
  }
  work(1 + frames_[f].nodes.size());
  const Frame to = seeds.empty() ? kExit : frame(std::move(seeds), false);
  return frames_[f].next[byte_class] = to;
}

void GrammarAutomaton::find_calls(Frame f) {
  if (frames_[f].calls_known) return;
  std::vector<std::pair<uint32_t, uint32_t>> calls;  // rule, node behind it
  for (uint32_t n : frames_[f].nodes)
    if (rules_.nodes[n].op == Op::call) calls.push_back({rules_.nodes[n].b, rules_.nodes[n].a});
  std::sort(calls.begin(), calls.end());
  std::vector<std::pair<uint32_t, Frame>> found;
  for (std::size_t i = 0; i < calls.size();) {
    std::vector<uint32_t> seeds;
    const uint32_t rule = calls[i].first;
    for (; i < calls.size() && calls[i].first == rule; ++i) seeds.push_back(calls[i].second);
    found.push_back({rule, frame(std::move(seeds), false)});
  }
  bytes_ += 16 * found.size();
  frames_[f].calls = std::move(found);
  frames_[f].calls_known = true;
}

GrammarAutomaton::StackSet GrammarAutomaton::intern(std::vector<Entry> entries) {
  work(1 + entries.size());
  const auto [it, added] = set_index_.try_emplace(key_of(entries), uint32_t(sets_.size()));
  if (added) {
    SetData data;
    for (const auto& [f, below] : entries)
      if (f != kExit) data.depth = std::max(data.depth, 1 + sets_[below].depth);
    if (data.depth > kMaxDepth) {
      set_index_.erase(it);
      throw Error(ErrorText{
          text::cat("a text nests at most ", kMaxDepth, " rules of its grammar"), {}, "it nests more", {}});
    }
    bytes_ += 250 + 16 * entries.size();
    data.entries = std::move(entries);
    sets_.push_back(std::move(data));
  }
  return it->second;
}

GrammarAutomaton::StackSet GrammarAutomaton::unite(StackSet a, StackSet b) {
  if (a == b || b == kDead) return a;
  if (a == kDead) return b;
  const uint64_t key = pair_key(std::min(a, b), std::max(a, b));
  if (const auto it = united_.find(key); it != united_.end()) return it->second;
  std::vector<Entry> out;
  for (std::size_t i = 0, j = 0;;) {
    const bool left = i < sets_[a].entries.size(), right = j < sets_[b].entries.size();
    if (!left && !right) break;
    if (left && right && sets_[a].entries[i].first == sets_[b].entries[j].first) {
      const Frame f = sets_[a].entries[i].first;
      const StackSet below = unite(sets_[a].entries[i].second, sets_[b].entries[j].second);
      out.push_back({f, below});
      ++i, ++j;
    } else if (left && (!right || sets_[a].entries[i].first < sets_[b].entries[j].first)) {
      out.push_back(sets_[a].entries[i++]);
    } else {
      out.push_back(sets_[b].entries[j++]);
    }
  }
  const StackSet all = intern(std::move(out));
  bytes_ += 48;
  return united_[key] = all;
}

/// The stacks of frame `f` on `below` once rules that end have ended and rules that begin have begun: every top takes a byte.
GrammarAutomaton::StackSet GrammarAutomaton::close(Frame f, StackSet below) {
  const uint64_t key = pair_key(f, below);
  if (const auto it = closed_.find(key); it != closed_.end()) return it->second;
  StackSet out = frames_[f].takes_bytes ? intern({{f, below}}) : kDead;
  if (frames_[f].accepts) out = unite(out, close_all(below));
  if (frames_[f].has_calls) {
    find_calls(f);
    for (std::size_t i = 0; i < frames_[f].calls.size(); ++i) {
      const auto [rule, behind] = frames_[f].calls[i];
      const Frame start = rule_start(rule);
      if (start == kExit) continue;  // it derives nothing but the empty text
      // A frame with nothing more to do need not be on the stack.
      const bool last = frames_[behind].nodes.empty();
      const StackSet deeper = last ? below : intern({{behind, below}});
      out = unite(out, close(start, deeper));
    }
  }
  bytes_ += 48;
  return closed_[key] = out;
}

GrammarAutomaton::StackSet GrammarAutomaton::close_all(StackSet s) {
  if (sets_[s].closed != kUnknown) return sets_[s].closed;
  StackSet out = kDead;
  for (std::size_t i = 0; i < sets_[s].entries.size(); ++i) {
    const auto [f, below] = sets_[s].entries[i];
    out = unite(out, f == kExit ? kEmpty : close(f, below));
  }
  return sets_[s].closed = out;
}

GrammarAutomaton::StackSet GrammarAutomaton::step_class(StackSet from, uint32_t byte_class) {
  if (sets_[from].next.empty()) {
    sets_[from].next.assign(rules_.classes, kUnknown);
    bytes_ += 4 * rules_.classes;
  }
  if (const StackSet known = sets_[from].next[byte_class]; known != kUnknown) return known;
  StackSet out = kDead;
  for (std::size_t i = 0; i < sets_[from].entries.size(); ++i) {
    const auto [f, below] = sets_[from].entries[i];
    if (f == kExit) continue;
    if (const Frame to = frame_step(f, byte_class); to != kExit) out = unite(out, close(to, below));
  }
  return sets_[from].next[byte_class] = out;
}

GrammarAutomaton::StackSet GrammarAutomaton::step(StackSet from, unsigned char byte) {
  return step_class(from, rules_.byte_class[byte]);
}

/// Follows the tokens below `node`. each(node, set) has them as far as they go on; the set is not kDead.
template <class Each>
void GrammarAutomaton::walk(uint32_t node, StackSet from, Each&& each) {
  const auto nodes = trie_.nodes();
  path_[nodes[node].depth] = from;
  const uint32_t end = nodes[node].end;
  for (uint32_t n = node + 1; n < end;) {
    const TokenTrie::Node& at = nodes[n];
    const StackSet above = path_[at.depth - 1u];
    const uint32_t c = rules_.byte_class[at.byte];
    const SetData& data = sets_[above];
    StackSet to = data.next.empty() ? kUnknown : data.next[c];
    if (to == kUnknown) to = step_class(above, c);
    if (to == kDead) {
      n = at.end;
      continue;
    }
    path_[at.depth] = to;
    each(n, to);
    n = to == kEmpty ? at.end : n + 1;
  }
}

const FrameTokens& GrammarAutomaton::tokens_of(Frame f) {
  if (frames_[f].tokens) return *frames_[f].tokens;
  auto out = std::make_shared<FrameTokens>();
  const auto nodes = trie_.nodes();
  const auto tokens = trie_.tokens();
  walk(0, intern({{f, kEmpty}}), [&](uint32_t n, StackSet to) {
    for (uint32_t t = nodes[n].tokens; t < nodes[n + 1].tokens; ++t) out->few.push_back(tokens[t]);
    if (complete(to)) out->left_at.push_back(n);
  });
  if (const std::size_t words = (trie_.size() + 31) / 32; out->few.size() > words) {
    out->many.resize(words);
    for (Token t : out->few) out->many[std::size_t(t) / 32] |= 1u << (t % 32);
    out->few = {};
  }
  out->few.shrink_to_fit();
  bytes_ += 64 + 4 * (out->few.size() + out->many.size() + out->left_at.capacity());
  frames_[f].tokens = std::move(out);
  return *frames_[f].tokens;
}

std::shared_ptr<const GrammarAutomaton::Mask> GrammarAutomaton::mask(StackSet s) {
  if (sets_[s].mask) return sets_[s].mask;
  auto out = std::make_shared<Mask>((trie_.size() + 31) / 32);
  const auto nodes = trie_.nodes();
  const auto tokens = trie_.tokens();
  const auto set = [&](Token t) { (*out)[std::size_t(t) / 32] |= 1u << (t % 32); };
  for (std::size_t i = 0; i < sets_[s].entries.size(); ++i) {
    const auto [f, below] = sets_[s].entries[i];
    if (f == kExit) {
      for (Token t : trie_.ends()) set(t);
      continue;
    }
    const FrameTokens& top = tokens_of(f);
    for (Token t : top.few) set(t);
    for (std::size_t w = 0; w < top.many.size(); ++w) (*out)[w] |= top.many[w];
    const StackSet rest = close_all(below);
    if (rest == kEmpty) continue;
    for (uint32_t left : top.left_at)
      walk(left, rest, [&](uint32_t n, StackSet) {
        for (uint32_t t = nodes[n].tokens; t < nodes[n + 1].tokens; ++t) set(tokens[t]);
      });
  }
  if (masked_.size() == kMasks) {
    for (StackSet m : masked_) sets_[m].mask.reset();
    masked_.clear();
  }
  masked_.push_back(s);
  sets_[s].mask = out;
  return out;
}

GrammarAutomaton::StackSet GrammarAutomaton::import(const GrammarAutomaton& other, StackSet s) {
  // Below comes before above in the other's numbering.
  std::vector<StackSet> open = {s}, order;
  std::unordered_map<StackSet, StackSet> here;
  while (!open.empty()) {
    const StackSet at = open.back();
    open.pop_back();
    if (!here.emplace(at, kDead).second) continue;
    order.push_back(at);
    for (const auto& [f, below] : other.sets_[at].entries)
      if (f != kExit) open.push_back(below);
  }
  std::sort(order.begin(), order.end());
  for (StackSet at : order) {
    std::vector<Entry> entries;
    for (const auto& [f, below] : other.sets_[at].entries) {
      if (f == kExit) {
        entries.push_back({kExit, kDead});
        continue;
      }
      // Accepting was decided from nodes that a frame does not keep.
      const FrameData& from = other.frames_[f];
      const auto [it, added] =
          frame_index_.try_emplace(key_of(from.nodes, char(from.accepts)), uint32_t(frames_.size()));
      if (added) {
        FrameData data;
        data.nodes = from.nodes;
        data.accepts = from.accepts, data.takes_bytes = from.takes_bytes, data.has_calls = from.has_calls;
        data.next.assign(rules_.classes, kUnknown);
        bytes_ += 300 + 8 * data.nodes.size() + 4 * rules_.classes;
        frames_.push_back(std::move(data));
      }
      entries.push_back({it->second, here.at(below)});
    }
    std::sort(entries.begin(), entries.end());
    here[at] = intern(std::move(entries));
  }
  return here.at(s);
}

}  // namespace cgp::model

// SPDX-License-Identifier: Apache-2.0
#pragma once
// The pushdown automaton of a grammar, made deterministic as it is used. Internal to cgp/model/grammar.
//
// A frame is a set of nodes of one rule: what a deterministic automaton of that rule would have as a state. A stack is a sequence
// of frames, the top first. A set of stacks is a sorted list of their top frames, each with the set of stacks below it;
// equal sets have one number. So a state, however ambiguous, is one number, and its steps are remembered.
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cgp/model/grammar/grammar_rules.h"
#include "cgp/model/grammar/token_trie.h"

namespace cgp::model {

class GrammarAutomaton {
 public:
  using Frame = std::uint32_t;
  using StackSet = std::uint32_t;
  using Mask = std::vector<std::uint32_t>;
  static constexpr StackSet kDead = 0;   ///< no stack
  static constexpr StackSet kEmpty = 1;  ///< the empty stack: the text is complete

  /// Both must outlive it.
  GrammarAutomaton(const GrammarRules& rules, const TokenTrie& trie);

  /// Held around all that follows.
  std::mutex mutex;
  StackSet start() const { return start_; }
  /// kDead where no text goes on so. Throws Error for what is too ambiguous or too deep.
  StackSet step(StackSet from, unsigned char byte);
  bool complete(StackSet s) const { return !sets_[s].entries.empty() && sets_[s].entries[0].first == kExit; }
  std::shared_ptr<const Mask> mask(StackSet s);
  /// It has grown so large that a new one should take over.
  bool full() const { return bytes_ > kFullBytes; }
  /// A set of another automaton of the same grammar.
  StackSet import(const GrammarAutomaton& other, StackSet s);
  /// The work of one token or mask begins, which is bounded.
  void begin() { work_ = 0; }

 private:
  static constexpr Frame kExit = 0;  ///< stands in a set for the empty stack
  static constexpr std::uint32_t kUnknown = ~std::uint32_t(0);
  static constexpr std::size_t kFullBytes = 96u << 20, kMostBytes = 512u << 20, kMostWork = 10'000'000;
  static constexpr std::uint32_t kMaxDepth = 1000;

  struct FrameData {
    std::vector<std::uint32_t> nodes;  ///< of bytes and calls, ascending
    bool accepts = false;              ///< the rule may end here
    bool takes_bytes = false, has_calls = false;
    bool calls_known = false;
    std::vector<std::pair<std::uint32_t, Frame>> calls;  ///< rule, and the frame behind it
    std::vector<Frame> next;                             ///< by class of bytes; kExit: none
    std::shared_ptr<const struct FrameTokens> tokens;
  };
  using Entry = std::pair<Frame, StackSet>;
  struct SetData {
    std::vector<Entry> entries;
    std::uint32_t depth = 0;
    StackSet closed = kUnknown;  ///< close_all() of it
    std::vector<StackSet> next;  ///< by class of bytes
    std::shared_ptr<const Mask> mask;
  };

  void work(std::size_t steps);
  Frame frame(std::vector<std::uint32_t> seeds, bool starts);
  Frame frame_step(Frame f, std::uint32_t byte_class);
  void find_calls(Frame f);
  Frame rule_start(std::uint32_t rule);
  StackSet intern(std::vector<Entry> entries);
  StackSet unite(StackSet a, StackSet b);
  StackSet close(Frame f, StackSet below);
  StackSet close_all(StackSet s);
  StackSet step_class(StackSet from, std::uint32_t byte_class);
  const FrameTokens& tokens_of(Frame f);
  template <class Each>
  void walk(std::uint32_t node, StackSet from, Each&& each);

  const GrammarRules& rules_;
  const TokenTrie& trie_;
  std::vector<unsigned char> class_byte_;  ///< a byte of each class
  std::vector<FrameData> frames_;
  std::vector<SetData> sets_;
  std::vector<Frame> rule_starts_;
  std::unordered_map<std::string, std::uint32_t> frame_index_, set_index_;
  std::unordered_map<std::uint64_t, StackSet> united_, closed_;
  std::vector<std::uint32_t> visited_;  ///< by node: the round that saw it
  std::uint32_t round_ = 0;
  std::vector<StackSet> path_;    ///< of a walk, by depth
  std::vector<StackSet> masked_;  ///< those that have a mask
  std::size_t bytes_ = 0, work_ = 0;
  StackSet start_ = kDead;
};

}  // namespace cgp::model

// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which page of a paged key-value cache holds which tokens of which sequence. Bookkeeping only: keys and values lie in a
// Backend. A full page whose tokens, and all before them, are those of another sequence is shared (prefix cache); pages
// of ended sequences stay until their memory is needed, the one that was not used for longest first.
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cgp::engine {

using SequenceId = std::int64_t;

class PageCache {
 public:
  /// ArgumentError unless both are positive.
  PageCache(std::int64_t pages, std::int64_t page_tokens);

  /// A new sequence that begins with as many whole pages of `prompt` as are there, but leaves at least its last token to be
  /// computed (somebody wants its logits). tokens(id) says how many are there.
  SequenceId open(std::span<const std::int32_t> prompt);
  /// A new sequence with the tokens of another one. Its pages are shared until one of the two writes into them.
  SequenceId fork(SequenceId id);
  /// Pages for `count` more tokens. All or nothing: false, and nothing has changed, where pages are short. A page that is
  /// shared and will be written is replaced by a copy: `copy(from, to)` must copy its keys and values at once.
  bool reserve(SequenceId id, std::int64_t count,
               const std::function<void(std::int32_t from, std::int32_t to)>& copy);
  /// The reserved pages now hold keys and values of these tokens, behind those that were there. Throws ArgumentError beyond
  /// what was reserved.
  void append(SequenceId id, std::span<const std::int32_t> tokens);
  /// Forgets all tokens from `tokens` on (speculative decoding), and the pages reserved for more.
  void truncate(SequenceId id, std::int64_t tokens);
  void close(SequenceId id);

  std::span<const std::int32_t> pages(SequenceId id) const;
  /// Tokens whose keys and values are there.
  std::int64_t tokens(SequenceId id) const;

  std::int64_t page_tokens() const { return page_tokens_; }
  std::int64_t total_pages() const { return std::int64_t(pages_.size()); }
  /// Pages that reserve() can have: free ones and those that only the prefix cache keeps.
  std::int64_t available_pages() const { return std::int64_t(free_.size() + unused_.size()); }
  std::int64_t pages_for(std::int64_t tokens) const { return (tokens + page_tokens_ - 1) / page_tokens_; }
  struct Counts {
    std::int64_t reused_tokens = 0, evicted_pages = 0, copied_pages = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  /// What a full page holds: its tokens, and the content of the page before it (0: none).
  using Key = std::pair<std::uint64_t, std::vector<std::int32_t>>;
  struct Page {
    std::int32_t users = 0;
    std::uint64_t content = 0;                    ///< number of its entry in known_; 0: none
    std::map<Key, std::int32_t>::iterator entry;  ///< in known_, where content is not 0
    std::list<std::int32_t>::iterator unused;     ///< in unused_, where content is not 0 and users is 0
  };
  struct Sequence {
    std::vector<std::int32_t> pages;
    std::vector<std::int32_t> tokens;
    std::vector<std::uint64_t> contents;  ///< of each full page of tokens
  };
  Sequence& find(SequenceId id);
  const Sequence& find(SequenceId id) const;
  std::int32_t take();
  void use(std::int32_t page);
  void release(std::int32_t page);

  std::int64_t page_tokens_;
  std::vector<Page> pages_;
  std::vector<std::int32_t> free_;
  std::list<std::int32_t> unused_;  ///< kept for their content alone, least recently used first
  std::map<Key, std::int32_t> known_;
  std::unordered_map<SequenceId, Sequence> sequences_;
  SequenceId next_ = 1;
  std::uint64_t next_content_ = 1;
  Counts counts_;
};

}  // namespace cgp::engine

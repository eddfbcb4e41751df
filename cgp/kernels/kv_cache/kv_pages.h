// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which page of a key-value cache holds which tokens: a free list, a table of pages per sequence, pages
// shared by reference counts and copied when one of their owners writes. Host only; kv_cache.h moves the
// data. Every call that throws leaves everything as it was.
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cgp/base/error.h"

namespace cgp::kernels {

enum class KvFailure : std::uint8_t { exhausted, unknown_sequence, freed_sequence, bad_length };
class KvError : public Error {
 public:
  KvError(KvFailure kind, ErrorText text) : Error(std::move(text)), kind_(kind) {}
  KvFailure kind() const { return kind_; }

 private:
  KvFailure kind_;
};

using KvSequence = std::uint64_t;  ///< never used again after free()

class KvPages {
 public:
  struct Copy {  ///< to be done before the new tokens are written
    std::uint32_t from, to, tokens;
  };
  struct Append {
    std::vector<std::uint64_t> slots;  ///< of each new token: page * page_size + place in the page
    std::vector<Copy> copies;
  };

  /// page_size is a power of two, 16 to 2^20; decode() takes up to 256.
  KvPages(std::uint32_t pages, std::uint32_t page_size);

  KvSequence add();
  /// A sequence that begins with the first `tokens` of `parent`, sharing its pages.
  KvSequence fork(KvSequence parent, std::uint64_t tokens);
  /// Room for `tokens` more. Exhaustion: on_exhausted is asked first, then KvError, nothing taken.
  Append append(KvSequence s, std::uint64_t tokens);
  /// Takes back the last tokens (speculative decoding): `length` remain.
  void truncate(KvSequence s, std::uint64_t length);
  void free(KvSequence s);

  std::uint64_t length(KvSequence s) const { return find(s).length; }
  const std::vector<std::uint32_t>& table(KvSequence s) const { return find(s).pages; }
  std::uint32_t page_count() const { return std::uint32_t(references_.size()); }
  std::uint32_t page_size() const { return page_size_; }
  std::uint32_t free_pages() const { return std::uint32_t(free_.size()); }
  std::uint32_t references(std::uint32_t page) const { return references_.at(page); }
  std::size_t sequences() const { return sequences_.size(); }
  /// Table rows of several sequences as one array [count][columns], for kernels; unused entries are -1.
  std::vector<std::int32_t> tables(const std::vector<KvSequence>& of, std::size_t columns) const;

  /// Called with the number of pages that are missing; may free sequences (evict) and returns whether it did.
  std::function<bool(std::size_t missing)> on_exhausted;

 private:
  struct State {
    std::vector<std::uint32_t> pages;
    std::uint64_t length = 0;
  };
  const State& find(KvSequence s) const;
  State& find(KvSequence s) { return const_cast<State&>(std::as_const(*this).find(s)); }
  std::uint64_t pages_for(std::uint64_t tokens) const { return (tokens + page_size_ - 1) / page_size_; }
  void release(std::uint32_t page);

  std::uint32_t page_size_;
  std::vector<std::uint32_t> free_, references_;
  std::unordered_map<KvSequence, State> sequences_;
  KvSequence next_ = 1;
};

}  // namespace cgp::kernels

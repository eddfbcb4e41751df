// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/kv_cache/kv_pages.h"

#include "cgp/base/text.h"

namespace cgp::kernels {

KvPages::KvPages(std::uint32_t pages, std::uint32_t page_size) : page_size_(page_size) {
  if (page_size < 16 || page_size > 1u << 20 || (page_size & (page_size - 1)))
    throw ArgumentError(
        text::cat("kv cache: page_size = ", page_size, " is no power of two from 16 to 2^20"));
  references_.assign(pages, 0);
  for (std::uint32_t p = pages; p-- > 0;) free_.push_back(p);  // page 0 is taken first
}

const KvPages::State& KvPages::find(KvSequence s) const {
  const auto at = sequences_.find(s);
  if (at != sequences_.end()) return at->second;
  const bool freed = s != 0 && s < next_;
  throw KvError(
      freed ? KvFailure::freed_sequence : KvFailure::unknown_sequence,
      {"kv cache: a sequence is used between add() and free()",
       {},
       freed ? text::cat("sequence ", s, " was freed before") : text::cat("there is no sequence ", s),
       {}});
}

void KvPages::release(std::uint32_t page) {
  if (--references_[page] == 0) free_.push_back(page);
}

KvSequence KvPages::add() {
  sequences_.emplace(next_, State{});
  return next_++;
}

KvSequence KvPages::fork(KvSequence parent, std::uint64_t tokens) {
  const State& from = find(parent);
  if (tokens > from.length)
    throw KvError(KvFailure::bad_length,
                  {"kv cache: a fork shares tokens that are there",
                   {},
                   text::cat(tokens, " asked for, sequence ", parent, " has ", from.length),
                   {}});
  State child;
  child.pages.assign(from.pages.begin(), from.pages.begin() + std::ptrdiff_t(pages_for(tokens)));
  child.length = tokens;
  sequences_.emplace(next_, child);
  for (std::uint32_t p : child.pages) ++references_[p];
  return next_++;
}

KvPages::Append KvPages::append(KvSequence s, std::uint64_t tokens) {
  // A last page that is partly filled and has other owners is copied: they must not see these tokens.
  const auto needs = [&] {
    const State& q = find(s);
    const bool shared = q.length % page_size_ != 0 && tokens && references_[q.pages.back()] > 1;
    return std::pair(pages_for(q.length + tokens) - q.pages.size() + shared, shared);
  };
  auto need = needs();
  while (need.first > free_.size()) {
    if (!on_exhausted || !on_exhausted(need.first - free_.size()))
      throw KvError(KvFailure::exhausted, {"kv cache: an append needs free pages",
                                           {},
                                           text::cat(tokens, " tokens need ", need.first, " pages, ",
                                                     free_.size(), " of ", references_.size(), " are free"),
                                           "free sequences, or set on_exhausted"});
    need = needs();
  }
  State& q = find(s);
  const auto take = [&] {
    const std::uint32_t p = free_.back();
    free_.pop_back();
    references_[p] = 1;
    return p;
  };
  Append out;
  if (need.second) {
    const std::uint32_t old = q.pages.back(), fresh = take();
    out.copies.push_back({old, fresh, std::uint32_t(q.length % page_size_)});
    release(old);
    q.pages.back() = fresh;
  }
  out.slots.reserve(tokens);
  for (std::uint64_t i = 0; i < tokens; ++i, ++q.length) {
    if (q.length % page_size_ == 0) q.pages.push_back(take());
    out.slots.push_back(std::uint64_t(q.pages.back()) * page_size_ + q.length % page_size_);
  }
  return out;
}

void KvPages::truncate(KvSequence s, std::uint64_t length) {
  State& q = find(s);
  if (length > q.length)
    throw KvError(KvFailure::bad_length, {"kv cache: truncate keeps tokens that are there",
                                          {},
                                          text::cat(length, " asked for, sequence ", s, " has ", q.length),
                                          {}});
  while (q.pages.size() > pages_for(length)) {
    release(q.pages.back());
    q.pages.pop_back();
  }
  q.length = length;
}

void KvPages::free(KvSequence s) {
  for (std::uint32_t p : find(s).pages) release(p);
  sequences_.erase(s);
}

std::vector<std::int32_t> KvPages::tables(const std::vector<KvSequence>& of, std::size_t columns) const {
  std::vector<std::int32_t> out(of.size() * columns, -1);
  for (std::size_t i = 0; i < of.size(); ++i) {
    const State& q = find(of[i]);
    if (q.pages.size() > columns)
      throw ArgumentError(text::cat("kv cache: sequence ", of[i], " has ", q.pages.size(),
                                    " pages, a table row holds ", columns));
    for (std::size_t j = 0; j < q.pages.size(); ++j) out[i * columns + j] = std::int32_t(q.pages[j]);
  }
  return out;
}

}  // namespace cgp::kernels

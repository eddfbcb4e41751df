// SPDX-License-Identifier: Apache-2.0
#include "cgp/engine/cache/page_cache.h"

#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::engine {

using std::int32_t;
using std::int64_t;
using text::cat;

PageCache::PageCache(int64_t pages, int64_t page_tokens) : page_tokens_(page_tokens) {
  if (pages < 1 || pages > INT32_MAX || page_tokens < 1)
    throw ArgumentError(
        ErrorText{"a cache has pages, and they have tokens", {}, cat(pages, " pages of ", page_tokens), {}});
  pages_.resize(std::size_t(pages));
  for (int64_t i = pages; i-- > 0;) free_.push_back(int32_t(i));
}

PageCache::Sequence& PageCache::find(SequenceId id) {
  return const_cast<Sequence&>(static_cast<const PageCache*>(this)->find(id));
}
const PageCache::Sequence& PageCache::find(SequenceId id) const {
  const auto at = sequences_.find(id);
  if (at == sequences_.end())
    throw ArgumentError(ErrorText{"a sequence is open", {}, cat("sequence ", id, " is not"), {}});
  return at->second;
}

/// A page nobody uses: a free one, or the one that the prefix cache has not used for longest.
int32_t PageCache::take() {
  if (free_.empty()) {
    const int32_t page = unused_.front();
    unused_.pop_front();
    known_.erase(pages_[std::size_t(page)].entry);
    pages_[std::size_t(page)].content = 0;
    free_.push_back(page);
    ++counts_.evicted_pages;
  }
  const int32_t page = free_.back();
  free_.pop_back();
  pages_[std::size_t(page)].users = 1;
  return page;
}

void PageCache::use(int32_t page) {
  Page& p = pages_[std::size_t(page)];
  if (p.users++ == 0) unused_.erase(p.unused);
}

void PageCache::release(int32_t page) {
  Page& p = pages_[std::size_t(page)];
  if (--p.users > 0) return;
  if (p.content)
    p.unused = unused_.insert(unused_.end(), page);
  else
    free_.push_back(page);
}

SequenceId PageCache::open(std::span<const int32_t> prompt) {
  Sequence s;
  const auto n = int64_t(prompt.size());
  for (int64_t at = 0; at + page_tokens_ < n; at += page_tokens_) {
    const auto first = prompt.begin() + at;
    const auto found =
        known_.find(Key{s.contents.empty() ? 0 : s.contents.back(), {first, first + page_tokens_}});
    if (found == known_.end()) break;
    use(found->second);
    s.pages.push_back(found->second);
    s.contents.push_back(pages_[std::size_t(found->second)].content);
    s.tokens.insert(s.tokens.end(), first, first + page_tokens_);
  }
  counts_.reused_tokens += int64_t(s.tokens.size());
  sequences_.emplace(next_, std::move(s));
  return next_++;
}

SequenceId PageCache::fork(SequenceId id) {
  Sequence s = find(id);
  s.pages.resize(std::size_t(pages_for(int64_t(s.tokens.size()))));
  for (int32_t page : s.pages) use(page);
  sequences_.emplace(next_, std::move(s));
  return next_++;
}

bool PageCache::reserve(SequenceId id, int64_t count, const std::function<void(int32_t, int32_t)>& copy) {
  Sequence& s = find(id);
  const auto tokens = int64_t(s.tokens.size());
  const int64_t needed = pages_for(tokens + count), there = int64_t(s.pages.size());
  // The page that will be written next may be another sequence's too, or, after truncate(), known by its content.
  const bool partial = tokens % page_tokens_ != 0 && count > 0;
  const auto last = std::size_t(tokens / page_tokens_);
  const bool shared = partial && pages_[std::size_t(s.pages[last])].users > 1;
  if (std::max<int64_t>(needed - there, 0) + int64_t(shared) > available_pages()) return false;
  if (shared) {
    const int32_t page = take();
    copy(s.pages[last], page);
    release(s.pages[last]);
    s.pages[last] = page;
    ++counts_.copied_pages;
  } else if (partial) {
    Page& page = pages_[std::size_t(s.pages[last])];
    if (page.content) known_.erase(page.entry), page.content = 0;
  }
  while (int64_t(s.pages.size()) < needed) s.pages.push_back(take());
  return true;
}

void PageCache::append(SequenceId id, std::span<const int32_t> tokens) {
  Sequence& s = find(id);
  const auto end = int64_t(s.tokens.size() + tokens.size());
  if (end > int64_t(s.pages.size()) * page_tokens_)
    throw ArgumentError(ErrorText{"tokens have reserved pages",
                                  {},
                                  cat(end, " tokens, ", s.pages.size(), " pages of ", page_tokens_),
                                  {}});
  s.tokens.insert(s.tokens.end(), tokens.begin(), tokens.end());
  while (int64_t(s.contents.size() + 1) * page_tokens_ <= end) {
    const auto i = s.contents.size();
    const auto first = s.tokens.begin() + int64_t(i) * page_tokens_;
    const auto [entry, added] =
        known_.try_emplace(Key{i ? s.contents[i - 1] : 0, {first, first + page_tokens_}}, s.pages[i]);
    if (added) {
      Page& p = pages_[std::size_t(s.pages[i])];
      p.content = next_content_++, p.entry = entry;
    }
    s.contents.push_back(pages_[std::size_t(entry->second)].content);
  }
}

void PageCache::truncate(SequenceId id, int64_t tokens) {
  Sequence& s = find(id);
  if (tokens < 0 || tokens > int64_t(s.tokens.size()))
    throw ArgumentError(ErrorText{
        "a sequence is cut within its tokens", {}, cat("at ", tokens, " of ", s.tokens.size()), {}});
  while (int64_t(s.pages.size()) > pages_for(tokens)) release(s.pages.back()), s.pages.pop_back();
  s.tokens.resize(std::size_t(tokens));
  s.contents.resize(std::size_t(tokens / page_tokens_));
}

void PageCache::close(SequenceId id) {
  Sequence& s = find(id);
  while (!s.pages.empty()) release(s.pages.back()), s.pages.pop_back();  // the last ones are evicted first
  sequences_.erase(id);
}

std::span<const int32_t> PageCache::pages(SequenceId id) const { return find(id).pages; }
int64_t PageCache::tokens(SequenceId id) const { return int64_t(find(id).tokens.size()); }

}  // namespace cgp::engine

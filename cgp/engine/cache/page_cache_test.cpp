// SPDX-License-Identifier: Apache-2.0
#include "cgp/engine/cache/page_cache.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "cgp/base/error.h"

namespace cgp::engine {
namespace {

using Tokens = std::vector<std::int32_t>;

void no_copy(std::int32_t, std::int32_t) { FAIL() << "nothing is shared here"; }

/// Opens, reserves what is missing, appends.
SequenceId filled(PageCache& cache, const Tokens& tokens) {
  const SequenceId id = cache.open(tokens);
  const auto there = std::size_t(cache.tokens(id));
  EXPECT_TRUE(cache.reserve(id, std::int64_t(tokens.size() - there), no_copy));
  cache.append(id, std::span(tokens).subspan(there));
  return id;
}

TEST(engine_page_cache, ReserveIsAllOrNothing) {
  PageCache cache(4, 2);
  const SequenceId a = filled(cache, {1, 2, 3}), b = cache.open(Tokens{9});
  EXPECT_EQ(cache.available_pages(), 2);
  EXPECT_FALSE(cache.reserve(b, 5, no_copy));
  EXPECT_EQ(cache.available_pages(), 2);
  EXPECT_TRUE(cache.pages(b).empty());
  EXPECT_TRUE(cache.reserve(b, 4, no_copy));
  EXPECT_TRUE(cache.reserve(a, 1, no_copy));
  EXPECT_FALSE(cache.reserve(a, 2, no_copy));
  EXPECT_THROW(cache.append(a, Tokens{4, 5}), ArgumentError);
  EXPECT_THROW(cache.tokens(77), ArgumentError);
  cache.close(b);
  EXPECT_THROW(cache.close(b), ArgumentError);
  EXPECT_EQ(cache.available_pages(), 2);
  EXPECT_THROW(PageCache(0, 4), ArgumentError);
}

TEST(engine_page_cache, WholePagesOfAPrefixAreSharedAndEvictedLast) {
  PageCache cache(4, 2);
  const SequenceId a = filled(cache, {1, 2, 3, 4, 5});
  const Tokens pages(cache.pages(a).begin(), cache.pages(a).end());
  const SequenceId b = cache.open(Tokens{1, 2, 3, 4, 6, 7});
  EXPECT_EQ(cache.tokens(b), 4);
  EXPECT_EQ(cache.pages(b)[1], pages[1]);
  const SequenceId last = cache.open(Tokens{1, 2, 3, 4});  // its last token is wanted
  EXPECT_EQ(cache.tokens(last), 2);
  EXPECT_EQ(cache.tokens(cache.open(Tokens{2, 2, 3, 4, 5})), 0);
  EXPECT_EQ(cache.tokens(cache.open(Tokens{9, 9, 3, 4, 5})), 0);  // the same page behind another one
  for (SequenceId id : {a, b, last}) cache.close(id);
  EXPECT_EQ(cache.available_pages(), 4);
  const SequenceId c = filled(cache, {8, 8, 8, 8, 8});  // three pages: the end of the prefix goes first
  EXPECT_EQ(cache.tokens(cache.open(Tokens{1, 2, 3, 4, 5})), 2);
  EXPECT_EQ(cache.counts().evicted_pages, 1);
  cache.close(c);
}

TEST(engine_page_cache, WhoWritesIntoASharedPageGetsACopy) {
  PageCache cache(6, 4);
  const SequenceId a = filled(cache, {1, 2, 3, 4, 5, 6});
  const SequenceId b = cache.fork(a);
  int copies = 0;
  const auto copy = [&](std::int32_t from, std::int32_t to) {
    EXPECT_EQ(from, cache.pages(a)[1]);
    EXPECT_NE(from, to);
    ++copies;
  };
  ASSERT_TRUE(cache.reserve(b, 1, copy));
  EXPECT_EQ(copies, 1);
  EXPECT_NE(cache.pages(a)[1], cache.pages(b)[1]);
  EXPECT_EQ(cache.pages(a)[0], cache.pages(b)[0]);
  ASSERT_TRUE(cache.reserve(a, 1, copy));
  EXPECT_EQ(copies, 1);
}

/// Against a model: what a page holds is remembered with it, and a sequence must always find its own tokens.
TEST(engine_page_cache, ManyRandomStepsKeepEverySequencesTokens) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    const std::int64_t page_tokens = 1 + random() % 4;
    PageCache cache(12, page_tokens);
    std::vector<Tokens> memory(12, Tokens(std::size_t(page_tokens), -1));
    std::map<SequenceId, Tokens> open;
    const auto copy = [&](std::int32_t from, std::int32_t to) {
      memory[std::size_t(to)] = memory[std::size_t(from)];
    };
    const auto write = [&](SequenceId id, const Tokens& tokens) {
      const auto first = cache.tokens(id);
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const auto at = first + std::int64_t(i);
        memory[std::size_t(cache.pages(id)[std::size_t(at / page_tokens)])][std::size_t(at % page_tokens)] =
            tokens[i];
      }
      cache.append(id, tokens);
    };
    const auto some = [&](unsigned most) {
      Tokens t(1 + random() % most);
      for (auto& v : t) v = std::int32_t(random() % 2);
      return t;
    };
    for (int step = 0; step < 2000; ++step) {
      const unsigned what = random() % 10;
      if (what < 3 || open.empty()) {
        const Tokens prompt = some(10);
        const SequenceId id = cache.open(prompt);
        open[id] = Tokens(prompt.begin(), prompt.begin() + cache.tokens(id));
        EXPECT_LT(cache.tokens(id), std::int64_t(prompt.size()));
      } else {
        auto at = std::next(open.begin(), std::int64_t(random() % open.size()));
        if (what < 6) {
          const Tokens tokens = some(5);
          const auto before = cache.available_pages();
          if (cache.reserve(at->first, std::int64_t(tokens.size()), copy)) {
            write(at->first, tokens);
            at->second.insert(at->second.end(), tokens.begin(), tokens.end());
          } else {
            EXPECT_EQ(cache.available_pages(), before);
          }
        } else if (what == 6) {
          open[cache.fork(at->first)] = at->second;
        } else if (what == 7) {
          at->second.resize(random() % (at->second.size() + 1));
          cache.truncate(at->first, std::int64_t(at->second.size()));
        } else {
          cache.close(at->first);
          open.erase(at);
        }
      }
      for (const auto& [id, tokens] : open) {
        ASSERT_EQ(cache.tokens(id), std::int64_t(tokens.size()));
        for (std::size_t i = 0; i < tokens.size(); ++i)
          ASSERT_EQ(memory[std::size_t(cache.pages(id)[i / std::size_t(page_tokens)])]
                          [i % std::size_t(page_tokens)],
                    tokens[i])
              << seed << " " << step;
      }
    }
    while (!open.empty()) cache.close(open.begin()->first), open.erase(open.begin());
    EXPECT_EQ(cache.available_pages(), 12);
  }
}

}  // namespace
}  // namespace cgp::engine

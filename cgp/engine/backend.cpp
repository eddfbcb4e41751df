// SPDX-License-Identifier: Apache-2.0
#include "cgp/engine/backend.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::engine {
namespace {

using std::int64_t;
using text::cat;

void demand(bool holds, const char* rule, const auto&... why) {
  if (!holds) throw ArgumentError(ErrorText{rule, {}, cat(why...), {}});
}

}  // namespace

void Backend::leave_out(const std::vector<Role>&) {
  throw Unsupported(ErrorText{"operations that overlap are timed by leaving them out", name(),
                              "there they run one after the other", "use the profile"});
}

void check(const Batch& b, const Outputs& out, const Program& p, const BackendOptions& o) {
  const auto rows = int64_t(b.tokens.size()), outputs = int64_t(b.outputs.size());
  const int64_t vocabulary = p.values[std::size_t(p.logits)].width;
  demand(rows >= 1 && rows <= o.max_rows, "a step has at least one token, at most max_rows", rows, " of ",
         o.max_rows);
  demand(int64_t(b.sequences.size()) <= o.max_sequences, "a step has at most max_sequences",
         b.sequences.size(), " of ", o.max_sequences);
  demand(outputs <= o.max_outputs, "a step has at most max_outputs rows with logits", outputs, " of ",
         o.max_outputs);
  demand(out.logits.empty() || int64_t(out.logits.size()) == outputs * vocabulary,
         "logits are [outputs, vocabulary], or empty", out.logits.size(), " floats for ", outputs, " x ",
         vocabulary);
  demand(out.greedy.empty() || out.greedy.size() == b.outputs.size(),
         "greedy has one token for each output, or none", out.greedy.size(), " for ", outputs);
  const int64_t words = p.weights[std::size_t(std::get<Embedding>(p.steps.front().operation).table)].rows;
  for (int64_t i = 0; i < rows; ++i)
    demand(b.tokens[std::size_t(i)] >= 0 && b.tokens[std::size_t(i)] < words,
           "a token is one of the vocabulary", "token ", b.tokens[std::size_t(i)], " of ", words);
  for (int64_t j = 0; j < outputs; ++j) {
    const int64_t row = b.outputs[std::size_t(j)], before = j ? b.outputs[std::size_t(j - 1)] : -1;
    demand(row > before && row < rows, "outputs are rows, ascending", "row ", row, " after ", before, " of ",
           rows);
  }
  int64_t next = 0;
  for (const BatchSequence& s : b.sequences) {
    demand(s.first_row == next && s.rows >= 1, "rows of sequences follow each other", "row ", s.first_row,
           " instead of ", next, ", ", s.rows, " rows");
    const int64_t end = int64_t(s.first_position) + s.rows;
    demand(s.first_position >= 0 && end <= p.context, "positions lie in the context", "position ", end - 1,
           " of ", p.context);
    const int64_t pages = (end + o.page_tokens - 1) / o.page_tokens;
    demand(int64_t(s.pages.size()) >= pages, "every position has a page", s.pages.size(), " of ", pages);
    for (int64_t i = 0; i < pages; ++i)
      demand(s.pages[std::size_t(i)] >= 0 && s.pages[std::size_t(i)] < o.pages, "a page is one of the cache",
             "page ", s.pages[std::size_t(i)], " of ", o.pages);
    next += s.rows;
  }
  demand(next == rows, "sequences cover all tokens", next, " of ", rows, " rows");
}

}  // namespace cgp::engine

// SPDX-License-Identifier: Apache-2.0
#include "cgp/engine/scheduler/drafter.h"

#include <algorithm>

#include "cgp/base/error.h"

namespace cgp::engine {

using std::int32_t;
using std::int64_t;

Drafter::Drafter(Backend& backend)
    : backend_(backend), cache_(backend.options().pages, backend.options().page_tokens) {}

void Drafter::forget(int64_t request) {
  const auto found = sequences_.find(request);
  if (found == sequences_.end()) return;
  cache_.close(found->second.id);
  sequences_.erase(found);
}

/// Adds the draft's next tokens to the step. false: it gets no more of them.
bool Drafter::plan(Draft& d) {
  const BackendOptions& o = backend_.options();
  auto [found, made] = sequences_.try_emplace(d.request);
  Sequence& s = found->second;
  if (made) {
    s.id = cache_.open(d.known);
    s.tokens.assign(d.known.begin(), d.known.begin() + cache_.tokens(s.id));
  }
  std::vector<Token> all(d.known.begin(), d.known.end());
  all.insert(all.end(), d.tokens.begin(), d.tokens.end());
  // What was drafted before and not kept goes; the last token is computed in any case: its logits are wanted.
  const auto same = std::mismatch(s.tokens.begin(), s.tokens.end(), all.begin(), all.end() - 1).first;
  s.tokens.erase(same, s.tokens.end());
  cache_.truncate(s.id, int64_t(s.tokens.size()));
  const int64_t cached = int64_t(s.tokens.size()), end = int64_t(all.size()),
                rows = std::min(end - cached, o.max_rows - int64_t(tokens_.size()));
  if (end > backend_.program().context) return false;
  if (rows == 0 || int64_t(batch_.size()) == o.max_sequences || int64_t(outputs_.size()) == o.max_outputs)
    return true;  // in a later step
  if (!cache_.reserve(s.id, rows, [this](int32_t from, int32_t to) { backend_.copy_page(from, to); }))
    return false;
  batch_.push_back({int32_t(tokens_.size()), int32_t(rows), int32_t(cached), {}});
  tokens_.insert(tokens_.end(), all.begin() + cached, all.begin() + cached + rows);
  if (cached + rows == end) outputs_.push_back(int32_t(tokens_.size()) - 1);
  drafts_.push_back(&d);
  return true;
}

/// -1: logits that are no numbers.
static Token drawn(model::Sampler& sampler, std::span<const float> logits) {
  try {
    return sampler.sample(logits).token;
  } catch (const ArgumentError&) {
    return -1;
  }
}

void Drafter::write(std::vector<Draft>& drafts) {
  const auto words = std::size_t(backend_.program().values[std::size_t(backend_.program().logits)].width);
  for (;;) {
    tokens_.clear(), batch_.clear(), drafts_.clear(), outputs_.clear();
    for (Draft& d : drafts)
      if (int64_t(d.tokens.size()) < d.wanted && !plan(d)) d.wanted = 0;
    if (tokens_.empty()) return;
    for (std::size_t i = 0; i < drafts_.size(); ++i)
      batch_[i].pages = cache_.pages(sequences_.at(drafts_[i]->request).id);
    const bool greedy = std::all_of(drafts_.begin(), drafts_.end(), [](const Draft* d) { return d->greedy; });
    greedy_.resize(outputs_.size());
    logits_.resize(greedy ? 0 : outputs_.size() * words);
    backend_.run({tokens_, batch_, outputs_}, {logits_, greedy_});
    std::size_t output = 0;
    for (std::size_t i = 0; i < drafts_.size(); ++i) {
      Draft& d = *drafts_[i];
      Sequence& s = sequences_.at(d.request);
      const auto rows =
          std::span(tokens_).subspan(std::size_t(batch_[i].first_row), std::size_t(batch_[i].rows));
      cache_.append(s.id, rows);
      s.tokens.insert(s.tokens.end(), rows.begin(), rows.end());
      if (output == outputs_.size() || outputs_[output] >= batch_[i].first_row + batch_[i].rows) continue;
      const Token next =
          d.greedy ? greedy_[output] : drawn(d.sampler, std::span(logits_).subspan(output * words, words));
      ++output;
      if (next < 0)
        d.wanted = 0;  // NaN: the other model goes on alone
      else
        d.tokens.push_back(next);
    }
  }
}

}  // namespace cgp::engine

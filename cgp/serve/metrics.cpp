// SPDX-License-Identifier: Apache-2.0
#include "cgp/serve/metrics.h"

#include "cgp/base/text.h"

namespace cgp::serve {

using text::cat;

void Histogram::add(double seconds) {
  ++count_;
  sum_ += seconds;
  double bound = 1e-3;
  for (std::size_t i = 0; i < counts_.size(); ++i, bound *= 2)
    if (seconds <= bound) ++counts_[i];
}

std::string Histogram::text(const char* name, const char* help) const {
  std::string out = cat("# HELP ", name, " ", help, "\n# TYPE ", name, " histogram\n");
  double bound = 1e-3;
  for (std::size_t i = 0; i < counts_.size(); ++i, bound *= 2)
    out += cat(name, "_bucket{le=\"", bound, "\"} ", counts_[i], "\n");
  return out + cat(name, "_bucket{le=\"+Inf\"} ", count_, "\n", name, "_sum ", sum_, "\n", name, "_count ",
                   count_, "\n");
}

std::string Metrics::text(const Worker::State& w) const {
  std::string out =
      "# HELP cgp_http_answers_total Answers by status\n# TYPE cgp_http_answers_total counter\n";
  for (const auto& [status, count] : answers)
    out += cat("cgp_http_answers_total{status=\"", status, "\"} ", count, "\n");
  const auto one = [&](const char* name, const char* type, const char* help, std::int64_t value) {
    out += cat("# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n", name, " ", value, "\n");
  };
  one("cgp_prompt_tokens_total", "counter", "Tokens of prompts", prompt_tokens);
  one("cgp_prompt_tokens_cached_total", "counter", "Tokens of prompts that the prefix cache had",
      reused_tokens);
  one("cgp_generated_tokens_total", "counter", "Tokens that were generated", generated_tokens);
  one("cgp_clients_gone_total", "counter", "Clients that went away before their answer", clients_gone);
  one("cgp_sequences_running", "gauge", "Sequences in the batch", w.running);
  one("cgp_sequences_waiting", "gauge", "Sequences that wait for a place in the batch", w.waiting);
  one("cgp_cache_pages", "gauge", "Pages of the key-value cache", w.pages);
  one("cgp_cache_pages_available", "gauge", "Pages that are free or may be evicted", w.free_pages);
  out += first_token.text("cgp_time_to_first_token_seconds", "From the request to its first token");
  return out +
         between_tokens.text("cgp_time_between_tokens_seconds", "From a token to the next of its sequence");
}

}  // namespace cgp::serve

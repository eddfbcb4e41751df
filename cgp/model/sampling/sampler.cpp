// SPDX-License-Identifier: Apache-2.0
#include "cgp/model/sampling/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::model {

using text::cat;

double philox_uniform(std::uint64_t seed, std::uint64_t index) {
  std::array<std::uint32_t, 4> c = {std::uint32_t(index), std::uint32_t(index >> 32), 0, 0};
  std::uint32_t k0 = std::uint32_t(seed), k1 = std::uint32_t(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    std::uint64_t a = std::uint64_t(c[0]) * 0xD2511F53u, b = std::uint64_t(c[2]) * 0xCD9E8D57u;
    c = {std::uint32_t(b >> 32) ^ c[1] ^ k0, std::uint32_t(b), std::uint32_t(a >> 32) ^ c[3] ^ k1,
         std::uint32_t(a)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return double((std::uint64_t(c[0]) << 32 | c[1]) >> 11) * 0x1p-53;
}

Sampler::Sampler(SamplingOptions o) : options_(std::move(o)) {
  auto need = [](bool ok, const char* rule, double value) {
    if (!ok) throw ArgumentError(ErrorText{rule, {}, cat("it is ", value), {}});
  };
  const SamplingOptions& s = options_;
  need(s.temperature >= 0 && std::isfinite(s.temperature), "temperature must be at least 0", s.temperature);
  need(s.top_k >= 0, "top_k must be at least 0", s.top_k);
  need(s.top_p > 0 && s.top_p <= 1, "top_p must be above 0 and at most 1", s.top_p);
  need(s.min_p >= 0 && s.min_p <= 1, "min_p must be in [0, 1]", s.min_p);
  need(s.typical_p > 0 && s.typical_p <= 1, "typical_p must be above 0 and at most 1", s.typical_p);
  need(s.repetition_penalty > 0 && std::isfinite(s.repetition_penalty), "repetition_penalty must be above 0",
       s.repetition_penalty);
  need(std::isfinite(s.frequency_penalty), "frequency_penalty must be finite", s.frequency_penalty);
  need(std::isfinite(s.presence_penalty), "presence_penalty must be finite", s.presence_penalty);
  need(s.penalty_window >= -1, "penalty_window must be at least -1", s.penalty_window);
  need(s.top_logprobs >= 0, "top_logprobs must be at least 0", s.top_logprobs);
  for (auto [token, bias] : s.logit_bias) {
    need(token >= 0, "logit_bias must name tokens, which are at least 0", token);
    need(!std::isnan(bias) && bias < std::numeric_limits<float>::infinity(),
         "logit_bias must be a number below infinity", bias);
  }
}

void Sampler::accept(std::int32_t token) {
  if (options_.penalty_window == 0) return;
  history_.push_back(token);
  ++seen_[token];
  if (options_.penalty_window > 0 && history_.size() > std::size_t(options_.penalty_window)) {
    if (auto it = seen_.find(history_.front()); --it->second == 0) seen_.erase(it);
    history_.pop_front();
  }
}

void Sampler::bias_and_penalties(std::span<const float> logits, std::span<const std::uint32_t> allowed) {
  candidates_.clear();
  candidates_.reserve(logits.size());
  for (std::size_t t = 0; t < logits.size(); ++t)
    if (allowed.empty() || (allowed[t / 32] >> t % 32 & 1))
      candidates_.push_back({logits[t], std::int32_t(t)});
  auto change = [&](std::int32_t token, auto&& how) {  // candidates_ ascend by token here
    auto it = std::lower_bound(candidates_.begin(), candidates_.end(), token,
                               [](const Candidate& c, std::int32_t t) { return c.token < t; });
    if (it != candidates_.end() && it->token == token) how(it->logit);
  };
  for (auto [token, bias] : options_.logit_bias) change(token, [b = bias](double& x) { x += b; });
  for (auto [token, count] : seen_)
    change(token, [&, n = count](double& x) {
      x = x > 0 ? x / options_.repetition_penalty : x * options_.repetition_penalty;
      x -= n * options_.frequency_penalty + options_.presence_penalty;
    });
  std::erase_if(candidates_,
                [](const Candidate& c) { return c.logit == -std::numeric_limits<double>::infinity(); });
  if (candidates_.empty())
    throw ArgumentError(
        ErrorText{"a token must be left to draw", {}, "the mask or the biases exclude all", {}});
}

namespace {

/// The greatest first, of equal ones the least id.
constexpr auto kBefore = [](const auto& a, const auto& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
};

}  // namespace

std::vector<double> Sampler::probabilities(double temperature) const {
  double most = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const Candidate& c : candidates_) most = std::max(most, c.logit);
  std::vector<double> out;
  out.reserve(candidates_.size());
  for (const Candidate& c : candidates_) sum += out.emplace_back(std::exp((c.logit - most) / temperature));
  for (double& p : out) p /= sum;
  return out;
}

void Sampler::keep_top_k(std::size_t k) {
  if (k == 0 || k >= candidates_.size()) return;
  std::nth_element(candidates_.begin(), candidates_.begin() + std::ptrdiff_t(k), candidates_.end(), kBefore);
  candidates_.resize(k);
}

void Sampler::keep_typical() {
  if (options_.typical_p >= 1) return;
  const std::vector<double> p = probabilities(1);
  double entropy = 0;
  for (double x : p) entropy -= x > 0 ? x * std::log(x) : 0;
  struct Surprise {
    double logit, p;  // kBefore puts the greatest logit first: minus the distance
    std::int32_t token;
    double of_token;
  };
  std::vector<Surprise> order;
  for (std::size_t i = 0; i < p.size(); ++i)
    if (p[i] > 0)
      order.push_back(
          {-std::abs(-std::log(p[i]) - entropy), p[i], candidates_[i].token, candidates_[i].logit});
  std::sort(order.begin(), order.end(), kBefore);
  candidates_.clear();
  double mass = 0;
  for (const Surprise& s : order) {
    candidates_.push_back({s.of_token, s.token});
    if ((mass += s.p) >= options_.typical_p) break;
  }
}

void Sampler::keep_top_p() {
  if (options_.top_p >= 1) return;
  double most = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const Candidate& c : candidates_) most = std::max(most, c.logit);
  for (const Candidate& c : candidates_) sum += std::exp(c.logit - most);
  // Sorts ever more of them: a few hundred hold the mass of most rows.
  double mass = 0;
  std::size_t sorted = 0, kept = 0;
  for (std::size_t next = 256; kept == sorted && sorted < candidates_.size(); next *= 4) {
    std::size_t end = std::min(next, candidates_.size());
    std::partial_sort(candidates_.begin() + std::ptrdiff_t(sorted), candidates_.begin() + std::ptrdiff_t(end),
                      candidates_.end(), kBefore);
    sorted = end;
    while (kept < sorted && mass < options_.top_p) mass += std::exp(candidates_[kept++].logit - most) / sum;
    if (mass >= options_.top_p) break;
  }
  candidates_.resize(kept);
}

void Sampler::keep_min_p() {
  if (options_.min_p <= 0) return;
  double most = -std::numeric_limits<double>::infinity();
  for (const Candidate& c : candidates_) most = std::max(most, c.logit);
  const double least = most + std::log(options_.min_p);
  std::erase_if(candidates_, [&](const Candidate& c) { return c.logit < least; });
}

std::int32_t Sampler::draw() {
  if (options_.temperature == 0)
    return std::min_element(candidates_.begin(), candidates_.end(), kBefore)->token;
  keep_top_k(std::size_t(options_.top_k));
  keep_typical();
  keep_top_p();
  keep_min_p();
  std::sort(candidates_.begin(), candidates_.end(), kBefore);
  const std::vector<double> p = probabilities(options_.temperature);
  const double u = philox_uniform(options_.seed, draws_++);
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i)
    if (u < (sum += p[i])) return candidates_[i].token;
  return candidates_.back().token;  // rounding left the sum below 1
}

Sampled Sampler::sample(std::span<const float> logits, std::span<const std::uint32_t> allowed) {
  if (!allowed.empty() && allowed.size() < (logits.size() + 31) / 32)
    throw ArgumentError(ErrorText{
        "a mask must have a bit for each logit", {}, cat(allowed.size() * 32, " for ", logits.size()), {}});
  double most = -std::numeric_limits<double>::infinity();
  for (std::size_t t = 0; t < logits.size(); ++t) {
    if (std::isnan(logits[t]) || logits[t] == std::numeric_limits<float>::infinity())
      throw ArgumentError(ErrorText{
          "logits must be numbers below infinity", {}, cat("that of token ", t, " is ", logits[t]), {}});
    most = std::max(most, double(logits[t]));
  }
  bias_and_penalties(logits, allowed);
  Sampled out;
  out.token = draw();
  accept(out.token);
  if (!options_.logprobs && options_.top_logprobs == 0) return out;
  double sum = 0;
  for (float x : logits) sum += std::exp(double(x) - most);
  const double log_sum = most + std::log(sum);
  out.logprob = logits[std::size_t(out.token)] - log_sum;
  if (options_.top_logprobs > 0) {
    std::vector<Candidate> all;
    for (std::size_t t = 0; t < logits.size(); ++t) all.push_back({logits[t], std::int32_t(t)});
    std::size_t n = std::min(all.size(), std::size_t(options_.top_logprobs));
    std::partial_sort(all.begin(), all.begin() + std::ptrdiff_t(n), all.end(), kBefore);
    for (std::size_t i = 0; i < n; ++i) out.top.push_back({all[i].token, all[i].logit - log_sum});
  }
  return out;
}

}  // namespace cgp::model

// SPDX-License-Identifier: Apache-2.0
#pragma once
// From a row of logits to the next token.
//
// The order is fixed:
//   1. mask             tokens that are not allowed are out
//   2. logit_bias       added to the logits
//   3. penalties        repetition (divides positive logits, multiplies negative ones), then frequency and presence
//   4. temperature 0    the greatest logit, of equal ones the least id; nothing below applies
//   5. top_k            the k greatest stay
//   6. typical_p        those nearest to the expected information stay, up to this mass (Meister et al. 2022)
//   7. top_p            the most likely stay, up to this mass (Holtzman et al. 2020)
//   8. min_p            those of at least this times the greatest probability stay
//   9. temperature      logits are divided by it
//  10. draw             one random number of 53 bits: Philox4x32-10 with key `seed` and counter the number of the draw
// At least one token stays after each. 5 to 8 see the probabilities of the tokens that are left, at temperature 1.
// The result depends on logits, options, history and seed alone: not on batch, thread or machine.
#include <cstdint>
#include <deque>
#include <limits>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cgp::model {

struct SamplingOptions {
  double temperature = 0.7;  ///< 0: greedy
  int top_k = 40;            ///< 0: all
  double top_p = 0.9;        ///< in (0, 1]; 1: all
  double min_p = 0;          ///< in [0, 1]; 0: all
  double typical_p = 1;      ///< in (0, 1]; 1: all
  double repetition_penalty = 1;
  double frequency_penalty = 0;  ///< subtracted for each time a token was seen
  double presence_penalty = 0;   ///< subtracted once a token was seen
  int penalty_window = 64;       ///< how many of the last tokens count as seen; -1: all, 0: none
  std::vector<std::pair<std::int32_t, float>> logit_bias = {};
  std::uint64_t seed = 42;
  int top_logprobs = 0;  ///< how many alternatives to report
  bool logprobs =
      true;  ///< Sampled::logprob, which takes the exponential of every logit; with top_logprobs in any case
};

struct Sampled {
  std::int32_t token = -1;
  double logprob = 0;  ///< natural, of the logits as they were given; 0 without logprobs
  std::vector<std::pair<std::int32_t, double>> top;  ///< the most likely ones, likewise
};

class Sampler {
 public:
  /// Throws ArgumentError that names the option.
  explicit Sampler(SamplingOptions options);

  /// Draws a token and adds it to the history. `allowed`: bit t % 32 of word t / 32 is set where token t may come; empty:
  /// all may. Throws ArgumentError where a logit is NaN or +infinity, or none is left.
  Sampled sample(std::span<const float> logits, std::span<const std::uint32_t> allowed = {});
  /// Adds a token of the prompt to the history.
  void accept(std::int32_t token);
  const SamplingOptions& options() const { return options_; }

 private:
  struct Candidate {
    double logit;
    std::int32_t token;
  };
  void bias_and_penalties(std::span<const float> logits, std::span<const std::uint32_t> allowed);
  std::int32_t draw();
  void keep_top_k(std::size_t k);
  void keep_typical();
  void keep_top_p();
  void keep_min_p();
  /// Of candidates_, in their order; sums to 1.
  std::vector<double> probabilities(double temperature) const;

  SamplingOptions options_;
  std::vector<Candidate> candidates_;
  std::deque<std::int32_t> history_;
  std::unordered_map<std::int32_t, int> seen_;
  std::uint64_t draws_ = 0;
};

/// In [0, 1), 53 bits: the first two words of Philox4x32-10 (Salmon et al. 2011) with key `seed` and counter `index`.
double philox_uniform(std::uint64_t seed, std::uint64_t index);

}  // namespace cgp::model

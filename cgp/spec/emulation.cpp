// SPDX-License-Identifier: Apache-2.0
#include "cgp/spec/emulation.h"

#include <charconv>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/emu/policy.h"

namespace cgp::spec {
namespace {

using text::cat;

std::uint64_t number(const std::string& s, std::string_view option) {
  std::uint64_t v = 0;
  const auto r = std::from_chars(s.data(), s.data() + s.size(), v);
  if (s.empty() || r.ec != std::errc() || r.ptr != s.data() + s.size() || v == 0)
    throw ArgumentError(
        ErrorText{cat(option, " must be a whole number above 0"), {}, cat("it is \"", s, "\""), {}});
  return v;
}

/// "random" without a seed takes the one of --seed.
std::string seeded(const std::string& word, std::uint64_t seed) {
  return word == "random" ? cat(word, ":", seed) : word;
}

/// Late completion and the schedules that are bad for programs that rely on luck, alone and together, and two
/// random runs.
std::vector<Policy> every_policy(std::uint64_t seed) {
  return {{"eager", "fair"},
          {"late", "fair"},
          {"eager", "adversarial"},
          {"late", "adversarial"},
          {"late", "diverge"},
          {cat("random:", seed), "fair"},
          {cat("random:", seed), cat("random:", seed)},
          {cat("random:", seed + 1), cat("random:", seed + 1)}};
}

template <class Parse>
bool reads(Parse&& parse, const std::string& word) {
  try {
    parse(word);
    return true;
  } catch (const ArgumentError&) {
    return false;
  }
}

}  // namespace

void Policy::apply(emu::Options& options) const {
  emu::parse_async(async).apply(options);
  emu::parse_schedule(schedule).apply(options);
}

std::string Policy::arguments() const { return cat("--async ", async, " --schedule ", schedule); }

void Emulation::apply(emu::Options& options) const {
  Policy{seeded(policy.async, seed), seeded(policy.schedule, seed)}.apply(options);
  if (numerics != "exact" && numerics != "fast")
    throw ArgumentError(
        ErrorText{"--numerics must be exact or fast", {}, cat("it is \"", numerics, "\""), {}});
  options.fast_matrix = numerics == "fast";
  if (!step_limit.empty()) options.step_limit = number(step_limit, "--step-limit");
  if (!max_findings.empty()) options.max_findings = std::size_t(number(max_findings, "--max-findings"));
}

std::vector<Policy> Emulation::all() const {
  if (policies.empty()) return {{seeded(policy.async, seed), seeded(policy.schedule, seed)}};
  return parse_policies(policies, seed);
}

std::string Emulation::changed() const {
  std::vector<std::string> parts;
  if (!policies.empty())
    parts.push_back(cat("--policies ", policies));
  else if (policy.async != "eager" || policy.schedule != "fair")
    parts.push_back(Policy{seeded(policy.async, seed), seeded(policy.schedule, seed)}.arguments());
  if (numerics != "exact") parts.push_back(cat("--numerics ", numerics));
  return text::join(parts, " ");
}

std::vector<Policy> parse_policies(const std::string& text, std::uint64_t seed) {
  std::vector<Policy> out{{"eager", "fair"}};
  for (auto item : text::split(text, ',')) {
    const std::string word(text::trim(item));
    if (word == "all") {
      const auto every = every_policy(seed);
      out.insert(out.end(), every.begin() + 1, every.end());
      continue;
    }
    const auto plus = word.find('+');
    Policy p;
    if (plus != std::string::npos) {
      p = {seeded(word.substr(0, plus), seed), seeded(word.substr(plus + 1), seed)};
      emu::parse_async(p.async);
      emu::parse_schedule(p.schedule);
    } else if (word == "random" || word.rfind("random:", 0) == 0) {
      p = {seeded(word, seed), seeded(word, seed)};
      emu::parse_async(p.async);
    } else if (reads(emu::parse_async, word)) {
      p.async = word;
    } else if (reads(emu::parse_schedule, word)) {
      p.schedule = word;
    } else {
      throw ArgumentError(
          ErrorText{cat("--policies has no \"", word, "\""),
                    {},
                    {},
                    "all, ASYNC+SCHEDULE pairs, or single policies: late+fair,random:3,adversarial"});
    }
    if (p.async != "eager" || p.schedule != "fair") out.push_back(std::move(p));
  }
  return out;
}

}  // namespace cgp::spec

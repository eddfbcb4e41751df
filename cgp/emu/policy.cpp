// SPDX-License-Identifier: Apache-2.0
#include "cgp/emu/policy.h"

#include <charconv>
#include <vector>

#include "cgp/base/text.h"

namespace cgp::emu {

using text::cat;

namespace {
const std::vector<std::string>& async_names() {
  static const std::vector<std::string> names{"eager", "late", "random"};
  return names;
}
const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names{"fair", "diverge", "random", "adversarial"};
  return names;
}

struct Choice {
  std::size_t index = 0;
  std::uint64_t seed = 0;
};

Choice parse(std::string_view text, const std::vector<std::string>& names, std::string_view what) {
  const std::size_t colon = text.find(':');
  const std::string_view word = text::trim(text.substr(0, colon));
  Choice c;
  while (c.index < names.size() && names[c.index] != word) ++c.index;
  if (c.index == names.size())
    throw ArgumentError(ErrorText{cat("there is no ", what, " policy '", word, "'"),
                                  {},
                                  {},
                                  cat("use ", text::join(names, ", "), "; random takes a seed: random:7")});
  if (colon == text.npos) return c;
  const std::string_view digits = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), c.seed);
  if (error != std::errc() || end != digits.data() + digits.size() || digits.empty())
    throw ArgumentError(cat("the seed of the ", what, " policy is a whole number, not '", digits, "'"));
  if (word != "random" && word != "adversarial")
    throw ArgumentError(cat("the ", what, " policy '", word, "' takes no seed: it always does the same"));
  return c;
}

std::string with_seed(std::string name, std::uint64_t seed) {
  return seed ? cat(name, ":", seed) : std::move(name);
}
}  // namespace

void AsyncChoice::apply(Options& options) const {
  options.async = policy;
  options.seed = seed;
}
void ScheduleChoice::apply(Options& options) const {
  options.schedule = policy;
  options.schedule_seed = seed;
}

AsyncChoice parse_async(std::string_view text) {
  const Choice c = parse(text, async_names(), "asynchronous");
  return {AsyncPolicy(c.index), c.seed};
}
ScheduleChoice parse_schedule(std::string_view text) {
  const Choice c = parse(text, schedule_names(), "scheduling");
  return {SchedulePolicy(c.index), c.seed};
}

std::string name(AsyncPolicy policy) { return async_names()[std::size_t(policy)]; }
std::string name(SchedulePolicy policy) { return schedule_names()[std::size_t(policy)]; }
std::string name(const AsyncChoice& choice) { return with_seed(name(choice.policy), choice.seed); }
std::string name(const ScheduleChoice& choice) { return with_seed(name(choice.policy), choice.seed); }

std::string policy_arguments(const Options& o) {
  return cat("--async ", name(AsyncChoice{o.async, o.seed}), " --schedule ",
             name(ScheduleChoice{o.schedule, o.schedule_seed}));
}

}  // namespace cgp::emu

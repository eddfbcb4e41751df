// SPDX-License-Identifier: Apache-2.0
#pragma once
// The policies of asynchronous operations and of the scheduler as text, for options and reports:
// "eager", "late", "random", "random:7"; "fair", "diverge", "adversarial", "random", "random:7".
#include <string>
#include <string_view>

#include "cgp/emu/emu.h"

namespace cgp::emu {

struct AsyncChoice {
  AsyncPolicy policy = AsyncPolicy::eager;
  std::uint64_t seed = 0;  ///< of random; 0 without one
  void apply(Options& options) const;
};
struct ScheduleChoice {
  SchedulePolicy policy = SchedulePolicy::fair;
  std::uint64_t seed = 0;  ///< of random and adversarial; 0 without one
  void apply(Options& options) const;
};

/// Throw ArgumentError naming the closest policy, or saying what is wrong with the seed.
AsyncChoice parse_async(std::string_view text);
ScheduleChoice parse_schedule(std::string_view text);
/// What parse_async and parse_schedule read: "late", "random:7".
std::string name(const AsyncChoice& choice);
std::string name(const ScheduleChoice& choice);
std::string name(AsyncPolicy policy);
std::string name(SchedulePolicy policy);

/// The asynchronous and scheduling policies of `options`: "--async random:7 --schedule adversarial", what
/// repeats a run.
std::string policy_arguments(const Options& options);

}  // namespace cgp::emu

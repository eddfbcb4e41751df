// SPDX-License-Identifier: Apache-2.0
#pragma once
// Start-up and steady state of a program on the GPU, and what its copies cost. A kernel's first launch loads its code and
// may compile it, so that the time until the last first launch says little of the loop that follows.
#include <optional>
#include <string>
#include <vector>

#include "cgp/profile/timeline/timeline.h"

namespace cgp::profile {

struct Phases {
  TimelineSummary whole;
  /// The longest part without a kernel's first launch; none where it has fewer than 20 launches, or the recording has
  /// gaps.
  std::optional<TimelineSummary> steady;
  Timeline steady_part;   ///< its activities; all of them where there is none
  double startup_ms = 0;  ///< from the first event to the steady state
  std::uint64_t startup_launches = 0, first_launches = 0;  ///< in that time; of a new kernel
  /// What to judge the program by.
  const TimelineSummary& judged() const { return steady ? *steady : whole; }
};
Phases phases_of(const Timeline& t);
/// Two lines, each part with its name; or why they are not told apart.
std::string phases_text(const Phases& p);
/// The section "timeline": the whole, "startup" and "steady".
nlohmann::ordered_json to_json(const Phases& p);

/// Of the steady state where there is one, and so they say: kernels (timeline_waste), copies from memory that is not
/// pinned, copies that no kernel runs beside, data that leaves the GPU and comes back.
std::vector<Waste> phases_waste(const Phases& p, const std::vector<KernelUse>& kernels);
std::vector<Waste> copy_waste(const Timeline& t, const TimelineSummary& s);

}  // namespace cgp::profile

// SPDX-License-Identifier: Apache-2.0
#pragma once
// Seven kinds of waste, found in data: each with a share of the time, the numbers it rests on and what to
// try.
//   transport       data moved more than needed: uncoalesced access, spills, conflicts' replays
//   waiting         warps or the whole GPU have nothing to do: launch-bound, barriers, latency
//   overprocessing  work that the result does not need
//   inventory       resources held and not used: occupancy, shared memory, registers
//   motion          control that does no work: divergence, loop overhead
//   defects         results that must be thrown away: NaN, infinities
//   overproduction  threads without work, imbalance
#include "cgp/emu/emu.h"
#include "cgp/profile/timeline/timeline.h"
#include "cgp/profile/view/document.h"

namespace cgp::profile {

/// From a timeline: launch-bound programs, one dominant kernel, pageable copies.
std::vector<Waste> timeline_waste(const TimelineSummary& s, const std::vector<KernelUse>& kernels);
/// From the exact counters of one launch on the emulator; `program` names the instruction at fault.
std::vector<Waste> emulator_waste(const emu::Counters& c, const emu::Program& program,
                                  const std::string& kernel);
/// From hardware counters of a kernel beside its metrics: local memory, what warps wait for.
std::vector<Waste> counter_waste(const KernelUse& k);
/// From metrics of one kernel, wherever they came from.
std::vector<Waste> metric_waste(const measure::MetricSet& m, const std::string& kernel);
/// Exact counters of the emulator as metrics.
void emulator_metrics(const emu::Counters& c, measure::MetricSet& into);

/// Of the time that each thread was busy: 0: all alike; 1: one did everything.
double imbalance(const std::vector<double>& busy);

/// Largest share first; empty text for none.
std::string waste_text(std::vector<Waste> all, int width);

}  // namespace cgp::profile

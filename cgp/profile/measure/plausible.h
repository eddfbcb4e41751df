// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a metric can be. Every metric has bounds (physics, data sheets, what the hardware encodes): MetricSet::set takes no
// value beyond them. Some bound each other: a part is no larger than its whole, a quotient is that of its terms; a
// profile is checked for these when it is written and when it is read. A number that cannot be is absent with the
// reason, and never printed.
#include <string>
#include <vector>

#include "cgp/profile/measure/metric.h"

namespace cgp::measure {

/// Why `value` cannot be one of metric `m`; empty: it can.
std::string implausible(Metric m, const Value& value);

/// Takes out of `m` what contradicts the rest: of two the derived one; of two that were measured or counted both, since
/// nobody can tell which is wrong. They are absent then; one sentence for each contradiction.
std::vector<std::string> remove_contradictions(MetricSet& m);

}  // namespace cgp::measure

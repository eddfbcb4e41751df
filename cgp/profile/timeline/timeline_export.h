// SPDX-License-Identifier: Apache-2.0
#pragma once
// A timeline in the formats of other viewers, and as a picture.
#include <string>

#include "cgp/profile/timeline/timeline.h"

namespace cgp::profile {

/// Chrome's trace event format, which ui.perfetto.dev and chrome://tracing open: one track per stream and
/// host thread, arrows from launch to kernel.
std::string perfetto_json(const Timeline& t, const std::string& title);
/// speedscope.app: one profile per stream, evented.
std::string speedscope_json(const Timeline& t, const std::string& title);
/// Flame graph: host call, then kernel or copy, widths by time; one self-contained SVG with titles for
/// hovering.
std::string flamegraph_svg(const Timeline& t, const std::string& title);
/// Streams as rows, kernels as boxes; for the report.
std::string timeline_svg(const Timeline& t, int width = 1000);

}  // namespace cgp::profile

// SPDX-License-Identifier: Apache-2.0
#pragma once
// Profiles as one HTML file that needs no network.
#include <span>
#include <string>
#include <vector>

#include "cgp/profile/view/document.h"

namespace cgp::profile {

/// Verdicts, rooflines, timelines, distributions, waste, and the source of every number.
std::string report_html(const std::vector<Document>& profiles, const std::string& title);

/// A colour of the page, in light and in dark mode; `text`: words are written in it, on "paper" and on "hot".
struct ReportColour {
  const char *name, *light, *dark;
  bool text = false;
};
std::span<const ReportColour> report_colours();

}  // namespace cgp::profile

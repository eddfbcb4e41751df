// SPDX-License-Identifier: Apache-2.0
#pragma once
// Profiles as one HTML file that needs no network.
#include <string>
#include <vector>

#include "cgp/profile/view/document.h"

namespace cgp::profile {

/// Verdicts, rooflines, timelines, distributions, waste, and the source of every number.
std::string report_html(const std::vector<Document>& profiles, const std::string& title);

}  // namespace cgp::profile

// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where a run touched memory: a summary in text and a picture.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cgp/emu/emu.h"
#include "cgp/spec/report/annotate.h"
#include "cgp/spec/report/style.h"

namespace cgp::spec {

/// The maps of all launches, summed by buffer.
std::vector<emu::AccessMap> access_maps(const std::vector<LaunchView>& launches);
/// A table with one line per buffer and a strip of its address range.
std::string heatmap_text(const std::vector<emu::AccessMap>& maps, const Style& style);
/// A stand-alone picture: per buffer a grid of cells for reads, one for writes and atomics.
std::string heatmap_svg(const std::vector<emu::AccessMap>& maps, const std::string& title);
nlohmann::ordered_json to_json(const std::vector<emu::AccessMap>& maps);

}  // namespace cgp::spec

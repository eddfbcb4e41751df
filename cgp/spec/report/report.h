// SPDX-License-Identifier: Apache-2.0
#pragma once
// How results look: text for people, JSON for programs (docs/cli.md, "JSON", lists every field).
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "cgp/base/error.h"
#include "cgp/spec/spec_run.h"

namespace cgp::spec {

/// Everything about a run, verdict last, `views` (annotated sources) before the findings. `sources` has the
/// PTX under its path.
std::string result_text(const SpecResult& r, Sources& sources, const Style& style,
                        const std::string& views = {});
/// The counters that are not zero, aligned, with derived ratios.
std::string counters_text(const emu::Counters& c);

/// Ordered as documented.
nlohmann::ordered_json to_json(const SpecResult& r);
nlohmann::ordered_json to_json(const LocatedFinding& f);
nlohmann::ordered_json to_json(const std::vector<LocatedFinding>& all);
nlohmann::ordered_json to_json(const std::vector<PolicyOutcome>& all);
nlohmann::ordered_json to_json(const emu::Counters& c);
nlohmann::ordered_json to_json(const runtime::DeviceInfo& d);
/// {"kind": "ParseError", "rule", "where", "why", "hint"}.
nlohmann::ordered_json to_json(const Error& e, std::string_view kind);

}  // namespace cgp::spec

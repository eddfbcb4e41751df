// SPDX-License-Identifier: Apache-2.0
#pragma once
// How results look: text for people, JSON for programs (docs/cli.md, "JSON", lists every field).
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "cgp/base/error.h"
#include "spec_run.h"

namespace cgp::spec {

/// A finding like a compiler's error: class and message, PTX line with a caret, C++ line, block and thread,
/// address as buffer + offset, the other party, a hint. `ptx` is the text that ran.
std::string finding_text(const emu::Finding& f, const std::string& ptx_path, std::string_view ptx,
                         bool color);
/// Everything about a run, verdict last.
std::string result_text(const SpecResult& r, bool color);
/// The counters that are not zero, aligned, with derived ratios.
std::string counters_text(const emu::Counters& c);

/// Ordered as documented.
nlohmann::ordered_json to_json(const SpecResult& r);
nlohmann::ordered_json to_json(const emu::Finding& f);
nlohmann::ordered_json to_json(const emu::Counters& c);
nlohmann::ordered_json to_json(const runtime::DeviceInfo& d);
/// {"kind": "ParseError", "rule", "where", "why", "hint"}.
nlohmann::ordered_json to_json(const Error& e, std::string_view kind);

}  // namespace cgp::spec

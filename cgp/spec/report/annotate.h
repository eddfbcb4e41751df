// SPDX-License-Identifier: Apache-2.0
#pragma once
// The emulator's counters line by line, over the PTX that ran and over the C++ sources that its .loc lines
// name.
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cgp/emu/emu.h"
#include "cgp/spec/report/style.h"
#include "cgp/spec/sources.h"

namespace cgp::spec {

/// One launch: what ran and what was counted.
struct LaunchView {
  std::string kernel;
  std::string module;  ///< name of its PTX in Sources
  std::shared_ptr<const emu::Result> result;
};

/// Sums over the instructions of one source line.
struct LineCounters {
  std::uint64_t instructions = 0;  ///< in the text
  std::uint64_t issues = 0, lanes = 0;
  std::uint64_t global_requests = 0, global_sectors = 0, global_bytes = 0;
  std::uint64_t shared_requests = 0, shared_wavefronts = 0, shared_conflicts = 0;
  std::uint64_t branches = 0, divergent = 0;  ///< warp-level
};

struct FileCounters {
  std::string name;  ///< in Sources
  std::uint64_t issues = 0;
  std::map<int, LineCounters> lines;
};

struct Annotation {
  std::vector<FileCounters> ptx, cpp;  ///< cpp: most issues first
};

/// Launches of the same module are summed. `modules` has the text of each.
Annotation annotate(const std::vector<LaunchView>& launches,
                    const std::map<std::string, std::string>& modules);

/// "cpp" (its PTX where no source can be read), "ptx" or "both".
std::string annotation_text(const Annotation& a, const std::string& view, Sources& sources,
                            const Style& style);
nlohmann::ordered_json to_json(const Annotation& a, Sources& sources);

}  // namespace cgp::spec

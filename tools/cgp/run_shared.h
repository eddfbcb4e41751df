// SPDX-License-Identifier: Apache-2.0
#pragma once
// What `cgp run` does alike for kernels, PTX files and specs: views and files beside the report.
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cgp/spec/report/annotate.h"
#include "cgp/spec/report/findings.h"
#include "tools/cgp/commands.h"

namespace cgp::cli {

/// Where C++ sources of a PTX file may lie: --source, its own folder, the folders above this program (paths
/// in kernels of the catalogue are relative to the repository).
std::vector<std::string> source_folders(const RunOptions& o, const std::string& ptx_path);
/// Options that only the emulator has, given for a GPU.
void warn_without_emulator(const RunOptions& o, std::vector<std::string>& warnings);

/// A finished run, as the views need it.
struct Ran {
  std::string title;
  std::vector<spec::LaunchView> launches;
  std::map<std::string, std::string> modules;  ///< PTX by name
  const std::vector<spec::LocatedFinding>* findings = nullptr;
  std::vector<std::string> failures;  ///< wrong results and faults
  int exit_code = 0;
};

/// Throws for values of --annotate that mean nothing; before anything runs.
void check_views(const RunOptions& o);
/// --annotate and --heatmap as text; writes the files of --heatmap and --sarif.
std::string views_text(const RunOptions& o, const Ran& ran, spec::Sources& sources, const spec::Style& style);
/// The same in `j`: "annotate", "heatmap", "files".
void views_json(const RunOptions& o, const Ran& ran, spec::Sources& sources, nlohmann::ordered_json& j);

}  // namespace cgp::cli

// SPDX-License-Identifier: Apache-2.0
#include "tools/cgp/run_shared.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/spec/report/heatmap.h"
#include "cgp/spec/report/json_text.h"
#include "cgp/spec/report/sarif.h"
#include "tools/cgp/version.h"

namespace cgp::cli {
namespace fs = std::filesystem;
namespace {

using text::cat;

/// Pairs of option and file that were written.
std::vector<std::pair<std::string, std::string>> write_files(const RunOptions& o, const Ran& ran,
                                                             const std::vector<emu::AccessMap>& maps,
                                                             spec::Sources& sources) {
  std::vector<std::pair<std::string, std::string>> out;
  if (!o.heatmap.empty() && o.heatmap != "-") {
    write_file(o.heatmap, spec::heatmap_svg(maps, ran.title));
    out.emplace_back("heatmap", o.heatmap);
  }
  if (!o.sarif.empty()) {
    const spec::SarifRun run{kVersion, o.command_line, ran.exit_code, ran.failures};
    write_file(o.sarif, spec::dumped(spec::sarif(*ran.findings, sources, run), 2) + "\n");
    out.emplace_back("sarif", o.sarif);
  }
  return out;
}

bool emulated(const Ran& ran) {
  for (const auto& l : ran.launches)
    if (l.result) return true;
  return false;
}

}  // namespace

std::vector<std::string> source_folders(const RunOptions& o, const std::string& ptx_path) {
  std::vector<std::string> out = o.source_folders;
  if (const auto folder = fs::path(ptx_path).parent_path(); !folder.empty()) out.push_back(folder.string());
  std::error_code failed;
  fs::path above = fs::read_symlink("/proc/self/exe", failed).parent_path();
  for (int i = 0; i < 5 && !failed && above.has_relative_path(); ++i, above = above.parent_path())
    out.push_back(fs::relative(above, failed).string());
  return out;
}

void warn_without_emulator(const RunOptions& o, std::vector<std::string>& warnings) {
  if (o.checks_given && o.checks != "none")
    warnings.push_back("--check needs the emulator; nothing was checked on this device");
  if (const std::string changed = o.emulation.changed(); !changed.empty())
    warnings.push_back(cat(changed, " needs the emulator and did nothing on this device"));
  if (!o.annotate.empty() || !o.heatmap.empty())
    warnings.push_back("--annotate and --heatmap show the emulator's counts; a GPU gives none");
}

void check_views(const RunOptions& o) {
  if (o.annotate.empty() || o.annotate == "cpp" || o.annotate == "ptx" || o.annotate == "both") return;
  const auto near = text::closest(o.annotate, {"cpp", "ptx", "both"}, 1);
  throw ArgumentError(ErrorText{"--annotate must be cpp, ptx or both",
                                {},
                                cat("it is \"", o.annotate, "\""),
                                near.empty() ? "" : cat("did you mean ", near[0], "?")});
}

std::string views_text(const RunOptions& o, const Ran& ran, spec::Sources& sources,
                       const spec::Style& style) {
  std::string out;
  std::vector<emu::AccessMap> maps;
  if (!o.heatmap.empty()) maps = spec::access_maps(ran.launches);
  if (emulated(ran)) {
    if (!o.annotate.empty())
      out += spec::annotation_text(spec::annotate(ran.launches, ran.modules), o.annotate, sources, style);
    if (!o.heatmap.empty()) out += spec::heatmap_text(maps, style);
    if (!out.empty()) out += '\n';
  }
  for (const auto& [what, file] : write_files(o, ran, maps, sources)) out += cat("wrote ", file, "\n");
  return out;
}

void views_json(const RunOptions& o, const Ran& ran, spec::Sources& sources, nlohmann::ordered_json& j) {
  std::vector<emu::AccessMap> maps;
  if (!o.heatmap.empty()) maps = spec::access_maps(ran.launches);
  if (!o.annotate.empty() && emulated(ran))
    j["annotate"] = spec::to_json(spec::annotate(ran.launches, ran.modules), sources);
  if (!o.heatmap.empty() && emulated(ran)) j["heatmap"] = spec::to_json(maps);
  for (const auto& [what, file] : write_files(o, ran, maps, sources)) j["files"][what] = file;
}

}  // namespace cgp::cli

// SPDX-License-Identifier: Apache-2.0
// cgp lint: SIMD accesses that fault on unaligned addresses, in sources.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/profile/lint/simd_lint.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/profiler_commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {

int lint(const Context& context, const LintOptions& o) {
  namespace fs = std::filesystem;
  static const std::set<std::string> kinds{".c",   ".cc",  ".cpp", ".cxx", ".h",  ".hh", ".hpp",
                                           ".hxx", ".inl", ".ipp", ".tcc", ".cu", ".cuh"};
  if (o.paths.empty())
    throw ArgumentError(
        ErrorText{"files or folders to look at are needed", {}, {}, "cgp lint --simd-safety src"});
  std::vector<std::string> files;
  for (const auto& p : o.paths) {
    if (fs::is_directory(p)) {
      std::error_code ec;  // what may not be looked at is left out
      fs::recursive_directory_iterator at(p, fs::directory_options::skip_permission_denied, ec), end;
      for (; !ec && at != end; at.increment(ec)) {
        std::error_code gone;
        if (at->is_regular_file(gone) && kinds.count(at->path().extension()))
          files.push_back(at->path().string());
      }
    } else {
      files.push_back(p);
    }
  }
  if (files.empty())
    throw ArgumentError(ErrorText{
        "there is a source to look at", text::join(o.paths, ", "), "no file of C or C++ is there", {}});
  std::sort(files.begin(), files.end());
  std::string out;
  nlohmann::ordered_json j = {
      {"schema", "cgp.lint/1"}, {"files", files.size()}, {"risks", nlohmann::ordered_json::array()}};
  int count = 0;
  for (const auto& f : files) {
    const std::string source = read_file(f);
    if (source.find('\0') != source.npos)
      throw ArgumentError(
          ErrorText{"what is looked at must be source text of C or C++", f, "it has zero bytes", {}});
    for (const auto& r : profile::simd_risks(source, f)) {
      ++count;
      out += fmt::format(
          "{}:{}: {} faults unless the address is a multiple of {}, and nothing here shows that it is\n    "
          "{}\n",
          r.file, r.line, r.intrinsic, r.bytes, r.text);
      j["risks"].push_back({{"file", r.file},
                            {"line", r.line},
                            {"intrinsic", r.intrinsic},
                            {"alignment", r.bytes},
                            {"text", r.text}});
    }
  }
  out += fmt::format("{} files, {} accesses without a visible guarantee{}\n", files.size(), count,
                     count ? "; use the unaligned form (loadu, storeu), or check the address first" : "");
  write_out(context.json ? spec::dumped(j, 2) + "\n" : out);
  return count ? kCheckFailed : kClean;
}

}  // namespace cgp::cli

// SPDX-License-Identifier: Apache-2.0
// cgp diff: two saved profiles (at once, no run), two commits (built in worktrees, run in pairs), two
// commands.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/profile/contract/baseline_store.h"
#include "cgp/profile/contract/compare_programs.h"
#include "cgp/profile/import/import.h"
#include "cgp/profile/kernel/kernel_profile.h"
#include "cgp/profile/measure/measure.h"
#include "cgp/profile/roofline/cpu_ceilings.h"
#include "cgp/profile/sampling/cpu_compare.h"
#include "cgp/profile/view/table.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/profiler_commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {
namespace {

namespace fs = std::filesystem;
using fmt::format;
using text::cat;

profile::Document load_side(const std::string& name, const std::string& folder) {
  if (name == "-") {
    const std::string content{std::istreambuf_iterator<char>(std::cin), {}};
    return profile::from_json(profile::parsed(content, "standard input"), "standard input");
  }
  if (fs::exists(name) && !fs::is_directory(name)) return profile::load_any(name);
  if (name.find('/') != std::string::npos || fs::path(name).has_extension())
    throw ArgumentError(ErrorText{"there must be such a file", name, "and it is no baseline's name", {}});
  return profile::BaselineStore(folder).load(name);
}

int report_documents(const Context& context, const DiffOptions& o, const profile::Document& before,
                     const profile::Document& after) {
  const auto known = profile::BaselineStore(o.baselines).noise_floor(after.machine_key);
  const double floor = known.value_or(0.12);
  const auto rows = profile::diff_documents(before, after, floor, o.equivalence);
  profile::Table table({"<what", "before", "after", "change", "<unit", "<verdict", "<why"});
  nlohmann::ordered_json j = {{"schema", "cgp.diff/1"},
                              {"noise_floor", floor},
                              {"calibrated", known.has_value()},
                              {"rows", nlohmann::ordered_json::array()}};
  std::map<std::string, int> count;
  for (const auto& r : rows) {
    ++count[r.verdict];
    table.row({r.name, profile::number_text(r.before), profile::number_text(r.after),
               profile::percent_text(r.change), r.unit, r.verdict, r.why});
    j["rows"].push_back(
        {{"name", r.name},
         {"unit", r.unit},
         {"before", r.before},
         {"after", r.after},
         {"change", std::isfinite(r.change) ? nlohmann::ordered_json(r.change) : nlohmann::ordered_json()},
         {"speedup", r.after > 0 ? r.before / r.after : 0},
         {"verdict", r.verdict},
         {"why", r.why},
         {"cliffs_delta", r.effect}});
  }
  if (rows.empty())
    throw ArgumentError(ErrorText{"these two profiles share no samples and no exact counts",
                                  {},
                                  cat(before.name, " and ", after.name),
                                  "measure both with the same command"});
  std::vector<profile::FunctionChange> functions;
  if (before.more.contains("cpu_samples") && after.more.contains("cpu_samples"))
    functions = profile::function_changes(before.more["cpu_samples"], after.more["cpu_samples"]);
  if (!functions.empty()) j["functions"] = profile::to_json(functions);
  std::string head;
  for (const char* v : {"REGRESSION", "SUSPECT", "IMPROVED", "NO_CHANGE", "INCONCLUSIVE", "INCOMPARABLE"})
    if (count.count(v)) head += format("{}{} {}", head.empty() ? "" : " · ", v, count[v]);
  if (context.json)
    write_out(spec::dumped(j, 2) + "\n");
  else
    write_out(head + "\n" + table.text() + profile::changes_text(functions, context.width) +
              (known ? "" : "noise floor not calibrated here, 12 % taken: cgp baseline calibrate\n"));
  if (count["REGRESSION"]) return kCheckFailed;
  if (count["SUSPECT"]) return kInconclusive;
  if (count["INCOMPARABLE"] == int(rows.size())) return kUnavailable;
  return o.strict && (count["INCONCLUSIVE"] || count["INCOMPARABLE"]) ? kInconclusive : kClean;
}

int report_pairs(const Context& context, const DiffOptions& o, const profile::ProgramComparison& c,
                 const std::string& left, const std::string& right) {
  profile::require_runs(c, "both sides must run");
  if (context.json) {
    nlohmann::ordered_json j = {{"schema", "cgp.diff/1"}, {"before", left}, {"after", right}};
    j["comparison"] = profile::to_json(c.result);
    write_out(spec::dumped(j, 2) + "\n");
  } else {
    write_out(format("{}\n  {} -> {}\n  {}\n", profile::describe(c.result), left, right, c.result.why));
  }
  if (c.result.verdict == measure::Verdict::regression) return kCheckFailed;
  return o.strict && c.result.verdict == measure::Verdict::inconclusive ? kInconclusive : kClean;
}

int diff_files(const Context& context, const DiffOptions& o) {
  return report_documents(context, o, load_side(o.files[0], o.baselines), load_side(o.files[1], o.baselines));
}

measure::PairedOptions paired_options(const DiffOptions& o) {
  measure::PairedOptions p;
  p.margin = o.margin, p.equivalence = o.equivalence, p.max_seconds = o.budget;
  return p;
}

/// A checkout of a commit in a temporary folder, removed with the object.
class Worktree {
 public:
  Worktree(const std::string& commit, const std::string& side)
      : folder_((fs::temp_directory_path() / cat("cgp-diff-", getpid(), "-", side)).string()) {
    const auto r = measure::run_process({"git", "worktree", "add", "--detach", folder_, commit});
    if (!r.ok())
      throw ArgumentError(ErrorText{"git must have the commit", commit, std::string(text::trim(r.err)), {}});
  }
  ~Worktree() { measure::run_process({"git", "worktree", "remove", "--force", folder_}); }
  Worktree(const Worktree&) = delete;
  Worktree& operator=(const Worktree&) = delete;
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

/// The end of what a build printed, on lines of its own.
std::string end_of(const std::string& printed) {
  const auto all = text::trim(printed);
  return all.empty()
             ? ""
             : "\n" + profile::visible(std::string(all.substr(all.size() > 2000 ? all.size() - 2000 : 0)));
}

int diff_commits(const Context& context, const DiffOptions& o) {
  if (o.run.empty())
    throw ArgumentError(
        ErrorText{"comparing commits needs --run COMMAND, and --build COMMAND if there is something to build",
                  {},
                  {},
                  {}});
  const auto rule = profile::timing_rule(o.timing);
  Progress progress;
  progress.step("checking out");
  const Worktree before(o.before, "before"), after(o.after, "after");
  for (const Worktree* w : {&before, &after}) {
    if (o.build.empty()) continue;
    progress.step(cat("building ", w == &before ? o.before : o.after));
    measure::ProcessOptions p;
    p.folder = w->folder();
    const auto r = measure::run_process({"sh", "-c", o.build}, p);
    if (!r.ok())
      throw Error(ErrorText{"both commits must build",
                            w == &before ? o.before : o.after,
                            r.describe() + end_of(r.out) + end_of(r.err),
                            {}});
  }
  progress.step("interleaved pairs");
  const profile::TimedProgram a{o.before, {"sh", "-c", o.run}, before.folder()},
      b{o.after, {"sh", "-c", o.run}, after.folder()};
  const auto c = profile::compare_programs(a, b, rule, paired_options(o));
  return report_pairs(context, o, c, o.before, o.after);
}

/// "emu:sm_80:softmax rows=64" or "avx2:dot n=4096"; kernel empty where it is a command line.
struct Side {
  std::string backend, kernel;
  std::vector<std::string> settings;
  bool loop = false;
};
Side side_of(const std::string& text) {
  Side s;
  const auto words = measure::split_command(text);
  if (words.empty()) return s;
  const auto colon = words[0].rfind(':');
  if (colon == std::string::npos || colon == 0) return s;
  const std::string backend = words[0].substr(0, colon), kernel = words[0].substr(colon + 1);
  const auto loops = profile::cpu_functions();
  const auto isas = cpu::all_isas();
  s.loop = std::find(loops.begin(), loops.end(), kernel) != loops.end() &&
           std::any_of(isas.begin(), isas.end(), [&](cpu::Isa i) { return cpu::name(i) == backend; });
  const bool device = backend == "emu" || backend == "cuda" || backend.rfind("emu:", 0) == 0 ||
                      backend.rfind("cuda:", 0) == 0;
  if (!s.loop && !device) return s;
  if (!s.loop) kernels::find_kernel(kernel);  // an unknown one ends here
  s.backend = backend, s.kernel = kernel, s.settings.assign(words.begin() + 1, words.end());
  return s;
}

/// Loops in pairs, in this process; kernels by what was counted, or by times of the same device.
int diff_backends(const Context& context, const DiffOptions& o, const Side& left, const Side& right) {
  if (left.loop != right.loop)
    throw ArgumentError(ErrorText{
        "two loops of the processor, or two kernels, are compared", {}, cat(o.left, " and ", o.right), {}});
  Progress progress;
  if (left.loop) {
    std::size_t n = 4096;
    for (const auto& s : left.settings)
      if (s.rfind("n=", 0) == 0)
        n = std::size_t(std::clamp(std::strtoll(s.c_str() + 2, nullptr, 10), 1ll, 1ll << 28));
    std::vector<float> a(n, 1.5f), b(n, 0.25f);
    progress.step("interleaved pairs");
    measure::LockstepOptions how;
    how.paired = paired_options(o);
    profile::ProgramComparison c;
    c.result = measure::compare_functions(
        [&] { measure::keep(profile::run_cpu_function(left.kernel, left.backend, a.data(), b.data(), n)); },
        [&] { measure::keep(profile::run_cpu_function(right.kernel, right.backend, a.data(), b.data(), n)); },
        how);
    return report_pairs(context, o, c, o.left, o.right);
  }
  profile::Document both[2];
  for (int i = 0; i < 2; ++i) {
    const Side& s = i ? right : left;
    progress.step(cat("measuring ", s.backend, ":", s.kernel));
    profile::KernelProfileOptions k;
    k.kernel = s.kernel, k.settings = s.settings, k.device = s.backend;
    both[i] = profile::profile_catalogue_kernel(k);
  }
  both[1].machine_key = both[0].machine_key;  // that they are two is what was asked for
  return report_documents(context, o, both[0], both[1]);
}

}  // namespace

int diff(const Context& context, const DiffOptions& given) {
  DiffOptions o = given;
  if (!o.baseline.empty() || !o.current.empty()) {
    if (o.baseline.empty() || o.current.empty() || !o.files.empty())
      throw ArgumentError(
          ErrorText{"--baseline and --current come together, instead of two files", {}, {}, {}});
    o.files = {o.baseline, o.current};
  }
  if (!o.before.empty() || !o.after.empty()) {
    if (o.before.empty()) throw ArgumentError(ErrorText{"--after needs --before COMMIT", {}, {}, {}});
    DiffOptions full = o;
    if (full.after.empty()) full.after = "HEAD";
    return diff_commits(context, full);
  }
  if (!o.left.empty() || !o.right.empty()) {
    if (o.left.empty() || o.right.empty())
      throw ArgumentError(ErrorText{"--left and --right come together", {}, {}, {}});
    const Side left = side_of(o.left), right = side_of(o.right);
    if (left.kernel.empty() != right.kernel.empty())
      throw ArgumentError(ErrorText{
          "both sides are BACKEND:KERNEL, or both are command lines", {}, cat(o.left, " and ", o.right), {}});
    if (!left.kernel.empty()) return diff_backends(context, o, left, right);
    const auto rule = profile::timing_rule(o.timing);
    profile::ProgramComparison c;
    {
      Progress progress;
      progress.step("interleaved pairs");
      c = profile::compare_programs({"left", measure::split_command(o.left), {}},
                                    {"right", measure::split_command(o.right), {}}, rule, paired_options(o));
    }
    return report_pairs(context, o, c, o.left, o.right);
  }
  if (o.files.size() != 2)
    throw ArgumentError(ErrorText{"two profiles, baselines or commits are compared",
                                  {},
                                  cat(o.files.size(), " files given"),
                                  "cgp diff A.json B.json, --before COMMIT, or --left CMD --right CMD"});
  if (!o.timing.regex.empty())
    throw ArgumentError(
        ErrorText{"saved profiles have their times: --time-regex is for programs that are run",
                  {},
                  {},
                  "--left CMD --right CMD, or --before COMMIT --run CMD"});
  return diff_files(context, o);
}

}  // namespace cgp::cli

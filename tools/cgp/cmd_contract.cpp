// SPDX-License-Identifier: Apache-2.0
// cgp contract verify | generate.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/profile/contract/contract.h"
#include "cgp/profile/import/import.h"
#include "cgp/profile/kernel/kernel_profile.h"
#include "cgp/profile/kernel/verify_contract.h"
#include "cgp/profile/view/table.h"
#include "cgp/spec/report/json_text.h"
#include "shipped_contracts.h"
#include "tools/cgp/deliver.h"
#include "tools/cgp/profiler_commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {
namespace {

namespace fs = std::filesystem;
using fmt::format;
using profile::Outcome;
using text::cat;

std::vector<profile::ContractFile> contract_files(const ContractOptions& o) {
  std::vector<std::string> out = o.files;
  if (!o.folder.empty()) {
    std::error_code ec;
    for (const auto& e : fs::recursive_directory_iterator(o.folder, ec))
      if (e.path().extension() == ".yaml" || e.path().extension() == ".yml") out.push_back(e.path().string());
    if (ec) throw ArgumentError(ErrorText{"--dir is a folder of contracts", o.folder, ec.message(), {}});
  }
  std::sort(out.begin(), out.end());
  std::vector<profile::ContractFile> files;
  for (auto& name : out) files.push_back({std::move(name), {}});
  if (o.self || (files.empty() && o.safety && o.folder.empty()))
    for (const auto& [name, text] : kShippedContracts) files.push_back({cat("(of cgp) ", name), text});
  if (files.empty())
    throw ArgumentError(ErrorText{"there is a contract to verify", o.folder, "none was found",
                                  "cgp contract verify FILE.yaml, --dir FOLDER, or --self"});
  return files;
}

int verify(const Context& context, const ContractOptions& o) {
  std::vector<profile::ContractResult> all;
  {
    Progress progress;
    const auto files = contract_files(o);
    if (!o.profile.empty()) profile::load_any(o.profile);  // a profile that cannot be read is none's fault
    const profile::VerifyOptions how{o.profile, o.baselines, o.definitions,
                                     o.strict,  o.safety,    o.fail_on_regression};
    const auto step = [&](const std::string& what) { progress.step(what); };
    for (const auto& file : files)
      all.push_back(files.size() == 1 && o.junit.empty() && !o.github
                        ? profile::verify_contract(file, how, step)
                        : profile::verify_or_fail(file, how, step));
  }
  int count[3] = {};
  bool decided = false;
  std::string out;
  nlohmann::ordered_json j = {{"schema", "cgp.contract/1"}, {"contracts", nlohmann::ordered_json::array()}};
  for (const auto& r : all) {
    out += format("{} ({})\n", r.contract.name, r.contract.file);
    nlohmann::ordered_json one = {
        {"name", r.contract.name}, {"file", r.contract.file}, {"checks", nlohmann::ordered_json::array()}};
    // That the program ended well is no answer to what was promised.
    for (std::size_t i = 0; i < std::min(r.contract.promises.size(), r.checks.size()); ++i)
      decided |= r.checks[i].outcome != Outcome::skip;
    for (const auto& c : r.checks) {
      ++count[int(c.outcome)];
      out += format("  {}  {}{}\n", profile::name(c.outcome), c.promise.name,
                    c.why.empty() ? "" : format("  ({})", c.why));
      one["checks"].push_back({{"name", c.promise.name},
                               {"check", c.promise.check},
                               {"line", c.promise.line},
                               {"outcome", profile::name(c.outcome)},
                               {"why", c.why}});
    }
    if (!o.strict)
      for (const auto& w : r.contract.warnings) out += format("  warning: {}\n", w);
    one["warnings"] = r.contract.warnings;
    j["contracts"].push_back(std::move(one));
  }
  out += format("{} passed, {} failed, {} skipped\n", count[0], count[1], count[2]);
  j["passed"] = count[0], j["failed"] = count[1], j["skipped"] = count[2];
  LateFailure files;
  if (!o.junit.empty()) files.write(o.junit, profile::junit_xml(all));
  if (o.github) out += profile::github_lines(all);
  write_out(context.json ? spec::dumped(j, 2) + "\n" : out);
  files.rethrow();
  if (std::any_of(all.begin(), all.end(), [](const auto& r) { return r.broken; })) return kUsage;
  if (count[1]) return kCheckFailed;
  // Nothing was checked: that is not a success.
  return count[2] && (o.strict || !decided) ? kInconclusive : kClean;
}

}  // namespace

int contract(const Context& context, const ContractOptions& o) {
  if (o.action == "verify") return verify(context, o);
  if (!o.kernel.empty() && !o.profile.empty())
    throw ArgumentError(
        ErrorText{"a contract is of a saved profile or of --kernel", {}, "both are given", {}});
  if (o.profile.empty() && o.kernel.empty())
    throw ArgumentError(ErrorText{
        "a contract is generated from a profile",
        {},
        "no numbers are made up",
        "cgp contract generate --kernel softmax, or of a file that cgp profile kernel softmax --save wrote"});
  profile::Document d;
  if (o.kernel.empty()) {
    d = profile::load_any(o.profile);
  } else {
    profile::KernelProfileOptions k;
    k.kernel = o.kernel[0], k.settings.assign(o.kernel.begin() + 1, o.kernel.end()), k.device = o.device;
    for (auto& s : profile::size_settings(k.kernel, o.size)) k.settings.push_back(std::move(s));
    Progress progress;
    progress.step(cat("measuring ", k.kernel));
    d = profile::profile_catalogue_kernel(k);
  }
  const std::string yaml = profile::generate_contract(d, o.name.empty() ? d.name : o.name, o.tolerance);
  if (!o.output.empty()) write_file(o.output, yaml);
  if (context.json)
    write_out(spec::dumped(nlohmann::ordered_json(
                               {{"schema", "cgp.contract_generate/1"}, {"file", o.output}, {"yaml", yaml}}),
                           2) +
              "\n");
  else
    write_out(o.output.empty() ? yaml : format("wrote {}\n", o.output));
  return kClean;
}

}  // namespace cgp::cli

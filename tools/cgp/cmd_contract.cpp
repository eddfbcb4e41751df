// SPDX-License-Identifier: Apache-2.0
// cgp contract verify | generate.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "json_text.h"
#include "kernel_profile.h"
#include "profile/contract.h"
#include "profile/import.h"
#include "profile/program.h"
#include "profile/table.h"
#include "profiler_commands.h"
#include "terminal.h"

namespace cgp::cli {
namespace {

namespace fs = std::filesystem;
using fmt::format;
using profile::Outcome;
using text::cat;

std::vector<std::string> contract_files(const ContractOptions& o) {
  std::vector<std::string> out = o.files;
  if (!o.folder.empty()) {
    std::error_code ec;
    for (const auto& e : fs::recursive_directory_iterator(o.folder, ec))
      if (e.path().extension() == ".yaml" || e.path().extension() == ".yml") out.push_back(e.path().string());
    if (ec) throw ArgumentError(ErrorText{"--dir is a folder of contracts", o.folder, ec.message(), {}});
  }
  std::sort(out.begin(), out.end());
  if (out.empty())
    throw ArgumentError(ErrorText{"there is a contract to verify", o.folder, "none was found",
                                  "cgp contract verify FILE.yaml, or --dir FOLDER"});
  return out;
}

/// ${NAME} in a command becomes what --define says.
void substitute(std::vector<std::string>& command, const ContractOptions& o, const std::string& file) {
  for (std::string& word : command)
    for (std::size_t at = 0; (at = word.find("${", at)) != std::string::npos;) {
      const std::size_t end = word.find('}', at);
      if (end == std::string::npos) break;
      const std::string key = word.substr(at + 2, end - at - 2) + "=";
      const auto found = std::find_if(o.definitions.begin(), o.definitions.end(),
                                      [&](const std::string& d) { return d.rfind(key, 0) == 0; });
      if (found == o.definitions.end())
        throw ArgumentError(ErrorText{cat("${", key.substr(0, key.size() - 1), "} must be defined"),
                                      file,
                                      {},
                                      cat("--define ", key, "VALUE")});
      word.replace(at, end + 1 - at, found->substr(key.size()));
      at += found->size() - key.size();
    }
}

/// A profile of what the contract is about: given, or measured now.
profile::ContractResult verify_one(const std::string& file, const ContractOptions& o, Progress& progress) {
  profile::ContractResult r;
  r.contract = profile::parse_contract(read_file(file), file);
  substitute(r.contract.command, o, file);
  if (!o.profile.empty()) {
    r.checks = profile::check(r.contract, profile::load_any(o.profile));
    return r;
  }
  progress.step(cat("measuring for ", r.contract.name));
  try {
    if (!r.contract.kernel.empty()) {
      KernelProfileOptions k;
      k.kernel = r.contract.kernel, k.settings = r.contract.settings, k.device = r.contract.device;
      const auto d = profile_catalogue_kernel(k);
      r.checks = profile::check(r.contract, d);
      const bool right = d.more["check"]["pass"];
      r.checks.push_back(
          {{"the result is right", "", 1}, right ? Outcome::pass : Outcome::fail, d.more["check"]["text"]});
    } else if (!r.contract.command.empty()) {
      const auto run = profile::run_program(r.contract.command, {});
      auto d = profile::new_document("binary", prof::join_command(r.contract.command), r.contract.command);
      d.metrics = run.metrics, d.kernels = profile::kernels_of(run.timeline);
      r.checks = profile::check(r.contract, d);
      r.checks.push_back({{"the program ends well", "", 1},
                          run.process.ok() ? Outcome::pass : Outcome::fail,
                          run.process.describe()});
    } else {
      r.checks =
          profile::skip_all(r.contract, "it names no kernel and no command, and no --profile was given");
    }
  } catch (const Unsupported& e) {
    r.checks = profile::skip_all(r.contract, e.rule() + (e.why().empty() ? "" : ": " + e.why()));
  }
  return r;
}

/// A contract that cannot be read or measured is a failure of this one, not the end of the others.
profile::ContractResult verify_or_fail(const std::string& file, const ContractOptions& o,
                                       Progress& progress) {
  try {
    return verify_one(file, o, progress);
  } catch (const Error& e) {
    profile::ContractResult r;
    r.contract.name = fs::path(file).stem().string(), r.contract.file = file;
    std::string why = e.where();
    for (const std::string& part : {e.rule(), e.why()})
      if (!part.empty()) why += (why.empty() ? "" : ": ") + part;
    r.contract.promises = {{"it can be verified", "", 1}};
    r.checks = {{r.contract.promises[0], Outcome::fail, why}};
    r.broken = true;
    return r;
  }
}

int verify(const Context& context, const ContractOptions& o) {
  std::vector<profile::ContractResult> all;
  {
    Progress progress;
    const auto files = contract_files(o);
    if (!o.profile.empty()) profile::load_any(o.profile);  // a profile that cannot be read is none's fault
    for (const auto& file : files)
      all.push_back(files.size() == 1 && o.junit.empty() ? verify_one(file, o, progress)
                                                         : verify_or_fail(file, o, progress));
  }
  int count[3] = {};
  bool warned = false, decided = false;
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
    for (const auto& w : r.contract.warnings) {
      out += format("  warning: {}\n", w);
      warned = true;
    }
    one["warnings"] = r.contract.warnings;
    j["contracts"].push_back(std::move(one));
  }
  out += format("{} passed, {} failed, {} skipped\n", count[0], count[1], count[2]);
  j["passed"] = count[0], j["failed"] = count[1], j["skipped"] = count[2];
  if (!o.junit.empty()) write_file(o.junit, profile::junit_xml(all));
  if (o.github) out += profile::github_lines(all);
  write_out(context.json ? spec::dumped(j, 2) + "\n" : out);
  if (std::any_of(all.begin(), all.end(), [](const auto& r) { return r.broken; })) return kUsage;
  if (count[1] || (o.strict && warned)) return kCheckFailed;
  // Nothing was checked: that is not a success.
  return count[2] && (o.strict || !decided) ? kInconclusive : kClean;
}

}  // namespace

int contract(const Context& context, const ContractOptions& o) {
  if (o.action == "verify") return verify(context, o);
  if (o.profile.empty())
    throw ArgumentError(
        ErrorText{"a contract is generated from a profile",
                  {},
                  "no numbers are made up",
                  "cgp profile kernel softmax --save softmax.json, then cgp contract generate softmax.json"});
  const auto d = profile::load_any(o.profile);
  const std::string yaml = profile::generate_contract(d, o.name.empty() ? d.name : o.name, o.tolerance);
  if (o.output.empty())
    write_out(yaml);
  else
    write_file(o.output, yaml);
  return kClean;
}

}  // namespace cgp::cli

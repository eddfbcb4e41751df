// SPDX-License-Identifier: Apache-2.0
// cgp contract verify | generate.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/emu/emu.h"
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/profile/collect/memory_check.h"
#include "cgp/profile/collect/program.h"
#include "cgp/profile/contract/baseline_store.h"
#include "cgp/profile/contract/contract.h"
#include "cgp/profile/import/import.h"
#include "cgp/profile/view/table.h"
#include "cgp/spec/report/json_text.h"
#include "shipped_contracts.h"
#include "tools/cgp/deliver.h"
#include "tools/cgp/kernels/kernel_args.h"
#include "tools/cgp/kernels/kernel_profile.h"
#include "tools/cgp/profiler_commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {
namespace {

namespace fs = std::filesystem;
using fmt::format;
using profile::Outcome;
using text::cat;

struct File {
  std::string name, text;  ///< text empty: to be read
};

std::vector<File> contract_files(const ContractOptions& o) {
  std::vector<std::string> out = o.files;
  if (!o.folder.empty()) {
    std::error_code ec;
    for (const auto& e : fs::recursive_directory_iterator(o.folder, ec))
      if (e.path().extension() == ".yaml" || e.path().extension() == ".yml") out.push_back(e.path().string());
    if (ec) throw ArgumentError(ErrorText{"--dir is a folder of contracts", o.folder, ec.message(), {}});
  }
  std::sort(out.begin(), out.end());
  std::vector<File> files;
  for (auto& name : out) files.push_back({std::move(name), {}});
  if (o.self || (files.empty() && o.safety && o.folder.empty()))
    for (const auto& [name, text] : kShippedContracts) files.push_back({cat("(of cgp) ", name), text});
  if (files.empty())
    throw ArgumentError(ErrorText{"there is a contract to verify", o.folder, "none was found",
                                  "cgp contract verify FILE.yaml, --dir FOLDER, or --self"});
  return files;
}

/// Under all checks of the emulator: on the architecture that the contract names, or its default.
profile::Checked kernel_is_safe(const profile::Contract& c) {
  const profile::Promise promise{"the emulator finds nothing wrong", "", 1};
  const auto& kernel = kernels::find_kernel(c.kernel);
  const auto device = runtime::Device::open(c.device.rfind("emu", 0) == 0 ? c.device : "emu");
  device.set_findings(runtime::Device::Findings::collect);
  device.keep_results(0);
  const auto problem = kernel.prepare(device, parse_settings(kernel, c.settings), {}, 1);
  problem->launch(device.stream());
  device.stream().wait();
  std::size_t launches = 0;
  for (const auto& launch : device.results()) {
    ++launches;
    for (const auto& f : launch.result->findings)
      if (f.severity == emu::Severity::error)
        return {promise, Outcome::fail, cat(launch.kernel, ": ", f.message)};
  }
  return {promise, Outcome::pass,
          format("{} launch{} under all checks", launches, launches == 1 ? "" : "es")};
}

profile::Checked program_is_safe(const profile::Contract& c) {
  const profile::Promise promise{"valgrind finds no error of memory", "", 1};
  try {
    const auto report = profile::check_memory(c.command, {}, 0);
    if (!report.errors.empty())
      return {promise, Outcome::fail,
              format("{} in {} places; first: {}", report.errors.size(), report.errors.size(),
                     report.errors[0].what)};
    return {promise, report.process.ok() ? Outcome::pass : Outcome::fail, report.process.describe()};
  } catch (const Unsupported& e) {
    return {promise, Outcome::skip, e.rule() + (e.why().empty() ? "" : ": " + e.why())};
  }
}

/// Beside the baseline that has the contract's name; without one nothing is known.
profile::Checked no_regression(const ContractOptions& o, const profile::Contract& c,
                               const profile::Document& now) {
  const profile::Promise promise{"nothing is worse than in the baseline", "", 1};
  const profile::BaselineStore store(o.baselines);
  const auto names = store.names();
  if (std::find(names.begin(), names.end(), c.name) == names.end())
    return {promise, Outcome::skip,
            cat("there is no baseline named ", c.name, ": cgp baseline save ", c.name, " FILE")};
  const auto before = store.load(c.name);
  const double floor = store.noise_floor(now.machine_key).value_or(0.12);
  std::size_t same = 0;
  for (const auto& r : profile::diff_documents(before, now, floor, 0.03)) {
    if (r.verdict == "REGRESSION")
      return {promise, Outcome::fail, format("{} {}: {}", r.name, profile::percent_text(r.change), r.why)};
    same += r.verdict == "NO_CHANGE" || r.verdict == "IMPROVED";
  }
  if (same == 0) return {promise, Outcome::skip, "nothing in it can be compared with what was measured now"};
  return {promise, Outcome::pass, format("{} numbers", same)};
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
profile::ContractResult verify_one(const File& source, const ContractOptions& o, Progress& progress) {
  const std::string& file = source.name;
  profile::ContractResult r;
  r.contract = profile::parse_contract(source.text.empty() ? read_file(file) : source.text, file);
  const auto unknown_keys = [&] {  // which --strict takes for promises that nobody looked at
    if (o.strict)
      for (const auto& w : r.contract.warnings)
        r.checks.push_back({{"every key is known", "", 1}, Outcome::fail, w});
  };
  substitute(r.contract.command, o, file);
  if (!o.profile.empty()) {
    r.checks = profile::check(r.contract, profile::load_any(o.profile));
    unknown_keys();
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
      if (o.safety) r.checks.push_back(kernel_is_safe(r.contract));
      if (o.fail_on_regression) r.checks.push_back(no_regression(o, r.contract, d));
    } else if (!r.contract.command.empty()) {
      const auto run = profile::run_program(r.contract.command, {});
      auto d = profile::new_document("binary", measure::join_command(r.contract.command), r.contract.command);
      d.metrics = run.metrics, d.kernels = profile::kernels_of(run.timeline);
      r.checks = profile::check(r.contract, d);
      r.checks.push_back({{"the program ends well", "", 1},
                          run.process.ok() ? Outcome::pass : Outcome::fail,
                          run.process.describe()});
      if (o.safety) r.checks.push_back(program_is_safe(r.contract));
      if (o.fail_on_regression) r.checks.push_back(no_regression(o, r.contract, d));
    } else {
      r.checks =
          profile::skip_all(r.contract, "it names no kernel and no command, and no --profile was given");
    }
  } catch (const Unsupported& e) {
    r.checks = profile::skip_all(r.contract, e.rule() + (e.why().empty() ? "" : ": " + e.why()));
  }
  unknown_keys();
  return r;
}

/// A contract that cannot be read or measured is a failure of this one, not the end of the others.
profile::ContractResult verify_or_fail(const File& source, const ContractOptions& o, Progress& progress) {
  try {
    return verify_one(source, o, progress);
  } catch (const Error& e) {
    const std::string& file = source.name;
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
      all.push_back(files.size() == 1 && o.junit.empty() && !o.github ? verify_one(file, o, progress)
                                                                      : verify_or_fail(file, o, progress));
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
    KernelProfileOptions k;
    k.kernel = o.kernel[0], k.settings.assign(o.kernel.begin() + 1, o.kernel.end()), k.device = o.device;
    for (auto& s : size_settings(k.kernel, o.size)) k.settings.push_back(std::move(s));
    Progress progress;
    progress.step(cat("measuring ", k.kernel));
    d = profile_catalogue_kernel(k);
  }
  const std::string yaml = profile::generate_contract(d, o.name.empty() ? d.name : o.name, o.tolerance);
  if (o.output.empty()) {
    write_out(yaml);
  } else {
    write_file(o.output, yaml);
    if (!context.json) write_out(format("wrote {}\n", o.output));
  }
  return kClean;
}

}  // namespace cgp::cli

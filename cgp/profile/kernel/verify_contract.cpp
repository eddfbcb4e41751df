// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/kernel/verify_contract.h"

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
#include "cgp/profile/import/import.h"
#include "cgp/profile/kernel/kernel_args.h"
#include "cgp/profile/kernel/kernel_profile.h"
#include "cgp/profile/view/table.h"

namespace cgp::profile {
namespace {

namespace fs = std::filesystem;
using fmt::format;
using text::cat;

/// Under all checks of the emulator: on the architecture that the contract names, or its default.
Checked kernel_is_safe(const Contract& c) {
  const Promise promise{"the emulator finds nothing wrong", "", 1};
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

Checked program_is_safe(const Contract& c) {
  const Promise promise{"valgrind finds no error of memory", "", 1};
  try {
    const auto report = check_memory(c.command, {}, 0);
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
Checked no_regression(const VerifyOptions& o, const Contract& c, const Document& now) {
  const Promise promise{"nothing is worse than in the baseline", "", 1};
  const BaselineStore store(o.baselines);
  const auto names = store.names();
  if (std::find(names.begin(), names.end(), c.name) == names.end())
    return {promise, Outcome::skip,
            cat("there is no baseline named ", c.name, ": cgp baseline save ", c.name, " FILE")};
  const auto before = store.load(c.name);
  const double floor = store.noise_floor(now.machine_key).value_or(0.12);
  std::size_t same = 0;
  std::string suspect;
  for (const auto& r : diff_documents(before, now, floor, 0.03)) {
    if (r.verdict == "REGRESSION")
      return {promise, Outcome::fail, format("{} {}: {}", r.name, percent_text(r.change), r.why)};
    if (r.verdict == "SUSPECT") suspect = format("{} {}: {}", r.name, percent_text(r.change), r.why);
    same += r.verdict == "NO_CHANGE" || r.verdict == "IMPROVED";
  }
  if (!suspect.empty()) return {promise, Outcome::skip, "SUSPECT: " + suspect};
  if (same == 0) return {promise, Outcome::skip, "nothing in it can be compared with what was measured now"};
  return {promise, Outcome::pass, format("{} numbers", same)};
}

/// ${NAME} in a command becomes what --define says.
void substitute(std::vector<std::string>& command, const VerifyOptions& o, const std::string& file) {
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

}  // namespace

ContractResult verify_contract(const ContractFile& source, const VerifyOptions& o,
                               const std::function<void(const std::string&)>& step) {
  const std::string& file = source.name;
  ContractResult r;
  r.contract = parse_contract(source.text.empty() ? read_file(file) : source.text, file);
  const auto unknown_keys = [&] {  // which --strict takes for promises that nobody looked at
    if (o.strict)
      for (const auto& w : r.contract.warnings)
        r.checks.push_back({{"every key is known", "", 1}, Outcome::fail, w});
  };
  substitute(r.contract.command, o, file);
  if (!o.profile.empty()) {
    r.checks = check(r.contract, load_any(o.profile));
    unknown_keys();
    return r;
  }
  step(cat("measuring for ", r.contract.name));
  try {
    if (!r.contract.kernel.empty()) {
      KernelProfileOptions k;
      k.kernel = r.contract.kernel, k.settings = r.contract.settings, k.device = r.contract.device;
      const auto d = profile_catalogue_kernel(k);
      r.checks = check(r.contract, d);
      const bool right = d.more["check"]["pass"];
      r.checks.push_back(
          {{"the result is right", "", 1}, right ? Outcome::pass : Outcome::fail, d.more["check"]["text"]});
      if (o.safety) r.checks.push_back(kernel_is_safe(r.contract));
      if (o.fail_on_regression) r.checks.push_back(no_regression(o, r.contract, d));
    } else if (!r.contract.command.empty()) {
      const auto run = run_program(r.contract.command, {});
      auto d = new_document("binary", measure::join_command(r.contract.command), r.contract.command);
      d.metrics = run.metrics, d.kernels = kernels_of(run.timeline);
      r.checks = check(r.contract, d);
      r.checks.push_back({{"the program ends well", "", 1},
                          run.process.ok() ? Outcome::pass : Outcome::fail,
                          run.process.describe()});
      if (o.safety) r.checks.push_back(program_is_safe(r.contract));
      if (o.fail_on_regression) r.checks.push_back(no_regression(o, r.contract, d));
    } else {
      r.checks = skip_all(r.contract, "it names no kernel and no command, and no --profile was given");
    }
  } catch (const Unsupported& e) {
    r.checks = skip_all(r.contract, e.rule() + (e.why().empty() ? "" : ": " + e.why()));
  }
  unknown_keys();
  return r;
}

ContractResult verify_or_fail(const ContractFile& source, const VerifyOptions& o,
                              const std::function<void(const std::string&)>& step) {
  try {
    return verify_contract(source, o, step);
  } catch (const Error& e) {
    const std::string& file = source.name;
    ContractResult r;
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

}  // namespace cgp::profile

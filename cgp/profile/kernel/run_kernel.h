// SPDX-License-Identifier: Apache-2.0
#pragma once
// One problem of a kernel of the catalogue: run on the emulator under every policy asked for, or on a GPU and
// timed, and checked against its oracle. For `cgp run KERNEL`.
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cgp/kernels/catalog/catalog.h"
#include "cgp/profile/measure/compare.h"
#include "cgp/spec/emulation.h"
#include "cgp/spec/report/report.h"

namespace cgp::profile {

struct KernelRunOptions {
  std::vector<std::string> settings, inputs, outputs;  ///< NAME=VALUE; NAME=FILE.npy
  std::string device = "emu", checks = "all";
  spec::Emulation emulation;
  std::string passes;       ///< ptx::parse_passes; empty: none
  bool access_map = false;  ///< keep what --heatmap shows
  int repeat = 20;          ///< timed launches on a GPU
};

struct KernelRun {
  runtime::DeviceInfo device;
  std::string variant, why, checks, fault;
  std::vector<std::string> warnings;
  std::vector<kernels::OptionInfo> settings;
  kernels::Check check;
  double flops = 0, bytes = 0;
  std::vector<runtime::LaunchRecord> launches;  ///< emulator
  std::optional<measure::Timing> timing;        ///< GPU
  std::vector<std::pair<std::string, std::string>> saved;
  std::vector<spec::LocatedFinding> findings;
  std::vector<spec::PolicyOutcome> policies;
  std::string emulation;
  std::map<std::string, std::string> modules;  ///< PTX by name in Sources
  std::vector<std::string> launch_modules;     ///< of each launch
  bool clean() const { return check.pass && fault.empty() && !spec::any_fails(findings); }
};

/// `sources` gets the modules; `step` hears what is going on. The counters, findings and files are those of the
/// first policy's run. Faults are in the result; bad options throw ArgumentError.
KernelRun run_kernel(const kernels::KernelEntry& kernel, const KernelRunOptions& o, spec::Sources& sources,
                     const std::function<void(const std::string&)>& step);

nlohmann::ordered_json to_json(const kernels::KernelEntry& kernel, const KernelRunOptions& o,
                               const KernelRun& r);
/// `views`: text between the counters and the findings.
std::string to_text(const kernels::KernelEntry& kernel, const KernelRun& r, const std::string& views,
                    spec::Sources& sources, const spec::Style& style);

}  // namespace cgp::profile

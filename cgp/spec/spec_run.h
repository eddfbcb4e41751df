// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs a Spec on a device and says what came out. The same code serves the emulator and a GPU; findings and
// counters exist on the emulator only. print_result() and to_json() in report.h show a SpecResult.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cgp/emu/emu.h"
#include "cgp/runtime/info.h"
#include "cgp/spec/host_array.h"
#include "cgp/spec/policies.h"
#include "cgp/spec/report/findings.h"
#include "cgp/spec/spec.h"

namespace cgp::spec {

struct RunOptions {
  std::string device = "emu";  ///< emu, emu:sm_90a, cuda, cuda:1; plain emu takes the spec's target
  std::string checks = "all";  ///< emu::parse_checks
  bool keep_outputs = false;   ///< fill BufferOutcome::data
  bool write_outputs = true;   ///< save buffers that have an output_path
  std::function<void(emu::Options&)> tune;  ///< changes further options of the emulator
  /// Changes the PTX before it is loaded; the opcodes and counters that the spec expects are not checked
  /// then.
  std::function<std::string(const std::string&)> transform;
  std::function<void(const std::string&)> progress;  ///< called when a step begins
};

struct BufferOutcome {
  std::string name;
  DType dtype = DType::f32;
  Role role = Role::in;
  std::uint64_t count = 0, address = 0;
  bool compared = false;  ///< against its expected data, or (role in) against what it held before
  Compare how;
  Comparison comparison;
  std::string saved;  ///< path it was written to
  HostArray data;     ///< with RunOptions::keep_outputs: contents at the end
};

struct CounterMismatch {
  std::size_t launch = 0;
  std::string name;
  std::uint64_t want = 0;
  std::optional<std::uint64_t> got;  ///< absent: the emulator has no such counter
};

struct LaunchOutcome {
  LaunchSpec spec;
  std::shared_ptr<const emu::Result> emulated;  ///< null on a GPU
  std::optional<double> milliseconds;           ///< measured by events on a GPU
  std::string printed;                          ///< by the kernel, on a GPU; on the emulator: in `emulated`
};

struct SpecResult {
  std::string spec_path, ptx_path;
  runtime::DeviceInfo device;
  std::string checks;     ///< names of the checks that ran; empty on a GPU
  std::string emulation;  ///< options that were changed (Emulation::changed); for the report
  std::vector<LaunchOutcome> launches;
  std::vector<LocatedFinding> findings;  ///< module is `ptx_path`
  std::vector<PolicyOutcome> policies;   ///< with several (policies.h); else empty
  std::vector<BufferOutcome> buffers;
  std::vector<CounterMismatch> counter_mismatches;
  std::string fault;  ///< the program or the driver gave up: text of the error
  std::optional<Expectation> expect;
  std::vector<std::string> warnings;
  std::string ptx;  ///< the text that ran

  /// Nothing was found, nothing differs.
  bool clean() const;
  /// For broken kernels: a finding of an accepted class is there.
  bool expectation_met() const;
  int exit_code() const { return clean() ? 0 : 1; }
};

/// The options for `checks`, the names of those that this emulator performs, and a warning when one was asked
/// for by name that it does not.
struct CheckPlan {
  emu::CheckSet set;
  std::string performed, warning;
};
/// `performed` in as few words as possible: "checks: all but race,async".
std::string short_checks(const std::string& performed);
CheckPlan plan_checks(const std::string& checks);

/// Throws ParseError or ArgumentError for bad input, Unsupported when the device is not there or cannot run
/// it.
SpecResult run_spec(const Spec& spec, const RunOptions& options = {});
SpecResult run_spec(const std::string& path, const RunOptions& options = {});

}  // namespace cgp::spec

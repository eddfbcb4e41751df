// SPDX-License-Identifier: Apache-2.0
#pragma once
// The commands that measure: their options and functions, one cmd_<verb>.cpp each. profiler_options.cpp
// declares them on the command line.
#include <string>
#include <vector>

#include "cgp/profile/collect/timing_options.h"
#include "tools/cgp/commands.h"

namespace CLI {
class App;
}

namespace cgp::cli {

struct ProfileOptions {
  std::string what;                  ///< kernel, binary, python, ...
  std::vector<std::string> command;  ///< program and arguments, or kernel and settings
  std::string counters = "none";     ///< none, basic, roofline, memory, stalls
  std::string count = "none";        ///< none, callgrind, step
  std::string filter;                ///< part of kernel names
  std::string save, device = "auto", function;
  std::string library, symbol, signature;                       ///< profile library
  std::string op = "gemm_bf16", shape = "4096", layout = "nt";  ///< profile cublas
  double budget = 2, flops = 0, bytes = 0;                      ///< seconds; of one call
  int launches = 500, repeat = 20, runs = 7;
  int processes = 5;                 ///< simd, scalar, compare --function: fresh ones that measure
  int sample_rate = 499;             ///< binary, python: samples of each processor in a second; 0: none
  bool no_count = false;             ///< of such a process: times only
  double timeout = 0, duration = 0;  ///< ended after so many seconds: a failure; as asked for
  std::size_t size = 0;
  std::string arch;
  std::string kernel;  ///< by an option: profile kernel, quant
  std::string kernel_size;
  std::string quant_size, activations;  ///< profile quant
  bool all_quant = false;
  int threads = 0;
  std::string record = "auto";
  bool roofline = false;
  bool waits = false, launch_stacks = false;  ///< binary, python: of the samples
  bool all_api = false, overhead = false, no_trace = false, heap = false, energy = false;
  std::vector<std::string> backends;
  bool allow_estimates = false, cross_profile = false;
  std::string target = "web";                 ///< profile wgpu: or native
  std::string shader, entry, dispatch = "1";  ///< profile wgpu: a WGSL file
  std::vector<std::string> buffers;           ///< of it: BINDING=BYTES or =FILE
  std::vector<std::string> metrics;           ///< only these in the text
};
int profile(const Context& context, const ProfileOptions& o);
int profile_program(const Context& context,
                    const ProfileOptions& o);  ///< binary, python: cmd_profile_program.cpp
int profile_kernel(const Context& context, const ProfileOptions& o);   ///< cmd_profile_kernel.cpp
int profile_library(const Context& context, const ProfileOptions& o);  ///< cmd_profile_library.cpp
int profile_cublas(const Context& context, const ProfileOptions& o);
int profile_cpu(const Context& context, const ProfileOptions& o);  ///< simd, scalar, parallel, scaling
int profile_quant(const Context& context, const ProfileOptions& o);
int profile_wgpu(const Context& context, const ProfileOptions& o);  ///< kernels/cmd_profile_wgpu.cpp
int profile_compare(const Context& context, const ProfileOptions& o);
int profile_wasm(const Context& context, const ProfileOptions& o);  ///< cmd_profile_wasm.cpp

struct TimeOptions {
  bool against_given = false;
  std::vector<std::string> command;  ///< after --
  std::string kernel;
  std::vector<std::string> settings;
  std::string device = "auto", save, baseline, against;
  profile::TimingOptions timing;
  double threshold = 0.05, budget = 10, precision = 0.01;
  int runs = 0;
  std::string bench;
  std::vector<std::string> counters, cuda_metrics;
  double flops = 0, bytes = 0;
  bool cold = true, check_regression = false, count = false, roofline = false;
  std::string csv;
  bool append = false;
  std::vector<std::string> meta;
  std::string prepare;
  int warmup = 1;
  std::vector<std::string> also, parameters;
};
int time_command(const Context& context, const TimeOptions& o);

struct CompeteOptions {
  std::string workload, ours;
  std::vector<std::string> theirs, labels;
  std::string gemm, save;
  profile::TimingOptions timing;
  double flops = 0, bytes = 0;
  int rounds = 12;
  bool check_output = false;
};
int compete(const Context& context, const CompeteOptions& o);

struct DiffOptions {
  std::vector<std::string> files;
  std::string baseline, current;  ///< the two files by name
  std::string before, after, build, run, left, right, baselines;
  profile::TimingOptions timing;
  double margin = 0.01, equivalence = 0.03, budget = 120;
  bool strict = false;
};
int diff(const Context& context, const DiffOptions& o);

struct BaselineOptions {
  std::string action, name, file, folder;
  bool force = false;
};
int baseline(const Context& context, const BaselineOptions& o);

struct TraceOptions {
  std::vector<std::string> command;
  std::string from, perfetto, speedscope, flamegraph, save;
  std::string record = "auto";
  double timeout = 0, duration = 0;
  bool all_api = false;
};
int trace(const Context& context, const TraceOptions& o);

struct ContractOptions {
  std::string action;
  std::vector<std::string> files;
  std::string folder, profile, junit, output, name;
  std::vector<std::string> definitions;  ///< NAME=VALUE for ${NAME} in commands
  double tolerance = 0.10;
  bool strict = false, github = false, self = false, safety = false, fail_on_regression = false;
  std::string baselines, size, device = "auto";
  std::vector<std::string> kernel;  ///< name and settings
};
int contract(const Context& context, const ContractOptions& o);

struct RooflineOptions {
  std::string target = "cpu", device, svg, save;
  std::vector<std::string> points, kernels;
  bool empirical = false;
  double seconds = 10;
};
int roofline(const Context& context, const RooflineOptions& o);

struct ReportOptions {
  std::vector<std::string> files;
  std::string output = "cgp-report.html", title;
};
int report(const Context& context, const ReportOptions& o);

struct LintOptions {
  std::vector<std::string> paths;
  bool simd_safety = false;
};
int lint(const Context& context, const LintOptions& o);

struct MemcheckOptions {
  std::vector<std::string> command;
  std::string gpu;  ///< a tool of compute-sanitizer; empty: valgrind
  double timeout = 0;
};
int memcheck(const Context& context, const MemcheckOptions& o);

struct SyscallsOptions {
  std::vector<std::string> command;
  std::string save, golden, by = "order";
  std::vector<std::string> ignored, masks;
  double timeout = 0;
};
int syscalls(const Context& context, const SyscallsOptions& o);

struct MonitorOptions {
  std::vector<std::string> command;
  double interval = 1, duration = 0;
  int window = 20;
};
int monitor(const Context& context, const MonitorOptions& o);

struct MetricsOptions {
  bool markdown = false, schema = false;
};
int metrics(const Context& context, const MetricsOptions& o);

struct TuiOptions {
  std::vector<std::string> files;
  std::string dump;  ///< tab to print once: roofline, timeline, kernel, compare, contract
  int width = 0, height = 0;
};
int tui(const Context& context, const TuiOptions& o);

struct SelfCheckOptions {
  std::vector<std::string> rows;     ///< ids or their beginnings; empty: all
  bool list = false, quick = false;  ///< only name them; leave out those that take long
};
int self_check(const Context& context, const SelfCheckOptions& o);

struct ImportOptions {
  std::string file, kernel, save;
};
int import_command(const Context& context, const ImportOptions& o);

struct ProfilerOptions {
  ProfileOptions profile;
  TimeOptions time;
  CompeteOptions compete;
  DiffOptions diff;
  BaselineOptions baseline;
  TraceOptions trace;
  ContractOptions contract;
  RooflineOptions roofline;
  ReportOptions report;
  LintOptions lint;
  MemcheckOptions memcheck;
  SyscallsOptions syscalls;
  MonitorOptions monitor;
  MetricsOptions metrics;
  TuiOptions tui;
  SelfCheckOptions self_check;
  ImportOptions import;
};

struct ProfilerCommand {
  const char* name;
  const char* summary;
  void (*declare)(CLI::App&, ProfilerOptions&);
  int (*run)(const Context&, const ProfilerOptions&);
};
const std::vector<ProfilerCommand>& profiler_commands();

}  // namespace cgp::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once
// The commands of `cgp`: one struct of options and one function each (cmd_<verb>.cpp). main.cpp fills the
// structs from the command line, maps exceptions to exit codes and is the only file that sees CLI11.
#include <string>
#include <vector>

namespace cgp::cli {

/// Exit codes. Nothing else is ever returned; docs/cli.md explains them.
enum Exit : int { kClean = 0, kCheckFailed = 1, kUsage = 2, kUnavailable = 3, kInternalError = 70 };

/// What every command shares.
struct Context {
  bool json = false;
  bool color_out = false;  ///< stdout
  bool color_err = false;
};

struct ListOptions {
  std::string kernel;  ///< empty: all
};
int list(const Context& context, const ListOptions& options);

struct EmitOptions {
  std::string kernel, arch = "sm_90a", variant, output;
  std::vector<std::string> settings;  ///< NAME=VALUE
};
int emit(const Context& context, const EmitOptions& options);

struct RunOptions {
  std::string target;  ///< kernel or FILE.ptx; empty with --spec
  std::vector<std::string> settings;
  std::string spec, ptx, device = "emu", checks = "all";
  bool checks_given = false;
  // a PTX file
  std::string entry, grid, block, cluster;
  std::string dynamic_smem = "0";
  std::vector<std::string> args;
  // a kernel of the catalogue
  std::vector<std::string> inputs, outputs;  ///< NAME=FILE.npy
  std::uint64_t seed = 1;
  int repeat = 20;
};
int run(const Context& context, const RunOptions& options);
int run_kernel(const Context& context, const RunOptions& options);  ///< cmd_run_kernel.cpp

struct ExplainOptions {
  std::string target, entry, arch = "sm_90a", variant, block;
  std::vector<std::string> settings;
};
int explain(const Context& context, const ExplainOptions& options);

struct DoctorOptions {};
int doctor(const Context& context, const DoctorOptions& options);

int version(const Context& context);

}  // namespace cgp::cli

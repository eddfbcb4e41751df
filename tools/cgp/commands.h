// SPDX-License-Identifier: Apache-2.0
#pragma once
// The commands of `cgp`: one struct of options and one function each (cmd_<verb>.cpp). main.cpp fills the
// structs from the command line, maps exceptions to exit codes.
#include <cstdint>
#include <string>
#include <vector>

#include "cgp/spec/emulation.h"
#include "cgp/tune/gemm_problems.h"

namespace cgp::cli {

/// Exit codes. Nothing else is ever returned; docs/cli.md explains them.
enum Exit : int {
  kClean = 0,
  kCheckFailed = 1,
  kUsage = 2,
  kUnavailable = 3,
  kInconclusive = 4,   ///< with --strict: a comparison or contract could not be decided
  kProgramFailed = 5,  ///< the program under measurement failed; what was recorded is there
  kInternalError = 70
};

/// What every command shares.
struct Context {
  bool json = false;
  bool color_out = false;  ///< stdout
  bool color_err = false;
  int width = 100;
};

struct ListOptions {
  std::string kernel;  ///< empty: all
};
int list(const Context& context, const ListOptions& options);

struct EmitOptions {
  std::string kernel, arch = "sm_90a", variant, output;
  std::vector<std::string> settings;  ///< NAME=VALUE
  std::string passes;                 ///< ptx::parse_passes; empty: as the kernel is built
  std::string target = "ptx";         ///< wgsl, spirv
};
int emit(const Context& context, const EmitOptions& options);

struct WebOptions {
  std::string folder;
  std::vector<std::string> problems;  ///< "KERNEL NAME=VALUE ..."; none: web::default_problems()
  std::string model;                  ///< a GGUF file: the page generates text
  std::string prompt = "The capital of France is";
  std::int64_t context = 0;
};
int web(const Context& context, const WebOptions& options);

struct PipelineOptions {
  std::string kernel, arch = "sm_90a", variant;
  std::vector<std::string> settings;  ///< NAME=VALUE
  std::string passes;                 ///< ptx::parse_passes; empty: as the kernel is built
  std::string show;                   ///< recorded, ptx, sass; empty: a summary of all
};
int pipeline(const Context& context, const PipelineOptions& options);

struct RunOptions {
  std::string target;  ///< kernel or FILE.ptx; empty with --spec
  std::vector<std::string> settings;
  std::string spec, ptx, device = "emu", checks = "all";
  std::string passes;  ///< ptx::parse_passes; empty: none
  bool checks_given = false;
  spec::Emulation emulation;
  std::string annotate;  ///< cpp, ptx, both; empty: no
  std::string heatmap;   ///< file, "-" for text only; empty: no
  std::string sarif;     ///< file; empty: no
  std::vector<std::string> source_folders;
  std::vector<std::string> command_line;  ///< as typed, for SARIF
  // a PTX file
  std::string entry, grid, block, cluster;
  std::string dynamic_smem = "0";
  bool cooperative = false;
  std::vector<std::string> args;
  // a kernel of the catalogue
  std::vector<std::string> inputs, outputs;  ///< NAME=FILE.npy
  int repeat = 20;
};
int run(const Context& context, const RunOptions& options);
int run_kernel(const Context& context, const RunOptions& options);  ///< cmd_run_kernel.cpp

struct ExplainOptions {
  std::string target, finding, entry, arch = "sm_90a", variant, block, grid;  ///< `target` or `finding`
  std::vector<std::string> settings, parameters;                              ///< NAME=VALUE
  std::uint32_t alignment = 256;
  std::vector<std::string> allow;  ///< bug classes
  std::string fail_on = "none";    ///< P0, P1, P2
  bool all = false;
  bool x86 = false;      ///< `target` is a program for the processor
  std::string function;  ///< with x86: only this one
  std::string profile;   ///< of the kernel on the emulator: predictions beside what was counted
  std::string language;  ///< wgsl or spirv: the shader that it becomes
};
int explain(const Context& context, const ExplainOptions& options);
/// A kernel that is to be explained as a shader.
struct ShaderSource {
  std::string name, entry, ptx;
  std::array<std::uint32_t, 3> block{256, 1, 1};  ///< where the kernel does not fix it
  std::uint32_t dynamic_shared = 0;
};
int explain_shader(const Context& context, std::string_view language,
                   const std::vector<ShaderSource>& sources);

struct DoctorOptions {
  std::string check;  ///< only this item
};
int doctor(const Context& context, const DoctorOptions& options);

struct BenchOptions {
  std::string what;  ///< gemm
  tune::GemmSelection problems;
  std::string device = "cuda", table = "user";  ///< user, shipped, none: which measured winners count
  bool peer = true;
  int rounds = 0;           ///< 0: 40, and 20 for long problems
  double fail_below = 0;    ///< exit code 1 when a ratio is below
  std::string output, svg;  ///< files; empty: none
  std::vector<std::string> command_line;
};
int bench(const Context& context, const BenchOptions& options);

struct PlanOptions {
  std::string what;                   ///< gemm, or a kernel of the catalogue
  std::vector<std::string> settings;  ///< NAME=VALUE, of a kernel
  std::vector<std::string> of_gemm;   ///< options that were given and are gemm's alone
  std::string dtype = "bf16", layout = "nt", shape, arch = "sm_90a", device, table = "user";
  std::uint64_t m = 4096, n = 4096, k = 4096, batch = 1, lda = 0, ldb = 0, ldc = 0;
  float beta = 0;
  int sms = 0;  ///< 0: the device's
};
int plan(const Context& context, const PlanOptions& options);

struct TuneOptions {
  std::string what;  ///< gemm
  tune::GemmSelection problems;
  std::string device = "cuda", arch = "sm_90a";
  int rounds = 0;
  bool report = false, dry_run = false;
  std::vector<std::string> files;  ///< of earlier measurements, for the report
  std::string output, table_file;
  std::vector<std::string> command_line;
};
int tune(const Context& context, const TuneOptions& options);

int version(const Context& context);

}  // namespace cgp::cli

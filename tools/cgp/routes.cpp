// SPDX-License-Identifier: Apache-2.0
#include "tools/cgp/routes.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::cli {
namespace {

using text::cat;

/// `cgp bench gemm` measures products against cuBLASLt; any other bench is what `cgp time` does.
void route_bench(std::vector<std::string>& args) {
  if (args.size() < 2 || args[0] != "bench") return;
  for (std::size_t i = 1; i < args.size() && args[i] != "--"; ++i)
    if (args[i] == "gemm" || args[i] == "--help" || args[i] == "-h") return;
  args[0] = "time";
}

/// `cgp profile --heap -- PROGRAM` is about a program.
void route_profile(std::vector<std::string>& args) {
  if (args.size() > 1 && args[0] == "profile" && (args[1] == "--heap" || args[1] == "--energy"))
    args.insert(args.begin() + 1, "binary");
}

/// `cgp trace --flamegraph -- PROGRAM`: the file has a name without one.
void route_trace(std::vector<std::string>& args) {
  if (args.empty() || args[0] != "trace") return;
  for (std::size_t i = 1; i < args.size() && args[i] != "--"; ++i)
    if (args[i] == "--flamegraph" && (i + 1 == args.size() || args[i + 1].rfind('-', 0) == 0))
      args[i] = "--flamegraph=flamegraph.svg";
}

/// `cgp baseline --save NAME FILE` and the like: what is an option to some is a word here.
void route_baseline(std::vector<std::string>& args) {
  if (args.size() < 2 || args[0] != "baseline") return;
  if (args[1] == "--load")
    args[1] = "show";
  else if (args[1] == "--save" || args[1] == "--list")
    args[1].erase(0, 2);
}

/// `cgp explain ptx FILE` and the like: the file says itself what it is.
void route_explain(std::vector<std::string>& args) {
  if (args.size() == 2 && args[0] == "explain" &&
      (args[1] == "ptx" || args[1] == "cubin" || args[1] == "sass" || args[1] == "simd" || args[1] == "x86" ||
       args[1] == "wgsl"))
    throw ArgumentError(
        ErrorText{"a file to explain is needed", {}, {}, cat("cgp explain ", args[1], " FILE")});
  if (args.size() < 3 || args[0] != "explain") return;
  if (args[1] == "wgsl")
    throw Unsupported(
        ErrorText{"explaining WGSL needs a reader of it", args[2], "this version has none", {}});
  if (args.size() > 3 && args[1] == "ptx" && args[2] == "--kernel") args.erase(args.begin() + 2);
  if (args[2].rfind('-', 0) == 0) return;
  if (args[1] == "ptx" || args[1] == "cubin" || args[1] == "sass")
    args.erase(args.begin() + 1);
  else if (args[1] == "simd" || args[1] == "x86")
    args[1] = "--x86";
}

}  // namespace

void route(std::vector<std::string>& args) {
  route_bench(args);
  route_explain(args);
  route_baseline(args);
  route_profile(args);
  route_trace(args);
}

}  // namespace cgp::cli

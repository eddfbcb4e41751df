// SPDX-License-Identifier: Apache-2.0
// cgp profile simd, scalar, parallel, scaling, compare --function: small loops on this processor, by
// instruction set and by threads.
#include <fmt/core.h>

#include "cgp/base/error.h"
#include "cgp/profile/collect/cpu_loop.h"
#include "cgp/profile/roofline/cpu_ceilings.h"
#include "cgp/profile/view/document.h"
#include "cgp/profile/view/table.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/deliver.h"
#include "tools/cgp/profiler_commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {
namespace {

using fmt::format;
using measure::Metric;
using profile::Document;
using profile::number_text;
using profile::time_text;

profile::LoopOptions loop_options(const ProfileOptions& o, std::size_t size) {
  profile::LoopOptions l;
  l.kind = o.what, l.size = o.size ? o.size : size, l.threads = o.threads, l.runs = o.runs;
  if (!o.function.empty()) l.function = o.function;
  l.processes = o.processes, l.count = !o.no_count;
  return l;
}
/// The widest that the loops have, within what CGP_SIMD allows.
std::string widest_isa() { return std::string(cpu::name(std::min(cpu::chosen_isa(), cpu::Isa::avx512))); }
constexpr const char* kNoNeon = "NEON not available — use --cross-profile for QEMU-based analysis";

/// One loop with each instruction set; what is none, or is not there, is a row with the reason.
int compare_loops(const Context& context, const ProfileOptions& o) {
  std::vector<std::string> backends = o.backends;
  if (backends.empty()) backends = {"scalar", "sse2", "avx2", "avx512"};
  const auto loop = loop_options(o, 4096);
  profile::Table table({"<back end", "<kind", "time", "GFLOP/s", "GB/s", "x first", "<note"});
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  double first = 0;
  for (const auto& b : backends) {
    std::string why = b == "neon" ? kNoNeon : "";
    Document d;
    if (why.empty()) try {
        profile::has_isa(b);  // an unknown one ends here
      } catch (const ArgumentError&) {
        why = "unknown back end for a loop; there are scalar, sse2, avx2, avx512";
      }
    if (why.empty()) try {
        d = profile::profile_loop(loop, b);
      } catch (const Unsupported& e) {
        why = e.rule();
      }
    const auto& m = d.metrics;
    const double us = why.empty() ? m[Metric::wall_clock_time_us].number() : 0;
    if (first == 0) first = us;
    if (why.empty())
      table.row({b, "measured", time_text(us), number_text(m[Metric::gflops].number()),
                 number_text(m[Metric::bandwidth_gbps].number()), format("{:.2f}", first / us), ""});
    else
      table.row({b, "-", "-", "-", "-", "-", why});
    rows.push_back({{"backend", b},
                    {"skipped", why},
                    {"kind", why.empty() ? "measured" : ""},
                    {"profile", why.empty() ? profile::to_json(d) : nlohmann::ordered_json()}});
  }
  const nlohmann::ordered_json j = {{"schema", "cgp.compare/1"}, {"kernel", loop.function}, {"rows", rows}};
  write_out(context.json ? spec::dumped(j, 2) + "\n"
                         : format("{} n={}\n", loop.function, loop.size) + table.text());
  return first > 0 ? kClean : kUnavailable;
}

}  // namespace

int profile_cpu(const Context& context, const ProfileOptions& o) {
  if (o.what == "compare") return compare_loops(context, o);
  if (o.what == "parallel" || o.what == "scaling") {
    const Document d = profile::profile_threads(loop_options(o, 65536));
    deliver(context, d, o.save, profile::threads_text(d, context.width));
    return kClean;
  }
  if (o.arch == "neon" && o.cross_profile)
    throw Unsupported(
        ErrorText{"profiling NEON takes QEMU and a program for ARM", {}, "this version drives neither", {}});
  if (o.arch == "neon") throw Unsupported(ErrorText{kNoNeon, {}, {}, {}});
  if (o.arch == "amx")
    throw Unsupported(ErrorText{"these loops have no version with AMX",
                                {},
                                "its instructions multiply tiles of matrices",
                                "--arch avx512"});
  std::string isa = o.what == "scalar" ? "scalar" : o.arch;
  if (isa.empty()) isa = widest_isa();
  const Document d = profile::profile_loop(loop_options(o, 4096), isa);
  deliver(context, d, o.save, profile::loop_text(d));
  return kClean;
}

}  // namespace cgp::cli

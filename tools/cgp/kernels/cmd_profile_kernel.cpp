// SPDX-License-Identifier: Apache-2.0
// cgp profile kernel: one kernel of the catalogue, on a GPU with times and counters, on the emulator with
// exact counters. cgp profile compare: the same problem on several back ends.
#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/profile/collect/program.h"
#include "cgp/profile/kernel/backends.h"
#include "cgp/profile/kernel/kernel_profile.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/deliver.h"
#include "tools/cgp/profiler_commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {
namespace {

using text::cat;

std::vector<std::string> counters_of(const std::string& set) {
  for (const char* known : {"none", "basic", "roofline", "memory", "stalls"})
    if (set == known) return profile::counter_names({set});
  throw ArgumentError(
      ErrorText{cat("--counters is none, basic, roofline, memory or stalls"), {}, cat("\"", set, "\""), {}});
}

}  // namespace

int profile_kernel(const Context& context, const ProfileOptions& given) {
  ProfileOptions o = given;
  if (!o.kernel.empty()) o.command.insert(o.command.begin(), o.kernel);
  if (o.command.empty())
    throw ArgumentError(ErrorText{"a kernel to profile is needed", {}, {}, "cgp list names them"});
  for (const auto& m : o.metrics)
    measure::metric_named(m);  // an unknown name ends here, with the nearest ones
  profile::KernelProfileOptions k;
  k.kernel = o.command[0];
  k.settings.assign(o.command.begin() + 1, o.command.end());
  for (auto& s : profile::size_settings(k.kernel, o.kernel_size)) k.settings.push_back(std::move(s));
  k.device = o.device, k.repeat = o.repeat;
  k.roofline = o.roofline;
  k.counters = counters_of(o.roofline && o.counters == "none" ? "roofline" : o.counters);
  profile::Document d;
  {
    Progress progress;
    progress.step(cat("measuring ", k.kernel));
    d = profile::profile_catalogue_kernel(k);
  }
  deliver(context, d, o.save, profile::kernel_text(d, context.width, o.metrics));
  return d.more["check"]["pass"].get<bool>() ? kClean : kCheckFailed;
}

int profile_compare(const Context& context, const ProfileOptions& o) {
  profile::BackendComparison c;
  c.kernel = o.command.empty() ? "gemm" : o.command[0];
  c.allow_estimates = o.allow_estimates;
  if (o.command.size() > 1) c.settings.assign(o.command.begin() + 1, o.command.end());
  if (o.size)
    for (auto& s : profile::size_settings(c.kernel, std::to_string(o.size)))
      c.settings.push_back(std::move(s));
  std::vector<std::string> backends = o.backends;
  if (backends.empty()) backends = {"emu", "cuda"};
  for (const auto& b : backends) c.rows.push_back(profile::run_on_backend(b, c.kernel, c.settings, o.repeat));
  write_out(context.json ? spec::dumped(profile::comparison_json(c), 2) + "\n" : profile::comparison_text(c));
  const bool some = std::any_of(c.rows.begin(), c.rows.end(), [](const auto& r) { return r.why.empty(); });
  return some ? kClean : kUnavailable;
}

}  // namespace cgp::cli

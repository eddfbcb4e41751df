// SPDX-License-Identifier: Apache-2.0
// cgp run KERNEL.
#include <nlohmann/json.hpp>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/profile/kernel/run_kernel.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/commands.h"
#include "tools/cgp/run_shared.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {

using text::cat;

int run_kernel(const Context& context, const RunOptions& o) {
  const auto& kernel = kernels::find_kernel(o.target);
  if (!o.ptx.empty())
    throw ArgumentError(
        ErrorText{"--ptx belongs to --spec", {}, cat("the target is the kernel ", o.target), {}});
  spec::Sources sources(source_folders(o, {}));
  profile::KernelRunOptions options{o.settings,  o.inputs, o.outputs,          o.device, o.checks,
                                    o.emulation, o.passes, !o.heatmap.empty(), o.repeat};
  profile::KernelRun outcome;
  {
    Progress progress;
    outcome =
        profile::run_kernel(kernel, options, sources, [&](const std::string& what) { progress.step(what); });
  }
  if (outcome.device.kind != runtime::DeviceKind::emulator) warn_without_emulator(o, outcome.warnings);
  Ran ran;
  ran.title = cat(kernel.name, ", ", outcome.variant);
  for (std::size_t i = 0; i < outcome.launches.size(); ++i)
    ran.launches.push_back(
        {outcome.launches[i].kernel, outcome.launch_modules[i], outcome.launches[i].result});
  ran.modules = outcome.modules;
  ran.findings = &outcome.findings;
  ran.exit_code = outcome.clean() ? kClean : kCheckFailed;
  if (!outcome.fault.empty())
    ran.failures.push_back(outcome.fault);
  else if (!outcome.check.pass)
    ran.failures.push_back(outcome.check.describe());
  if (context.json) {
    auto j = profile::to_json(kernel, options, outcome);
    views_json(o, ran, sources, j);
    write_out(spec::dumped(j, 2) + "\n");
  } else {
    const spec::Style style{context.color_out, context.width};
    const std::string views = views_text(o, ran, sources, style);
    write_out(profile::to_text(kernel, outcome, views, sources, style));
  }
  return outcome.clean() ? kClean : kCheckFailed;
}

}  // namespace cgp::cli

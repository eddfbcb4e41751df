// SPDX-License-Identifier: Apache-2.0
// cgp profile wasm: a function of a WebAssembly module.
#include <fmt/core.h>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/profile/collect/wasm_run.h"
#include "cgp/profile/view/table.h"
#include "tools/cgp/deliver.h"
#include "tools/cgp/profiler_commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {

using fmt::format;
using measure::Metric;

int profile_wasm(const Context& context, const ProfileOptions& o) {
  profile::WasmRequest r{o.library, o.function, {}, o.budget};
  if (!o.signature.empty())
    for (const auto word : text::split(o.signature, ',')) r.arguments.emplace_back(text::trim(word));
  else if (o.size > 0)
    r.arguments = {std::to_string(o.size)};
  profile::Document d;
  {
    Progress progress;
    progress.step("running the module");
    d = profile::profile_wasm(r);
  }
  const auto& m = d.metrics;
  const auto& w = d.more["wasm"];
  const double us = m[Metric::wall_clock_time_us].number(), executed = m[Metric::instruction_count].number();
  std::string out = format("{}: {}{} on {}\n", d.name, profile::time_text(us), profile::interval_text(m),
                           w["engine"].get<std::string>());
  out += format("result          {}\n", profile::visible(w["result"].get<std::string>()));
  out += format("instructions    {:.0f} executed, {:.0f} of them SIMD128; fuel {:.0f}\n", executed,
                w["simd_executed"].get<double>(), m[Metric::fuel_consumed].number());
  out += format("module          {} instructions in {} functions, {} SIMD128\n",
                w["instructions_in_file"].get<std::uint64_t>(), w["functions"].get<std::uint64_t>(),
                w["simd_in_file"].get<std::uint64_t>());
  for (const auto& n : d.notes) out += format("note: {}\n", n);
  deliver(context, d, o.save, out);
  return kClean;
}

}  // namespace cgp::cli

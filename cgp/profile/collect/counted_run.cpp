// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/collect/counted_run.h"

#include <fmt/core.h>

#include <map>

#include "cgp/profile/counters/system_calls.h"
#include "cgp/profile/measure/count.h"

namespace cgp::profile {

using fmt::format;
using measure::Metric;

void count_in_another_run(const std::string& how, const std::vector<std::string>& command, double timeout,
                          Document& d, const std::function<void(const std::string&)>& step) {
  if (how == "syscalls") {
    std::map<std::string, std::uint64_t> by_name;
    std::uint64_t all = 0;
    for (const auto& task : measure::trace_system_calls(command, {true, timeout}).tasks)
      for (const auto& call : task.calls) ++by_name[measure::system_call_name(call.number)], ++all;
    d.metrics.set(Metric::total_syscalls, double(all), measure::Source::counted, "ptrace");
    d.metrics.set(Metric::syscall_breakdown, std::move(by_name), measure::Source::counted, "ptrace");
  }
  if (how == "callgrind") measure::add_callgrind(measure::callgrind(command, true), d.metrics);
  if (how == "step") {
    const auto mix = measure::step_program(
        command, measure::kMostSteps, measure::kMostStepSeconds, [&](std::uint64_t n, double seconds) {
          step(format(
              "single steps: {:.1f} of at most {:.0f} million instructions, {:.0f} of at most {:.0f} s",
              double(n) * 1e-6, double(measure::kMostSteps) * 1e-6, seconds, measure::kMostStepSeconds));
        });
    const std::string first = format("the first {} instructions", mix.instructions);
    mix.add_to(d.metrics, mix.truncated ? "single steps of " + first : "single steps");
    if (mix.truncated)
      d.notes.push_back(format(
          "single steps ended after {:.0f} million instructions or {:.0f} s: the mix is of {}; --count "
          "callgrind counts all",
          double(measure::kMostSteps) * 1e-6, measure::kMostStepSeconds, first));
  }
}

}  // namespace cgp::profile

// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/view/kernel_table.h"

#include <fmt/core.h>

#include <algorithm>

#include "cgp/profile/measure/stats.h"
#include "cgp/profile/view/table.h"

namespace cgp::profile {

std::string value_text(const measure::Reading& r) {
  if (const auto* s = std::get_if<std::string>(&*r.held)) return *s;
  if (const auto* t = std::get_if<measure::Triple>(&*r.held))
    return fmt::format("{},{},{}", (*t)[0], (*t)[1], (*t)[2]);
  if (const auto* m = std::get_if<std::map<std::string, std::uint64_t>>(&*r.held))
    return fmt::format("{} names", m->size());
  return number_text(r.number());
}

std::string bound_text(const measure::MetricSet& m) {
  using measure::Metric;
  if (!m.has(Metric::bound)) return {};
  const std::string bound = std::get<std::string>(*m[Metric::bound].held) + "-bound";
  const auto& efficiency = m[Metric::efficiency_pct];
  return efficiency.present() ? fmt::format("{} at {:.0f} % of the ceiling", bound, efficiency.number())
                              : fmt::format("{} ({})", bound, efficiency.why_absent);
}

std::string kernel_table(const std::vector<KernelUse>& kernels, int width, std::size_t most) {
  using fmt::format;
  double total = 0;
  for (const auto& k : kernels) total += k.total_us();
  Table table({"share", "launches", "median", "total", "regs", "grid", "block", "<kernel"});
  const auto triple = [](const measure::Triple& t) { return format("{},{},{}", t[0], t[1], t[2]); };
  for (std::size_t i = 0; i < std::min(most, kernels.size()); ++i) {
    const KernelUse& k = kernels[i];
    table.row({total > 0 ? format("{:.1f} %", 100 * k.total_us() / total) : "-", std::to_string(k.launches),
               k.us.empty() ? "-" : time_text(measure::median(k.us)),
               k.us.empty() ? "-" : time_text(k.total_us()), k.registers ? std::to_string(k.registers) : "-",
               triple(k.grid), triple(k.block),
               fitted(short_name(k.name), std::size_t(std::max(20, width - 66)))});
  }
  std::string out = table.text();
  if (kernels.size() > most) out += format("  and {} more kernels (--json has all)\n", kernels.size() - most);
  return out;
}

}  // namespace cgp::profile

// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/spec/report/report.h"

namespace cgp::spec {
namespace {

using fmt::format;

template <class D>
std::string dim_text(const D& d) {
  return format("({},{},{})", d.x, d.y, d.z);
}

void append_buffers(const SpecResult& r, const Paint& paint, std::string& out) {
  for (const auto& b : r.buffers) {
    if (b.compared) {
      const Comparison& c = b.comparison;
      const std::string rule = b.how.mode == Compare::Mode::abs_rel
                                   ? format("abs {} + rel {}", b.how.abs, b.how.rel)
                                   : std::string(name(b.how.mode));
      if (c.equal) {
        out += format("{} {}: {} {} as expected ({}; largest error {:.3g})\n", paint.good("ok"), b.name,
                      text::grouped(c.elements), name(b.dtype), rule, c.max_abs);
      } else {
        out += format(
            "{} {}: {} of {} {} {} ({})\n", paint.bad("wrong"), b.name, text::grouped(c.wrong),
            text::grouped(c.elements), name(b.dtype),
            b.role == Role::in ? "were changed, but the buffer is an input" : "differ from the expected data",
            rule);
        if (c.wrong) {
          out += format("   first at {}: got {}, want {}\n", c.first, c.first_got, c.first_want);
          if (c.worst != c.first)
            out += format("   worst at {}: got {}, want {}\n", c.worst, c.worst_got, c.worst_want);
        }
      }
    }
    if (!b.saved.empty())
      out += format("saved {} ({} {}) to {}\n", b.name, text::grouped(b.count), name(b.dtype), b.saved);
  }
}

void append_launches(const SpecResult& r, const Paint& paint, std::string& out) {
  for (std::size_t i = 0; i < r.launches.size(); ++i) {
    const LaunchOutcome& l = r.launches[i];
    out += format("{}  grid {} block {}", paint.strong(l.spec.entry), dim_text(l.spec.grid),
                  dim_text(l.spec.block));
    if (l.spec.cluster.count() > 1) out += format(" cluster {}", dim_text(l.spec.cluster));
    if (l.spec.dynamic_smem) out += format(" dynamic shared {}", text::bytes(l.spec.dynamic_smem));
    if (l.milliseconds) out += format("  {:.4f} ms", *l.milliseconds);
    out += '\n';
    if (l.emulated && r.fault.empty() && !any_fails(r.findings)) out += counters_text(l.emulated->counters);
    const std::string& printed = l.emulated ? l.emulated->output : l.printed;
    if (printed.empty()) continue;
    out += "the kernel printed:\n" + printed;
    if (printed.back() != '\n') out += '\n';
  }
}

std::string verdict(const SpecResult& r, const Style& style) {
  const Paint paint(style.color);
  std::size_t compared = 0, wrong = 0;
  for (const auto& b : r.buffers) compared += b.compared, wrong += b.compared && !b.comparison.equal;
  std::string out = r.clean() ? paint.good("clean") : paint.bad("failed");
  out += format(": {} launch{}, {}", r.launches.size(), r.launches.size() == 1 ? "" : "es",
                count_text(r.findings));
  if (compared) out += format(", {} of {} buffers as expected", compared - wrong, compared);
  if (!r.counter_mismatches.empty()) out += format(", {} counters differ", r.counter_mismatches.size());
  out += format(" on {}", r.device.name);
  out += r.checks.empty() ? " (checks need the emulator)" : format(" ({})", short_checks(r.checks));
  if (!r.emulation.empty()) out += format(" {}", r.emulation);
  return wrapped(out, style.width, 0) + '\n';
}

}  // namespace

std::string counters_text(const emu::Counters& c) {
  std::string out;
  for (const auto& [key, value] : emu::flatten(c))
    if (value) out += format("  {:<28} {:>16}\n", key, text::grouped(value));
  if (c.warp_instructions) out += format("  {:<28} {:>15.1f}%\n", "simt_efficiency", 100 * c.simt_efficiency);
  const auto ratio = [&](std::string_view label, std::uint64_t sectors, std::uint64_t requests) {
    if (requests) out += format("  {:<28} {:>16.2f}\n", label, double(sectors) / double(requests));
  };
  ratio("sectors per global load", c.global_load_sectors - c.global_bulk_load_sectors,
        c.global_load_requests);
  ratio("sectors per global store", c.global_store_sectors - c.global_bulk_store_sectors,
        c.global_store_requests);
  std::vector<std::pair<std::string, std::uint64_t>> families(c.by_family.begin(), c.by_family.end());
  std::sort(families.begin(), families.end(),
            [](auto& a, auto& b) { return a.second != b.second ? a.second > b.second : a.first < b.first; });
  std::string mix;
  for (std::size_t i = 0; i < families.size() && i < 8; ++i)
    mix +=
        format("{}{} {:.1f}%", i ? ", " : "", families[i].first,
               100.0 * double(families[i].second) / double(std::max<std::uint64_t>(c.warp_instructions, 1)));
  if (!mix.empty()) out += format("  {:<7} {}\n", "mix", wrapped(mix, 100, 10));
  return out;
}

std::string result_text(const SpecResult& r, Sources& sources, const Style& style, const std::string& views) {
  const Paint paint(style.color);
  std::string out;
  append_launches(r, paint, out);
  out += views;
  if (!r.findings.empty()) out += '\n' + findings_text(r.findings, sources, style) + '\n';
  if (!r.policies.empty()) out += policies_text(r.policies, style);
  if (!r.fault.empty()) out += format("{}: {}\n", paint.bad("fault"), r.fault);
  append_buffers(r, paint, out);
  for (const auto& m : r.counter_mismatches)
    out += format("{} launch {}: {} is {}, the spec says {}\n", paint.bad("wrong"), m.launch, m.name,
                  m.got ? text::grouped(*m.got) : "unknown to the emulator", text::grouped(m.want));
  for (const auto& w : r.warnings) out += format("{}: {}\n", paint.warn("warning"), w);
  if (r.expect)
    out += r.expectation_met()
               ? format("{} the expected diagnosis {} was given\n", paint.good("ok"), r.expect->cls)
               : format("{} the expected diagnosis {} was not given\n", paint.bad("missing"), r.expect->cls);
  return out + verdict(r, style);
}

}  // namespace cgp::spec

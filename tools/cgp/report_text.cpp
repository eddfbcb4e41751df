// SPDX-License-Identifier: Apache-2.0
#define FMT_HEADER_ONLY
#include <fmt/core.h>

#include <algorithm>

#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "report.h"

namespace cgp::spec {
namespace {

using fmt::format;

class Paint {
 public:
  explicit Paint(bool on) : on_(on) {}
  std::string bad(std::string_view s) const { return wrap("1;31", s); }
  std::string good(std::string_view s) const { return wrap("1;32", s); }
  std::string warn(std::string_view s) const { return wrap("1;33", s); }
  std::string strong(std::string_view s) const { return wrap("1", s); }
  std::string dim(std::string_view s) const { return wrap("2", s); }

 private:
  std::string wrap(const char* code, std::string_view s) const {
    return on_ ? format("\x1b[{}m{}\x1b[0m", code, s) : std::string(s);
  }
  bool on_;
};

template <class D>
std::string dim_text(const D& d) {
  return format("({},{},{})", d.x, d.y, d.z);
}

std::string_view line_of(std::string_view text, int line) {
  for (int i = 1; i < line; ++i) {
    const auto at = text.find('\n');
    if (at == std::string_view::npos) return {};
    text.remove_prefix(at + 1);
  }
  return text.substr(0, text.find('\n'));
}

/// The line's text and a caret under its first word, in a compiler's frame.
std::string excerpt(const std::string& path, std::string_view text, int line, std::string_view note,
                    const Paint& paint) {
  const std::string_view source = line_of(text, line);
  const std::string number = std::to_string(line), pad(number.size(), ' ');
  std::string out = format("  {} {}:{}\n", paint.dim("-->"), path, line);
  if (source.empty()) return out;
  const std::size_t indent = std::min(source.find_first_not_of(" \t"), source.size());
  std::string lead(source.substr(0, indent));  // keeps tabs, so that the caret lines up
  std::string_view shown = source.substr(indent);
  if (!shown.empty() && shown.back() == '\r') shown.remove_suffix(1);
  out += format(" {} {} {}{}\n", number, paint.dim("|"), lead, shown);
  out += format(" {} {} {}{}{}\n", pad, paint.dim("|"), lead,
                paint.bad(std::string(std::min<std::size_t>(shown.size(), 100), '^')),
                note.empty() ? std::string() : format(" {}", note));
  return out;
}

/// The line of the C++ source, quoted when the file can be read from here.
std::string source_line(const std::string& file, int line, const Paint& paint) {
  try {
    const std::string text = read_file(file);
    if (!line_of(text, line).empty()) return excerpt(file, text, line, "", paint);
  } catch (const Error&) {
    // compiled elsewhere: the name is all there is
  }
  return format("  {} source {}:{}\n", paint.dim("="), file, line);
}

std::string place_text(const emu::Finding& f) {
  std::string s = format("block {}, thread {}", dim_text(f.block), dim_text(f.thread));
  if (f.address || !f.buffer.empty()) {
    s += format("; address {}", text::hex(f.address));
    if (!f.buffer.empty())
      s += format(" = {} {} {} bytes", f.buffer, f.byte_offset < 0 ? '-' : '+', std::abs(f.byte_offset));
  }
  if (f.count > 1) s += format("; met {} times", text::grouped(f.count));
  return s;
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
    if (!l.emulated) continue;
    out += counters_text(l.emulated->counters);
    if (!l.emulated->output.empty()) {
      out += "the kernel printed:\n" + l.emulated->output;
      if (l.emulated->output.back() != '\n') out += '\n';
    }
  }
}

std::string verdict(const SpecResult& r, const Paint& paint) {
  std::size_t compared = 0, wrong = 0;
  for (const auto& b : r.buffers) compared += b.compared, wrong += b.compared && !b.comparison.equal;
  std::string out = r.clean() ? paint.good("clean") : paint.bad("failed");
  out += format(": {} launch{}, {} finding{}", r.launches.size(), r.launches.size() == 1 ? "" : "es",
                r.findings.size(), r.findings.size() == 1 ? "" : "s");
  if (compared) out += format(", {} of {} buffers as expected", compared - wrong, compared);
  if (!r.counter_mismatches.empty()) out += format(", {} counters differ", r.counter_mismatches.size());
  out += format(" on {}", r.device.name);
  out += r.checks.empty() ? " (checks need the emulator)" : format(" (checks: {})", r.checks);
  return out + '\n';
}

}  // namespace

std::string finding_text(const emu::Finding& f, const std::string& ptx_path, std::string_view ptx,
                         bool color) {
  const Paint paint(color);
  std::string out = format("{}: {}\n", paint.bad(format("error[{}]", f.cls)), paint.strong(f.message));
  if (f.ptx_line > 0)
    out += excerpt(ptx_path, ptx, f.ptx_line, "", paint);
  else if (!f.instruction.empty())
    out += format("  at {}\n", f.instruction);
  if (!f.file.empty()) out += source_line(f.file, f.line, paint);
  out += format("  {} {}\n", paint.dim("="), place_text(f));
  if (f.other) {
    out += format("  {} other party: block {}, thread {}", paint.dim("="), dim_text(f.other->block),
                  dim_text(f.other->thread));
    if (!f.other->file.empty()) out += format(", source {}:{}", f.other->file, f.other->line);
    out += '\n';
    if (f.other->ptx_line > 0) out += excerpt(ptx_path, ptx, f.other->ptx_line, "", paint);
  }
  if (!f.hint.empty()) out += format("  {} {}\n", paint.good("hint:"), f.hint);
  return out;
}

std::string counters_text(const emu::Counters& c) {
  std::string out;
  for (const auto& [key, value] : emu::flatten(c))
    if (value) out += format("  {:<28} {:>16}\n", key, text::grouped(value));
  if (c.warp_instructions) out += format("  {:<28} {:>15.1f}%\n", "simt_efficiency", 100 * c.simt_efficiency);
  const auto ratio = [&](std::string_view label, std::uint64_t sectors, std::uint64_t requests) {
    if (requests) out += format("  {:<28} {:>16.2f}\n", label, double(sectors) / double(requests));
  };
  ratio("sectors per global load", c.global_load_sectors, c.global_load_requests);
  ratio("sectors per global store", c.global_store_sectors, c.global_store_requests);
  std::vector<std::pair<std::string, std::uint64_t>> families(c.by_family.begin(), c.by_family.end());
  std::sort(families.begin(), families.end(),
            [](auto& a, auto& b) { return a.second != b.second ? a.second > b.second : a.first < b.first; });
  std::string mix;
  for (std::size_t i = 0; i < families.size() && i < 8; ++i)
    mix +=
        format("{}{} {:.1f}%", i ? ", " : "", families[i].first,
               100.0 * double(families[i].second) / double(std::max<std::uint64_t>(c.warp_instructions, 1)));
  if (!mix.empty()) out += format("  {:<28} {}\n", "mix", mix);
  return out;
}

std::string result_text(const SpecResult& r, bool color) {
  const Paint paint(color);
  std::string out;
  append_launches(r, paint, out);
  for (const auto& f : r.findings) out += finding_text(f.finding, r.ptx_path, r.ptx, color);
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
  return out + verdict(r, paint);
}

}  // namespace cgp::spec

// SPDX-License-Identifier: Apache-2.0
#include "cgp/spec/report/annotate.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/emu/pc_counters.h"

namespace cgp::spec {
namespace {

using fmt::format;
using nlohmann::ordered_json;

void add(LineCounters& to, const emu::PcCounters& c, bool branch) {
  ++to.instructions;
  to.issues += c.issues;
  to.lanes += c.lanes;
  if (c.sectors) {
    to.global_requests += c.requests;
    to.global_sectors += c.sectors;
    to.global_bytes += c.bytes;
  }
  if (c.wavefronts) {
    to.shared_requests += c.requests;
    to.shared_wavefronts += c.wavefronts;
    to.shared_conflicts += c.conflicts;
  }
  if (branch) {
    to.branches += c.issues;
    to.divergent += c.divergent;
  }
}

/// A bar of up to `cells` characters in eighths.
std::string bar(double share, int cells) {
  static const char* const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  int n = std::clamp(int(share * cells * 8 + 0.5), 0, cells * 8);
  std::string out;
  for (int i = 0; i < n / 8; ++i) out += "█";
  out += eighths[n % 8];
  const int used = (n + 7) / 8;
  return out + std::string(std::size_t(cells - used), ' ');
}

class View {
 public:
  View(Sources& sources, const Style& style) : sources_(sources), style_(style), paint_(style.color) {}

  /// `total` is what shares are of.
  std::string file(const FileCounters& f, std::uint64_t total) {
    total_ = std::max<std::uint64_t>(total, 1);
    const auto* lines = sources_.lines(f.name);
    std::string out = format("\n{}  {} warp instructions, {:.1f}%\n", paint_.strong(sources_.path(f.name)),
                             text::grouped(f.issues), 100 * double(f.issues) / double(total_));
    out += paint_.dim(" share       issues lanes sect conf  div") + '\n';
    most_ = 1;
    for (const auto& [line, c] : f.lines) most_ = std::max(most_, double(c.issues));
    int shown = 0;
    for (auto it = f.lines.begin(); it != f.lines.end(); ++it) {
      // A line beside it gives the reader a hold; longer stretches without code are left out.
      int first = std::max(it->first - 1, shown + 1);
      if (shown && it->first - shown <= 4) first = shown + 1;
      if (shown && first > shown + 1) out += std::string(kColumns + 4, ' ') + paint_.dim("⋮") + '\n';
      for (int line = first; line < it->first; ++line) out += row(line, nullptr, lines);
      out += row(it->first, &it->second, lines);
      shown = it->first;
    }
    return out;
  }

 private:
  static constexpr int kColumns = 40;  // of the numbers

  std::string row(int line, const LineCounters* c, const std::vector<std::string>* lines) {
    std::string code;
    if (lines && line >= 1 && std::size_t(line) <= lines->size()) code = (*lines)[std::size_t(line - 1)];
    std::string plain;
    for (char x : code) plain += x == '\t' ? std::string(4 - plain.size() % 4, ' ') : std::string(1, x);
    const std::size_t room = std::size_t(std::max(style_.width - kColumns - 8, 30));
    if (plain.size() > room) plain = plain.substr(0, room - 3) + "...";
    if (!c && text::trim(plain).empty()) return "";
    const std::string tail = format("{} {} ", paint_.dim(format("{:>5}", line)), paint_.frame("|"));
    if (!c || !c->issues) return std::string(kColumns, ' ') + tail + paint_.dim(plain) + '\n';
    return numbers(*c) + ' ' + tail + plain + '\n';
  }

  std::string numbers(const LineCounters& c) const {
    const double share = double(c.issues) / double(total_);
    std::string out =
        paint_.heat(share, format("{:>5.1f}% {}", 100 * share, bar(double(c.issues) / most_, 4)));
    out += format(" {:>6} ", short_number(c.issues));
    const double lanes = double(c.lanes) / double(c.issues);
    out += tint(lanes < 8 ? 2 : lanes < 24 ? 1 : 0, format("{:>5.1f}", lanes)) + ' ';
    // Bulk copies are no requests: theirs are sectors per instruction.
    out += ratio(c.global_sectors,
                 c.global_requests  ? c.global_requests
                 : c.global_sectors ? c.issues
                                    : 0,
                 waste(c)) +
           ' ';
    const double conflicts = c.shared_requests ? double(c.shared_conflicts) / double(c.shared_requests) : 0;
    out += ratio(c.shared_conflicts, c.shared_requests, conflicts >= 4 ? 2 : conflicts > 0 ? 1 : 0) + ' ';
    const double parted = c.branches ? double(c.divergent) / double(c.branches) : 0;
    return out + (c.branches ? tint(parted > 0.5 ? 2
                                    : parted > 0 ? 1
                                                 : 0,
                                    format("{:>3.0f}%", 100 * parted))
                             : std::string(4, ' '));
  }

  static std::string short_number(std::uint64_t n) {
    if (n < 100'000) return text::grouped(n);
    if (n < 10'000'000) return format("{:.0f}K", double(n) / 1e3);
    if (n < 10'000'000'000) return format("{:.0f}M", double(n) / 1e6);
    return format("{:.0f}G", double(n) / 1e9);
  }

  /// 0 when the sectors hold little else than what was asked for.
  static int waste(const LineCounters& c) {
    if (!c.global_bytes) return 0;
    const double factor = 32.0 * double(c.global_sectors) / double(c.global_bytes);
    return factor >= 4 ? 2 : factor >= 1.5 ? 1 : 0;
  }
  std::string ratio(std::uint64_t a, std::uint64_t b, int level) const {
    return b ? tint(level, format("{:>4.1f}", double(a) / double(b))) : std::string(4, ' ');
  }
  std::string tint(int level, const std::string& s) const {
    return level == 2 ? paint_.bad(s) : level == 1 ? paint_.warn(s) : s;
  }

  Sources& sources_;
  const Style& style_;
  Paint paint_;
  std::uint64_t total_ = 1;
  double most_ = 1;
};

ordered_json lines_json(const FileCounters& f, const std::vector<std::string>* lines) {
  ordered_json out = ordered_json::array();
  for (const auto& [line, c] : f.lines) {
    ordered_json j = {{"line", line},
                      {"instructions", c.instructions},
                      {"issues", c.issues},
                      {"lanes", c.lanes},
                      {"global_requests", c.global_requests},
                      {"global_sectors", c.global_sectors},
                      {"global_bytes", c.global_bytes},
                      {"shared_requests", c.shared_requests},
                      {"shared_wavefronts", c.shared_wavefronts},
                      {"shared_conflicts", c.shared_conflicts},
                      {"branches", c.branches},
                      {"divergent_branches", c.divergent}};
    if (lines && line >= 1 && std::size_t(line) <= lines->size())
      j["text"] = std::string(text::trim((*lines)[std::size_t(line - 1)]));
    out.push_back(std::move(j));
  }
  return out;
}

ordered_json files_json(const std::vector<FileCounters>& files, Sources& sources) {
  ordered_json out = ordered_json::array();
  for (const auto& f : files)
    out.push_back({{"file", f.name}, {"issues", f.issues}, {"lines", lines_json(f, sources.lines(f.name))}});
  return out;
}

}  // namespace

Annotation annotate(const std::vector<LaunchView>& launches,
                    const std::map<std::string, std::string>& modules) {
  std::map<std::string, std::vector<emu::PcCounters>> sums;
  for (const LaunchView& l : launches) {
    if (!l.result) continue;
    auto& sum = sums[l.module];
    const auto& pcs = l.result->counters.per_pc;
    if (sum.size() < pcs.size()) sum.resize(pcs.size());
    for (std::size_t i = 0; i < pcs.size(); ++i) emu::add(sum[i], pcs[i]);
  }
  Annotation a;
  std::map<std::string, FileCounters> cpp;
  for (const auto& [name, sum] : sums) {
    const auto text = modules.find(name);
    if (text == modules.end()) continue;
    const auto program = emu::Program::load(text->second);
    FileCounters ptx;
    ptx.name = name;
    std::map<std::string, std::uint64_t> by_function;
    std::vector<emu::InstructionInfo> infos;
    for (std::size_t i = 0; i < program->instruction_count() && i < sum.size(); ++i) {
      infos.push_back(program->instruction(i));
      by_function[infos[i].function] += sum[i].issues;
    }
    for (std::size_t i = 0; i < infos.size(); ++i) {
      const auto& info = infos[i];
      if (!by_function[info.function]) continue;  // nothing of it ran
      const bool branch = info.opcode.rfind("bra", 0) == 0 || info.opcode.rfind("brx", 0) == 0;
      add(ptx.lines[info.ptx_line], sum[i], branch);
      ptx.issues += sum[i].issues;
      if (info.file.empty() || info.line <= 0) continue;
      FileCounters& f = cpp[info.file];
      f.name = info.file;
      add(f.lines[info.line], sum[i], branch);
      f.issues += sum[i].issues;
    }
    a.ptx.push_back(std::move(ptx));
  }
  for (auto& [name, f] : cpp) a.cpp.push_back(std::move(f));
  std::stable_sort(a.cpp.begin(), a.cpp.end(), [](auto& x, auto& y) { return x.issues > y.issues; });
  return a;
}

std::string annotation_text(const Annotation& a, const std::string& view, Sources& sources,
                            const Style& style) {
  View v(sources, style);
  std::string out;
  const auto sum = [](const std::vector<FileCounters>& files) {
    std::uint64_t n = 0;
    for (const auto& f : files) n += f.issues;
    return n;
  };
  bool readable = false;
  std::vector<std::string> small;
  if (view != "ptx")
    for (const auto& f : a.cpp) {
      if (!sources.lines(f.name)) continue;
      const std::uint64_t total = sum(a.cpp);
      if (readable && 100 * f.issues < total) {
        small.push_back(f.name);
        continue;
      }
      readable = true;
      out += v.file(f, total);
    }
  if (!small.empty())
    out += wrapped(format("\nbelow 1%: {}", text::join(small, ", ")), style.width, 2) + '\n';
  if (view == "cpp" && !readable)
    out += a.cpp.empty()
               ? "\nthe PTX has no .loc lines (nvcc -lineinfo writes them); its own lines:\n"
               : format("\n{} cannot be read (--source FOLDER says where it is); the PTX instead:\n",
                        a.cpp[0].name);
  if (view != "cpp" || !readable)
    for (const auto& f : a.ptx) out += v.file(f, sum(a.ptx));
  return out +
         Paint(style.color)
             .dim(wrapped("lanes: threads active per instruction, of 32; sect: 32-byte sectors per global "
                          "request; conf: "
                          "extra shared-memory passes per request; div: branches whose lanes parted",
                          style.width, 0)) +
         '\n';
}

ordered_json to_json(const Annotation& a, Sources& sources) {
  return {{"ptx", files_json(a.ptx, sources)}, {"cpp", files_json(a.cpp, sources)}};
}

}  // namespace cgp::spec

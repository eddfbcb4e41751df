// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/import/import.h"

#include <fmt/core.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/profile/import/ncu_report.h"
#include "cgp/profile/import/nsys_report.h"
#include "cgp/profile/import/sqlite_file.h"
#include "cgp/profile/measure/process.h"
#include "cgp/profile/timeline/phases.h"
#include "cgp/profile/timeline/timeline_export.h"
#include "cgp/profile/timeline/waste.h"
#include "cgp/profile/view/table.h"

namespace cgp::profile {
namespace {

namespace fs = std::filesystem;
using fmt::format;
using measure::Metric;
using measure::Source;
using nlohmann::ordered_json;
using text::cat;

/// The machine of an imported file is the one where it was recorded, not this one.
Document imported(const std::string& tool, const std::string& path, const std::string& gpu,
                  const std::string& arch) {
  Document d;
  d.kind = tool, d.name = fs::path(path).filename().string();
  d.time = "";  // of the recording: these files do not say it
  d.machine_key = gpu.empty() ? "a GPU that the file does not name" : gpu;
  d.machine = {{"imported", tool}, {"file", path}};
  if (!gpu.empty() || !arch.empty()) d.machine["device"] = {{"spec", "cuda"}, {"name", gpu}, {"arch", arch}};
  return d;
}

/// A launch per row is a sample, as long as there is more than one.
void add_samples(Document& d) {
  for (const auto& k : d.kernels)
    if (!k.us.empty() && d.samples.size() < 64) d.samples.push_back({short_name(k.name), "us", k.us});
}

void take_metrics(Document& d) {
  if (d.kernels.empty()) return;
  d.metrics.merge(d.kernels[0].metrics);
  if (d.kernels.size() > 1)
    d.notes.push_back(format("the metrics are those of {}, which takes most time of {} kernels",
                             short_name(d.kernels[0].name), d.kernels.size()));
}

double of(const NcuInstruction& i, const char* counter) {
  const auto at = i.values.find(counter);
  return at == i.values.end() ? 0 : at->second;
}

/// The instruction that moves most more than it needs: 32-byte sectors, or passes of shared memory.
void add_instruction_waste(const NcuLaunch& l, Document& d) {
  struct What {
    const char *counter, *ideal, *title, *unit, *advice;
  };
  constexpr What whats[] = {
      {"memory_l2_theoretical_sectors_global", "memory_l2_theoretical_sectors_global_ideal",
       "uncoalesced access", "sectors", "let neighbouring threads access neighbouring elements"},
      {"memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal", "bank conflicts",
       "passes of shared memory", "pad rows by one element, or swizzle the columns"}};
  for (const auto& w : whats) {
    const NcuInstruction* worst = nullptr;
    double all = 0, excess = 0, most = 0;
    for (const auto& i : l.instructions) {
      const double more = of(i, w.counter) - of(i, w.ideal);
      all += of(i, w.counter), excess += std::max(0.0, more);
      if (more > most) most = more, worst = &i;
    }
    if (!worst || excess < 0.1 * all) continue;
    const double n = std::max(1.0, of(*worst, "inst_executed"));
    const std::string evidence =
        format("{} of {} {} are more than needed; worst at 0x{:x}{}{}: {:.1f} an access, {:.1f} would do",
               number_text(excess), number_text(all), w.unit, worst->address, worst->text.empty() ? "" : " ",
               worst->text, of(*worst, w.counter) / n, of(*worst, w.ideal) / n);
    const auto known = std::find_if(d.waste.begin(), d.waste.end(), [&](const Waste& other) {
      return other.kernel == l.name && other.title == w.title;
    });
    if (known == d.waste.end())
      d.waste.push_back(
          {"transport", w.title, l.name, evidence, w.advice, 100 * excess / all / 2, Source::counted});
    else if (known->evidence.find("worst at") == std::string::npos)
      known->evidence += "; " + evidence;
  }
}

void add_instructions(const NcuReport& report, Document& d) {
  ordered_json all = ordered_json::array();
  for (const auto& l : report.launches) {
    ordered_json rows = ordered_json::array();
    for (const auto& i : l.instructions) {
      ordered_json values = ordered_json::object();
      for (const auto& [counter, v] : i.values)
        if (v != 0) values[counter] = v;
      if (values.empty()) continue;
      rows.push_back({{"address", i.address}, {"text", i.text}, {"values", values}});
    }
    if (!rows.empty()) all.push_back({{"kernel", l.name}, {"rows", rows}});
    add_instruction_waste(l, d);
  }
  if (!all.empty()) d.more["instructions"] = all;
}

Document document_of(const NcuReport& report, const std::string& path) {
  Document d = imported("ncu", path, report.gpu, report.arch);
  d.machine["page"] = report.page;
  Timeline t;
  for (const auto& l : report.launches) t.ranges.push_back({l.name, l.grid, l.block, l.counters});
  d.kernels = kernels_of(t, "ncu");
  double total = 0;
  for (auto& k : d.kernels) {
    const auto whole = [&](const char* counter) {
      const auto at = k.counters.find(counter);
      return at == k.counters.end() ? 0 : std::uint64_t(at->second + 0.5);
    };
    k.registers = whole("launch__registers_per_thread");
    k.static_shared = whole("launch__shared_mem_per_block_static");
    k.dynamic_shared = whole("launch__shared_mem_per_block_dynamic");
    if (!k.launches)
      k.launches = std::uint64_t(std::count_if(report.launches.begin(), report.launches.end(),
                                               [&](const auto& l) { return l.name == k.name; }));
    total += k.total_us();
  }
  TimelineSummary all;
  all.kernel_ms = total * 1e-3;
  d.waste = timeline_waste(all, d.kernels);
  add_instructions(report, d);
  ordered_json advice = ordered_json::array();
  for (const auto& l : report.launches)
    for (const auto& a : l.advice) {
      advice.push_back({{"kernel", l.name},
                        {"rule", a.rule},
                        {"text", a.text},
                        {"estimated_gain_pct", a.percent},
                        {"of", a.global ? "kernel" : "unit"}});
      if (a.global && a.percent >= 20 && d.notes.size() < 6)
        d.notes.push_back(
            format("ncu on {}: {} (its estimate: {:.0f} %)", short_name(l.name), a.rule, a.percent));
    }
  std::stable_sort(d.waste.begin(), d.waste.end(),
                   [](const Waste& a, const Waste& b) { return a.percent > b.percent; });
  if (!advice.empty()) d.more["advice"] = advice;
  for (const auto& n : report.notes) d.notes.push_back(n);
  add_samples(d);
  take_metrics(d);
  return d;
}

Document document_of(const NsysRecording& r, const std::string& path) {
  Document d = document_of(r.timeline, "nsys", fs::path(path).filename().string());
  const Document empty = imported("nsys", path, r.gpu, "");
  d.machine_key = empty.machine_key, d.machine = empty.machine, d.time = empty.time;
  for (const auto& n : r.notes) d.notes.push_back(n);
  add_samples(d);
  return d;
}

/// A file that a tool makes and that is read and removed.
class Temporary {
 public:
  explicit Temporary(const std::string& suffix)
      : path_((fs::temp_directory_path() / format("cgp-import-{}{}", getpid(), suffix)).string()) {}
  ~Temporary() {
    std::error_code ec;
    fs::remove(path_, ec);
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// .nsys-rep has a format of its own; nsys makes a database of it.
NsysRecording through_nsys(const std::string& path) {
  const std::string wanted = cat("nsys export --type sqlite ", path);
  const std::string nsys = find_program("nsys");
  if (nsys.empty())
    throw Unsupported(ErrorText{"nsys's own report files are read by nsys only", path, "nsys is not here",
                                wanted + " where nsys is; the .sqlite file is read here"});
  const Temporary database(".sqlite");
  const auto r = measure::run_process(
      {nsys, "export", "--type", "sqlite", "--force-overwrite", "true", "-o", database.path(), path});
  if (!r.ok() || !fs::exists(database.path()))
    throw Unsupported(
        ErrorText{"nsys must export the report", path, cat(r.describe(), " ", text::trim(r.err)), wanted});
  return read_nsys_sqlite(database.path());
}

NcuReport read_ncu(const std::string& path, const std::string& content) {
  try {
    return read_ncu_report(content, path);
  } catch (const ParseError&) {
    // a version that changed the format: ncu itself can read it
    const std::string ncu = find_cuda_program("ncu");
    if (ncu.empty()) throw;
    measure::ProcessOptions all;
    all.keep_bytes = std::size_t(256) << 20;
    const auto r =
        measure::run_process({ncu, "--import", path, "--csv", "--page", "raw", "--print-units", "base"}, all);
    if (!r.ok()) throw;
    return read_ncu_csv(r.out, path);
  }
}

NsysRecording read_nsys(FileKind kind, const std::string& path, const std::string& content) {
  if (kind == FileKind::nsys_sqlite) return read_nsys_sqlite(path);
  if (kind == FileKind::nsys_csv) return read_nsys_csv(content, path);
  return through_nsys(path);
}

bool ends_with(const std::string& s, std::string_view end) {
  return s.size() >= end.size() && s.compare(s.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

std::string_view name(FileKind k) {
  constexpr std::string_view names[] = {"a profile of cgp",
                                        "a report of ncu",
                                        "a page of ncu --csv",
                                        "a database of nsys",
                                        "a table of nsys stats --format csv",
                                        "a report of nsys",
                                        "events of libcgp_inject.so"};
  return names[std::size_t(k)];
}

FileKind kind_of(const std::string& path, std::string_view content) {
  if (is_sqlite(content)) return FileKind::nsys_sqlite;
  if (is_ncu_report(content)) return FileKind::ncu_report;
  if (ends_with(path, ".nsys-rep") || ends_with(path, ".qdrep")) return FileKind::nsys_report;
  const auto begin = text::trim(content.substr(0, 4096));
  if (begin.rfind("{\"ev\":", 0) == 0) return FileKind::events;
  if (!begin.empty() && begin[0] == '{') return FileKind::profile;
  if (is_nsys_csv(content)) return FileKind::nsys_csv;
  if (is_ncu_csv(content)) return FileKind::ncu_csv;
  return FileKind::profile;
}

Document load_any(const std::string& path) {
  const std::string content = read_file(path);
  const FileKind kind = kind_of(path, content);
  switch (kind) {
    case FileKind::profile:
      if (text::trim(content).substr(0, 1) != "{")
        throw ParseError(ErrorText{
            "the file must be a profile of cgp or a report of ncu or nsys", path,
            content.empty() ? "it is empty"
                            : "it begins like none of JSON, an ncu report, an SQLite database and CSV",
            "cgp profile, ncu --export, ncu --csv --page raw and nsys export --type sqlite write such "
            "files"});
      return load(path);
    case FileKind::ncu_report:
      return document_of(read_ncu(path, content), path);
    case FileKind::ncu_csv:
      return document_of(read_ncu_csv(content, path), path);
    case FileKind::events: {
      Timeline t;
      read_events(content, t);
      Document d = document_of(t, "trace", path);
      const Document elsewhere = imported("trace", path, "", "");
      d.machine_key = elsewhere.machine_key, d.machine = elsewhere.machine, d.time = elsewhere.time;
      return d;
    }
    case FileKind::nsys_sqlite:
    case FileKind::nsys_csv:
    case FileKind::nsys_report:
      break;
  }
  return document_of(read_nsys(kind, path, content), path);
}

Timeline load_timeline(const std::string& path) {
  const std::string content = read_file(path);
  const FileKind kind = kind_of(path, content);
  if (kind == FileKind::ncu_report || kind == FileKind::ncu_csv)
    throw ParseError(ErrorText{"the file must have a timeline", path,
                               cat("it is ", name(kind), ", which has counters of kernels one by one"),
                               "cgp report shows it"});
  if (kind == FileKind::nsys_sqlite || kind == FileKind::nsys_csv || kind == FileKind::nsys_report)
    return read_nsys(kind, path, content).timeline;
  if (kind != FileKind::events)
    throw ParseError(
        ErrorText{"the file must have a timeline", path,
                  content.empty() ? "it is empty" : "it begins as no recording of events does",
                  "nsys export --type sqlite writes one; so does a program under libcgp_inject.so"});
  Timeline t;
  read_events(content, t);
  return t;
}

Document document_of(const Timeline& t, std::string kind, std::string title,
                     std::vector<std::string> command) {
  Document d = new_document(std::move(kind), std::move(title), std::move(command));
  const Phases phases = phases_of(t);
  d.kernels = kernels_of(t);
  d.waste = phases_waste(phases, d.kernels);
  d.more["timeline"] = to_json(phases);
  d.more["timeline_svg"] = timeline_svg(t);
  add_metrics(t, d.metrics);
  d.notes = notes_of(t);
  return d;
}

void keep_kernels(Document& d, const std::string& part) {
  const auto other = [&](const std::string& kernel) {
    return kernel.find(part) == std::string::npos && short_name(kernel).find(part) == std::string::npos;
  };
  std::vector<std::string> names;
  for (const auto& k : d.kernels) names.push_back(short_name(k.name));
  std::erase_if(d.kernels, [&](const KernelUse& k) { return other(k.name); });
  if (d.kernels.empty())
    throw ArgumentError(ErrorText{cat("a kernel's name contains \"", part, "\""),
                                  d.name,
                                  cat("there are ", text::join(names, ", ")),
                                  {}});
  std::erase_if(d.waste, [&](const Waste& w) { return !w.kernel.empty() && other(w.kernel); });
  d.samples.clear();
  if (d.kind == "ncu") d.metrics = {};  // they were those of another kernel
  add_samples(d);
  take_metrics(d);
}

}  // namespace cgp::profile

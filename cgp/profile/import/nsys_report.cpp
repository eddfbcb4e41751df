// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/import/nsys_report.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/profile/import/csv.h"
#include "cgp/profile/import/sqlite_file.h"

namespace cgp::profile {
namespace {

using text::cat;
using ActivityKind = Activity::Kind;

/// nsys makes tables only for what it saw, and its versions differ in their columns: what is not there reads
/// as `otherwise`.
class NsysTable {
 public:
  NsysTable(const SqliteFile& file, std::string name)
      : file_(file), name_(std::move(name)), columns_(file.columns(name_)) {}
  bool exists() const { return !columns_.empty(); }
  bool has(const std::string& column) const {
    return std::find(columns_.begin(), columns_.end(), column) != columns_.end();
  }
  /// `wanted` in this order.
  void rows(const std::vector<std::string>& wanted,
            const std::function<void(const SqliteFile::Row&)>& each) const {
    if (!exists()) return;
    std::string sql = "SELECT ";
    for (const auto& column : wanted)
      sql += cat(sql.size() > 7 ? ", " : "", has(column) ? cat("\"", column, "\"") : std::string("0"));
    file_.query(cat(sql, " FROM ", name_), each);
  }

 private:
  const SqliteFile& file_;
  std::string name_;
  std::vector<std::string> columns_;
};

/// Processes number their calls each for themselves.
class Correlations {
 public:
  std::uint32_t of(std::int64_t process, std::int64_t id) {
    if (!id) return 0;
    return seen_.try_emplace({process, id}, std::uint32_t(seen_.size() + 1)).first->second;
  }

 private:
  std::map<std::pair<std::int64_t, std::int64_t>, std::uint32_t> seen_;
};

std::int64_t process_of(std::int64_t global_id) { return global_id >> 24 & 0xffffff; }

/// "cudaLaunchKernel_v7000" -> "cudaLaunchKernel".
std::string without_version(const std::string& name) {
  const auto at = name.rfind("_v");
  if (at == std::string::npos || at + 2 == name.size()) return name;
  return name.find_first_not_of("0123456789", at + 2) == std::string::npos ? name.substr(0, at) : name;
}

struct NsysReader {
  const SqliteFile& file;
  Timeline& t;
  std::map<std::int64_t, std::string> strings;
  Correlations correlations;

  std::string text(std::int64_t id) const {
    const auto at = strings.find(id);
    return at == strings.end() ? cat("string ", id) : at->second;
  }
  Activity timed(const SqliteFile::Row& row, ActivityKind kind, std::int64_t process) {
    Activity a;
    a.kind = kind;
    a.start = std::uint64_t(row.integer(0)), a.end = std::uint64_t(row.integer(1));
    a.device = std::uint32_t(row.integer(2)), a.stream = std::uint32_t(row.integer(3));
    a.correlation = correlations.of(process, row.integer(4));
    return a;
  }
  void kernels() {
    const NsysTable table(file, "CUPTI_ACTIVITY_KIND_KERNEL");
    const bool mangled = table.has("mangledName");
    table.rows({"start", "end", "deviceId", "streamId", "correlationId", "globalPid",
                mangled ? "mangledName" : "demangledName", "gridX", "gridY", "gridZ", "blockX", "blockY",
                "blockZ", "registersPerThread", "staticSharedMemory", "dynamicSharedMemory",
                "localMemoryPerThread", "graphId", "demangledName"},
               [&](const SqliteFile::Row& row) {
                 Activity a = timed(row, ActivityKind::kernel, process_of(row.integer(5)));
                 a.name = text(row.integer(6) ? row.integer(6) : row.integer(18));
                 for (int i = 0; i < 3; ++i) {
                   a.grid[std::size_t(i)] = std::uint32_t(row.integer(7 + i));
                   a.block[std::size_t(i)] = std::uint32_t(row.integer(10 + i));
                 }
                 a.registers = std::uint32_t(row.integer(13));
                 a.static_shared = std::uint32_t(row.integer(14));
                 a.dynamic_shared = std::uint32_t(row.integer(15));
                 a.local_bytes = std::uint32_t(row.integer(16)), a.graph = std::uint32_t(row.integer(17));
                 t.activities.push_back(std::move(a));
               });
  }
  void copies() {
    const NsysTable table(file, "CUPTI_ACTIVITY_KIND_MEMCPY");
    const bool kinds = table.has("srcKind") && table.has("dstKind");  // 0 is memory that is not pinned
    table.rows({"start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes", "copyKind",
                "srcKind", "dstKind"},
               [&](const SqliteFile::Row& row) {
                 Activity a = timed(row, ActivityKind::copy, process_of(row.integer(5)));
                 a.bytes = std::uint64_t(row.integer(6)), a.copy_kind = std::uint32_t(row.integer(7));
                 a.pageable = kinds && (row.integer(8) == 0 || row.integer(9) == 0);
                 a.name = copy_name(a.copy_kind);
                 t.activities.push_back(std::move(a));
               });
    const NsysTable sets(file, "CUPTI_ACTIVITY_KIND_MEMSET");
    sets.rows({"start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes"},
              [&](const SqliteFile::Row& row) {
                Activity a = timed(row, ActivityKind::set, process_of(row.integer(5)));
                a.bytes = std::uint64_t(row.integer(6)), a.name = "set";
                t.activities.push_back(std::move(a));
              });
  }
  void calls() {
    const NsysTable table(file, "CUPTI_ACTIVITY_KIND_RUNTIME");
    const auto zero = "no column";  // device and stream of a call
    table.rows({"start", "end", zero, zero, "correlationId", "globalTid", "nameId"},
               [&](const SqliteFile::Row& row) {
                 Activity a = timed(row, ActivityKind::api, process_of(row.integer(5)));
                 a.thread = std::uint64_t(row.integer(5) & 0xffffff);
                 a.name = without_version(text(row.integer(6)));
                 t.activities.push_back(std::move(a));
               });
    const NsysTable waits(file, "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION");
    waits.rows({"start", "end", "deviceId", "streamId", "correlationId", "globalPid"},
               [&](const SqliteFile::Row& row) {
                 Activity a = timed(row, ActivityKind::sync, process_of(row.integer(5)));
                 a.name = "wait";
                 t.activities.push_back(std::move(a));
               });
  }
};

void sort_by_start(Timeline& t) {
  std::stable_sort(t.activities.begin(), t.activities.end(),
                   [](const Activity& a, const Activity& b) { return a.start < b.start; });
}

}  // namespace

NsysRecording read_nsys_sqlite(const std::string& path) {
  const SqliteFile file(path);
  const NsysTable strings(file, "StringIds");
  if (!strings.exists())
    throw ParseError(ErrorText{"the database must be one of nsys", path, "it has no table StringIds",
                               "nsys export --type sqlite REPORT.nsys-rep"});
  NsysRecording out;
  NsysReader reader{file, out.timeline, {}, {}};
  strings.rows({"id", "value"},
               [&](const SqliteFile::Row& row) { reader.strings[row.integer(0)] = row.text(1); });
  reader.kernels(), reader.copies(), reader.calls();
  sort_by_start(out.timeline);
  NsysTable(file, "TARGET_INFO_GPU").rows({"name"}, [&](const SqliteFile::Row& row) {
    if (out.gpu.empty()) out.gpu = row.text(0);
  });
  for (const auto& [table, what] :
       {std::pair{"NVTX_EVENTS", "NVTX ranges"}, std::pair{"OSRT_API", "calls of the operating system"},
        std::pair{"GPU_METRICS", "samples of GPU metrics"}}) {
    if (!NsysTable(file, table).exists()) continue;
    file.query(cat("SELECT count(*) FROM ", table), [&](const SqliteFile::Row& row) {
      if (row.integer(0))
        out.notes.push_back(cat("the recording has ", row.integer(0), " ", what, ", not taken over"));
    });
  }
  if (out.timeline.activities.empty()) out.notes.push_back("nothing of CUDA was recorded");
  return out;
}

bool is_nsys_csv(std::string_view text) {
  const std::string_view first = text.substr(0, 4000);
  return first.find("Start (ns),Duration (ns),") != std::string_view::npos ||
         first.find("\"Start (ns)\",\"Duration (ns)\",") != std::string_view::npos;
}

NsysRecording read_nsys_csv(std::string_view text, const std::string& origin) {
  const std::size_t name = text.find("Start (ns)");
  const std::size_t line = name == std::string_view::npos ? name : text.rfind('\n', name);
  const auto rows = parse_csv(text.substr(line == std::string_view::npos ? 0 : line + 1), origin);
  const auto& names = rows[0];
  const auto column = [&](std::string_view begin) {
    for (std::size_t i = 0; i < names.size(); ++i)
      if (std::string_view(names[i]).substr(0, begin.size()) == begin) return i;
    return names.size();
  };
  NsysRecording out;
  const std::size_t bytes = column("Bytes"), grid = column("GrdX"), block = column("BlkX");
  const double megabyte = bytes < names.size() ? 1e6 : 1;
  for (std::size_t r = 1; r < rows.size(); ++r) {
    const auto& row = rows[r];
    if (row.size() != names.size())
      throw ParseError(ErrorText{"every row has as many fields as the first",
                                 cat(origin, ", row ", r + 1),
                                 cat(row.size(), " against ", names.size()),
                                 {}});
    const auto number = [&](std::size_t i) {
      return i < row.size() ? parse_number(row[i]).value_or(0) : 0.0;
    };
    Activity a;
    a.name = row[column("Name")];
    a.start = std::uint64_t(number(column("Start (ns)")));
    a.end = a.start + std::uint64_t(number(column("Duration (ns)")));
    a.stream = std::uint32_t(number(column("Strm"))), a.correlation = std::uint32_t(number(column("CorrId")));
    if (number(grid) > 0) {
      for (std::size_t i = 0; i < 3; ++i) {
        a.grid[i] = std::uint32_t(number(grid + i)), a.block[i] = std::uint32_t(number(block + i));
      }
      a.registers = std::uint32_t(number(column("Reg/Trd")));
      a.static_shared = std::uint32_t(number(column("StcSMem")) * megabyte + 0.5);
      a.dynamic_shared = std::uint32_t(number(column("DymSMem")) * megabyte + 0.5);
    } else if (a.name.find("memset") != std::string::npos) {
      a.kind = ActivityKind::set, a.name = "set";
      a.bytes = std::uint64_t(number(bytes) * megabyte + 0.5);
    } else {
      a.kind = ActivityKind::copy;
      a.bytes = std::uint64_t(number(bytes) * megabyte + 0.5);
      a.copy_kind = a.name.find("Host-to-Device") != std::string::npos   ? 1
                    : a.name.find("Device-to-Host") != std::string::npos ? 2
                                                                         : 8;
      const std::size_t from = column("SrcMemKd"), to = column("DstMemKd");
      a.pageable =
          (from < row.size() && row[from] == "Pageable") || (to < row.size() && row[to] == "Pageable");
      a.name = copy_name(a.copy_kind);
    }
    out.timeline.activities.push_back(std::move(a));
  }
  sort_by_start(out.timeline);
  out.notes.push_back("this table has no host calls: launch times are not known");
  return out;
}

}  // namespace cgp::profile

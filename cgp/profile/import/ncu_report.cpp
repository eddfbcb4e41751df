// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/import/ncu_report.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/profile/collect/cubin.h"
#include "cgp/profile/import/csv.h"
#include "cgp/profile/import/protobuf_wire.h"

namespace cgp::profile {
namespace {

using text::cat;
using Row = std::vector<std::string>;

constexpr std::string_view kMagic("NVR\0", 4);

/// Of the device and the machine, not of the launch.
bool about_the_launch(const std::string& metric) {
  for (const char* other : {"device__", "nvlink__", "numa__", "c2clink__", "profiler__"})
    if (metric.rfind(other, 0) == 0) return false;
  return true;
}

measure::Triple triple(std::string_view text) {  // "(16384, 1, 1)"
  measure::Triple out{};
  std::size_t n = 0;
  std::string digits;
  for (char c : std::string(text) + ",") {
    if (c >= '0' && c <= '9') digits += c;
    if (c != ',' || digits.empty() || n >= 3) continue;
    out[n++] = std::uint32_t(std::strtoul(digits.c_str(), nullptr, 10));
    digits.clear();
  }
  return out;
}

std::string arch_of(const std::string& capability) {  // "9.0"
  std::string digits;
  for (char c : capability)
    if (c != '.') digits += c;
  return digits.empty() ? "" : cat("sm_", digits);
}

// ---------------------------------------------------------------- CSV
struct Columns {
  const Row& names;
  std::optional<std::size_t> find(std::string_view name) const {
    const auto at = std::find(names.begin(), names.end(), name);
    return at == names.end() ? std::nullopt : std::optional(std::size_t(at - names.begin()));
  }
  std::string cell(const Row& row, std::string_view name) const {
    const auto at = find(name);
    return at && *at < row.size() ? row[*at] : std::string();
  }
};

NcuLaunch launch_of(const Columns& c, const Row& row) {
  NcuLaunch l;
  l.name = c.cell(row, "Kernel Name");
  l.grid = triple(c.cell(row, "Grid Size")), l.block = triple(c.cell(row, "Block Size"));
  return l;
}

/// One row a launch, one column a metric, units in the second row.
void read_raw(const std::vector<Row>& rows, NcuReport& out, const std::string& origin) {
  const Columns c{rows[0]};
  if (rows.size() < 2 || !rows[1][0].empty())
    throw ParseError(ErrorText{"the raw page has units in its second row", cat(origin, ":2"), {}, {}});
  const std::size_t first = *c.find("CC") + 1;
  for (std::size_t r = 2; r < rows.size(); ++r) {
    const Row& row = rows[r];
    if (row.size() != rows[0].size())
      throw ParseError(ErrorText{"every row has as many fields as the first", cat(origin, ", row ", r + 1),
                                 cat(row.size(), " against ", rows[0].size()),
                                 "was the file written by ncu --csv --page raw, and completely?"});
    NcuLaunch l = launch_of(c, row);
    for (std::size_t i = first; i < row.size(); ++i) {
      if (!about_the_launch(rows[0][i])) continue;
      if (const auto v = parse_number(row[i])) l.counters[rows[0][i]] = *v * unit_scale(rows[1][i]);
    }
    if (out.arch.empty()) out.arch = arch_of(c.cell(row, "CC"));
    if (out.gpu.empty()) out.gpu = c.cell(row, "device__attribute_display_name");
    out.launches.push_back(std::move(l));
  }
}

/// The details page shows metrics under the names of its sections.
const char* metric_of(const std::string& section, const std::string& shown) {
  struct Name {
    const char *section, *shown, *metric;
  };
  static constexpr Name names[] = {
      {"GPU Speed Of Light Throughput", "Duration", "gpu__time_duration.sum"},
      {"GPU Speed Of Light Throughput", "Elapsed Cycles", "sm__cycles_elapsed.max"},
      {"GPU Speed Of Light Throughput", "SM Frequency", "sm__cycles_elapsed.avg.per_second"},
      {"GPU Speed Of Light Throughput", "DRAM Throughput",
       "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"},
      {"GPU Speed Of Light Throughput", "Compute (SM) Throughput",
       "sm__throughput.avg.pct_of_peak_sustained_elapsed"},
      {"Memory Workload Analysis", "Memory Throughput", "dram__bytes.sum.per_second"},
      {"Memory Workload Analysis", "L1/TEX Hit Rate", "l1tex__t_sector_hit_rate.pct"},
      {"Memory Workload Analysis", "L2 Hit Rate", "lts__t_sector_hit_rate.pct"},
      {"Compute Workload Analysis", "Executed Ipc Active", "sm__inst_executed.avg.per_cycle_active"},
      {"Scheduler Statistics", "One or More Eligible", "smsp__issue_active.avg.pct_of_peak_sustained_active"},
      {"Warp State Statistics", "Avg. Active Threads Per Warp",
       "smsp__average_thread_inst_executed_per_inst_executed.ratio"},
      {"Instruction Statistics", "Executed Instructions", "smsp__inst_executed.sum"},
      {"Launch Statistics", "Registers Per Thread", "launch__registers_per_thread"},
      {"Launch Statistics", "Static Shared Memory Per Block", "launch__shared_mem_per_block_static"},
      {"Launch Statistics", "Dynamic Shared Memory Per Block", "launch__shared_mem_per_block_dynamic"},
      {"Occupancy", "Achieved Occupancy", "sm__warps_active.avg.pct_of_peak_sustained_active"},
      {"Occupancy", "Theoretical Occupancy", "sm__maximum_warps_per_active_cycle_pct"},
      {"Source Counters", "Branch Efficiency", "smsp__sass_average_branch_targets_threads_uniform.pct"}};
  for (const auto& n : names)
    if (section == n.section && shown == n.shown) return n.metric;
  return nullptr;
}

/// One row a metric; rules follow the metrics of their section.
void read_details(const std::vector<Row>& rows, NcuReport& out) {
  const Columns c{rows[0]};
  std::string id;
  for (std::size_t r = 1; r < rows.size(); ++r) {
    const Row& row = rows[r];
    if (row.size() < 15) continue;  // the page is printed once more for each device
    if (out.launches.empty() || row[0] != id) {
      id = row[0];
      out.launches.push_back(launch_of(c, row));
      if (out.arch.empty()) out.arch = arch_of(c.cell(row, "CC"));
    }
    NcuLaunch& l = out.launches.back();
    const std::string section = c.cell(row, "Section Name"), shown = c.cell(row, "Metric Name");
    if (const auto v = parse_number(c.cell(row, "Metric Value")); v && !shown.empty()) {
      // A name with __ is a metric that was asked for by its own name.
      const char* known = metric_of(section, shown);
      const std::string metric = known ? known : shown.find("__") != std::string::npos ? shown : "";
      if (!metric.empty()) l.counters[metric] = *v * unit_scale(c.cell(row, "Metric Unit"));
    }
    const std::string rule = c.cell(row, "Rule Name");
    if (rule.empty() || c.cell(row, "Rule Type") != "OPT") continue;
    l.advice.push_back({rule, c.cell(row, "Rule Description"),
                        parse_number(c.cell(row, "Estimated Speedup")).value_or(0),
                        c.cell(row, "Estimated Speedup Type") == "global"});
  }
}

/// Columns of the source page, by the names that the report file has for them.
std::string counter_of_column(const std::string& column) {
  static const std::map<std::string, const char*> names{
      {"Warp Stall Sampling (All Samples)", "samples"},
      {"Instructions Executed", "inst_executed"},
      {"Thread Instructions Executed", "thread_inst_executed"},
      {"Predicated-On Thread Instructions Executed", "thread_inst_executed_true"},
      {"L1 Tag Requests Global", "memory_l1_tag_requests_global"},
      {"L2 Theoretical Sectors Global", "memory_l2_theoretical_sectors_global"},
      {"L2 Theoretical Sectors Global Ideal", "memory_l2_theoretical_sectors_global_ideal"},
      {"L2 Theoretical Sectors Local", "memory_l2_theoretical_sectors_local"},
      {"L1 Wavefronts Shared", "memory_l1_wavefronts_shared"},
      {"L1 Wavefronts Shared Ideal", "memory_l1_wavefronts_shared_ideal"}};
  const auto at = names.find(column);
  return at == names.end() ? "" : at->second;
}

/// Per kernel a few rows about it, a row of column names, and one row an instruction.
void read_source(const std::vector<Row>& rows, NcuReport& out) {
  const Row* header = nullptr;
  for (const Row& row : rows) {
    if (row.size() >= 2 && row[0] == "Kernel Name") {
      out.launches.push_back({});
      out.launches.back().name = row[1];
      header = nullptr;
      continue;
    }
    const Columns here{row};
    if (here.find("Source") && here.find("Address")) {
      header = &row;
      if (out.launches.empty()) out.launches.push_back({});
      if (!out.launches.back().instructions.empty()) {
        NcuLaunch same;
        same.name = out.launches.back().name;
        out.launches.push_back(std::move(same));
      }
      continue;
    }
    if (!header || row.size() != header->size()) continue;
    const Columns c{*header};
    NcuInstruction i;
    const std::string address = c.cell(row, "Address");
    i.address = std::strtoull(address.c_str(), nullptr, address.rfind("0x", 0) == 0 ? 16 : 10);
    i.text = std::string(text::trim(c.cell(row, "Source")));
    for (std::size_t k = 0; k < row.size(); ++k)
      if (const std::string counter = counter_of_column((*header)[k]); !counter.empty())
        if (const auto v = parse_number(row[k])) i.values[counter] = *v;
    out.launches.back().instructions.push_back(std::move(i));
  }
  // Totals, so that contracts and differences have numbers of the whole launch.
  for (NcuLaunch& l : out.launches)
    for (const NcuInstruction& i : l.instructions)
      for (const auto& [counter, v] : i.values) l.counters[cat("sass__", counter)] += v;
}

/// Where the page begins: ncu prints "==PROF==" lines and the program's own output before it.
std::size_t page_begin(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::string_view line = text.substr(at, text.find('\n', at) - at);
    if (line.rfind("\"ID\",\"Process ID\"", 0) == 0 || line.rfind("\"Kernel Name\",", 0) == 0) return at;
    if (line.find("\"Address\",") != std::string_view::npos &&
        line.find("\"Source\",") != std::string_view::npos)
      return at;
    const auto end = text.find('\n', at);
    if (end == std::string_view::npos) break;
    at = end + 1;
  }
  return std::string_view::npos;
}

// ---------------------------------------------------------------- .ncu-rep
std::uint32_t length_at(std::string_view& rest, const std::string& origin) {
  if (rest.size() < 4)
    throw ParseError(ErrorText{"a block has its length", origin, "the file ends before it", {}});
  std::uint32_t n = 0;
  for (int i = 3; i >= 0; --i) n = n << 8 | static_cast<unsigned char>(rest[std::size_t(i)]);
  rest.remove_prefix(4);
  return n;
}

std::optional<double> value_of(std::string_view message, std::string* text = nullptr) {
  std::optional<double> v;
  wire::fields(message, [&](const wire::Field& f) {
    if (f.number == 1 && text) *text = f.bytes;
    if (f.number == 2 || f.number == 3) v = f.real();
    if (f.number == 4 || f.number == 5) v = double(f.value);
  });
  return v;
}

std::uint64_t address_of(std::string_view message) {
  std::uint64_t v = 0;
  wire::fields(message, [&](const wire::Field& f) {
    if (f.number == 4 || f.number == 5) v = f.value;
  });
  return v;
}

measure::Triple triple_of(std::string_view message) {
  measure::Triple t{};
  wire::fields(message, [&](const wire::Field& f) {
    if (f.number >= 1 && f.number <= 3) t[f.number - 1] = std::uint32_t(f.value);
  });
  return t;
}

struct Reader {
  NcuReport& out;
  std::vector<std::string> strings;
  std::map<std::uint64_t, std::string_view> code = {};  ///< of functions, by their address on the GPU

  /// Field 4 is the cubin, 9 says where its functions were loaded.
  void source(std::string_view message) {
    std::string_view binary;
    std::vector<std::pair<std::string, std::uint64_t>> loaded;
    try {
      wire::fields(message, [&](const wire::Field& f) {
        if (f.number == 4 && f.type == 2) binary = f.bytes;
        if (f.number != 9 || f.type != 2) return;
        wire::fields(f.bytes, [&](const wire::Field& entry) {
          if (entry.number == 1 && entry.type == 2) loaded.push_back(function_of(entry.bytes));
        });
      });
      if (binary.empty() || loaded.empty()) return;
      for (const CubinKernel& k : read_cubin(binary, "the report's cubin").kernels)
        for (const auto& [name, address] : loaded)
          if (name == k.name) code[address] = binary.substr(k.code_offset, k.code_bytes);
    } catch (const ParseError&) {
      // counters are worth having without the names of instructions
    }
  }
  static std::pair<std::string, std::uint64_t> function_of(std::string_view message) {
    std::pair<std::string, std::uint64_t> out;
    wire::fields(message, [&](const wire::Field& f) {
      if (f.number == 1) out.first = f.bytes;
      if (f.number == 2) out.second = f.value;
    });
    return out;
  }
  std::string opcode_at(std::uint64_t address) const {
    auto at = code.upper_bound(address);
    if (at == code.begin()) return {};
    --at;
    const std::uint64_t offset = address - at->first;
    if (offset % 16 || offset + 8 > at->second.size()) return {};
    std::uint64_t word = 0;
    for (std::size_t i = 8; i-- > 0;)
      word = word << 8 | static_cast<unsigned char>(at->second[std::size_t(offset) + i]);
    return std::string(memory_opcode(word));
  }

  void header(std::string_view message, std::uint32_t& sources, std::uint32_t& results, std::uint64_t& size) {
    wire::fields(message, [&](const wire::Field& f) {
      if (f.number == 1) sources = std::uint32_t(f.value);
      if (f.number == 2) results = std::uint32_t(f.value);
      if (f.number == 3) session(f.bytes);
      if (f.number == 4)
        wire::fields(f.bytes, [&](const wire::Field& s) {
          if (s.number == 1) strings.emplace_back(s.bytes);
        });
      if (f.number == 5) size = f.value;
    });
  }
  /// Field 6: the attributes of each device, a name and a value.
  void session(std::string_view message) {
    wire::fields(message, [&](const wire::Field& device) {
      if (device.number != 6) return;
      int major = 0, minor = 0;
      wire::fields(device.bytes, [&](const wire::Field& attribute) {
        if (attribute.number == 2 && attribute.type == 2) out.gpu = attribute.bytes;
        if (attribute.number != 3) return;
        std::string name;
        std::optional<double> v;
        wire::fields(attribute.bytes, [&](const wire::Field& f) {
          if (f.number == 1) name = f.bytes;
          if (f.number == 2) v = value_of(f.bytes);
        });
        if (name == "compute_capability_major" && v) major = int(*v);
        if (name == "compute_capability_minor" && v) minor = int(*v);
      });
      if (major) out.arch = cat("sm_", major, minor);
    });
  }
  void metric(std::string_view message, NcuLaunch& l, std::map<std::uint64_t, NcuInstruction>& by_address) {
    std::string name;
    std::optional<double> value;
    std::vector<std::string_view> instances;
    wire::fields(message, [&](const wire::Field& f) {
      if (f.number == 1 && f.value < strings.size()) name = strings[f.value];
      if (f.number == 2) value = value_of(f.bytes);
      if (f.number == 3) instances.push_back(f.bytes);
    });
    if (name.empty()) return;
    if (value && about_the_launch(name)) l.counters[name] = *value;
    for (const auto& instance : instances) {
      std::uint64_t address = 0;
      std::optional<double> v;
      bool located = false;
      wire::fields(instance, [&](const wire::Field& f) {
        if (f.number == 1) address = address_of(f.bytes), located = true;
        if (f.number == 2) v = value_of(f.bytes);
      });
      // Correlated values of other kinds (per opcode, per pipe) are no addresses of code.
      if (!located || !v || address < 4096 || address % 16) continue;
      auto& i = by_address[address];
      i.address = address, i.values[name] = *v;
    }
  }
  void result(std::string_view message) {
    NcuLaunch l;
    std::map<std::uint64_t, NcuInstruction> by_address;
    wire::fields(message, [&](const wire::Field& f) {
      if (f.number == 5 && f.type == 2 && !f.bytes.empty()) l.name = f.bytes;
      if (f.number == 7 && f.type == 2 && l.name.empty()) l.name = f.bytes;
      if (f.number == 10) l.grid = triple_of(f.bytes);
      if (f.number == 11) l.block = triple_of(f.bytes);
      if (f.number == 13) metric(f.bytes, l, by_address);
    });
    for (auto& [address, i] : by_address) {
      i.text = opcode_at(address);
      l.instructions.push_back(std::move(i));
    }
    out.launches.push_back(std::move(l));
  }
};

}  // namespace

bool is_ncu_report(std::string_view bytes) { return bytes.substr(0, 4) == kMagic; }

bool is_ncu_csv(std::string_view text) {
  return page_begin(text.substr(0, 1 << 20)) != std::string_view::npos;
}

NcuReport read_ncu_csv(std::string_view text, const std::string& origin) {
  const std::size_t begin = page_begin(text);
  if (begin == std::string_view::npos)
    throw ParseError(ErrorText{"the text must be a page of ncu --csv", origin, "no row of column names", {}});
  const auto rows = parse_csv(text.substr(begin), origin);
  NcuReport out;
  const Columns c{rows[0]};
  if (c.find("Section Name") && c.find("Metric Value")) {
    out.page = "details";
    read_details(rows, out);
  } else if (c.find("ID") && c.find("CC")) {
    out.page = "raw";
    read_raw(rows, out, origin);
  } else {
    out.page = "source";
    read_source(rows, out);
  }
  if (out.launches.empty())
    throw ParseError(ErrorText{"the page has launches", origin, "there is none in it", {}});
  return out;
}

NcuReport read_ncu_report(std::string_view bytes, const std::string& origin) {
  NcuReport out;
  out.page = "report";
  Reader reader{out, {}, {}};
  try {
    std::string_view rest = bytes.substr(std::min<std::size_t>(4, bytes.size()));
    wire::take(rest, length_at(rest, origin));  // the version of the file
    while (!rest.empty()) {
      std::uint32_t sources = 0, results = 0;
      std::uint64_t size = 0;
      const std::uint32_t header_size = length_at(rest, origin);
      reader.header(wire::take(rest, header_size), sources, results, size);
      std::string_view payload = wire::take(rest, size);
      for (std::uint32_t i = 0; i < sources; ++i) {
        const std::uint32_t n = length_at(payload, origin);
        reader.source(wire::take(payload, n));
      }
      for (std::uint32_t i = 0; i < results; ++i) {
        const std::uint32_t n = length_at(payload, origin);
        reader.result(wire::take(payload, n));
      }
    }
  } catch (const ParseError& e) {
    throw ParseError(ErrorText{"the report must be one of ncu's that this program understands", origin,
                               cat(e.rule(), e.why().empty() ? "" : ": ", e.why()),
                               cat("ncu --import ", origin,
                                   " --csv --page raw --print-units base > raw.csv; "
                                   "raw.csv is read instead")});
  }
  if (out.launches.empty())
    throw ParseError(ErrorText{"the report has launches", origin, "there is none in it", {}});
  return out;
}

}  // namespace cgp::profile

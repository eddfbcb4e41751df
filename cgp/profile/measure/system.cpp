// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/measure/system.h"

#include <sys/utsname.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>
#include <tuple>

#include "cgp/base/text.h"
#include "cgp/profile/measure/measure.h"

namespace cgp::measure {
namespace {

namespace fs = std::filesystem;

/// Files of /proc have no size, so they are read to their end.
std::optional<std::string> slurp(const std::string& path) {
  std::ifstream in(path);
  if (!in) return std::nullopt;
  std::ostringstream out;
  out << in.rdbuf();
  if (in.bad()) return std::nullopt;
  return out.str();
}

std::optional<std::uint64_t> number(std::string_view s) {
  s = text::trim(s);
  std::uint64_t v = 0;
  const auto end = std::from_chars(s.data(), s.data() + s.size(), v);
  if (end.ec != std::errc()) return std::nullopt;
  return v;
}

/// "Name:  value" lines.
std::map<std::string, std::string, std::less<>> fields(const std::string& content) {
  std::map<std::string, std::string, std::less<>> out;
  for (auto line : text::split(content, '\n'))
    if (const auto colon = line.find(':'); colon != std::string_view::npos)
      out.emplace(text::trim(line.substr(0, colon)), text::trim(line.substr(colon + 1)));
  return out;
}

std::vector<std::string_view> words(std::string_view line) {
  std::vector<std::string_view> out;
  for (auto w : text::split(line, ' '))
    if (!w.empty()) out.push_back(w);
  return out;
}

struct FieldOf {
  Metric metric;
  const char* field;
  double scale;
};

void add_fields(const std::string& path, std::initializer_list<FieldOf> wanted, MetricSet& into) {
  const auto content = slurp(path);
  const auto all = content ? fields(*content) : decltype(fields("")){};
  for (const FieldOf& w : wanted) {
    const auto at = all.find(w.field);
    const auto value = at == all.end() ? std::nullopt : number(at->second);
    if (value)
      into.set(w.metric, double(*value) * w.scale, Source::counted, text::cat(path, " ", w.field));
    else
      into.absent(w.metric,
                  content ? text::cat(path, " has no ", w.field) : text::cat(path, " cannot be read"));
  }
}

int numa_nodes() {
  int n = 0;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator("/sys/devices/system/node", ec)) {
    const std::string name = entry.path().filename();
    n += name.rfind("node", 0) == 0 && name.size() > 4 && std::isdigit(static_cast<unsigned char>(name[4]));
  }
  return n;
}

/// The node of the processor that a process ran on last.
std::optional<std::uint64_t> node_of(const std::string& folder) {
  const auto stat = slurp(folder + "/stat");
  const auto name_end = stat ? stat->rfind(')') : std::string::npos;
  if (name_end == std::string::npos) return std::nullopt;
  const auto w = words(std::string_view(*stat).substr(name_end + 1));  // from the third field on
  const auto cpu = w.size() > 36 ? number(w[36]) : std::nullopt;
  std::error_code ec;
  if (cpu)
    for (const auto& entry : fs::directory_iterator(text::cat("/sys/devices/system/cpu/cpu", *cpu), ec))
      if (const std::string name = entry.path().filename(); name.rfind("node", 0) == 0)
        if (const auto node = number(std::string_view(name).substr(4))) return node;
  return std::nullopt;
}

void add_numa(const std::string& folder, MetricSet& into) {
  if (numa_nodes() == 1) {  // a walk over every page holds the program's mappings: not for what is known
    for (Metric m : {Metric::numa_node, Metric::numa_remote_access_pct})
      into.set(m, 0.0, Source::derived, "the machine has one NUMA node");
    return;
  }
  const auto node = node_of(folder);
  if (node)
    into.set(Metric::numa_node, double(*node), Source::measured, folder + "/stat, processor");
  else
    into.absent(Metric::numa_node, folder + "/stat names no processor of a node");
  const auto maps = slurp(folder + "/numa_maps");
  if (!maps) {
    into.absent(Metric::numa_remote_access_pct, folder + "/numa_maps cannot be read");
    return;
  }
  double here = 0, all = 0;
  for (auto word : words(*maps)) {
    if (word.size() < 3 || word[0] != 'N') continue;
    const auto equal = word.find('=');
    if (equal == std::string_view::npos) continue;
    const auto of_node = number(word.substr(1, equal - 1)), pages = number(word.substr(equal + 1));
    if (!of_node || !pages) continue;
    all += double(*pages);
    if (of_node == node) here += double(*pages);
  }
  if (all > 0)
    into.set(Metric::numa_remote_access_pct, 100 * (all - here) / all, Source::derived,
             "pages by node in numa_maps: where memory lies, not how often it is used");
  else
    into.absent(Metric::numa_remote_access_pct, "numa_maps counts no pages");
}

template <class Map>
std::optional<std::uint64_t> field(const Map& all, const char* name) {
  const auto at = all.find(name);
  return at == all.end() ? std::nullopt : number(at->second);
}

void read_disks(SystemCounters& c) {
  const auto content = slurp("/proc/diskstats");
  if (!content) return;
  std::uint64_t reads = 0, writes = 0;
  for (auto line : text::split(*content, '\n')) {
    const auto w = words(line);
    if (w.size() < 8) continue;
    std::error_code ec;  // partitions count again what their disk counts
    if (!fs::exists(fs::path("/sys/block") / std::string(w[2]), ec)) continue;
    reads += number(w[3]).value_or(0), writes += number(w[7]).value_or(0);
  }
  c.disk_reads = reads, c.disk_writes = writes;
}

/// Of this network namespace, which a program shares unless it makes its own.
void read_network(SystemCounters& c) {
  const auto content = slurp("/proc/self/net/dev");
  if (!content) return;
  std::uint64_t rx = 0, tx = 0;
  for (const auto& [interface, rest] : fields(*content)) {
    const auto w = words(rest);
    if (w.size() < 9 || interface == "lo") continue;
    rx += number(w[0]).value_or(0), tx += number(w[8]).value_or(0);
  }
  c.net_rx = rx, c.net_tx = tx;
}

void read_ticks(SystemCounters& c) {
  const auto content = slurp("/proc/stat");
  if (!content || content->rfind("cpu ", 0) != 0) return;
  const auto w = words(text::split(*content, '\n')[0]);
  std::uint64_t total = 0;
  for (std::size_t i = 1; i < w.size() && i <= 8; ++i) total += number(w[i]).value_or(0);
  c.total = total;
  if (w.size() > 4) c.idle = number(w[4]);
  if (w.size() > 5) c.io_wait = number(w[5]);
  if (w.size() > 8) c.steal = number(w[8]);
}

std::optional<double> rapl_joules() {
  const char* named = std::getenv("CGP_POWERCAP");
  double sum = 0;
  bool any = false;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(named && *named ? named : "/sys/class/powercap", ec)) {
    const std::string name = entry.path().filename();
    if (name.rfind("intel-rapl:", 0) != 0 || std::count(name.begin(), name.end(), ':') != 1) continue;
    if (const auto text = slurp(entry.path() / "energy_uj"))
      if (const auto micro = number(*text)) sum += double(*micro) * 1e-6, any = true;
  }
  return any ? std::optional(sum) : std::nullopt;
}

}  // namespace

void read_process(pid_t pid, MetricSet& into) {
  const std::string folder = pid ? text::cat("/proc/", pid) : "/proc/self";
  const double kib = 1024.0 / 1e6;
  add_fields(folder + "/status",
             {{Metric::rss_mb, "VmRSS", kib},
              {Metric::rss_peak_mb, "VmHWM", kib},
              {Metric::vms_mb, "VmSize", kib},
              {Metric::swap_used_mb, "VmSwap", kib},
              {Metric::voluntary_ctx_switches, "voluntary_ctxt_switches", 1},
              {Metric::involuntary_ctx_switches, "nonvoluntary_ctxt_switches", 1}},
             into);
  add_fields(folder + "/io",
             {{Metric::disk_read_bytes, "read_bytes", 1}, {Metric::disk_write_bytes, "write_bytes", 1}},
             into);
  if (const auto status = slurp(folder + "/status")) {
    const auto all = fields(*status);
    if (const auto at = all.find("Cpus_allowed_list"); at != all.end())
      into.set(Metric::cpu_affinity_mask, at->second, Source::declared, folder + "/status Cpus_allowed_list");
  }
  std::error_code ec;
  double descriptors = 0;
  for (fs::directory_iterator i(folder + "/fd", ec), end; !ec && i != end; i.increment(ec)) ++descriptors;
  if (ec)
    into.absent(Metric::file_descriptors_open, folder + "/fd cannot be read");
  else
    into.set(Metric::file_descriptors_open, descriptors, Source::counted, folder + "/fd");
  add_numa(folder, into);
}

SystemCounters read_system() {
  SystemCounters c;
  c.time = now();
  if (const auto content = slurp("/proc/vmstat")) {
    for (auto line : text::split(*content, '\n')) {
      const auto w = words(line);
      if (w.size() != 2) continue;
      if (w[0] == "pswpin") c.swap_in = number(w[1]);
      if (w[0] == "pswpout") c.swap_out = number(w[1]);
    }
  }
  read_disks(c);
  read_network(c);
  read_ticks(c);
  c.package_joules = rapl_joules();
  return c;
}

void add_system_change(const SystemCounters& before, const SystemCounters& after, MetricSet& into) {
  const double seconds = after.time - before.time;
  const auto change = [&](Metric m, const auto& a, const auto& b, double scale, Source source,
                          const char* from, const char* why) {
    if (a && b && *b >= *a && seconds > 0)
      into.set(m, double(*b - *a) * scale, source, from);
    else
      into.absent(m, why);
  };
  change(Metric::swap_in_count, before.swap_in, after.swap_in, 1, Source::counted,
         "/proc/vmstat, whole machine", "/proc/vmstat has no pswpin");
  change(Metric::swap_out_count, before.swap_out, after.swap_out, 1, Source::counted,
         "/proc/vmstat, whole machine", "/proc/vmstat has no pswpout");
  change(Metric::disk_read_iops, before.disk_reads, after.disk_reads, 1 / seconds, Source::counted,
         "/proc/diskstats, whole machine", "/proc/diskstats cannot be read");
  change(Metric::disk_write_iops, before.disk_writes, after.disk_writes, 1 / seconds, Source::counted,
         "/proc/diskstats, whole machine", "/proc/diskstats cannot be read");
  for (const auto& [metric, a, b] : {std::tuple{Metric::net_rx_bytes, before.net_rx, after.net_rx},
                                     std::tuple{Metric::net_tx_bytes, before.net_tx, after.net_tx}})
    change(metric, a, b, 1, Source::counted, "/proc/net/dev without lo, whole network namespace",
           "/proc/net/dev cannot be read");
  if (before.total && after.total && *after.total > *before.total)
    change(Metric::io_wait_pct, before.io_wait, after.io_wait, 100.0 / double(*after.total - *before.total),
           Source::counted, "/proc/stat, whole machine", "/proc/stat has no such field");
  else
    into.absent(Metric::io_wait_pct, "less than a clock tick passed");
}

std::optional<double> steal_share(const SystemCounters& before, const SystemCounters& after) {
  if (!before.steal || !after.steal || !before.total || !after.total || *after.total <= *before.total)
    return std::nullopt;
  return double(*after.steal - *before.steal) / double(*after.total - *before.total);
}

void add_process_result(const ProcessResult& r, MetricSet& into) {
  const auto put = [&](Metric m, double v, Source source = Source::counted) {
    into.set(m, v, source, "wait4");
  };
  put(Metric::rss_peak_mb, double(r.peak_rss_bytes) / 1e6);
  put(Metric::page_faults_minor, double(r.minor_faults));
  put(Metric::page_faults_major, double(r.major_faults));
  put(Metric::voluntary_ctx_switches, double(r.voluntary_switches));
  put(Metric::involuntary_ctx_switches, double(r.involuntary_switches));
}

std::string MachineFacts::key() const {
  return text::cat(cpu, " x", cores, ", Linux ", kernel, hypervisor.empty() ? "" : ", " + hypervisor);
}

std::string implausible_clock(double mhz, double tsc_mhz) {
  // No processor for x86-64 reaches 7 GHz, and none boosts to five times its time-stamp counter.
  if (mhz >= 200 && mhz <= 7000 && mhz >= 0.1 * tsc_mhz && mhz <= 5 * tsc_mhz) return {};
  return text::cat("the measured ", int(mhz), " MHz cannot be: the time-stamp counter runs at ", int(tsc_mhz),
                   " MHz");
}

void read_processor(MetricSet& into) {
#if defined(__x86_64__)
  double best = 0, tsc_mhz = 0;
  for (int run = 0; run < 8; ++run) {
    constexpr int kMultiplications = 1 << 20, kLatency = 3;
    std::uint64_t product = 3;
    const auto start = std::chrono::steady_clock::now();
    const std::uint64_t ticks = __builtin_ia32_rdtsc();
    // 3 cycles each, one after the other, on all cores since 2008; no core folds a multiplication by itself.
    for (int i = 0; i < kMultiplications / 16; ++i)
      asm volatile(".rept 16\n\timul %0, %0\n\t.endr" : "+r"(product) : : "cc");
    const double elapsed = double(__builtin_ia32_rdtsc() - ticks);
    const std::chrono::duration<double, std::micro> us = std::chrono::steady_clock::now() - start;
    const double mhz = double(kLatency) * kMultiplications / us.count();
    if (mhz > best) best = mhz, tsc_mhz = elapsed / us.count();
  }
  if (const std::string why = implausible_clock(best, tsc_mhz); !why.empty())
    into.absent(Metric::cpu_frequency_mhz, why);
  else
    into.set(Metric::cpu_frequency_mhz, best, Source::measured,
             "a million dependent multiplications of 3 cycles, the fastest of 8");
#else
  into.absent(Metric::cpu_frequency_mhz, "it is measured on x86-64 only");
#endif
  for (int i = 0; i < 16; ++i) {
    const std::string folder = text::cat("/sys/class/hwmon/hwmon", i, "/");
    const auto name = slurp(folder + "name"), degrees = slurp(folder + "temp1_input");
    if (!name || !degrees) continue;
    const auto sensor = text::trim(*name);
    if (sensor != "coretemp" && sensor != "k10temp" && sensor != "zenpower") continue;
    if (const auto v = number(*degrees))
      return into.set(Metric::cpu_temperature_celsius, double(*v) * 1e-3, Source::measured,
                      folder + "temp1_input");
  }
  into.absent(Metric::cpu_temperature_celsius,
              "no sensor of the processor in /sys/class/hwmon (a virtual machine shows none)");
}

MachineFacts machine_facts() {
  MachineFacts m;
  m.cores = std::thread::hardware_concurrency();
  if (const auto content = slurp("/proc/cpuinfo")) {
    const auto all = fields(*content);
    if (const auto at = all.find("model name"); at != all.end()) m.cpu = at->second;
    if (const auto at = all.find("flags"); at != all.end()) {
      const auto flags = words(at->second);
      for (const char* wanted : {"sse2", "avx", "avx2", "fma", "avx512f", "avx512bw", "avx512_vnni",
                                 "avx512_bf16", "amx_tile", "amx_int8", "amx_bf16"})
        if (std::find(flags.begin(), flags.end(), wanted) != flags.end()) m.features.emplace_back(wanted);
      if (std::find(flags.begin(), flags.end(), "hypervisor") != flags.end())
        m.hypervisor = "virtual machine";
    }
  }
  utsname names{};
  if (uname(&names) == 0) m.kernel = names.release;
  for (int i = 0; i < 8; ++i) {
    const std::string folder = text::cat("/sys/devices/system/cpu/cpu0/cache/index", i, "/");
    const auto level = slurp(folder + "level"), type = slurp(folder + "type"), size = slurp(folder + "size");
    if (!level || !type || !size || text::trim(*type) == "Instruction") continue;
    const auto bytes = number(*size);
    if (!bytes) continue;
    const char unit = text::trim(*size).back();
    m.caches.emplace_back(text::cat("L", text::trim(*level), text::trim(*type) == "Data" ? "d" : ""),
                          *bytes << (unit == 'K'   ? 10
                                     : unit == 'M' ? 20
                                                   : 0));
  }
  if (const auto content = slurp("/proc/meminfo"))
    m.memory_bytes = field(fields(*content), "MemTotal").value_or(0) * 1024;
  std::vector<std::string> limits;
  if (const auto cpu = slurp("/sys/fs/cgroup/cpu.max"); cpu && cpu->rfind("max", 0) != 0)
    limits.push_back(text::cat("cpu.max ", text::trim(*cpu)));
  if (const auto memory = slurp("/sys/fs/cgroup/memory.max"); memory && memory->rfind("max", 0) != 0)
    if (const auto bytes = number(*memory)) limits.push_back(text::cat("memory.max ", text::bytes(*bytes)));
  m.cgroup = text::join(limits, ", ");
  m.numa_nodes = numa_nodes();
  return m;
}

}  // namespace cgp::measure

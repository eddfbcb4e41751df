// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/timeline/timeline.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/profile/measure/plausible.h"
#include "cgp/profile/measure/stats.h"
#include "cgp/profile/view/table.h"

namespace cgp::profile {
namespace {

namespace fs = std::filesystem;
using measure::Metric;
using measure::Source;
using nlohmann::json;
using nlohmann::ordered_json;
using text::cat;

constexpr const char* kInjected = "activity records of CUPTI";

/// Names of the calls that cupti_abi.h traces.
std::string api_name(const std::string& domain, std::uint32_t id) {
  static const std::map<std::uint32_t, const char*> runtime{{31, "cudaMemcpy"},
                                                            {41, "cudaMemcpyAsync"},
                                                            {51, "cudaMemsetAsync"},
                                                            {131, "cudaStreamSynchronize"},
                                                            {137, "cudaEventSynchronize"},
                                                            {165, "cudaDeviceSynchronize"},
                                                            {211, "cudaLaunchKernel"},
                                                            {214, "cudaLaunchKernel"},
                                                            {225, "cudaMemcpyAsync"},
                                                            {239, "cudaStreamSynchronize"},
                                                            {269, "cudaLaunchCooperativeKernel"},
                                                            {311, "cudaGraphLaunch"},
                                                            {312, "cudaGraphLaunch"},
                                                            {430, "cudaLaunchKernelExC"},
                                                            {431, "cudaLaunchKernelExC"}};
  static const std::map<std::uint32_t, const char*> driver{{17, "cuCtxSynchronize"},
                                                           {121, "cuEventSynchronize"},
                                                           {126, "cuStreamSynchronize"},
                                                           {276, "cuMemcpyHtoD"},
                                                           {277, "cuMemcpyHtoDAsync"},
                                                           {278, "cuMemcpyDtoH"},
                                                           {279, "cuMemcpyDtoHAsync"},
                                                           {306, "cuMemcpyAsync"},
                                                           {307, "cuLaunchKernel"},
                                                           {418, "cuMemcpyAsync"},
                                                           {421, "cuMemcpyHtoDAsync"},
                                                           {422, "cuMemcpyDtoHAsync"},
                                                           {440, "cuStreamSynchronize"},
                                                           {442, "cuLaunchKernel"},
                                                           {477, "cuLaunchCooperativeKernel"},
                                                           {478, "cuLaunchCooperativeKernel"},
                                                           {514, "cuGraphLaunch"},
                                                           {515, "cuGraphLaunch"},
                                                           {652, "cuLaunchKernelEx"},
                                                           {653, "cuLaunchKernelEx"}};
  const auto& names = domain == "driver" ? driver : runtime;
  const auto at = names.find(id);
  return at == names.end() ? cat(domain, " call ", id) : at->second;
}

bool is_launch(const Activity& a) {
  return a.kind == Activity::Kind::api && a.name.find("Launch") != std::string::npos;
}

/// An event that cannot have happened.
struct Impossible {
  std::string why;
};

/// As nsys and PyTorch name copies and sets; no kernel has such a name.
bool is_named_as_copy(const std::string& name) {
  for (const char* begin : {"[CUDA memcpy", "[CUDA memset", "Memcpy ", "Memset "})
    if (name.rfind(begin, 0) == 0) return true;
  return false;
}

struct TraceReader {
  Timeline& t;
  std::map<int, std::string> names;
  std::map<std::uint64_t, std::uint64_t> live;
  std::uint64_t live_bytes = 0;
  std::size_t first_window = 0;
  std::uint64_t last = 0;  ///< what is known of the process
  std::uint32_t process = 0;

  Activity timed(const json& j, Activity::Kind kind) {
    Activity a;
    a.kind = kind;
    a.start = j.at("t0"), a.end = j.at("t1");
    if (a.end < a.start) throw Impossible{cat("it ends at ", a.end, " ns, before it begins at ", a.start)};
    constexpr std::uint64_t kLongest = 30ull * 24 * 3600 * 1'000'000'000;
    if (a.end - a.start > kLongest) throw Impossible{cat("it lasts ", double(a.end - a.start) * 1e-9, " s")};
    a.device = j.value("dev", 0u), a.stream = j.value("stream", 0u), a.correlation = j.value("corr", 0u);
    a.bytes = j.value("bytes", std::uint64_t(0));
    return a;
  }
  void kernel(const json& j) {
    Activity a = timed(j, Activity::Kind::kernel);
    a.name = j.contains("n") ? names[j["n"].get<int>()] : j.value("name", "");
    a.graph = j.value("graph", 0u), a.process = process;
    a.grid = j.at("grid").get<measure::Triple>(), a.block = j.at("block").get<measure::Triple>();
    for (const auto& [metric, size] :
         {std::pair{Metric::grid_dimensions, a.grid}, {Metric::block_dimensions, a.block}})
      if (const auto why = measure::implausible(metric, size); !why.empty()) throw Impossible{why};
    if (is_named_as_copy(a.name)) throw Impossible{cat("\"", a.name, "\" is a copy, recorded as a kernel")};
    a.registers = j.value("regs", 0u), a.static_shared = j.value("smem_static", 0u);
    a.dynamic_shared = j.value("smem_dyn", 0u), a.local_bytes = j.value("lmem_thread", 0u);
    t.activities.push_back(std::move(a));
  }
  void alloc(const json& j) {
    const std::uint64_t address = j.at("addr"), bytes = j.at("bytes");
    const int op = j.at("op"), kind = j.value("mkind", 3);
    if (kind != 3) return;  // memory of the device only
    if (op == 1) {
      ++t.allocations;
      live[address] = bytes, live_bytes += bytes;
      t.live_bytes_peak = std::max(t.live_bytes_peak, live_bytes);
    } else if (op == 2) {
      const auto at = live.find(address);
      if (at != live.end()) live_bytes -= at->second, live.erase(at);
    }
  }
  void jit(const json& j) {
    const int op = j.at("op");  // 1 cache load, 2 cache store, 3 compile
    if (op == 1) t.jit_loaded = true;
    if (op != 3) return;
    t.jit_compiled = true;
    const Activity compiled = timed(j, Activity::Kind::api);
    t.jit_ms += compiled.us() * 1e-3;
  }
  void range(const json& j) {
    RangeRow r;
    r.name = j.value("name", "");
    r.grid = j.value("grid", measure::Triple{}), r.block = j.value("block", measure::Triple{});
    if (j.contains("values")) {
      r.values = j["values"].get<std::map<std::string, double>>();
    } else {
      for (const auto& [key, value] : j.items())
        if (value.is_number() && key.find("__") != std::string::npos) r.values[key] = value;
    }
    t.passes = std::max(t.passes, j.value("passes", 0));
    t.ranges.push_back(std::move(r));
  }
  void event(const json& j) {
    const std::string ev = j.at("ev");
    if (ev == "kernel") return kernel(j);
    if (ev == "hello") process = j.value("pid", 0u);
    if (ev == "name") return void(names[j.at("id").get<int>()] = j.at("name"));
    if (ev == "alloc") return alloc(j);
    if (ev == "jit") return jit(j);
    if (ev == "range") return range(j);
    if (ev == "plan") return void(t.chip = j.value("chip", ""));
    if (ev == "end") {
      t.complete = true;
      last = std::max(last, j.value("t", std::uint64_t(0)));
      return;
    }
    if (ev == "window") {
      if (j.value("begins", true))
        t.windows.push_back({j.at("t"), 0});
      else if (!t.windows.empty())
        t.windows.back().end = j.at("t");
      last = std::max(last, j.at("t").get<std::uint64_t>());
      return;
    }
    if (ev == "limit") return void(t.counted_only = j.value("launches", std::uint64_t(0)));
    if (ev == "dropped") return void(t.dropped += j.value("n", std::uint64_t(0)));
    if (ev == "overhead") return void(t.overhead_ms += timed(j, Activity::Kind::api).us() * 1e-3);
    if (ev == "error") return t.errors.push_back(cat(j.value("where", ""), ": ", j.value("text", "")));
    if (ev == "memcpy") {
      Activity a = timed(j, Activity::Kind::copy);
      a.copy_kind = j.value("kind", 0u);
      a.pageable = j.value("src", 0u) == 1 || j.value("dst", 0u) == 1;
      a.name = copy_name(a.copy_kind);
      t.activities.push_back(std::move(a));
    } else if (ev == "memset") {
      Activity a = timed(j, Activity::Kind::set);
      a.name = "set";
      t.activities.push_back(std::move(a));
    } else if (ev == "api") {
      Activity a = timed(j, Activity::Kind::api);
      a.name = api_name(j.value("domain", "driver"), j.at("cbid"));
      a.thread = j.value("tid", std::uint64_t(0));
      t.activities.push_back(std::move(a));
    } else if (ev == "sync") {
      Activity a = timed(j, Activity::Kind::sync);
      a.name = "wait";
      t.activities.push_back(std::move(a));
    }
  }
};

/// The parts that were recorded, of all processes: what two have in common is one part.
std::vector<Timeline::Window> parts_of(const Timeline& t) {
  std::vector<Timeline::Window> parts;
  auto windows = t.windows;
  std::sort(windows.begin(), windows.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  for (auto w : windows) {
    if (w.end == 0) w.end = ~0ull;
    if (!parts.empty() && w.begin <= parts.back().end)
      parts.back().end = std::max(parts.back().end, w.end);
    else
      parts.push_back(w);
  }
  return parts;
}

double median_or_nan(const std::vector<double>& v) { return v.empty() ? std::nan("") : measure::median(v); }

}  // namespace

const char* copy_name(std::uint32_t kind) {
  return kind == 1 ? "copy to the GPU" : kind == 2 ? "copy from the GPU" : "copy";
}

void read_events(const std::string& text, Timeline& into) {
  TraceReader reader{into, {}, {}, 0, into.windows.size(), 0, 0};
  into.complete = false;
  const auto lines = text::split(text, '\n');
  std::size_t bad = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (text::trim(lines[i]).empty()) continue;
    try {
      reader.event(json::parse(lines[i]));
    } catch (const json::exception& e) {
      const bool cut_off = i + 1 == lines.size();
      if (!cut_off && bad++ < 3) into.errors.push_back(cat("line ", i + 1, " is no event: ", e.what()));
    } catch (const Impossible& e) {
      if (bad++ < 3) into.errors.push_back(cat("the event of line ", i + 1, " is left out: ", e.why));
    }
  }
  if (bad > 3) into.errors.push_back(cat(bad - 3, " more lines are no events or cannot have happened"));
  if (reader.first_window < into.windows.size()) {
    for (const auto& a : into.activities) reader.last = std::max(reader.last, a.end);
    for (std::size_t i = reader.first_window; i < into.windows.size(); ++i) {
      const auto& w = into.windows[i];
      into.recorded_ns += (w.end ? w.end : std::max(reader.last, w.begin)) - w.begin;
    }
    into.lasted_ns += reader.last - std::min(reader.last, into.windows[reader.first_window].begin);
  }
  std::stable_sort(into.activities.begin(), into.activities.end(),
                   [](const Activity& a, const Activity& b) { return a.start < b.start; });
}

std::string recorded_text(const Timeline& t) {
  if (t.recorded_percent() >= 100) return {};
  return cat(
      profile::number_text(t.recorded_percent()), " % of the time was recorded (",
      profile::time_text(double(t.recorded_ns) * 1e-3), " in ", parts_of(t).size(),
      " parts), so that the program is slowed by less than 5 %; launches, sums and shares are of these "
      "parts (--record all records everything)");
}

std::vector<std::string> notes_of(const Timeline& t) {
  std::vector<std::string> out = t.errors;
  if (const auto part = recorded_text(t); !part.empty()) out.push_back(part);
  if (t.dropped) out.push_back(cat(t.dropped, " records were dropped"));
  if (t.counted_only)
    out.push_back(cat("counters are those of the first ", t.counted_only,
                      " launches, and more came (--launches counts more)"));
  if (!t.complete) out.emplace_back("a recording has no end: what its process did last may be missing");
  return out;
}

Timeline part_of(const Timeline& t, std::uint64_t begin, std::uint64_t end) {
  Timeline part;
  for (const auto& a : t.activities)
    if (a.start >= begin && (end == 0 || a.end <= end)) part.activities.push_back(a);
  return part;
}

Timeline read_timeline(const std::string& prefix) {
  Timeline t;
  const fs::path path(prefix);
  const std::string begin = path.filename().string() + ".";
  std::vector<std::string> files;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(path.has_parent_path() ? path.parent_path() : ".", ec))
    if (entry.path().filename().string().rfind(begin, 0) == 0) files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  bool complete = true;
  for (const auto& f : files) {
    read_events(read_file(f), t);
    complete &= t.complete;
  }
  t.complete = complete;
  return t;
}

TimelineSummary summarise(const Timeline& t) {
  TimelineSummary s;
  std::uint64_t first = ~0ull, last = 0, busy_until = 0;
  std::map<std::uint32_t, const Activity*> calls;
  std::map<std::string, double> by_name;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> stream_end;
  std::vector<double> launch_us, latency_us, gaps_us, kernel_us;
  const auto parts = parts_of(t);
  auto part = parts.begin();
  s.recorded_percent = t.recorded_percent(), s.parts = parts.size();
  const auto close = [&] {
    if (last > first && first != ~0ull) s.span_ms += double(last - first) * 1e-6;
    first = ~0ull, last = 0, busy_until = 0, stream_end.clear();
  };
  for (const auto& a : t.activities)
    if (is_launch(a)) calls[a.correlation] = &a;
  for (const auto& a : t.activities) {
    for (; part != parts.end() && a.start > part->end; ++part)
      close();  // nothing is known of the time between them
    if (is_launch(a)) {
      // A runtime call contains the driver's: the outer one alone is counted.
      if (a.name.rfind("cuda", 0) != 0 && calls[a.correlation] != &a) continue;
      s.launch_api_ms += a.us() * 1e-3;
      launch_us.push_back(a.us());
      s.graph_launches += a.name.find("Graph") != std::string::npos;
    }
    if (!a.on_gpu()) continue;
    s.copies += a.kind == Activity::Kind::copy;
    first = std::min(first, a.start), last = std::max(last, a.end);
    const std::uint64_t idle_since = busy_until;
    if (busy_until && a.start > busy_until && double(a.start - busy_until) * 1e-6 > s.longest_gap_ms)
      s.longest_gap_ms = double(a.start - busy_until) * 1e-6, s.after_longest_gap = a.name;
    if (a.end > busy_until) {
      s.busy_ms += double(a.end - std::max(a.start, busy_until)) * 1e-6;
      busy_until = a.end;
    }
    auto& end = stream_end[{a.device, a.stream}];
    if (end && a.start >= end) gaps_us.push_back(double(a.start - end) * 1e-3);
    end = std::max(end, a.end);
    if (a.kind != Activity::Kind::kernel) continue;
    ++s.launches;
    s.kernel_ms += a.us() * 1e-3, by_name[a.name] += a.us() * 1e-3;
    kernel_us.push_back(a.us());
    const auto call = calls.find(a.correlation);
    // Only launches that found the GPU idle: others wait for the work before them.
    if (call != calls.end() && call->second->start >= idle_since && a.start >= call->second->start)
      latency_us.push_back(double(a.start - call->second->start) * 1e-3);
  }
  close();
  s.launch_us = median_or_nan(launch_us), s.latency_us = median_or_nan(latency_us);
  s.gap_us = median_or_nan(gaps_us);
  if (launch_us.empty()) s.launch_api_ms = std::nan("");
  for (const auto& [name, ms] : by_name)
    if (s.kernel_ms > 0 && 100 * ms / s.kernel_ms > s.dominant_percent)
      s.dominant = name, s.dominant_percent = 100 * ms / s.kernel_ms;
  const double each_us = median_or_nan(kernel_us);
  s.launch_bound = s.launches >= 20 && s.idle_percent() > 50 && each_us < 50 && s.gap_us > each_us;
  return s;
}

std::vector<KernelUse> kernels_of(const Timeline& t, const std::string& counted_by) {
  std::map<std::string, KernelUse> all;
  for (const auto& a : t.activities) {
    if (a.kind != Activity::Kind::kernel) continue;
    KernelUse& k = all[a.name];
    if (!k.launches++) {
      k.name = a.name, k.grid = a.grid, k.block = a.block;
      k.registers = a.registers, k.static_shared = a.static_shared, k.dynamic_shared = a.dynamic_shared;
      k.local_bytes = a.local_bytes;
    }
    k.us.push_back(a.us());
  }
  std::map<std::pair<std::string, std::string>, int> counted;
  for (const auto& r : t.ranges) {
    KernelUse& k = all[r.name];
    if (k.name.empty()) k.name = r.name, k.grid = r.grid, k.block = r.block;
    for (const auto& [metric, v] : r.values)
      k.counters[metric] += (v - k.counters[metric]) / ++counted[{r.name, metric}];
    const auto time = r.values.find("gpu__time_duration.sum");
    if (time != r.values.end() && t.activities.empty()) ++k.launches, k.us.push_back(time->second * 1e-3);
  }
  std::vector<KernelUse> out;
  for (auto& [name, k] : all) {
    if (!k.counters.empty()) counters_to_metrics(k.counters, k.metrics, counted_by);
    k.metrics.set(Metric::grid_dimensions, k.grid, Source::declared, "the launch");
    k.metrics.set(Metric::block_dimensions, k.block, Source::declared, "the launch");
    if (k.registers)
      k.metrics.set(Metric::register_usage_per_thread, double(k.registers), Source::declared, kInjected);
    if (!k.us.empty()) {
      const std::string timed_by = t.activities.empty() ? counted_by : kInjected;
      k.metrics.set(Metric::wall_clock_time_us, measure::median(k.us), Source::measured, timed_by);
      k.metrics.set(Metric::samples, double(k.us.size()), Source::counted, timed_by);
      if (const double operations = counted_operations(k.counters); operations > 0)
        k.metrics.set(Metric::gflops, operations / measure::median(k.us) * 1e-3, Source::derived,
                      counted_by + ": operations over wall_clock_time_us");
    }
    out.push_back(std::move(k));
  }
  std::sort(out.begin(), out.end(),
            [](const KernelUse& a, const KernelUse& b) { return a.total_us() > b.total_us(); });
  return out;
}

void add_metrics(const Timeline& t, measure::MetricSet& into) {
  double bytes[3] = {}, seconds[3] = {};
  for (const auto& a : t.activities)
    if (a.kind == Activity::Kind::copy && (a.copy_kind == 1 || a.copy_kind == 2))
      bytes[a.copy_kind] += double(a.bytes), seconds[a.copy_kind] += a.us() * 1e-6;
  const auto rate = [&](Metric m, int kind, const char* none) {
    if (seconds[kind] > 0)
      into.set(m, bytes[kind] / seconds[kind] * 1e-9, Source::measured, kInjected);
    else
      into.absent(m, none);
  };
  rate(Metric::h2d_bandwidth_gbps, 1, "nothing was copied to the GPU");
  rate(Metric::d2h_bandwidth_gbps, 2, "nothing was copied from the GPU");
  if (t.recorded_percent() < 100) {
    for (Metric m : {Metric::vram_peak_mb, Metric::vram_allocation_count})
      into.absent(m, "the program was recorded in parts (--record all)");
  } else {
    into.set(Metric::vram_peak_mb, double(t.live_bytes_peak) * 1e-6, Source::counted, kInjected);
    into.set(Metric::vram_allocation_count, double(t.allocations), Source::counted, kInjected);
  }
  if (t.jit_compiled)
    into.set(Metric::ptx_jit_time_ms, t.jit_ms, Source::measured, kInjected);
  else
    into.absent(Metric::ptx_jit_time_ms, "no PTX was compiled");
  if (t.jit_compiled || t.jit_loaded)
    into.set(Metric::ptx_cache_hit, !t.jit_compiled, Source::counted, kInjected);
  else
    into.absent(Metric::ptx_cache_hit, "no PTX was compiled or loaded from a cache");
}

void counters_to_metrics(const std::map<std::string, double>& c, measure::MetricSet& into,
                         const std::string& from) {
  const auto value = [&](const std::string& name) {
    const auto at = c.find(name);
    return at == c.end() ? std::nan("") : at->second;
  };
  const auto put = [&](Metric m, double v, Source source = Source::counted) {
    if (std::isfinite(v)) into.set(m, v, source, from);
  };
  const auto op = [&](const char* name) {
    return value(std::string("smsp__sass_thread_inst_executed_op_") + name + "_pred_on.sum");
  };
  const auto stalled = [&](const char* reason) {
    return value(std::string("smsp__warps_issue_stalled_") + reason + ".sum");
  };
  put(Metric::wall_clock_time_us, value("gpu__time_duration.sum") * 1e-3, Source::measured);
  put(Metric::achieved_occupancy_pct, value("sm__warps_active.avg.pct_of_peak_sustained_active"));
  put(Metric::tensor_core_utilization_pct,
      value("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"));
  for (const char* lanes : {"smsp__thread_inst_executed_per_inst_executed.ratio",  // ncu's name, and CUPTI's
                            "smsp__average_thread_inst_executed_per_inst_executed.ratio"})
    put(Metric::warp_execution_efficiency_pct, value(lanes) / 32 * 100);
  put(Metric::sm_utilization_pct, value("sm__throughput.avg.pct_of_peak_sustained_elapsed"));
  put(Metric::ipc, value("sm__inst_executed.avg.per_cycle_active"));
  put(Metric::dram_throughput_pct, value("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"));
  put(Metric::register_usage_per_thread, value("launch__registers_per_thread"), Source::declared);
  put(Metric::shared_memory_per_block,
      value("launch__shared_mem_per_block_static") + value("launch__shared_mem_per_block_dynamic"),
      Source::declared);
  put(Metric::divergent_branches, value("smsp__sass_branch_targets_threads_divergent.sum"));
  // 0 where there is no branch, too: then the number of divergent ones must say that all of them part.
  constexpr const char* uniform = "smsp__sass_average_branch_targets_threads_uniform.pct";
  if (value(uniform) > 0 || value("smsp__sass_branch_targets_threads_divergent.sum") > 0)
    put(Metric::branch_efficiency_pct, value(uniform));
  else if (c.count(uniform))
    into.absent(Metric::branch_efficiency_pct, "no branch was executed");
  put(Metric::l1_hit_rate_pct, value("l1tex__t_sector_hit_rate.pct"));
  put(Metric::l2_hit_rate_pct, value("lts__t_sector_hit_rate.pct"));
  // The counter is 0 where nothing went that way, as with bulk copies by TMA: that is no efficiency of 0.
  for (const auto& [metric, name] :
       {std::pair{Metric::global_load_efficiency_pct,
                  "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct"},
        std::pair{Metric::global_store_efficiency_pct,
                  "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct"}}) {
    if (value(name) > 0)
      put(metric, value(name));
    else if (c.count(name))
      into.absent(metric, "no global memory instruction of this kind was executed (TMA is not counted here)");
  }
  put(Metric::shared_bank_conflicts, value("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"));
  put(Metric::flop32_ops, op("fadd") + op("fmul") + 2 * op("ffma"));
  put(Metric::flop16_ops, 2 * (op("hadd") + op("hmul") + 2 * op("hfma")));
  put(Metric::barrier_stall_cycles, stalled("barrier"));
  put(Metric::memory_stall_cycles, stalled("long_scoreboard") + stalled("short_scoreboard") +
                                       stalled("lg_throttle") + stalled("mio_throttle") +
                                       stalled("tex_throttle"));
  put(Metric::pipeline_bubbles, value("smsp__issue_inst0.sum"));
  put(Metric::warp_scheduler_idle_pct, 100 - value("smsp__issue_active.avg.pct_of_peak_sustained_active"));
  const double dram = value("dram__bytes_read.sum") + value("dram__bytes_write.sum");
  const double operations = counted_operations(c);
  if (dram > 0 && operations > 0)
    into.set(Metric::arithmetic_intensity, operations / dram, Source::derived,
             from + ": operations over DRAM bytes");
}

double counted_operations(const std::map<std::string, double>& c) {
  const auto value = [&](const std::string& name, double otherwise) {
    const auto at = c.find(name);
    return at == c.end() ? otherwise : at->second;
  };
  const auto of_type = [&](char type, double otherwise) {
    double sum = 0;
    for (const auto& [name, each] : {std::pair{"add", 1}, {"mul", 1}, {"fma", 2}})
      sum += each * value(cat("smsp__sass_thread_inst_executed_op_", type, name, "_pred_on.sum"), otherwise);
    return sum;
  };
  double operations = of_type('f', std::nan("")) + of_type('d', std::nan(""));
  // Instructions on halves work on two; compilers move constants with them too, which are no operations.
  if (const double halves = 2 * of_type('h', 0); halves > operations) operations += halves;
  bool tensors = false;
  for (const auto& [name, n] : c)
    if (name.rfind("sm__ops_path_tensor_src_", 0) == 0) operations += n, tensors = true;
  const double busy = value("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", 0);
  return busy > 0 && !tensors ? std::nan("") : operations;
}

ordered_json to_json(const TimelineSummary& s) {
  return {{"launches", s.launches},
          {"graph_launches", s.graph_launches},
          {"copies", s.copies},
          {"recorded_pct", s.recorded_percent},
          {"span_ms", s.span_ms},
          {"gpu_busy_ms", s.busy_ms},
          {"gpu_idle_pct", s.idle_percent()},
          {"kernel_ms", s.kernel_ms},
          {"launch_api_ms", s.launch_api_ms},
          {"launch_call_us", s.launch_us},
          {"longest_gap_ms", s.longest_gap_ms},
          {"after_longest_gap", s.after_longest_gap},
          {"launch_latency_us", s.latency_us},
          {"gap_us", s.gap_us},
          {"launch_bound", s.launch_bound},
          {"dominant_kernel", s.dominant},
          {"dominant_pct", s.dominant_percent}};
}

}  // namespace cgp::profile

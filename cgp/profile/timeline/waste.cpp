// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/timeline/waste.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/profile/measure/stats.h"
#include "cgp/profile/view/table.h"
#include "cgp/spec/report/style.h"

namespace cgp::profile {
namespace {

using fmt::format;
using measure::Metric;
using measure::Source;

double share(double part, double all) { return all > 0 ? std::clamp(100 * part / all, 0.0, 100.0) : 0; }

/// Of the device that a module is for; of an H200 where the emulator models none.
double multiprocessors(const std::string& target) {
  try {
    return emu::device_properties(target).sm_count;
  } catch (const Unsupported&) {
    return 132;
  }
}

/// The instruction at which `cost` is largest, as "line 12: ld.global.f32 ...".
template <class Cost>
std::string culprit(const emu::Counters& c, const emu::Program& program, Cost cost) {
  std::size_t worst = 0;
  double most = 0;
  for (std::size_t i = 0; i < c.per_pc.size() && i < program.instruction_count(); ++i)
    if (const double x = cost(c.per_pc[i]); x > most) most = x, worst = i;
  if (most <= 0) return {};
  const auto at = program.instruction(worst);
  return at.file.empty() ? format("PTX line {}: {}", at.ptx_line, at.text)
                         : format("{}:{}: {}", at.file, at.line, at.text);
}

}  // namespace

std::vector<Waste> timeline_waste(const TimelineSummary& s, const std::vector<KernelUse>& kernels) {
  std::vector<Waste> out;
  if (s.launch_bound)
    out.push_back(
        {"waiting", "launch-bound", s.dominant,
         format("the GPU is idle for {:.0f} % of {}: {} launches, {} apart, each call {}", s.idle_percent(),
                time_text(s.span_ms * 1e3), s.launches, time_text(s.gap_us), time_text(s.launch_us)),
         "record the work as a CUDA graph, fuse small kernels, or give each launch more work",
         s.idle_percent(), Source::measured});
  else if (s.launches > 0 && s.idle_percent() > 50)
    out.push_back(
        {"waiting", "idle GPU", "",
         format("the GPU is idle for {:.0f} % of {}; the longest gap, {}, is before {}", s.idle_percent(),
                time_text(s.span_ms * 1e3), time_text(s.longest_gap_ms * 1e3),
                fitted(short_name(s.after_longest_gap), 48)),
         "see what the host does there (cgp trace --perfetto): what is loaded, allocated or copied once "
         "belongs before the loop",
         s.idle_percent(), Source::measured});
  for (const auto& k : kernels) {
    double slowest = 0;
    for (double t : k.us) slowest = std::max(slowest, t);
    if (k.us.size() >= 10 && slowest > 5 * measure::median(k.us) && s.kernel_ms > 0)
      out.push_back({"overproduction", "uneven launches", k.name,
                     format("{} launches take {} in the median, the slowest {}", k.us.size(),
                            time_text(measure::median(k.us)), time_text(slowest)),
                     "look at the sizes that this kernel is launched with",
                     share(k.total_us() - double(k.us.size()) * measure::median(k.us), s.kernel_ms * 1e3),
                     Source::measured});
    auto all = metric_waste(k.metrics, k.name);
    for (auto& w : counter_waste(k)) all.push_back(std::move(w));
    for (auto& w : all) {
      w.percent *= s.kernel_ms > 0 ? std::min(1.0, k.total_us() / (s.kernel_ms * 1e3)) : 1;
      if (w.percent >= 0.5) out.push_back(std::move(w));
    }
  }
  return out;
}

std::vector<Waste> counter_waste(const KernelUse& k) {
  std::vector<Waste> out;
  const auto value = [&](const std::string& name) {
    const auto at = k.counters.find(name);
    return at == k.counters.end() ? 0.0 : at->second;
  };
  const double local = value("smsp__sass_inst_executed_op_local_ld.sum") +
                       value("smsp__sass_inst_executed_op_local_st.sum"),
               issued = std::max(value("sm__inst_executed.sum"), value("smsp__inst_executed.sum"));
  if (local > 0)
    out.push_back(
        {"transport", "spills or local arrays", k.name,
         issued > 0 ? format("{} of {} warp instructions access local memory", number_text(local),
                             number_text(issued))
                    : format("{} warp instructions access local memory", number_text(local)),
         "fewer live values per thread, a higher register limit, or indices that the compiler knows",
         issued > 0 ? share(2 * local, issued + local) : 10.0, Source::counted});
  // Of the time of the busiest SM the others work a part.
  const double active = value("sm__cycles_active.avg"), busiest = value("sm__cycles_active.max");
  if (busiest > 0 && share(busiest - active, busiest) >= 20) {
    const std::uint64_t blocks = std::uint64_t(k.grid[0]) * k.grid[1] * k.grid[2];
    const bool few = blocks > 0 && blocks <= 128;  // fewer than there are SMs, on most
    out.push_back(
        {few ? "inventory" : "overproduction", few ? "idle SMs" : "imbalance", k.name,
         format("an SM works for {:.0f} % of the time of the busiest one, {} blocks in all",
                100 * active / busiest, blocks),
         few ? "more and smaller blocks, or the work of one split along the sum"
             : "blocks of equal work, the long ones first, or blocks that take work as they become free",
         share(busiest - active, busiest), Source::counted});
  }
  // What warps waited for, of all that they waited for; in the share of cycles in which nothing was issued.
  double all = 0, barrier = 0, memory = 0;
  const std::string stalled = "smsp__warps_issue_stalled_";
  for (const auto& [name, v] : k.counters) {
    if (name.rfind(stalled, 0) != 0 || !(v >= 0)) continue;
    const std::string reason = name.substr(stalled.size(), name.find(".sum") - stalled.size());
    if (reason == "selected" || reason == "not_selected") continue;
    all += v;
    barrier += reason == "barrier" ? v : 0;
    for (const char* m :
         {"long_scoreboard", "lg_throttle", "mio_throttle", "short_scoreboard", "tex_throttle"})
      memory += reason == m ? v : 0;
  }
  const bool known = k.counters.count("smsp__issue_active.avg.pct_of_peak_sustained_active");
  const double idle =
      known ? std::clamp(100 - value("smsp__issue_active.avg.pct_of_peak_sustained_active"), 0.0, 100.0)
            : 50.0;
  if (share(barrier, all) >= 20)
    out.push_back(
        {"waiting", "barriers", k.name,
         format("{:.0f} % of what warps wait for are barriers; nothing is issued in {:.0f} % of the cycles",
                share(barrier, all), idle),
         "more work between barriers: larger tiles, or warps that synchronise among themselves",
         idle * barrier / all, Source::counted});
  if (share(memory, all) >= 50 && idle >= 50)
    out.push_back(
        {"waiting", "memory latency", k.name,
         format("{:.0f} % of what warps wait for is memory; nothing is issued in {:.0f} % of the cycles",
                share(memory, all), idle),
         "more loads under way: wider loads, prefetching, asynchronous copies, more warps; at the "
         "bandwidth's ceiling fewer bytes",
         idle * memory / all, Source::counted});
  return out;
}

/// Values that come as f32 and leave as f32, computed as f64 between: a constant without its suffix is
/// enough.
struct DoubleDetour {
  double widened = 0, narrowed = 0, doubles = 0;
  double all() const { return widened > 0 && narrowed > 0 && doubles > 0 ? widened + narrowed + doubles : 0; }
};
DoubleDetour double_detour(const emu::Counters& c) {
  DoubleDetour d;
  const auto starts = [](const std::string& s, const char* begin) { return s.rfind(begin, 0) == 0; };
  for (const auto& [opcode, n] : c.by_opcode) {
    const bool cvt = starts(opcode, "cvt.");
    if (cvt && opcode.find(".f64.f32") != std::string::npos) d.widened += double(n);
    if (cvt && opcode.find(".f32.f64") != std::string::npos) d.narrowed += double(n);
    for (const char* op : {"add.", "sub.", "mul.", "fma.", "div.", "sqrt.", "rcp."})
      if (starts(opcode, op) && opcode.find(".f64") != std::string::npos) d.doubles += double(n);
  }
  return d;
}
void add_double_detour(const emu::Counters& c, const emu::Program& program, const std::string& kernel,
                       std::vector<Waste>& out) {
  const DoubleDetour detour = double_detour(c);
  const double issued = double(c.warp_instructions);
  if (!(detour.all() > 0) || share(detour.all(), issued) < 3) return;
  std::size_t worst = 0;
  std::uint64_t most = 0;
  for (std::size_t i = 0; i < c.per_pc.size() && i < program.instruction_count(); ++i)
    if (c.per_pc[i].issues > most && program.instruction(i).text.find(".f64.f32") != std::string::npos)
      most = c.per_pc[i].issues, worst = i;
  const auto at = program.instruction(worst);
  out.push_back(
      {"overprocessing", "f32 computed as f64", kernel,
       format("{} instructions compute in double precision between {} conversions from f32 and {} back; "
              "first at {}",
              text::grouped(std::uint64_t(detour.doubles)), text::grouped(std::uint64_t(detour.widened)),
              text::grouped(std::uint64_t(detour.narrowed)),
              at.file.empty() ? format("PTX line {}: {}", at.ptx_line, at.text)
                              : format("{}:{}: {}", at.file, at.line, at.text)),
       "constants with an f suffix, and functions of float; f64 runs at 1/2 of f32's rate on data-centre "
       "GPUs and 1/64 on others",
       share(detour.all(), issued), Source::counted});
}

void emulator_metrics(const emu::Counters& c, measure::MetricSet& m) {
  const std::string from = "the emulator's exact counters";
  const auto put = [&](Metric id, double v) { m.set(id, v, Source::counted, from); };
  const auto ratio = [&](Metric id, double part, double all, const char* none) {
    if (all > 0)
      put(id, std::min(100.0, 100 * part / all));
    else
      m.absent(id, none);
  };
  ratio(Metric::warp_execution_efficiency_pct, double(c.thread_instructions),
        32 * double(c.warp_instructions), "no instruction was executed");
  ratio(Metric::branch_efficiency_pct, double(c.branches - c.divergent_branches), double(c.branches),
        "the kernel has no branches");
  ratio(Metric::global_load_efficiency_pct, double(c.global_load_bytes), 32 * double(c.global_load_sectors),
        "the kernel loads nothing from global memory");
  ratio(Metric::global_store_efficiency_pct, double(c.global_store_bytes),
        32 * double(c.global_store_sectors), "the kernel stores nothing to global memory");
  ratio(Metric::shared_load_efficiency_pct, double(c.shared_load_wavefronts - c.shared_load_conflicts),
        double(c.shared_load_wavefronts), "the kernel loads nothing from shared memory");
  ratio(Metric::shared_store_efficiency_pct, double(c.shared_store_wavefronts - c.shared_store_conflicts),
        double(c.shared_store_wavefronts), "the kernel stores nothing to shared memory");
  put(Metric::shared_bank_conflicts,
      double(c.shared_load_conflicts + c.shared_store_conflicts + c.shared_atomic_conflicts));
  put(Metric::divergent_branches, double(c.divergent_branches));
  ratio(Metric::precision_waste_pct, double_detour(c).all(), double(c.warp_instructions),
        "no instruction was executed");
  for (Metric id :
       {Metric::achieved_occupancy_pct, Metric::ipc, Metric::dram_throughput_pct, Metric::l1_hit_rate_pct,
        Metric::l2_hit_rate_pct, Metric::wall_clock_time_us, Metric::barrier_stall_cycles,
        Metric::memory_stall_cycles, Metric::tensor_core_utilization_pct})
    m.absent(id, "the emulator has exact counts and no clock; on a GPU: --device cuda");
}

std::vector<Waste> emulator_waste(const emu::Counters& c, const emu::Program& program,
                                  const std::string& kernel) {
  std::vector<Waste> out;
  const double issued = double(c.warp_instructions);
  const double conflicts =
      double(c.shared_load_conflicts + c.shared_store_conflicts + c.shared_atomic_conflicts);
  const double wavefronts =
      double(c.shared_load_wavefronts + c.shared_store_wavefronts) + double(c.shared_atomic_conflicts);
  const double sectors = double(c.global_load_sectors + c.global_store_sectors);
  const double bytes = double(c.global_load_bytes + c.global_store_bytes);
  // Time is taken as issue slots plus the passes of memory beyond one per request: what a counter can say
  // about cost without a clock.
  const double extra_sectors = std::max(0.0, sectors - bytes / 32);
  const double slots = issued + conflicts + extra_sectors / 4;
  if (conflicts > 0 && share(conflicts, wavefronts) >= 5)
    out.push_back({"transport", "bank conflicts", kernel,
                   format("{} of {} passes of shared memory are repeats; worst at {}",
                          text::grouped(std::uint64_t(conflicts)), text::grouped(std::uint64_t(wavefronts)),
                          culprit(c, program, [](const emu::PcCounters& p) { return double(p.conflicts); })),
                   "pad rows by one element, or swizzle the columns, so that the 32 lanes meet 32 banks",
                   share(conflicts, slots)});
  if (sectors > 0 && bytes / (32 * sectors) < 0.5)
    out.push_back(
        {"transport", "uncoalesced access", kernel,
         format("{:.0f} % of the bytes that are moved are used ({} sectors for {}); worst at {}",
                100 * bytes / (32 * sectors), text::grouped(std::uint64_t(sectors)),
                text::bytes(std::uint64_t(bytes)),
                culprit(c, program,
                        [](const emu::PcCounters& p) { return double(p.sectors) - double(p.bytes) / 32; })),
         "let neighbouring threads access neighbouring elements; stage a transposed tile in shared memory",
         share(extra_sectors / 4, slots)});
  if (const double local = double(c.local_load_requests + c.local_store_requests); local > 0)
    out.push_back(
        {"transport", "spills or local arrays", kernel,
         format("{} accesses to local memory", text::grouped(std::uint64_t(local))),
         "fewer live values per thread, a higher register limit, or indices that the compiler knows",
         share(2 * local, slots + local)});
  const double idle_lanes = 32 * issued - double(c.thread_instructions);
  if (c.divergent_branches > 0 && share(idle_lanes, 32 * issued) >= 5)
    out.push_back({"motion", "divergence", kernel,
                   format("{} of {} branches split their warp; {:.0f} % of the lanes idle; worst at {}",
                          text::grouped(c.divergent_branches), text::grouped(c.branches),
                          share(idle_lanes, 32 * issued),
                          culprit(c, program, [](const emu::PcCounters& p) { return double(p.divergent); })),
                   "branch on what is equal within a warp, or compute both sides and select",
                   share(idle_lanes, 32 * issued)});
  else if (share(idle_lanes, 32 * issued) >= 15)
    out.push_back({"overproduction", "idle lanes", kernel,
                   format("{:.0f} % of the lanes of issued instructions are switched off",
                          share(idle_lanes, 32 * issued)),
                   "block and tile sizes that divide the problem", share(idle_lanes, 32 * issued)});
  // The time is at least that of the busiest block, and of all work on all SMs.
  if (c.blocks >= 8) {
    const double sms = multiprocessors(program.target()), each = double(c.block_steps) / sms,
                 mean = double(c.block_steps) / double(c.blocks), longest = double(c.busiest_block_steps);
    const double lost = share(std::max(longest, each) - std::max(mean, each), std::max(longest, each));
    if (lost >= 20)
      out.push_back(
          {"overproduction", "imbalance", kernel,
           format("the busiest of {} blocks executes {:.1f} times what they do in the mean", c.blocks,
                  longest / mean),
           "blocks of equal work, the long ones first, or blocks that take work as they become free", lost});
  }
  add_double_detour(c, program, kernel, out);
  if (double(c.barriers) > 0.05 * issued)
    out.push_back({"waiting", "barriers", kernel,
                   format("{} of {} warp instructions are barriers", text::grouped(c.barriers),
                          text::grouped(c.warp_instructions)),
                   "more work between barriers: larger tiles, or warps that synchronise among themselves",
                   share(double(c.barriers) * 4, issued + 4 * double(c.barriers))});
  return out;
}

std::vector<Waste> metric_waste(const measure::MetricSet& m, const std::string& kernel) {
  std::vector<Waste> out;
  const auto below = [&](Metric id, double limit) { return m.has(id) && m[id].number() < limit; };
  const auto value = [&](Metric id) { return m[id].number(); };
  for (const auto& [id, what] : {std::pair{Metric::global_load_efficiency_pct, "loads"},
                                 std::pair{Metric::global_store_efficiency_pct, "stores"}})
    if (below(id, 50) && value(id) > 0)
      out.push_back({"transport", "uncoalesced access", kernel,
                     format("{:.0f} % of the bytes that global {} move are used", value(id), what),
                     "let neighbouring threads access neighbouring elements", (100 - value(id)) / 2,
                     m[id].source});
  if (m.has(Metric::register_spills) && value(Metric::register_spills) > 0)
    out.push_back({"transport", "spills", kernel,
                   format("{:.0f} bytes of registers are spilled per thread", value(Metric::register_spills)),
                   "fewer live values per thread, or a higher register limit", 10,
                   m[Metric::register_spills].source});
  const bool parted = m.has(Metric::divergent_branches) && value(Metric::divergent_branches) > 0;
  if (parted && below(Metric::warp_execution_efficiency_pct, 90))
    out.push_back(
        {"motion", "divergence", kernel,
         format("{} branches split their warp; {:.0f} % of the lanes work",
                number_text(value(Metric::divergent_branches)), value(Metric::warp_execution_efficiency_pct)),
         "branch on what is equal within a warp, or compute both sides and select",
         100 - value(Metric::warp_execution_efficiency_pct),
         m[Metric::warp_execution_efficiency_pct].source});
  else if (below(Metric::branch_efficiency_pct, 90))
    out.push_back(
        {"motion", "divergence", kernel,
         format("{:.0f} % of the branches keep their warp together", value(Metric::branch_efficiency_pct)),
         "branch on what is equal within a warp", std::min(50.0, 100 - value(Metric::branch_efficiency_pct)),
         m[Metric::branch_efficiency_pct].source});
  if (!parted && below(Metric::warp_execution_efficiency_pct, 75))
    out.push_back({"overproduction", "idle lanes", kernel,
                   format("{:.0f} % of the lanes work", value(Metric::warp_execution_efficiency_pct)),
                   "block and tile sizes that divide the problem",
                   100 - value(Metric::warp_execution_efficiency_pct),
                   m[Metric::warp_execution_efficiency_pct].source});
  if (m.has(Metric::shared_bank_conflicts) && value(Metric::shared_bank_conflicts) > 0 &&
      m.has(Metric::wall_clock_time_us)) {
    // one pass of one SM's shared memory takes a cycle; 132 SMs at 1.8 GHz as a scale for the share
    const double us = value(Metric::shared_bank_conflicts) / 132 / 1800;
    if (share(us, value(Metric::wall_clock_time_us)) >= 2)
      out.push_back(
          {"transport", "bank conflicts", kernel,
           format("{} extra passes of shared memory", number_text(value(Metric::shared_bank_conflicts))),
           "pad rows by one element, or swizzle the columns", share(us, value(Metric::wall_clock_time_us)),
           m[Metric::shared_bank_conflicts].source});
  }
  if (below(Metric::achieved_occupancy_pct, 20) && m.has(Metric::tensor_core_utilization_pct) &&
      value(Metric::tensor_core_utilization_pct) < 5)
    out.push_back(
        {"inventory", "low occupancy", kernel,
         format("{:.0f} % of the warps that would fit are active", value(Metric::achieved_occupancy_pct)),
         "fewer registers or less shared memory per block, or more blocks",
         std::min(30.0, 50 - value(Metric::achieved_occupancy_pct)),
         m[Metric::achieved_occupancy_pct].source});
  for (const auto& [id, what] :
       {std::pair{Metric::nan_count, "NaN"}, std::pair{Metric::inf_count, "infinity"}})
    if (m.has(id) && value(id) > 0)
      out.push_back({"defects", what, kernel, format("{:.0f} results are {}", value(id), what),
                     "cgp run KERNEL --check all shows where they come from", 100, m[id].source});
  if (m.has(Metric::heijunka_score) && value(Metric::heijunka_score) > 0.2)
    out.push_back(
        {"overproduction", "imbalance", kernel,
         format("imbalance {:.2f} (0 all threads alike, 1 one did all)", value(Metric::heijunka_score)),
         "smaller pieces of work, handed out as threads become free",
         std::min(100.0, 100 * value(Metric::heijunka_score)), m[Metric::heijunka_score].source});
  return out;
}

double imbalance(const std::vector<double>& busy) {
  if (busy.size() < 2) return 0;
  const double mean = measure::mean(busy), most = *std::max_element(busy.begin(), busy.end());
  return mean > 0 ? std::clamp((most / mean - 1) / double(busy.size() - 1), 0.0, 1.0) : 0;
}

std::string waste_text(std::vector<Waste> all, int width) {
  if (all.empty()) return {};
  std::stable_sort(all.begin(), all.end(),
                   [](const Waste& a, const Waste& b) { return a.percent > b.percent; });
  std::string out = "waste\n";
  for (const auto& w : all) {
    out += format("  {:>3.0f} %  {}: {}{}\n", w.percent, w.kind, w.title,
                  w.kernel.empty() ? "" : " in " + fitted(short_name(w.kernel), 48));
    out += "         " + spec::wrapped(w.evidence, width, 9) + "\n";
    out += "         " + spec::wrapped("try: " + w.advice, width, 9) + "\n";
  }
  return out;
}

}  // namespace cgp::profile

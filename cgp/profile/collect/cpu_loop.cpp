// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/collect/cpu_loop.h"

#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/profile/measure/count.h"
#include "cgp/profile/measure/measure.h"
#include "cgp/profile/measure/process.h"
#include "cgp/profile/roofline/cpu_ceilings.h"
#include "cgp/profile/timeline/waste.h"
#include "cgp/profile/view/table.h"

namespace cgp::profile {
namespace {

using fmt::format;
using measure::Metric;
using measure::Source;

constexpr const char* kFrom = "steady clock around batches of calls";

/// The same loop in fresh processes, one after the other.
void add_times_of_processes(Document& d, const LoopOptions& o, const std::string& isa) {
  std::vector<double> us;
  std::vector<std::size_t> processes;
  const std::vector<std::string> command{
      "/proc/self/exe",       "--json", "profile", "simd",        "--function", o.function,  "--size",
      std::to_string(o.size), "--arch", isa,       "--processes", "1",          "--no-count"};
  for (int i = 0; i < o.processes; ++i) {
    measure::ProcessOptions how;
    how.keep_bytes = std::size_t(64) << 20;  // all samples
    const auto run = measure::run_process(command, how);
    if (!run.ok())
      throw Error(
          ErrorText{"each process measures the loop", {}, text::cat(run.describe(), ": ", run.err), {}});
    const Document one = from_json(parsed(run.out, "a measuring process"), "a measuring process");
    const Samples* samples = one.find_samples("time");
    if (!samples || samples->values.empty())
      throw Error(ErrorText{"each process measures the loop", {}, "one has no times", {}});
    us.insert(us.end(), samples->values.begin(), samples->values.end());
    processes.push_back(samples->values.size());
  }
  add_times(d, "time", std::move(us), kFrom, std::move(processes));
}

struct Parallel {
  double seconds = 0;
  std::vector<double> busy;  ///< processor time of each thread
};

/// `threads` fresh threads share 64 pieces of the loop, one after the other.
Parallel run_parallel(const std::string& function, int threads, std::size_t n) {
  const std::string isa(cpu::name(std::min(cpu::chosen_isa(), cpu::Isa::avx2)));
  Parallel p;
  p.busy.resize(std::size_t(threads));
  std::atomic<int> next{0};
  std::vector<std::vector<float>> a(std::size_t(threads), std::vector<float>(n, 1.5f));
  std::vector<std::vector<float>> b(std::size_t(threads), std::vector<float>(n, 0.25f));
  const double start = measure::now();
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t)
    all.emplace_back([&, t] {
      while (next.fetch_add(1) < 64)
        for (int r = 0; r < 40; ++r)
          measure::keep(
              run_cpu_function(function, isa, a[std::size_t(t)].data(), b[std::size_t(t)].data(), n));
      timespec used{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
      p.busy[std::size_t(t)] = double(used.tv_sec) + 1e-9 * double(used.tv_nsec);
    });
  for (auto& t : all) t.join();
  p.seconds = measure::now() - start;
  return p;
}

double spawn_us(int threads) {
  std::vector<double> v;
  for (int i = 0; i < 30; ++i) {
    const double start = measure::now();
    std::vector<std::thread> all;
    for (int t = 0; t < threads; ++t) all.emplace_back([] {});
    for (auto& t : all) t.join();
    v.push_back((measure::now() - start) * 1e6);
  }
  return measure::median(v);
}

}  // namespace

Document profile_loop(const LoopOptions& o, const std::string& isa) {
  const std::size_t n = o.size;
  std::vector<float> a(n, 1.5f), b(n, 0.25f);
  const std::string function = o.function;
  measure::keep(run_cpu_function(function, isa, a.data(), b.data(), n));  // unknown names and ISAs end here
  Document d = new_document(o.kind, format("{} {} n={}", function, isa, n));
  const auto loop = [&] { measure::keep(run_cpu_function(function, isa, a.data(), b.data(), n)); };
  if (o.processes > 1) {
    add_times_of_processes(d, o, isa);
  } else {
    std::vector<double> us;
    measure::MeasureOptions how;
    if (!o.count)
      how.max_seconds = 0.4,
      how.max_samples = 2000;  // one of several processes, between which the interval is
    for (double t : measure::measure(loop, how).seconds) us.push_back(t * 1e6);
    add_times(d, "time", std::move(us), kFrom);
    d.notes.push_back("one process: another has another alignment and may differ by more than the interval");
  }
  if (!o.count)
    d.metrics.absent(Metric::instructions, "they were not asked for");
  else
    try {
      constexpr std::uint64_t kMost = 400'000;
      const auto mix = measure::step_function(loop, kMost);
      if (mix.truncated)
        d.metrics.absent(
            Metric::instructions,
            format("one call has more than {} instructions: a smaller --size counts them all", kMost));
      else
        mix.add_to(d.metrics, "single steps of one call");
    } catch (const Unsupported& e) {
      d.metrics.absent(Metric::instructions, e.rule());
    }
  d.metrics.absent(Metric::cycles,
                   "the processor shows no counters to this machine, or they were not asked for");
  d.metrics.derive(cpu_flops(function, n), cpu_bytes(function, n));
  return d;
}

namespace {

std::string processes_text(const Document& d) {
  const Samples* s = d.find_samples("time");
  return s && !s->processes.empty() ? format(" over {} processes", s->processes.size()) : "";
}

}  // namespace

std::string loop_text(const Document& d) {
  const auto& m = d.metrics;
  std::string out =
      format("{}: {}{}{}, {} GFLOP/s, {} GB/s\n", d.name, time_text(m[Metric::wall_clock_time_us].number()),
             interval_text(m), processes_text(d), number_text(m[Metric::gflops].number()),
             number_text(m[Metric::bandwidth_gbps].number()));
  if (m.has(Metric::instructions)) {
    out += format(
        "  {:.0f} instructions; floating-point: {:.0f} scalar, {:.0f} of 128, {:.0f} of 256, {:.0f} of 512 "
        "bits",
        m[Metric::instructions].number(), m[Metric::fp_arith_scalar_single].number(),
        m[Metric::fp_arith_128b_packed_single].number(), m[Metric::fp_arith_256b_packed_single].number(),
        m[Metric::fp_arith_512b_packed_single].number());
    if (m.has(Metric::simd_utilization_pct))
      out += format("; {:.1f} % on vectors", m[Metric::simd_utilization_pct].number());
    out += "\n";
  } else {
    out += format("  instructions -: {}\n", m[Metric::instructions].why_absent);
  }
  for (const auto& note : d.notes) out += format("note: {}\n", note);
  return out;
}

Document profile_threads(const LoopOptions& o) {
  const int cores = int(std::max(1u, std::thread::hardware_concurrency()));
  const int most = o.threads > 0 ? o.threads : cores;
  const std::size_t n = o.size;
  const std::string function = o.function;
  float probe = 1;
  run_cpu_function(function, "scalar", &probe, &probe, 1);  // an unknown name ends here
  std::vector<int> counts;
  if (o.kind == "parallel")
    counts = {1, most};
  else
    for (int t : {1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128})
      if (t <= most) counts.push_back(t);
  Document d = new_document(o.kind, format("{} n={} on {} threads", function, n, most));
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  double single_us = std::numeric_limits<double>::infinity();  // of all runs with one thread
  for (int threads : counts) {
    // runs of one and of many alternate, so that what else happens on the machine meets both
    // the best of each: what else happens only makes them longer
    std::vector<double> times, singles;
    Parallel last;
    for (int r = 0; r < o.runs; ++r) {
      const double single = run_parallel(function, 1, n).seconds;
      last = run_parallel(function, threads, n);
      times.push_back(last.seconds), singles.push_back(single);
      single_us = std::min(single_us, single * 1e6);
    }
    const double t = *std::min_element(times.begin(), times.end()),
                 speedup = *std::min_element(singles.begin(), singles.end()) / t,
                 unevenness = imbalance(last.busy);
    const double gflops = 64.0 * 40 * cpu_flops(function, n) / t * 1e-9;
    rows.push_back({{"threads", threads},
                    {"time_us", t * 1e6},
                    {"gflops", gflops},
                    {"scaling", speedup},
                    {"imbalance", unevenness}});
    d.metrics.set(Metric::parallel_speedup, speedup, Source::measured,
                  "best runs with one thread and with all, in turns");
    d.metrics.set(Metric::num_threads, double(threads), Source::declared, "asked for");
    d.metrics.set(Metric::heijunka_score, unevenness, Source::measured, "processor time of each thread");
    d.metrics.set(Metric::wall_clock_time_us, t * 1e6, Source::measured, "steady clock, best run");
  }
  const double spawn = spawn_us(most);
  d.metrics.set(Metric::thread_spawn_overhead_us, spawn, Source::measured,
                "starting and joining threads that do nothing");
  d.metrics.absent(Metric::work_steal_count, "these threads share one counter and steal nothing");
  d.metrics.derive();
  d.more["scaling"] = rows;
  // What starting and joining takes must be small in the share of one thread: else it is that which is measured.
  constexpr double kStart = 0.1;
  const double needed = double(n) * spawn * double(most) / (kStart * single_us);
  const bool too_small = most > 1 && needed > double(n);
  if (too_small) {
    const auto size = std::uint64_t(std::ceil(std::max(needed, 1.25 * double(n))));
    d.more["too_small"] = {{"size_needed", size}};
    d.notes.push_back(format(
        "TOO SMALL: the job takes {} on one thread and starting {} threads takes {}; the speed-up says "
        "nothing of the loop. at least --size {} is needed",
        time_text(single_us), most, time_text(spawn), size));
  }
  // Amdahl: a job whose share f runs on one thread alone takes f + (1 - f) / N of the time on N.
  if (const double s = d.metrics[Metric::parallel_speedup].number(); most > 1 && s > 0 && !too_small) {
    const double serial = std::clamp((double(most) / s - 1) / (double(most) - 1), 0.0, 1.0);
    d.more["amdahl_serial_share"] = serial;
    if (serial < 1)
      d.notes.push_back(
          format("as if {:.1f} % of it ran on one thread: at most {} times faster on any number",
                 100 * serial, serial > 0.001 ? number_text(1 / serial) : "1000"));
  }
  if (most > cores) d.notes.push_back(format("{} threads on {} processors", most, cores));
  const double all = d.metrics[Metric::wall_clock_time_us].number();
  if (spawn > 0.1 * all && all < 500)
    d.notes.push_back(format("starting threads takes {:.0f} % of the job", 100 * spawn / all));
  if (!too_small) d.waste = metric_waste(d.metrics, "");
  return d;
}

std::string threads_text(const Document& d, int width) {
  Table table({"threads", "time", "GFLOP/s", "speed-up", "efficiency", "imbalance"});
  for (const auto& row : d.more["scaling"]) {
    const double speedup = row["scaling"], threads = row["threads"];
    table.row({format("{:.0f}", threads), time_text(row["time_us"]), number_text(row["gflops"]),
               format("{:.2f}", speedup), format("{:.2f}", speedup / threads),
               format("{:.2f}", row["imbalance"].get<double>())});
  }
  std::string out = format("{}; starting and joining {:.0f} threads takes {}\n", d.name,
                           d.metrics[Metric::num_threads].number(),
                           time_text(d.metrics[Metric::thread_spawn_overhead_us].number())) +
                    table.text();
  for (const auto& note : d.notes) out += "note: " + note + "\n";
  return out + waste_text(d.waste, width);
}

}  // namespace cgp::profile

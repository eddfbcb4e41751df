// SPDX-License-Identifier: Apache-2.0
// Comparisons of loops, vector instructions and threads of this processor.
#include <fmt/core.h>
#include <time.h>

#include <cmath>
#include <thread>

#include "cgp/profile/measure/measure.h"
#include "cgp/profile/roofline/cpu_ceilings.h"
#include "cgp/profile/timeline/waste.h"
#include "cgp/selfcheck/claim.h"

namespace cgp::selfcheck {
namespace {

using fmt::format;

[[gnu::noinline]] void multiply_adds(int n) {
  double x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  for (int i = 0; i < n; ++i)
    for (double& v : x) v = v * 1.0000001 + 1e-9;
  measure::keep(x[0]);
  measure::keep(x[7]);
}

/// Verdicts of `trials` comparisons of a loop with one that does `factor` times its work.
json verdicts(int trials, double factor) {
  json seen{{"trials", trials}, {"worst_p_of_regressions", 0.0}};
  for (const char* v : {"REGRESSION", "IMPROVED", "NO_CHANGE", "INCONCLUSIVE"}) seen[v] = 0;
  double worst = 0;
  for (int t = 0; t < trials; ++t) {
    measure::LockstepOptions o;
    o.paired.seed = std::uint64_t(t) + 1;
    const auto side = [](int n) { return [n] { multiply_adds(n); }; };  // one body: compiled once for both
    const auto r = measure::compare_functions(side(20000), side(int(20000 * factor)), o);
    const std::string v(measure::name(r.verdict));
    seen[v] = seen[v].get<int>() + 1;
    if (r.verdict == measure::Verdict::regression) worst = std::max(worst, r.p);
  }
  seen["worst_p_of_regressions"] = worst;
  return seen;
}

void paired_claims(std::vector<Claim>& out) {
  out.push_back({"FALS-030", "10 % more work is REGRESSION with p < 0.01",
                 "10 comparisons with real work injected", false, false, [] { return verdicts(10, 1.10); },
                 [](const json& j) -> std::string {
                   if (j.at("REGRESSION") != j.at("trials"))
                     return format("{} of {} were found", j.at("REGRESSION").dump(), j.at("trials").dump());
                   return j.at("worst_p_of_regressions") < 0.01
                              ? ""
                              : "p = " + j.at("worst_p_of_regressions").dump();
                 },
                 [](json& j) { j.at("worst_p_of_regressions") = 0.04; }});
  out.push_back({"FALS-031", "identical programs are called different in less than 1 % of comparisons",
                 "200 comparisons of a loop with itself: at most one alarm", false, true,
                 [] { return verdicts(200, 1); },
                 [](const json& j) -> std::string {
                   const int alarms = j.at("REGRESSION").get<int>() + j.at("IMPROVED").get<int>();
                   return alarms <= 1 ? "" : format("{} alarms in {}", alarms, j.at("trials").dump());
                 },
                 [](json& j) { j.at("IMPROVED") = 3; }});
}

double loop_us(const char* isa, std::size_t n) {
  const json r = run_self({"profile", std::string(isa) == "scalar" ? "scalar" : "simd", "--function", "dot",
                           "--arch", isa, "--size", std::to_string(n), "--json"});
  if (r.at("code") != 0) throw std::runtime_error(r.at("err").get<std::string>());
  return r.at("json").at("metrics").at("wall_clock_time_us").at("value");
}

/// b + a of `axpy` in double, and the largest difference relative to it; 1 more if what lies beyond was
/// touched.
json axpy_errors() {
  double worst = 0;
  int touched = 0;
  for (std::size_t n = 0; n <= 67; ++n) {
    std::vector<float> a(n + 16), scalar(n + 16), wide;
    for (std::size_t i = 0; i < n + 16; ++i) a[i] = 0.5f + float(i), scalar[i] = 3.0f - float(i % 7);
    wide = scalar;
    const std::vector<float> before = scalar;
    profile::run_cpu_function("axpy", "scalar", a.data(), scalar.data(), n);
    profile::run_cpu_function("axpy", "avx2", a.data(), wide.data(), n);
    for (std::size_t i = 0; i < n; ++i)
      worst = std::max(worst, std::fabs(double(wide[i]) - double(scalar[i])) /
                                  std::max(1.0, std::fabs(double(scalar[i]))));
    for (std::size_t i = n; i < n + 16; ++i) touched += wide[i] != before[i];
    if (n > 8 && scalar[n - 1] == before[n - 1])
      throw std::runtime_error("the scalar loop left its last element");
  }
  return {{"relative_error", worst}, {"touched_beyond", touched}};
}

void vector_claims(std::vector<Claim>& out) {
  out.push_back({"FALS-041", "dot of 1024 floats with AVX2 is at least 3 times as fast as without vectors",
                 "both measured, best ratio of 3", false, false,
                 [] {
                   if (!profile::has_isa("avx2")) throw NotHere("needs a processor with AVX2");
                   double best = 0;
                   for (int i = 0; i < 3 && best < 3; ++i)
                     best = std::max(best, loop_us("scalar", 1024) / loop_us("avx2", 1024));
                   return json{{"ratio", best}};
                 },
                 [](const json& j) -> std::string {
                   return j.at("ratio") >= 3.0 ? "" : format("{:.2f} times", j.at("ratio").get<double>());
                 },
                 [](json& j) { j.at("ratio") = 1.9; }});
  out.push_back({"FALS-SIMD-001", "axpy with AVX2 is right for every length, the remainder included",
                 "lengths 0 to 67 against the loop without vectors; 16 floats beyond the end stay", false,
                 false,
                 [] {
                   if (!profile::has_isa("avx2")) throw NotHere("needs a processor with AVX2");
                   return axpy_errors();
                 },
                 [](const json& j) -> std::string {
                   if (j.at("relative_error") > 1e-6)
                     return "relative error " + j.at("relative_error").dump();
                   return j.at("touched_beyond") == 0
                              ? ""
                              : j.at("touched_beyond").dump() + " elements beyond the end changed";
                 },
                 [](json& j) { j.at("touched_beyond") = 1; }});
  const auto roof = [] {
    return run_self({"roofline", "--target", "cpu", "--seconds", "0.6", "--json"}).at("json");
  };
  const auto most = [](const json& j, bool bandwidth, const char* part) {
    double value = 0;
    for (const auto& l : j.at("lines"))
      if (l.at("bandwidth") == bandwidth && l.at("source") == "measured" && l.at("value").is_number() &&
          l.at("name").get<std::string>().find(part) != std::string::npos)
        value = std::max(value, l.at("value").get<double>());
    return value;
  };
  out.push_back({"FALS-EMPIRICAL-010..011", "roofline measures bandwidth (over 5 GB/s), rates and the ridge",
                 "the lines of roofline --target cpu", false, false, roof,
                 [most](const json& j) -> std::string {
                   if (most(j, true, "") <= 5) return format("{} GB/s", most(j, true, ""));
                   if (most(j, false, "") <= 0) return "no rate";
                   return j.at("ridge_flop_per_byte") > 0.0 ? "" : "no ridge";
                 },
                 [](json& j) { j.at("ridge_flop_per_byte") = 0; }});
  out.push_back({"FALS-EMPIRICAL-012", "AVX-512 multiply-adds exceed 10 GFLOP/s on one core",
                 "the lines of roofline --target cpu", false, false,
                 [roof] {
                   if (!profile::has_isa("avx512")) throw NotHere("needs a processor with AVX-512");
                   return roof();
                 },
                 [most](const json& j) -> std::string {
                   const double v = most(j, false, "AVX-512");
                   return v > 10 ? "" : format("{} GFLOP/s", v);
                 },
                 [](json& j) {
                   for (auto& l : j.at("lines")) l.at("source") = "declared";
                 }});
}

/// Processor time of four threads of which the first has ten times the work.
json planted_imbalance() {
  std::vector<double> busy(4);
  std::vector<std::thread> all;
  for (int t = 0; t < 4; ++t)
    all.emplace_back([&busy, t] {
      multiply_adds(t == 0 ? 2'000'000 : 200'000);
      timespec used{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
      busy[std::size_t(t)] = double(used.tv_sec) + 1e-9 * double(used.tv_nsec);
    });
  for (auto& t : all) t.join();
  measure::MetricSet m;
  m.set(measure::Metric::heijunka_score, profile::imbalance(busy), measure::Source::measured,
        "processor time of each thread");
  json waste = json::array();
  for (const auto& w : profile::metric_waste(m, "")) waste.push_back(w.kind + ": " + w.title);
  return {{"score", profile::imbalance(busy)}, {"waste", waste}};
}

void thread_claims(std::vector<Claim>& out) {
  out.push_back(
      {"FALS-080", "speed-up is the time of one thread over that of all, measured",
       "profile parallel with 2 threads", false, false,
       [] {
         const json r = run_self({"profile", "parallel", "--threads", "2", "--json"}).at("json");
         return json{{"speedup", r.at("metrics").at("parallel_speedup")}, {"rows", r.at("scaling")}};
       },
       [](const json& j) -> std::string {
         if (j.at("speedup").at("source") != "measured" || !j.at("speedup").at("value").is_number())
           return "it is not measured";
         const double ratio =
             j.at("rows").at(0).at("time_us").get<double>() / j.at("rows").at(1).at("time_us").get<double>();
         // the speed-up is a median of ratios in pairs: near the ratio of medians, not equal
         const double off = j.at("speedup").at("value").get<double>() / ratio;
         return off > 0.6 && off < 1.7
                    ? ""
                    : format("{} where the times give {}", j.at("speedup").at("value").dump(), ratio);
       },
       [](json& j) { j.at("speedup").at("value") = 10 * j.at("speedup").at("value").get<double>(); }});
  out.push_back({"FALS-081",
                 "one thread with ten times the work of three others: imbalance above 0.5, named as waste",
                 "four threads, their processor time", false, false, planted_imbalance,
                 [](const json& j) -> std::string {
                   if (j.at("score") <= 0.5) return "the score is " + j.at("score").dump();
                   return j.at("waste").dump().find("overproduction: imbalance") == std::string::npos
                              ? "it is not named"
                              : "";
                 },
                 [](json& j) { j.at("waste") = json::array(); }});
  out.push_back(
      {"FALS-082",
       "the cost of starting threads is reported, with a warning above 10 % of a job under 500 us",
       "profile parallel on a job of 16 floats", false, false,
       [] {
         const json r =
             run_self({"profile", "parallel", "--threads", "2", "--size", "16", "--json"}).at("json");
         return json{{"spawn", r.at("metrics").at("thread_spawn_overhead_us").at("value")},
                     {"job", r.at("metrics").at("wall_clock_time_us").at("value")},
                     {"notes", r.at("notes")}};
       },
       [](const json& j) -> std::string {
         if (!j.at("spawn").is_number() || j.at("spawn") <= 0.0) return "it is not reported";
         const bool due =
             j.at("spawn").get<double>() > 0.1 * j.at("job").get<double>() && j.at("job") < 500.0;
         const bool warned = j.at("notes").dump().find("starting threads takes") != std::string::npos;
         return due == warned ? "" : warned ? "a warning without cause" : "no warning: " + j.dump();
       },
       [](json& j) { j.at("spawn") = nullptr; }});
  out.push_back(
      {"FALS-SCALING-001..002", "scaling prints its fields, and one thread scales by 1.0 within 0.15",
       "profile scaling, the best of 3 runs", false, true,
       [] {
         json best;
         for (int i = 0; i < 3; ++i) {
           const json rows =
               run_self({"profile", "scaling", "--max-threads", "2", "--json"}).at("json").at("scaling");
           const auto off = [](const json& r) { return std::fabs(r.at(0).at("scaling").get<double>() - 1); };
           if (best.is_null() || off(rows) < off(best)) best = rows;
           if (off(best) < 0.15) break;
         }
         return best;
       },
       [](const json& j) -> std::string {
         for (const auto& row : j)
           for (const char* field : {"threads", "time_us", "gflops", "scaling", "imbalance"})
             if (!row.contains(field)) return std::string("no field ") + field;
         const double one = j.at(0).at("scaling");
         return std::fabs(one - 1) <= 0.15 ? "" : format("one thread scales by {}", one);
       },
       [](json& j) { j.at(0).at("scaling") = 1.4; }});
}

}  // namespace

void add_cpu_claims(std::vector<Claim>& out) {
  paired_claims(out);
  vector_claims(out);
  thread_claims(out);
}

}  // namespace cgp::selfcheck

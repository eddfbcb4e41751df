// SPDX-License-Identifier: Apache-2.0
// cgp compete: programs that do the same work, interleaved, ranked, with the rate that the work defines.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/profile/contract/compare_programs.h"
#include "cgp/profile/lint/quant_profile.h"
#include "cgp/profile/measure/stats.h"
#include "cgp/profile/view/table.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/deliver.h"
#include "tools/cgp/profiler_commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {
namespace {

using fmt::format;
using measure::Metric;
using profile::number_text;
using profile::time_text;
using text::cat;

struct Entrant {
  profile::TimedProgram program;
  std::vector<double> seconds;  ///< of each round
  std::string failure, output;
  bool same_output = true;
  double median() const { return measure::median(seconds); }
};

/// "4096", "512x1024x256" -> 2 M N K.
double gemm_flops(const std::string& size) {
  const auto n = profile::extents(size, "--gemm");
  return 2 * double(n[0]) * double(n[1]) * double(n[2]);
}

std::vector<Entrant> entrants(const CompeteOptions& o) {
  std::vector<std::string> commands;
  if (!o.ours.empty()) commands.push_back(o.ours);
  commands.insert(commands.end(), o.theirs.begin(), o.theirs.end());
  if (commands.size() < 2)
    throw ArgumentError(ErrorText{
        "a competition needs two programs", {}, cat(commands.size(), " given"), "--ours CMD --theirs CMD"});
  if (!o.labels.empty() && o.labels.size() != commands.size())
    throw ArgumentError(ErrorText{"there is one label per program",
                                  {},
                                  cat(o.labels.size(), " labels for ", commands.size(), " programs"),
                                  {}});
  std::vector<Entrant> out;
  for (std::size_t i = 0; i < commands.size(); ++i) {
    Entrant e;
    e.program.command = measure::split_command(commands[i]);
    e.program.label = o.labels.empty() ? profile::fitted(commands[i], 40) : o.labels[i];
    out.push_back(std::move(e));
  }
  return out;
}

/// Rounds in which each runs once; the order rotates and turns round. One that fails is left out from then
/// on.
/// False: it was interrupted.
bool run_rounds(std::vector<Entrant>& all, const CompeteOptions& o, const profile::TimingRule& rule,
                Progress& progress) {
  for (int round = -1; round < o.rounds; ++round)
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::size_t shifted = (i + std::size_t(round + 1) / 2) % all.size();
      Entrant& e = all[round % 2 ? all.size() - 1 - shifted : shifted];
      if (!e.failure.empty()) continue;
      progress.step(cat("round ", round + 1, " of ", o.rounds, ": ", e.program.label));
      const auto run = profile::time_once(e.program, rule, std::uint64_t(round + 2) * 40503u);
      if (run.process.interrupted) return false;
      e.failure = run.failure;
      if (round < 0)
        e.output = run.process.out;
      else if (run.failure.empty())
        e.seconds.push_back(run.seconds);
    }
  return true;
}

/// The entrant against the best one, in the rounds that both have.
std::string against_best(const Entrant& e, const Entrant& best, nlohmann::ordered_json& j) {
  if (&e == &best) return "1.00";
  std::vector<measure::Pair> pairs;
  for (std::size_t i = 0; i < std::min(e.seconds.size(), best.seconds.size()); ++i)
    pairs.push_back({best.seconds[i], e.seconds[i]});
  const auto r = measure::judge(pairs, 0.01);
  j = profile::to_json(r);
  const std::string factor = format("{:.2f}", 1 + r.change);
  if (r.verdict == measure::Verdict::regression) return factor + " slower";
  return factor + (r.verdict == measure::Verdict::no_change ? " equal" : " unclear");
}

}  // namespace

int compete(const Context& context, const CompeteOptions& o) {
  if (o.rounds < 1) throw ArgumentError(ErrorText{"there is at least one round", {}, cat(o.rounds), {}});
  auto all = entrants(o);
  const auto rule = profile::timing_rule(o.timing);
  const double flops = o.gemm.empty() ? o.flops : gemm_flops(o.gemm);
  bool whole = true;
  {
    Progress progress;
    whole = run_rounds(all, o, rule, progress);
  }
  if (!whole && std::any_of(all.begin(), all.end(),
                            [](const Entrant& e) { return e.failure.empty() && e.seconds.empty(); }))
    throw Error(ErrorText{"each program must have run", {}, "interrupted in the first round", {}});
  std::vector<Entrant*> ranked;
  for (auto& e : all) {
    e.same_output = e.output == all[0].output;
    if (e.failure.empty()) ranked.push_back(&e);
  }
  std::sort(ranked.begin(), ranked.end(),
            [](const Entrant* a, const Entrant* b) { return a->median() < b->median(); });
  profile::Table table(
      {"#", "<program", "time", "<95 % interval", "GFLOP/s", "GB/s", "<against the best", "<"});
  nlohmann::ordered_json j = {
      {"schema", "cgp.compete/1"}, {"workload", o.workload}, {"rounds", o.rounds},
      {"interrupted", !whole},     {"flops", flops},         {"rows", nlohmann::ordered_json::array()}};
  int place = 0;
  bool wrong = false;
  for (const Entrant* e : ranked) {
    const auto interval = measure::known_median_interval(e->seconds);
    nlohmann::ordered_json paired;
    const std::string versus = against_best(*e, *ranked[0], paired);
    const double rate = flops > 0 ? flops / e->median() * 1e-9 : 0,
                 bandwidth = o.bytes > 0 ? o.bytes / e->median() * 1e-9 : 0;
    std::string remark;
    if (o.check_output && !e->same_output) remark = "other output than " + all[0].program.label, wrong = true;
    table.row({std::to_string(++place), e->program.label, time_text(e->median() * 1e6),
               interval ? format("[{}, {}]", time_text(interval->low * 1e6), time_text(interval->high * 1e6))
                        : "too few rounds",
               rate > 0 ? number_text(rate) : "-", bandwidth > 0 ? number_text(bandwidth) : "-", versus,
               remark});
    j["rows"].push_back({{"label", e->program.label},
                         {"place", place},
                         {"seconds", e->seconds},
                         {"median_s", e->median()},
                         {"gflops", rate > 0 ? nlohmann::ordered_json(rate) : nlohmann::ordered_json()},
                         {"against_best", paired},
                         {"same_output", e->same_output}});
  }
  bool failed = !whole;
  for (const auto& e : all) {
    if (e.failure.empty()) continue;
    failed = true;
    table.row({"-", e.program.label, "FAILED", e.failure, "-", "-",
               e.seconds.empty() ? "" : format("{} before", time_text(e.median() * 1e6)), ""});
    j["rows"].push_back({{"label", e.program.label}, {"failed", e.failure}, {"seconds", e.seconds}});
  }
  auto d = profile::new_document("compete", o.workload.empty() ? "compete" : o.workload);
  for (const auto& e : all) {
    profile::Samples s{e.program.label, "us", {}};
    for (double t : e.seconds) s.values.push_back(t * 1e6);
    if (!s.values.empty()) d.samples.push_back(std::move(s));
  }
  d.more["compete"] = j;
  deliver(context, d, o.save,
          format("{}{} rounds, interleaved, {}{}\n", o.workload.empty() ? "" : o.workload + ": ", o.rounds,
                 profile::describe(rule), whole ? "" : "; INTERRUPTED before the last") +
              table.text(),
          j);
  if (ranked.empty()) return kProgramFailed;
  return wrong ? kCheckFailed : failed ? kProgramFailed : kClean;
}

}  // namespace cgp::cli

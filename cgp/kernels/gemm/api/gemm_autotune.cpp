// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/gemm/api/gemm_autotune.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/runtime/graph.h"
#include "cgp/runtime/log.h"

namespace cgp::kernels {
namespace {

double median(std::vector<double> v) {
  const auto middle = v.begin() + std::ptrdiff_t(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  return *middle;
}

// Whether a winner of this call is one for every call of the same key.
bool speaks_for_its_key(const GemmProblem& p, const GemmAddresses& at) {
  return p.plain() && p.beta == 0 && p.c_elements() != 0 && p.k != 0 && (at.a | at.b | at.c) % 16 == 0 &&
         is_dense(p);
}

}  // namespace

std::optional<GemmMeasured> fastest_gemm(std::span<const GemmChoice> candidates, const GemmTimer& timer,
                                         double budget) {
  struct Run {
    const GemmChoice* choice;
    std::vector<double> times;
  };
  std::vector<const GemmChoice*> order;
  for (const auto& c : candidates) order.push_back(&c);
  const auto predicted = [](const GemmChoice* c) { return c->microseconds > 0 ? c->microseconds : 1e30; };
  if (!order.empty())
    std::stable_sort(order.begin() + 1, order.end(),
                     [&](auto* x, auto* y) { return predicted(x) < predicted(y); });
  const double start = timer.seconds();
  const auto used = [&] { return timer.seconds() - start; };
  std::vector<Run> runs;
  for (const auto* c : order) {
    if (used() > 0.6 * budget) break;
    try {
      (void)timer.microseconds(*c);
      Run r{c, {}};
      for (int i = 0; i < 4; ++i) r.times.push_back(timer.microseconds(*c));
      runs.push_back(std::move(r));
    } catch (const Error&) {  // does not run here, or not in the memory that is left
    }
  }
  if (runs.empty()) return {};
  const auto own = runs[0].choice == order[0] ? order[0] : nullptr;
  const auto faster = [](const Run& x, const Run& y) { return median(x.times) < median(y.times); };
  std::stable_sort(runs.begin(), runs.end(), faster);
  // The model's own stays among the leaders, for the comparison with the winner.
  const auto keep = std::find_if(runs.begin(), runs.end(), [&](const Run& r) { return r.choice == own; });
  if (keep - runs.begin() > 2 && keep != runs.end()) std::iter_swap(keep, runs.begin() + 2);
  runs.resize(std::min<std::size_t>(3, runs.size()));
  for (auto& r : runs) r.times.clear();
  try {
    for (int round = 0; round < 15 && (round < 3 || used() < budget); ++round)
      for (std::size_t i = 0; i < runs.size(); ++i) {
        auto& r = runs[(i + std::size_t(round)) % runs.size()];
        r.times.push_back(timer.microseconds(*r.choice));
      }
  } catch (const Error&) {
    return {};
  }
  const auto best = std::min_element(runs.begin(), runs.end(), faster);
  const auto model = std::find_if(runs.begin(), runs.end(), [&](const Run& r) { return r.choice == own; });
  const auto& taken =
      model != runs.end() && median(model->times) < 1.01 * median(best->times) ? *model : *best;
  return GemmMeasured{taken.choice->variant.config, std::round(100 * median(taken.times)) / 100};
}

void tune_gemm(runtime::Stream& s, GemmPlanner& planner, const GemmProblem& q, const GemmAddresses& at,
               const GemmTimer& timer) {
  if (is_capturing(s)) return;
  const auto measuring = planner.begin_tuning();
  if (!measuring) return;
  const GemmProblem p = q.dense();
  const auto& d = planner.device();
  if (!speaks_for_its_key(p, at) || planner.table().find_like(p)) return planner.settle(p, at);
  const auto key = gemm_key(p);
  if (const auto kept = load_gemm_table(d); const auto* row = kept.find(p)) {  // another process was faster
    planner.learn(key, *row);
    return planner.settle(p, at);
  }
  const auto candidates = gemm_candidates(p, at, d);
  if (candidates.size() > 1)
    if (auto winner = fastest_gemm(candidates, timer, planner.tuning().seconds)) {
      GemmTable found;
      found.set(key, *winner);
      try {
        const auto kept = update_gemm_table(found, d, /*replace=*/false);
        if (const auto* row = kept.find(p)) winner = *row;
      } catch (const Error& e) {
        static bool told = false;
        if (!told) runtime::log(text::cat("measured winners of gemm are not kept: ", e.what()));
        told = true;
      }
      planner.learn(key, *winner);
    }
  planner.settle(p, at);
}

void tune_gemm(runtime::Stream& s, GemmPlanner& planner, const GemmProblem& p, const GemmAddresses& at) {
  if (is_capturing(s)) return;
  const auto device = s.device();
  // A stream of its own, after what the caller's has: the caller's scratch memory is for one call, not for dozens.
  runtime::Stream own(device);
  runtime::Event before(device), start(device), stop(device);
  s.record(before), own.wait_for(before);
  runtime::Buffer<std::uint8_t> lines;  // overwritten before each run, so that L2 holds none of the operands
  const auto flush = [&] {
    if (!lines.size()) try {
        lines = device.alloc<std::uint8_t>(std::max<std::uint64_t>(2 * device.info().l2_bytes, 64 << 20));
      } catch (const Error&) {  // no memory is left: measured with what L2 holds
        return;
      }
    own.fill(lines.all().region(), 1);
  };
  const GemmTimer timer{[&](const GemmChoice& c) {
                          flush();
                          own.record(start);
                          run_gemm(own, c, p, at);
                          own.record(stop);
                          stop.wait();
                          return stop.milliseconds_since(start) * 1e3;
                        },
                        [] {
                          const auto now = std::chrono::steady_clock::now().time_since_epoch();
                          return std::chrono::duration<double>(now).count();
                        }};
  tune_gemm(s, planner, p, at, timer);
}

}  // namespace cgp::kernels

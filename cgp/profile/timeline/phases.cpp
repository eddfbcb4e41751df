// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/timeline/phases.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "cgp/base/text.h"
#include "cgp/profile/timeline/waste.h"
#include "cgp/profile/view/table.h"

namespace cgp::profile {
namespace {

using fmt::format;
using measure::Source;
using Kind = Activity::Kind;

constexpr std::uint64_t kLeastLaunches = 20;
constexpr double kLeastShare = 5;  // percent of the time, below which nothing is said

bool over_the_bus(const Activity& a) {
  return a.kind == Kind::copy && (a.copy_kind == 1 || a.copy_kind == 2);
}

/// Milliseconds in which something of `a` and nothing of `b` ran. Both ascend by their begin.
using Spans = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

Spans joined(const std::vector<const Activity*>& all) {
  Spans out;
  for (const auto* a : all) {
    if (!out.empty() && a->start <= out.back().second)
      out.back().second = std::max(out.back().second, a->end);
    else
      out.emplace_back(a->start, a->end);
  }
  return out;
}

double alone_ms(const Spans& a, const Spans& b) {
  std::uint64_t ns = 0;
  for (auto [begin, end] : a) {
    ns += end - begin;
    for (const auto& [from, to] : b) {
      if (from >= end) break;
      if (to > begin) ns -= std::min(end, to) - std::max(begin, from);
    }
  }
  return double(ns) * 1e-6;
}

}  // namespace

Phases phases_of(const Timeline& t) {
  Phases p;
  p.whole = summarise(t);
  p.steady_part = t;
  if (t.recorded_percent() < 100 || t.activities.empty()) return p;
  struct Run {
    std::uint64_t begin = 0, end = 0, launches = 0, before = 0, first = 0;
  };
  Run best, now;
  std::set<std::string> seen;
  std::uint64_t launches = 0;
  const auto close = [&](std::uint64_t end) {
    now.end = end;
    if (now.launches > best.launches) best = now;
  };
  std::uint64_t last = 0;
  for (const auto& a : t.activities) {
    last = std::max(last, a.end);
    if (a.kind != Kind::kernel) continue;
    ++launches;
    if (seen.insert(a.name).second) {
      close(a.start);
      now = {a.end, 0, 0, launches, seen.size()};
    } else {
      ++now.launches;
    }
  }
  close(last);
  if (best.launches < kLeastLaunches) return p;
  p.steady_part = part_of(t, best.begin, best.end);
  p.steady = summarise(p.steady_part);
  p.startup_ms = double(best.begin - std::min(best.begin, t.activities.front().start)) * 1e-6;
  p.startup_launches = best.before, p.first_launches = best.first;
  return p;
}

std::string phases_text(const Phases& p) {
  if (!p.steady)
    return format("start-up and steady state are not told apart: {}\n",
                  p.whole.recorded_percent < 100
                      ? "only parts of the time were recorded (--record all)"
                      : format("no {} launches follow each other without a new kernel", kLeastLaunches));
  return format("start-up      {}: {} launches, {} kernels for the first time (loading, compiling)\n",
                time_text(p.startup_ms * 1e3), p.startup_launches, p.first_launches) +
         format("steady state  {}: {} launches, {} copies; the GPU was busy for {:.0f} %\n",
                time_text(p.steady->span_ms * 1e3), p.steady->launches, p.steady->copies,
                100 - p.steady->idle_percent());
}

nlohmann::ordered_json to_json(const Phases& p) {
  auto j = to_json(p.whole);
  if (!p.steady) return j;
  j["startup"] = {
      {"ms", p.startup_ms}, {"launches", p.startup_launches}, {"first_launches", p.first_launches}};
  j["steady"] = to_json(*p.steady);
  return j;
}

std::vector<Waste> phases_waste(const Phases& p, const std::vector<KernelUse>& kernels) {
  auto judged = kernels;
  if (p.steady) {
    judged = kernels_of(p.steady_part);
    for (auto& k : judged)
      for (const auto& whole : kernels)
        if (whole.name == k.name) k.counters = whole.counters, k.metrics = whole.metrics;
  }
  auto out = timeline_waste(p.judged(), judged);
  for (auto& w : copy_waste(p.steady_part, p.judged())) out.push_back(std::move(w));
  if (p.steady)
    for (auto& w : out)
      if (w.source == Source::measured) w.evidence = "in the steady state " + w.evidence;
  return out;
}

std::vector<Waste> copy_waste(const Timeline& t, const TimelineSummary& s) {
  std::vector<Waste> out;
  const auto percent = [&](double ms) { return s.span_ms > 0 ? std::min(100.0, 100 * ms / s.span_ms) : 0; };
  double pageable_ms = 0, pageable_bytes = 0, trip_ms = 0, trip_bytes = 0;
  std::uint64_t pageable = 0, trips = 0;
  std::vector<const Activity*> copies, kernels;
  const Activity* before = nullptr;
  for (const auto& a : t.activities) {
    if (a.kind == Kind::kernel) kernels.push_back(&a);
    if (!over_the_bus(a)) continue;
    copies.push_back(&a);
    if (a.pageable) ++pageable, pageable_ms += a.us() * 1e-3, pageable_bytes += double(a.bytes);
    if (before && before->copy_kind == 2 && a.copy_kind == 1 && a.bytes == before->bytes && a.bytes >= 4096) {
      ++trips, trip_ms += (a.us() + before->us()) * 1e-3, trip_bytes += 2 * double(a.bytes);
      before = nullptr;
      continue;
    }
    before = &a;
  }
  if (percent(pageable_ms) >= kLeastShare)
    out.push_back(
        {"transport", "pageable copies", "",
         format("{} copies of {} are from or to memory that is not pinned and take {}: {} GB/s", pageable,
                text::bytes(std::uint64_t(pageable_bytes)), time_text(pageable_ms * 1e3),
                number_text(pageable_bytes / pageable_ms * 1e-6)),
         "pin the host's side (cudaMallocHost, pin_memory=True): the driver then copies without a buffer of "
         "its own, and beside kernels",
         percent(pageable_ms), Source::measured});
  const Spans moving = joined(copies), working = joined(kernels);
  const double hidden = std::min(alone_ms(moving, working), alone_ms(working, moving));
  if (percent(hidden) >= kLeastShare)
    out.push_back(
        {"waiting", "copies that overlap nothing", "",
         format("no kernel runs during {} of the {} that copies take",
                time_text(alone_ms(moving, working) * 1e3), time_text(alone_ms(moving, {}) * 1e3)),
         "copy the next part on a second stream while this one is computed: cudaMemcpyAsync from pinned "
         "memory, two buffers",
         percent(hidden), Source::measured});
  if (trips > 0 && percent(trip_ms) >= 2)
    out.push_back({"transport", "round trips", "",
                   format("{} times data leaves the GPU and as many bytes come back: {} in {}", trips,
                          text::bytes(std::uint64_t(trip_bytes)), time_text(trip_ms * 1e3)),
                   "keep it on the GPU: do the step between there, or copy only what the host looks at",
                   percent(trip_ms), Source::measured});
  return out;
}

}  // namespace cgp::profile

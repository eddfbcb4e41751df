// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/measure/coroutine.h"

#include <chrono>

namespace cgp::measure {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

TaskCounts TaskProfile::counts() const {
  return {tasks_, ended_, resumptions_, yields_, timed_, 1e-9 * double(latency_ns_)};
}

void TaskProfile::add_to(MetricSet& into, const std::string& from) const {
  const TaskCounts c = counts();
  const auto ratio = [&](Metric m, double top, std::uint64_t bottom, const char* reason) {
    bottom ? into.set(m, top / double(bottom), Source::derived, from) : into.absent(m, reason);
  };
  into.set(Metric::poll_count, double(c.resumptions), Source::counted, from);
  ratio(Metric::poll_efficiency, double(c.tasks), c.resumptions, "no coroutine ran");
  ratio(Metric::yield_ratio, double(c.yields), c.resumptions, "no coroutine ran");
  if (c.timed)
    into.set(Metric::avg_poll_latency_us, 1e6 * c.latency_seconds / double(c.timed), Source::measured, from);
  else
    into.absent(Metric::avg_poll_latency_us, "nobody called ready() before a resumption");
}

TaskProfile& TaskProfile::of_program() {
  static TaskProfile profile;
  return profile;
}

ProfiledPromise::ProfiledPromise(TaskProfile& profile) : profile_(profile) {
  profile_.tasks_.fetch_add(1, std::memory_order_relaxed);
  profile_.resumptions_.fetch_add(1, std::memory_order_relaxed);
}

ProfiledPromise::~ProfiledPromise() { profile_.ended_.fetch_add(1, std::memory_order_relaxed); }

void ProfiledPromise::ready() { ready_ns_.store(now_ns(), std::memory_order_relaxed); }

void ProfiledPromise::resumed() {
  profile_.resumptions_.fetch_add(1, std::memory_order_relaxed);
  const std::int64_t since = ready_ns_.exchange(0, std::memory_order_relaxed);
  if (!since) return;
  profile_.timed_.fetch_add(1, std::memory_order_relaxed);
  profile_.latency_ns_.fetch_add(std::uint64_t(now_ns() - since), std::memory_order_relaxed);
}

}  // namespace cgp::measure
